//! The oldest wait, the oldest hold and the longest queue, for INFO.
//!
//! Nothing is kept in order for them, so that a grant costs nothing more. A client's waits and holds are oldest first, so one
//! look at each client is enough, however many keys it holds. A look visits a part of the clients and of the names; the next
//! one continues where it ended.

use crate::engine::state::rows::{Client, Name};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::tables::Engine;
use crate::engine::types::Moment;

/// The slots of each table that one look visits. 4,096 clients cost a cache miss each for their oldest hold.
const CLIENTS_PER_LOOK: usize = 4096;
const NAMES_PER_LOOK: usize = 8192;

/// A client's holds that were flushed, and are not swept yet, come first.
const HOLDS_PER_CLIENT: usize = 8;

/// What was found so far, and where the next look continues.
#[derive(Default)]
pub struct Survey {
    clients: Round<Oldest>,
    names: Round<u32>,
}

/// What a look reports. Ages are 0 if nobody waits or holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surveyed {
    pub oldest_wait_ms: u64,
    pub oldest_hold_ms: u64,
    pub longest_queue: u32,
}

/// When the oldest wait and the oldest hold began.
#[derive(Clone, Copy, Default)]
struct Oldest {
    wait: Option<Moment>,
    hold: Option<Moment>,
}

impl Oldest {
    fn or(self, other: Self) -> Self {
        Oldest {
            wait: earlier(self.wait, other.wait),
            hold: earlier(self.hold, other.hold),
        }
    }
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    one.into_iter().chain(other).min()
}

/// A walk through the slots of a table, again and again.
#[derive(Default)]
struct Round<T> {
    slot: usize,
    /// In this round.
    found: T,
    /// In the last complete round.
    last: T,
}

impl<T: Copy + Default> Round<T> {
    /// Visits the next `most` slots, and combines what they have with what was found before. What the last complete round found
    /// counts until this one is complete.
    fn look<R>(
        &mut self,
        table: &Arena<R>,
        most: usize,
        of: impl Fn(Id<R>) -> T,
        combine: impl Fn(T, T) -> T,
    ) -> T {
        for _ in 0..most {
            if self.slot >= table.slot_count() {
                break;
            }
            if let Some(id) = table.at(self.slot) {
                self.found = combine(self.found, of(id));
            }
            self.slot = table.next_slot(self.slot);
        }
        if self.slot < table.slot_count() {
            return combine(self.found, self.last);
        }
        self.slot = 0;
        self.last = std::mem::take(&mut self.found);
        self.last
    }
}

impl Engine {
    /// Exact while no more clients and names are known than one look visits. Of more, what ended since the last complete round
    /// may still be reported, and what it missed is not yet. O(the slots that a look visits).
    pub fn survey(&self, survey: &mut Survey, now: Moment) -> Surveyed {
        let (clients, names) = (self.clients.arena(), self.keys.name_arena());
        let oldest = survey.clients.look(
            clients,
            CLIENTS_PER_LOOK,
            |id| self.oldest_of(id, now),
            Oldest::or,
        );
        let length = |id: Id<Name>| self.keys[id].queue_length;
        let longest_queue = survey
            .names
            .look(names, NAMES_PER_LOOK, length, |one, other| one.max(other));
        let age = |since: Option<Moment>| since.map_or(0, |since| now.ms_since(since));
        Surveyed {
            oldest_wait_ms: age(oldest.wait),
            oldest_hold_ms: age(oldest.hold),
            longest_queue,
        }
    }

