//! What the guard decides: when the command must end, and how. Facts in, effects out; no clock, no processes.
//!
//! Invariant: whatever the runner does or no longer does, the last effect until [`Fact::NoneLeft`] is a kill at the
//! latest `kill_after` after the last moment until which the runner vouched for the lock.

use std::time::Duration;
use tether_client::BootTime;

/// Between two rounds of killing: what was forked meanwhile, or has lost its parent, is found by the next one.
const ROUND: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fact {
    /// The runner vouches for the lock until then.
    Alive(BootTime),
    /// The runner knows that the lock is lost.
    Lost,
    /// The runner has ended without a word, or somebody asked the guard itself to end.
    RunnerGone,
    /// The command has ended by itself. What it started may still be there.
    CommandEnded,
    /// No process is left of all that the command started, nor the command.
    NoneLeft,
    /// Nothing but that time has passed.
    Tick,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Ask every process to end: the signal of `--on-loss`.
    Ask,
    /// Kill every process.
    Kill,
    /// There is nothing left to guard.
    Finish(Why),
}

/// Why the processes had to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The command has ended by itself, which is the ordinary case.
    Command,
    /// The runner said that the lock is lost.
    Lost,
    /// The runner vouched for the lock no longer.
    Deadline,
    /// The runner is gone.
    Runner,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Working,
    Asked { why: Why, kill_at: BootTime },
    Killing { why: Why, next_round: BootTime },
}

pub struct Guard {
    alive_until: BootTime,
    kill_after: Duration,
    phase: Phase,
}

impl Guard {
    pub fn new(alive_until: BootTime, kill_after: Duration) -> Guard {
        Guard {
            alive_until,
            kill_after,
            phase: Phase::Working,
        }
    }

    /// When to say [`Fact::Tick`], at the latest.
    pub fn deadline(&self) -> BootTime {
        match self.phase {
            Phase::Working => self.alive_until,
            Phase::Asked { kill_at, .. } => kill_at,
            Phase::Killing { next_round, .. } => next_round,
        }
    }

    /// Whether the command may be started: the lock is still vouched for.
    pub fn may_start(&self, now: BootTime) -> bool {
        matches!(self.phase, Phase::Working) && now < self.alive_until
    }

    pub fn handle(&mut self, now: BootTime, fact: Fact) -> Vec<Effect> {
        let mut effects = Vec::new();
        match fact {
            // An older promise that arrives late takes nothing back.
            Fact::Alive(until) => self.alive_until = self.alive_until.max(until),
            Fact::Lost => self.ask(now, Why::Lost, &mut effects),
            Fact::RunnerGone => self.ask(now, Why::Runner, &mut effects),
            Fact::CommandEnded => self.ask(now, Why::Command, &mut effects),
            Fact::NoneLeft => {
                let why = match self.phase {
                    Phase::Working => Why::Command,
                    Phase::Asked { why, .. } | Phase::Killing { why, .. } => why,
                };
                return vec![Effect::Finish(why)];
            }
            Fact::Tick => {}
        }
        self.pass(now, &mut effects);
        effects
    }

    /// What the time asks for.
    fn pass(&mut self, now: BootTime, effects: &mut Vec<Effect>) {
        if now >= self.alive_until {
            self.ask(now, Why::Deadline, effects);
        }
        match self.phase {
            Phase::Asked { why, kill_at } if now >= kill_at => self.kill(now, why, effects),
            Phase::Killing { why, next_round } if now >= next_round => self.kill(now, why, effects),
            _ => {}
        }
    }

