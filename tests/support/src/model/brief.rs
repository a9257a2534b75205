//! Short words for histories that are written by hand.

use super::command::{Acks, Ask, Command, Label, Mode, Name, Raised, Task, Wait, Who};
use super::sessions::Number;
use super::step::{Ending, Step};

/// By RESP3.
pub fn connect(who: Who) -> Step {
    Step::Connect { who, resp3: true }
}

pub fn run(who: Who, command: Command) -> Step {
    Step::Run { who, command }
}

pub fn multi(who: Who) -> Step {
    Step::Multi { who }
}

pub fn exec(who: Who) -> Step {
    Step::Exec { who }
}

pub fn close(who: Who) -> Step {
    let how = Ending::Close;
    Step::End { who, how }
}

pub fn pipeline(who: Who, commands: impl Into<Vec<Command>>) -> Step {
    let commands = commands.into();
    Step::Pipeline { who, commands }
}

pub fn settp(key: Name) -> Command {
    Command::Settp {
        key,
        value: 1,
        token: false,
        notify: false,
        task: None,
        wait: None,
        acks: None,
    }
}

/// Without a limit.
pub const BLOCK: Option<Wait> = Some(Wait {
    limit_ms: 0,
    push: false,
});
pub const PUSH: Option<Wait> = Some(Wait {
    limit_ms: 0,
    push: true,
});

pub fn settp_wait(key: Name, wait: Option<Wait>) -> Command {
    Command::Settp {
        key,
        value: 3,
        token: true,
        notify: false,
        task: None,
        wait,
        acks: None,
    }
}

/// With the empty label.
pub fn acquire(key: Name, mode: Mode, wait: Option<Wait>) -> Command {
    acquire_as(0, key, mode, wait)
}

pub fn acquire_as(label: Label, key: Name, mode: Mode, wait: Option<Wait>) -> Command {
    let ask = Ask {
        label,
        wait,
        ..Ask::default()
    };
    Command::Acquire { key, mode, ask }
}

pub fn macquire(keys: impl Into<Vec<Name>>, wait: Option<Wait>) -> Command {
    let ask = Ask {
        wait,
        ..Ask::default()
    };
    let keys = keys.into();
    Command::Macquire { keys, ask }
}

/// The same, with REENTRANT.
pub fn again(command: Command) -> Command {
    let more = |ask| Ask {
        reentrant: true,
        ..ask
    };
    match command {
        Command::Acquire { key, mode, ask } => {
            let ask = more(ask);
            Command::Acquire { key, mode, ask }
        }
        Command::Macquire { keys, ask } => {
            let ask = more(ask);
            Command::Macquire { keys, ask }
        }
        other => other,
    }
}

/// The same, with NOTIFY.
pub fn notified(command: Command) -> Command {
    let notify = true;
    match command {
        Command::Settp {
            key,
            value,
            token,
            task,
            wait,
            acks,
            ..
        } => Command::Settp {
            key,
            value,
            token,
            notify,
            task,
            wait,
            acks,
        },
        Command::Acquire { key, mode, ask } => {
            let ask = Ask { notify, ..ask };
            Command::Acquire { key, mode, ask }
        }
        Command::Macquire { keys, ask } => {
            let ask = Ask { notify, ..ask };
            Command::Macquire { keys, ask }
        }
        other => other,
    }
}

/// The same, to be acknowledged by so many replicas.
pub fn acked(command: Command, replicas: u32, timeout_ms: u64) -> Command {
    let asked = Some(Acks {
        replicas,
        timeout_ms,
    });
    let with = |ask| Ask { acks: asked, ..ask };
    let mut command = command;
    match &mut command {
        Command::Settp { acks, .. } => *acks = asked,
        Command::Acquire { ask, .. } | Command::Macquire { ask, .. } => *ask = with(*ask),
        _ => {}
    }
    command
}

/// The same, by this task.
pub fn by_task(task: Task, command: Command) -> Command {
    let asked = Some(task);
    let mut command = command;
    match &mut command {
        Command::Settp { task, .. } => *task = asked,
        Command::Acquire { ask, .. } | Command::Macquire { ask, .. } => ask.task = asked,
        _ => {}
    }
    command
}

pub fn start(grace_ms: u64) -> Command {
    Command::Start { grace_ms }
}

pub fn resume(session: Number, notify: bool) -> Command {
    Command::Resume { session, notify }
}

/// One depth, of the empty label's.
pub fn release(key: Name) -> Command {
    let (label, all) = (0, false);
    Command::Release { key, label, all }
}

/// Above all tokens that were given.
pub fn raise_as(label: Label, key: Name) -> Command {
    let to = Raised::Above(1000);
    Command::Raise { key, label, to }
}

pub fn deltp(key: Name) -> Command {
    let keys = vec![key];
    Command::Deltp { keys }
}

pub fn set(key: Name) -> Command {
    Command::Set { key, value: 2 }
}

pub fn del(key: Name) -> Command {
    let keys = vec![key];
    Command::Del { keys }
}

pub fn watchex(key: Name) -> Command {
    let keys = vec![key];
    Command::Watchex { keys }
}

/// Of all keys.
pub fn unwatchex() -> Command {
    let keys = Vec::new();
    Command::Unwatchex { keys }
}

pub fn script(commands: impl Into<Vec<Command>>) -> Command {
    let commands = commands.into();
    let written = false;
    Command::Script { commands, written }
}