    /// Of a living client; the holds and waits of others do not count.
    fn oldest_of(&self, id: Id<Client>, now: Moment) -> Oldest {
        if !self.clients[id].is_living() {
            return Oldest::default();
        }
        let wait = self.queues.of_client(&self.clients, id).next();
        let holds = self.holds.of_client(&self.clients, id);
        let mut holds = holds.take(HOLDS_PER_CLIENT);
        // Mostly nothing was flushed, and no key need be looked at.
        let is_flushed = |hold| self.keys.has_retired() && !self.is_living(hold);
        let hold = holds.find(|hold| !is_flushed(*hold));
        let since = |held_ms: u64| Moment(now.0.saturating_sub(held_ms * 1000));
        Oldest {
            wait: wait.map(|wait| self.queues[wait].since),
            hold: hold.map(|hold| since(self.holds[hold].header.since().held_ms(now))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{
        Acquire, ClientId, Db, Event, Form, Key, KeySnapshot, KeyState, Mode, Terms, Wait,
    };

    fn acquire(engine: &mut Engine, now_ms: u64, client: u64, name: &str, waits: bool) {
        let key = Key {
            db: Db(0),
            name: name.as_bytes(),
        };
        let held = engine.holders(key).is_empty();
        let state = if held {
            KeyState::Absent
        } else {
            KeyState::Lock
        };
        let seen = [KeySnapshot { key, state }];
        let acquire = Event::Acquire(Acquire {
            client: ClientId(client),
            seen: &seen,
            terms: Terms::of(Mode::Exclusive),
            value: b"",
            wait: waits.then_some(Wait {
                limit_ms: None,
                push: true,
            }),
            form: Form::Lock,
            in_command: false,
        });
        engine.handle(Moment(now_ms * 1000), acquire, &mut Vec::new());
    }

    fn tell(engine: &mut Engine, now_ms: u64, event: Event<'_>) {
        engine.handle(Moment(now_ms * 1000), event, &mut Vec::new());
    }

    fn found(engine: &Engine, survey: &mut Survey, now_ms: u64) -> (u64, u64, u32) {
        let found = engine.survey(survey, Moment(now_ms * 1000));
        (
            found.oldest_wait_ms,
            found.oldest_hold_ms,
            found.longest_queue,
        )
    }

    #[test]
    fn the_oldest_and_the_longest_are_found_as_they_come_and_go() {
        let (mut engine, mut survey) = (Engine::default(), Survey::default());
        assert_eq!(found(&engine, &mut survey, 5), (0, 0, 0));
        acquire(&mut engine, 1000, 1, "a", false);
        acquire(&mut engine, 2000, 1, "b", false);
        acquire(&mut engine, 3000, 2, "b", true);
        acquire(&mut engine, 4000, 3, "b", true);
        acquire(&mut engine, 5000, 3, "a", true);
        assert_eq!(found(&engine, &mut survey, 6000), (3000, 5000, 2));
        // The owner of the oldest hold is gone; its keys are not released yet.
        let client = ClientId(1);
        tell(&mut engine, 6000, Event::Ended { client });
        assert_eq!(found(&engine, &mut survey, 6000), (3000, 0, 2));
        tell(&mut engine, 7000, Event::Work { steps: 1000 });
        assert_eq!(found(&engine, &mut survey, 8000), (4000, 1000, 1));
        let by = crate::engine::Cause::Server;
        tell(&mut engine, 8000, Event::Flushed { db: None, by });
        tell(&mut engine, 8000, Event::Reap { steps: 1000 });
        tell(&mut engine, 8000, Event::Work { steps: 1000 });
        assert_eq!(found(&engine, &mut survey, 9000), (0, 1000, 0));
    }

    #[test]
    fn of_very_many_each_is_found_within_a_round() {
        let (mut engine, mut survey) = (Engine::default(), Survey::default());
        let clients = 3 * CLIENTS_PER_LOOK as u64;
        for client in 1..=clients {
            acquire(&mut engine, 1000, client, &client.to_string(), false);
        }
        // The last one is the oldest now.
        for client in 1..clients {
            let name = client.to_string();
            let release = Event::Release {
                client: ClientId(client),
                key: Key {
                    db: Db(0),
                    name: name.as_bytes(),
                },
                label: b"",
                all: true,
            };
            tell(&mut engine, 2000, release);
            acquire(&mut engine, 2000, client, &name, false);
        }
        let mut ages: Vec<_> = (0..3)
            .map(|_| found(&engine, &mut survey, 60_000).1)
            .collect();
        let oldest = ages.pop().expect("three looks");
        assert!(ages.iter().all(|age| *age < oldest), "{ages:?} {oldest}");
        // It stays in view until a round has not found it.
        for _ in 0..4 {
            assert_eq!(found(&engine, &mut survey, 60_000).1, oldest);
        }
        let client = ClientId(clients);
        tell(&mut engine, 60_000, Event::Ended { client });
        tell(&mut engine, 60_000, Event::Work { steps: 1000 });
        let is_gone = |_| found(&engine, &mut survey, 60_000).1 < oldest;
        assert!((0..6).any(is_gone));
    }
}
