//! The end of a history, without faults: whoever can go on does, and gives back what it has, until
//! nobody waits any more and there is no session. The quarantine is over first.

use super::command::{Command, Mode, Replies, Spot, Who};
use super::step::{Ending, Step};
use super::world::World;

impl World {
    /// What is done next so that the waiting go on; nothing when nobody waits and there is no session.
    pub fn closing_step(&self) -> Option<Step> {
        let step = self.quarantine_passes();
        if let Some(step) = step.or_else(|| self.grants_come_to_an_end()) {
            return Some(step);
        }
        if self.waiters.is_empty() && self.sessions.is_empty() {
            return None;
        }
        let places = 0..self.clients.len();
        let mut can_speak = places.clone().filter(|who| self.can_speak(*who));
        // Some servers do not look at rights once more when they execute what was queued.
        let in_multi = |who: &Who| self.client(*who).is_some_and(|client| client.in_multi());
        if let Some(who) = can_speak.clone().find(in_multi) {
            return Some(Step::Discard { who });
        }
        if let Some(step) = self.rights_again() {
            return Some(step);
        }
        let listens = |who: Who| self.listen_again(who);
        if let Some(step) = can_speak.clone().find_map(listens) {
            return Some(step);
        }
        let gives = |who: Who| self.give_back(who);
        if let Some(step) = can_speak.clone().find_map(gives) {
            return Some(step);
        }
        // Whoever can speak holds nothing now.
        let has_session = |who: &Who| self.session_of(*who).is_some();
        if let Some(who) = can_speak.clone().find(has_session) {
            let command = Command::EndSession;
            return Some(Step::Run { who, command });
        }
        let Some(who) = can_speak.clone().next() else {
            return Some(self.somebody_comes());
        };
        let mut detached = self.sessions.iter().filter(|s| s.attached.is_none());
        if let Some(session) = detached.next() {
            let waits = |who: Who| self.waiters.iter().any(|waiter| waiter.who == who);
            let session = session.number;
            let notify = false;
            let command = Command::Resume { session, notify };
            return Some(match can_speak.find(|who| !waits(*who)) {
                Some(who) => Step::Run { who, command },
                None => self.somebody_comes(),
            });
        }
        let mut awaited = self.waiters.iter().flat_map(|waiter| &waiter.spots);
        if let Some(spot) = awaited.find(|spot| self.is_strangers(**spot)) {
            let keys = vec![spot.name];
            return Some(self.said_in(who, *spot, Command::Del { keys }));
        }
        self.part(can_speak.next())
    }

    /// What is left waits for each other, by others' hands.
    fn part(&self, other: Option<Who>) -> Option<Step> {
        let stuck = self.waiters.first()?;
        let (who, command) = match stuck.push {
            true => (
                stuck.who,
                Command::Cancel {
                    key: stuck.spots[0].name,
                    label: stuck.label,
                },
            ),
            false => {
                let (who, error) = (stuck.who, false);
                (other.unwrap_or(who), Command::Unblock { who, error })
            }
        };
        Some(self.said_in(who, stuck.spots[0], command))
    }

    fn quarantine_passes(&self) -> Option<Step> {
        let ends = self.quarantine_ends?;
        let ms = ends.saturating_sub(self.now);
        Some(match self.slow {
            true => Step::Pass { ms },
            false => Step::QuarantineOver,
        })
    }

    /// The oldest grant that waits for acknowledgements gets them, or its time passes.
    fn grants_come_to_an_end(&self) -> Option<Step> {
        let grant = self.grants.first()?;
        let (at, replicas) = (0, grant.wanted);
        Some(match grant.serial % 2 {
            0 if !grant.placed => Step::Propagated,
            0 => Step::Acknowledged { at, replicas },
            _ => Step::Pass {
                ms: grant.ends - self.now,
            },
        })
    }

    fn somebody_comes(&self) -> Step {
        let mut free = (0..self.clients.len()).filter(|who| self.client(*who).is_none());
        if let Some(who) = free.next() {
            return Step::Connect { who, resp3: true };
        }
        // The last of those that wait is sent away.
        let how = Ending::Close;
        let mut ends = self.waiters.iter().rev().map(|waiter| Step::End {
            who: waiter.who,
            how,
        });
        // If it is not said then whose grace is over first, that is so in a moment.
        let end = ends.find(|end| self.allows(end));
        end.unwrap_or(Step::Pass { ms: 1 })
    }

    fn can_speak(&self, who: Who) -> bool {
        self.client(who).is_some() && !self.is_blocked(who)
    }

    /// It is answered again.
    fn listen_again(&self, who: Who) -> Option<Step> {
        let command = match self.client(who)?.replies {
            _ if self.is_told_only_messages(who) => Command::Unsubscribe,
            Replies::None => Command::Replies { how: Replies::All },
            Replies::NotNext => Command::Exists { key: 0 },
            Replies::All => return None,
        };
        Some(Step::Run { who, command })
    }

    /// Something of what this one holds.
    fn give_back(&self, who: Who) -> Option<Step> {
        let hold = self.holds_of(who).into_iter().next()?;
        let (key, label, all) = (hold.spot.name, hold.label, true);
        let command = match hold.mode {
            Mode::Temporary => Command::Deltp { keys: vec![key] },
            _ => Command::Release { key, label, all },
        };
        Some(self.said_in(who, hold.spot, command))
    }

    /// In the key's database, and in the one before in a step of its own.
    fn said_in(&self, who: Who, spot: Spot, command: Command) -> Step {
        let db = spot.db;
        let command = match self.db_of(who) == db {
            true => command,
            false => Command::Select { db },
        };
        Step::Run { who, command }
    }
}
