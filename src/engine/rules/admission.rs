//! Quotas: requests beyond them are refused.

use crate::engine::effect::Refusal;
use crate::engine::event::KeySnapshot;
use crate::engine::limits::{Limits, MAX_EXTRAS, PREFIX_LENGTHS};
use crate::engine::state::rows::{Client, Hold, PrefixWatch};
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use crate::engine::tables::Engine;
use crate::engine::types::Key;

impl Engine {
    pub(in crate::engine) fn check_capacity(
        &self,
        client: Id<Client>,
        wanted: usize,
    ) -> Result<(), Refusal> {
        let limit = self.limits.keys_per_client;
        let own = &self.clients[client];
        let owner = own.session().map_or(own, |session| &self.clients[session]);
        let taken = owner.hold_count as usize + own.place_count as usize;
        if taken + wanted > limit as usize {
            return Err(Refusal::TooManyKeys { limit });
        }
        Ok(())
    }

    /// Whether all of these watches fit under the limits; keys already watched or repeated count once. O(keys).
    pub(in crate::engine) fn check_watches(
        &self,
        client: Id<Client>,
        seen: &[KeySnapshot<'_>],
    ) -> Result<(), Refusal> {
        let length = |key: &Key<'_>| key.name.len();
        let bytes = seen.iter().map(|seen| length(&seen.key)).sum();
        // Mostly there is room for all, new or not.
        if self.check_room(client, seen.len(), bytes, bytes).is_ok() {
            return Ok(());
        }
        let is_new = |key: &Key<'_>| {
            let watched = self.keys.find_name(*key);
            !watched.is_some_and(|name| self.watches.has(&self.keys, name, client))
        };
        let mut new: Vec<_> = seen.iter().map(|seen| seen.key).filter(is_new).collect();
        new.sort_unstable();
        new.dedup();
        let is_first = |key: &&Key<'_>| {
            let name = self.keys.find_name(**key);
            name.is_none_or(|name| self.keys[name].watchers.is_empty())
        };
        let bytes = new.iter().map(length).sum();
        let first_bytes = new.iter().filter(is_first).map(length).sum();
        self.check_room(client, new.len(), bytes, first_bytes)
    }

    /// Whether a connection can watch this prefix, or go on with this watch of it, and be told of keys up to this name.
    pub(in crate::engine) fn check_prefix(
        &self,
        client: Id<Client>,
        prefix: Key<'_>,
        watch: Option<Id<PrefixWatch>>,
        told: Option<&Bytes>,
    ) -> Result<(), Refusal> {
        let limit = self.limits.prefixes_per_client;
        let is_new = watch.is_none();
        if is_new && self.clients[client].prefix_count >= limit {
            return Err(Refusal::TooManyPrefixes { limit });
        }
        let before = watch.and_then(|watch| self.prefixes.told(watch));
        let length = |told: Option<&Bytes>| told.map_or(0, |told| told.len());
        let new = if is_new { prefix.name.len() } else { 0 };
        let bytes = (new + length(told)).saturating_sub(length(before));
        let is_first = is_new && self.prefixes.find(prefix).is_none();
        let first_bytes = if is_first { new } else { 0 };
        self.check_room(client, usize::from(is_new), bytes, first_bytes)?;
        match !is_first || self.prefixes.has_room_for(prefix) {
            true => Ok(()),
            false => Err(Refusal::TooManyPrefixLengths {
                limit: PREFIX_LENGTHS,
            }),
        }
    }

    /// Whether a connection can have this many more watches, of names with `bytes`, of which those that nobody watches yet have
    /// `first_bytes`. Beyond a limit that was lowered, only what grows is refused. O(1).
    fn check_room(
        &self,
        client: Id<Client>,
        watches: usize,
        bytes: usize,
        first_bytes: usize,
    ) -> Result<(), Refusal> {
        let Limits {
            watches_per_client,
            watch_bytes_per_client,
            watch_bytes,
            ..
        } = self.limits;
        let is_over = |had: usize, more: usize, limit: u32| more > 0 && had + more > limit as usize;
        let own = &self.clients[client];
        if is_over(own.watches() as usize, watches, watches_per_client) {
            let limit = watches_per_client;
            return Err(Refusal::TooManyWatches { limit });
        }
        if is_over(
            own.watch_bytes + own.prefix_bytes,
            bytes,
            watch_bytes_per_client,
        ) {
            let (limit, of_client) = (watch_bytes_per_client, true);
            return Err(Refusal::TooManyWatchBytes { limit, of_client });
        }
        let all = self.watches.watched_bytes() + self.prefixes.bytes();
        if is_over(all, first_bytes, watch_bytes) {
            let (limit, of_client) = (watch_bytes, false);
            return Err(Refusal::TooManyWatchBytes { limit, of_client });
        }
        Ok(())
    }

    /// Whether this user can start one more session. Sessions from files and from a master are never refused, but count.
    pub(in crate::engine) fn check_sessions(&self, user: &[u8]) -> Result<(), Refusal> {
        let Limits {
            sessions,
            sessions_per_user,
            ..
        } = self.limits;
        if self.sessions.len() >= sessions as usize {
            let (limit, of_user) = (sessions, false);
            return Err(Refusal::TooManySessions { limit, of_user });
        }
        if self.sessions.count_of(user) >= sessions_per_user {
            let (limit, of_user) = (sessions_per_user, true);
            return Err(Refusal::TooManySessions { limit, of_user });
        }
        Ok(())
    }

    /// Whether `wanted` more holds can have an `Extra`. Every waiter counts, since it may need one.
    pub(in crate::engine) fn check_extras(&self, wanted: usize) -> Result<(), Refusal> {
        let limit = MAX_EXTRAS;
        match self.holds.extras() + self.queues.places() + wanted <= limit {
            true => Ok(()),
            false => Err(Refusal::TooManyExtras { limit }),
        }
    }

    /// The same for those of these holds that have none yet.
    pub(in crate::engine) fn check_extras_of(&self, holds: &[Id<Hold>]) -> Result<(), Refusal> {
        let plain = holds.iter().filter(|hold| !self.holds.has_extra(**hold));
        match plain.count() {
            0 => Ok(()),
            wanted => self.check_extras(wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limits::MAX_DEPTH;
    use crate::engine::{
        Acquire, Attributes, ClientId, Db, Effect, Event, Form, Key, KeySnapshot, KeyState, Mode,
        Moment, Reply, Terms, Wait,
    };

    struct World(Engine);

    impl World {
        fn tell(&mut self, event: Event<'_>) -> Reply {
            let mut effects = Vec::new();
            self.0.handle(Moment(1), event, &mut effects);
            let mut effects = effects.into_iter();
            let reply = effects.find_map(|effect| match effect {
                Effect::Reply(reply) => Some(reply),
                _ => None,
            });
            reply.expect("an answer")
        }

        fn settp(&mut self, client: u64, name: &[u8], task: Option<&[u8]>) -> Reply {
            let (db, state) = (Db(0), KeyState::Absent);
            let key = Key { db, name };
            self.tell(Event::Acquire(Acquire {
                client: ClientId(client),
                seen: &[KeySnapshot { key, state }],
                terms: Terms {
                    task,
                    ..Terms::of(Mode::Temporary)
                },
                value: b"",
                wait: None,
                form: Form::Settp,
                in_command: true,
            }))
        }

        /// By which each key is there, or comes into being.
        fn acquire(&mut self, client: u64, name: &[u8], label: &[u8], push: bool) -> Reply {
            let (db, limit_ms) = (Db(0), None);
            let key = Key { db, name };
            let state = match self.0.knows(key) {
                true => KeyState::Lock,
                false => KeyState::Absent,
            };
            self.tell(Event::Acquire(Acquire {
                client: ClientId(client),
                seen: &[KeySnapshot { key, state }],
                terms: Terms {
                    attributes: Attributes {
                        reentrant: true,
                        ..Attributes::default()
                    },
                    label,
                    ..Terms::of(Mode::Exclusive)
                },
                value: b"",
                wait: push.then_some(Wait { limit_ms, push }),
                form: Form::Lock,
                in_command: true,
            }))
        }
    }

    #[test]
    fn who_asks_for_one_more_than_can_be_remembered_is_refused() {
        let limit = MAX_EXTRAS;
        let refused = Reply::Refused(Refusal::TooManyExtras { limit });
        let mut world = World(Engine::default());
        assert!(matches!(
            world.acquire(1, b"plain", b"", false),
            Reply::Integer(_)
        ));
        for number in 1..limit {
            let (client, name) = (2 + number as u64 / 1000, number.to_string());
            let reply = world.acquire(client, name.as_bytes(), b"label", false);
            assert!(matches!(reply, Reply::Integer(_)), "{number}: {reply:?}");
        }
        // One more can wait, or have its lock deeper.
        assert_eq!(world.acquire(9000, b"plain", b"", true), Reply::Null);
        assert_eq!(world.acquire(9001, b"plain", b"", true), refused);
        assert_eq!(world.acquire(1, b"plain", b"", false), refused);
        assert_eq!(world.acquire(9000, b"new", b"label", false), refused);
        assert_eq!(world.settp(9000, b"new", Some(b"task")), refused);
        let (client, label) = (ClientId(1), b"");
        let (db, name) = (Db(0), b"plain".as_slice());
        let (key, lease_ms) = (Key { db, name }, 7);
        let extend = Event::Extend {
            client,
            key,
            label,
            lease_ms,
        };
        assert_eq!(world.tell(extend), refused);
        // What needs no such record is granted, and changed where it is.
        assert_eq!(world.settp(9000, b"temporary", None), Reply::Integer(1));
        assert!(matches!(
            world.acquire(9000, b"new", b"", false),
            Reply::Integer(_)
        ));
        assert!(matches!(
            world.acquire(2, b"1", b"label", false),
            Reply::Integer(_)
        ));
        world.0.check_invariants();
        let all = true;
        let release = Event::Release {
            client,
            key,
            label,
            all,
        };
        assert_eq!(world.tell(release), Reply::Integer(0));
        // The waiter needs none in the end.
        assert!(matches!(
            world.acquire(9000, b"plain", b"", false),
            Reply::Integer(_)
        ));
        assert_eq!(world.acquire(9000, b"new", b"", false), refused);
    }

    #[test]
    fn a_hold_is_no_deeper_than_can_be_counted() {
        let mut world = World(Engine::default());
        assert!(matches!(
            world.acquire(1, b"k", b"", false),
            Reply::Integer(_)
        ));
        let (db, name) = (Db(0), b"k".as_slice());
        let key = world
            .0
            .keys
            .find_held(Key { db, name })
            .expect("it is held");
        let hold = world.0.keys[key].holds.head().expect("it is held");
        world.0.holds.set_depths(hold, (MAX_DEPTH - 2, 1));
        assert!(matches!(
            world.acquire(1, b"k", b"", false),
            Reply::Integer(_)
        ));
        let limit = MAX_DEPTH;
        let refused = Reply::Refused(Refusal::TooDeep { limit });
        assert_eq!(world.acquire(1, b"k", b"", false), refused);
        let (client, key, label) = (ClientId(1), Key { db, name }, b"");
        let all = false;
        let release = Event::Release {
            client,
            key,
            label,
            all,
        };
        let left = i64::from(MAX_DEPTH) - 1;
        assert_eq!(world.tell(release), Reply::Integer(left));
    }
}