    fn ask(&mut self, now: BootTime, why: Why, effects: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Working) {
            return;
        }
        effects.push(Effect::Ask);
        // Counted from the promise, not from this moment: a guard that was late itself makes up for it.
        let kill_at = now.min(self.alive_until) + self.kill_after;
        self.phase = Phase::Asked { why, kill_at };
    }

    fn kill(&mut self, now: BootTime, why: Why, effects: &mut Vec<Effect>) {
        effects.push(Effect::Kill);
        let next_round = now + ROUND;
        self.phase = Phase::Killing { why, next_round };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL_AFTER: Duration = Duration::from_millis(500);

    fn at(milliseconds: u64) -> BootTime {
        BootTime(milliseconds * 1_000_000)
    }

    fn guard() -> Guard {
        Guard::new(at(1000), KILL_AFTER)
    }

    #[test]
    fn silence_ends_the_command_at_the_deadline_and_kills_it_after_the_time_to_stop() {
        let mut guard = guard();
        assert_eq!(guard.deadline(), at(1000));
        assert_eq!(guard.handle(at(999), Fact::Tick), []);
        assert_eq!(guard.handle(at(1000), Fact::Tick), [Effect::Ask]);
        assert_eq!(guard.deadline(), at(1500));
        assert_eq!(guard.handle(at(1499), Fact::Tick), []);
        assert_eq!(guard.handle(at(1500), Fact::Tick), [Effect::Kill]);
        assert_eq!(
            guard.handle(at(1501), Fact::NoneLeft),
            [Effect::Finish(Why::Deadline)]
        );
    }

    #[test]
    fn a_promise_moves_the_deadline_and_an_older_one_does_not_move_it_back() {
        let mut guard = guard();
        assert_eq!(guard.handle(at(500), Fact::Alive(at(1400))), []);
        assert_eq!(guard.handle(at(501), Fact::Alive(at(1200))), []);
        assert_eq!(guard.deadline(), at(1400));
        assert_eq!(guard.handle(at(1399), Fact::Tick), []);
        assert_eq!(guard.handle(at(1400), Fact::Tick), [Effect::Ask]);
    }

    #[test]
    fn a_promise_that_is_over_when_it_arrives_saves_nothing() {
        let mut guard = guard();
        assert_eq!(guard.handle(at(1300), Fact::Alive(at(1200))), [Effect::Ask]);
        assert_eq!(guard.deadline(), at(1700));
    }

    #[test]
    fn once_asked_to_end_no_promise_saves_the_command() {
        let mut guard = guard();
        assert_eq!(guard.handle(at(100), Fact::Lost), [Effect::Ask]);
        assert_eq!(guard.handle(at(200), Fact::Alive(at(9000))), []);
        assert_eq!(guard.handle(at(600), Fact::Tick), [Effect::Kill]);
    }

    #[test]
    fn a_guard_that_comes_late_kills_at_once() {
        let mut guard = guard();
        let effects = guard.handle(at(1600), Fact::Tick);
        assert_eq!(effects, [Effect::Ask, Effect::Kill]);
    }

    #[test]
    fn a_loss_that_is_told_or_a_runner_that_is_gone_does_not_wait_for_the_deadline() {
        for (fact, why) in [(Fact::Lost, Why::Lost), (Fact::RunnerGone, Why::Runner)] {
            let mut guard = guard();
            assert_eq!(guard.handle(at(100), fact), [Effect::Ask]);
            assert_eq!(guard.deadline(), at(600));
            assert_eq!(guard.handle(at(600), Fact::Tick), [Effect::Kill]);
            let finish = guard.handle(at(601), Fact::NoneLeft);
            assert_eq!(finish, [Effect::Finish(why)]);
        }
    }

    #[test]
    fn the_signal_is_sent_once_and_kills_until_none_is_left() {
        let mut guard = guard();
        assert_eq!(guard.handle(at(100), Fact::Lost), [Effect::Ask]);
        assert_eq!(guard.handle(at(101), Fact::RunnerGone), []);
        assert_eq!(guard.handle(at(102), Fact::CommandEnded), []);
        for round in 0..5 {
            let now = at(600 + 2 * round);
            assert_eq!(guard.handle(now, Fact::Tick), [Effect::Kill], "{round}");
        }
        let finish = guard.handle(at(700), Fact::NoneLeft);
        assert_eq!(finish, [Effect::Finish(Why::Lost)]);
    }

    #[test]
    fn what_a_command_leaves_behind_is_ended_too() {
        let mut guard = guard();
        assert_eq!(guard.handle(at(100), Fact::CommandEnded), [Effect::Ask]);
        assert_eq!(guard.handle(at(600), Fact::Tick), [Effect::Kill]);
        let finish = guard.handle(at(601), Fact::NoneLeft);
        assert_eq!(finish, [Effect::Finish(Why::Command)]);
    }

    #[test]
    fn leftovers_of_a_command_get_no_more_time_than_the_promise_has() {
        let mut guard = guard();
        // The command ends right before the deadline.
        assert_eq!(guard.handle(at(999), Fact::CommandEnded), [Effect::Ask]);
        assert_eq!(guard.deadline(), at(1499));
    }

    #[test]
    fn a_command_is_not_started_after_the_deadline() {
        let mut guard = guard();
        assert!(guard.may_start(at(999)));
        assert!(!guard.may_start(at(1000)));
        guard.handle(at(10), Fact::RunnerGone);
        assert!(!guard.may_start(at(11)));
    }

    /// Whatever comes, in whatever order: once `alive_until + kill_after` has passed, each tick kills.
    #[test]
    fn no_order_of_facts_delays_the_kill() {
        let facts = [
            Fact::Alive(at(1200)),
            Fact::Alive(at(900)),
            Fact::Lost,
            Fact::RunnerGone,
            Fact::CommandEnded,
            Fact::Tick,
        ];
        let moments = [0, 400, 999, 1000, 1199, 1201, 1499];
        let mut cases = 0;
        for first in facts {
            for second in facts {
                for third in facts {
                    for a in moments {
                        for b in moments.into_iter().filter(|b| *b >= a) {
                            let mut guard = guard();
                            guard.handle(at(a), first);
                            guard.handle(at(b), second);
                            guard.handle(at(b), third);
                            let late = guard.handle(at(1700), Fact::Tick);
                            assert!(
                                late.contains(&Effect::Kill),
                                "{first:?} {second:?} {third:?} {a} {b}"
                            );
                            cases += 1;
                        }
                    }
                }
            }
        }
        assert!(cases > 1000);
    }
}
