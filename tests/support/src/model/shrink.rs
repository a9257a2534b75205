//! The shortest history that still fails: steps are cut out as long as it goes on failing.

use super::command::{Ask, Command, PREFIXES};
use super::step::Step;
use std::time::{Duration, Instant};

/// Cuts for so long at most. `fails` must be true of `steps`.
pub fn shortest(
    mut steps: Vec<Step>,
    patience: Duration,
    mut fails: impl FnMut(&[Step]) -> bool,
) -> Vec<Step> {
    let deadline = Instant::now() + patience;
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let before = steps.len();
        let mut at = 0;
        while at < steps.len() && Instant::now() < deadline {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            if fails(&fewer) {
                steps = fewer;
            } else {
                at += chunk;
            }
        }
        // Cutting one step can make another one needless.
        if chunk > 1 || steps.len() == before {
            chunk /= 2;
        }
    }
    while let Some(fewer) = two_steps_fewer(&steps, deadline, &mut fails) {
        steps = fewer;
    }
    while let Some(simpler) = one_step_simpler(&steps, deadline, &mut fails) {
        steps = simpler;
    }
    steps
}

/// Some steps are needed only for each other, and need not be neighbours.
fn two_steps_fewer(
    steps: &[Step],
    deadline: Instant,
    fails: &mut impl FnMut(&[Step]) -> bool,
) -> Option<Vec<Step>> {
    const FEW: usize = 40;
    let pairs = (0..steps.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    let mut fewer = pairs
        .filter(|_| steps.len() <= FEW)
        .map(|(first, second)| without(&without(steps, second), first));
    fewer.find(|steps| Instant::now() < deadline && fails(steps))
}

fn one_step_simpler(
    steps: &[Step],
    deadline: Instant,
    fails: &mut impl FnMut(&[Step]) -> bool,
) -> Option<Vec<Step>> {
    for (at, step) in steps.iter().enumerate() {
        for simpler in simpler_steps(step) {
            let mut changed = steps.to_vec();
            changed[at] = simpler;
            if Instant::now() < deadline && fails(&changed) {
                return Some(changed);
            }
        }
    }
    None
}

/// Each is shorter than the step by a command or a key.
fn simpler_steps(step: &Step) -> Vec<Step> {
    match step {
        Step::Run { who, command } => {
            let who = *who;
            let commands = simpler_commands(command).into_iter();
            commands.map(|command| Step::Run { who, command }).collect()
        }
        Step::Pipeline { who, commands } => {
            let who = *who;
            let lists = simpler_lists(commands).into_iter();
            let mut steps: Vec<Step> = lists
                .map(|commands| Step::Pipeline { who, commands })
                .collect();
            if let [command] = &commands[..] {
                let command = command.clone();
                steps.push(Step::Run { who, command });
            }
            steps
        }
        Step::Overdue {
            holder,
            key,
            label,
            then: (who, commands),
        } => {
            let lists = simpler_lists(commands).into_iter();
            let step = |commands| Step::Overdue {
                holder: *holder,
                key: *key,
                label: *label,
                then: (*who, commands),
            };
            lists.map(step).collect()
        }
        Step::Between {
            who,
            over,
            deleted,
            command,
        } => {
            let step = |over: &[usize], deleted: &[usize], command: &Command| Step::Between {
                who: *who,
                over: over.to_vec(),
                deleted: deleted.to_vec(),
                command: command.clone(),
            };
            let commands = simpler_commands(command).into_iter();
            let shorter = commands.map(|command| step(over, deleted, &command));
            let one_over = { 0..over.len() }.map(|at| step(&without(over, at), deleted, command));
            let one_deleted =
                { 0..deleted.len() }.map(|at| step(over, &without(deleted, at), command));
            shorter.chain(one_over).chain(one_deleted).collect()
        }
        _ => Vec::new(),
    }
}

fn simpler_commands(command: &Command) -> Vec<Command> {
    let without_one = |keys: &[usize]| {
        let all = (0..keys.len()).filter(|_| keys.len() > 1);
        let lists: Vec<Vec<usize>> = all.map(|at| without(keys, at)).collect();
        lists.into_iter()
    };
    match command {
        Command::Script { commands, written } => {
            let written = *written;
            let lists = simpler_lists(commands).into_iter();
            let mut all: Vec<Command> = lists
                .map(|commands| Command::Script { commands, written })
                .collect();
            if let [command] = &commands[..] {
                all.push(command.clone());
            }
            all
        }
        Command::Watchex { keys } => without_one(keys)
            .map(|keys| Command::Watchex { keys })
            .collect(),
        Command::Unwatchex { keys } => without_one(keys)
            .map(|keys| Command::Unwatchex { keys })
            .collect(),
        Command::Unwatchtp { prefix: None } => (0..PREFIXES.len())
            .map(|prefix| Command::Unwatchtp {
                prefix: Some(prefix),
            })
            .collect(),
        Command::Deltp { keys } => without_one(keys)
            .map(|keys| Command::Deltp { keys })
            .collect(),
        Command::Macquire { keys, ask } => without_one(keys)
            .map(|keys| Command::Macquire { keys, ask: *ask })
            .chain(simpler_asks(ask).map(|ask| Command::Macquire {
                keys: keys.clone(),
                ask,
            }))
            .collect(),
        Command::Acquire { key, mode, ask } => simpler_asks(ask)
            .map(|ask| Command::Acquire {
                key: *key,
                mode: *mode,
                ask,
            })
            .collect(),
        Command::Del { keys } => without_one(keys)
            .map(|keys| Command::Del { keys })
            .collect(),
        Command::Mset { keys } => without_one(keys)
            .map(|keys| Command::Mset { keys })
            .collect(),
        Command::Unlink { keys } => without_one(keys)
            .map(|keys| Command::Unlink { keys })
            .collect(),
        _ => Vec::new(),
    }
}

/// Without acknowledgements, a lease, a task or NOTIFY, or with the empty label.
fn simpler_asks(ask: &Ask) -> impl Iterator<Item = Ask> + use<> {
    let ask = *ask;
    let lease_ms = None;
    let no_lease = ask.lease_ms.map(|_| Ask { lease_ms, ..ask });
    let no_label = (ask.label > 0).then_some(Ask { label: 0, ..ask });
    let notify = false;
    let no_notify = ask.notify.then_some(Ask { notify, ..ask });
    let acks = None;
    let no_acks = ask.acks.map(|_| Ask { acks, ..ask });
    let no_task = ask.task.map(|_| Ask { task: None, ..ask });
    let simpler = no_lease.into_iter().chain(no_label).chain(no_notify);
    let simpler = simpler.chain(no_task);
    simpler.chain(no_acks)
}

fn simpler_lists(commands: &[Command]) -> Vec<Vec<Command>> {
    let shorter = (0..commands.len()).filter(|_| commands.len() > 1);
    let mut lists: Vec<Vec<Command>> = shorter.map(|at| without(commands, at)).collect();
    for (at, command) in commands.iter().enumerate() {
        for simpler in simpler_commands(command) {
            let mut changed = commands.to_vec();
            changed[at] = simpler;
            lists.push(changed);
        }
    }
    lists
}

fn without<T: Clone>(list: &[T], at: usize) -> Vec<T> {
    let mut list = list.to_vec();
    list.remove(at);
    list
}
