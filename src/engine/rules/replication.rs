//! What is told from one server to the next: by a master's stream, the append-only file, an RDB file.
//!
//! A server tells which keys are made, for whom does not matter: their owners are connections, which end with it. Only
//! sessions go on, so of these it tells all. Who is told keeps each key for *former* owners or for sessions, never for
//! both: as long as a session holds a key, those who hold it besides do not matter here.

use crate::engine::effect::Effect;
use crate::engine::event::Event;
use crate::engine::mode::Mode;
use crate::engine::record::{Held, SessionRecord};
use crate::engine::state::holds::Grant;
use crate::engine::state::rows::{Client, HeldKey, Hold};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::terms::Terms;
use crate::engine::types::{Cause, Key, Moment, SessionId, Token};

impl Engine {
    /// All sessions and what they hold, as it would have to be told to who knows nothing. O(their number).
    pub fn session_records(&self, now: Moment) -> impl Iterator<Item = SessionRecord> {
        let sessions = self
            .sessions
            .iter()
            .map(|(_, session)| SessionRecord::Session {
                id: session.id,
                digest: session.digest,
                grace_ms: session.grace_ms,
            });
        let holds = self.sessions.iter().flat_map(move |(owner, session)| {
            let holds = self.holds.of_client(&self.clients, owner);
            let holds = holds.filter(|hold| !self.keys.is_retired(self.holds[*hold].key));
            holds.map(move |hold| SessionRecord::Held(self.held(hold, session.id, now)))
        });
        sessions.chain(holds)
    }

    fn held(&self, hold: Id<Hold>, session: SessionId, now: Moment) -> Held {
        let (depth, shared_below) = self.holds.depths(hold);
        let key = self.holds[hold].key;
        let left_ms = self.holds.lease(hold).map(|end| end.ms_since(now));
        // Whoever goes on after this server does not hear when a grant was acknowledged.
        let pending = self.holds.pending(hold);
        let begins_ms = pending.and_then(|grant| grant.lease_ms);
        Held {
            session,
            key: self.keys.key_of(key).to_owned(),
            terms: Terms {
                lease_ms: left_ms.or(begins_ms),
                ..self.holds.terms(hold).owned()
            },
            depth,
            shared_below,
            token: self.holds[hold].token,
            timed: self.keys[key].is_timed() && !self.holds.mode(hold).is_lock(),
        }
    }

    /// Tells others how a key is held, if a session holds it. O(1).
    #[inline]
    pub(in crate::engine) fn replicate_hold(&self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        if self.is_of_session(hold) {
            self.replicate_session_hold(hold, effects);
        }
    }

    #[cold]
    fn replicate_session_hold(&self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        let owner = self.holds[hold].client;
        if let Some(session) = self.sessions.get(owner) {
            let held = self.held(hold, session.id, self.now);
            effects.push(Effect::Replicate(Box::new(SessionRecord::Held(held))));
        }
    }

    #[inline]
    fn is_of_session(&self, hold: Id<Hold>) -> bool {
        !self.sessions.is_empty() && self.clients[self.holds[hold].client].is_session
    }

    /// What is to be told when this hold ends and its key stays. O(1).
    #[inline]
    pub(in crate::engine) fn freed(&self, hold: Id<Hold>) -> Option<Box<SessionRecord>> {
        match self.is_of_session(hold) {
            true => self.freed_by_session(hold),
            false => None,
        }
    }

    #[cold]
    fn freed_by_session(&self, hold: Id<Hold>) -> Option<Box<SessionRecord>> {
        let owner = self.holds[hold].client;
        Some(Box::new(SessionRecord::Freed {
            session: self.sessions.get(owner)?.id,
            key: self.keys.key_of(self.holds[hold].key).to_owned(),
            label: self.holds.label(hold).into(),
        }))
    }

    pub(in crate::engine) fn apply_record(
        &mut self,
        record: &SessionRecord,
        effects: &mut Vec<Effect>,
    ) {
        match record {
            SessionRecord::Session {
                id,
                digest,
                grace_ms,
            } => {
                // Two of the same secret are none that this module has made: a damaged file or stream.
                if self.sessions.numbered(*id).is_none() && self.sessions.find(digest).is_none() {
                    let session = self.clients.add_session();
                    self.sessions.add(session, *id, *digest, *grace_ms);
                }
            }
            SessionRecord::SessionEnded(id) => {
                if let Some(session) = self.sessions.numbered(*id) {
                    self.forget_session(session);
                }
            }
            SessionRecord::Held(held) => self.apply_held(held, effects),
            SessionRecord::Freed {
                session,
                key,
                label,
            } => self.apply_freed(*session, key.as_key(), label),
        }
    }

    fn apply_held(&mut self, held: &Held, effects: &mut Vec<Effect>) {
        self.tokens.know(held.token);
        let Some(owner) = self.sessions.numbered(held.session) else {
            return self.inherited(held.key.as_key(), held.terms.mode, effects);
        };
        let at = held.key.as_key();
        if let Some(name) = self.name(at, effects) {
            self.set_standing(name, held.terms.mode.stands(), effects);
        }
        let key = self.keys.hold(self.keys.spot(at), at);
        let is_gone = |id: &Id<Hold>| {
            let client = self.holds[*id].client;
            let is_itself = client == owner && self.holds.has_label(*id, &held.terms.label);
            is_itself || !self.is_living(*id)
        };
        let holds = self.holds.all_of_key(&self.keys, key);
        self.forget_holds(holds.filter(is_gone).collect());
        if !self.holds.admit(&self.keys, key, held.terms.mode) {
            self.forget_holds(self.holds.all_of_key(&self.keys, key).collect());
        }
        let grant = Grant {
            client: owner,
            terms: held.terms.borrowed(),
            token: held.token,
            since: self.now,
        };
        let hold = self.write_down(key, &grant);
        self.holds.set_depths(hold, (held.depth, held.shared_below));
        // A lock may have a time to live, of which nobody told.
        self.mark_timed(key, held.timed || held.terms.mode.is_lock());
    }

    fn apply_freed(&mut self, session: SessionId, name: Key<'_>, label: &[u8]) {
        let Some(owner) = self.sessions.numbered(session) else {
            return;
        };
        let Some(key) = self.keys.find_held(name) else {
            return;
        };
        let Some(hold) = self.holds.find(&self.keys, key, owner, label) else {
            return;
        };
        let mode = self.holds.mode(hold);
        self.forget_hold(hold);
        if self.keys[key].holds.is_empty() {
            self.leave_behind(key, mode);
        }
    }

    /// A key that a connection of a former server holds. It is orphaned: it refuses nobody, and goes as soon as this
    /// server is the one that may remove it.
    pub(in crate::engine) fn inherited(
        &mut self,
        key: Key<'_>,
        mode: Mode,
        effects: &mut Vec<Effect>,
    ) {
        let spot = self.keys.spot(key);
        if let Some(name) = spot.name {
            self.refresh(name, effects);
            self.set_standing(name, mode.stands(), effects);
        }
        let key = self.keys.hold(spot, key);
        if spot.held.is_none() {
            // As a rule nobody knows the key, and there can be millions: no question is worth asking.
            return self.leave_behind(key, mode);
        }
        // A master knows itself who holds its keys, unless it loads them.
        let is_known = !self.is_replica && !self.loading;
        if is_known && self.living_holds(key).next().is_some() {
            return;
        }
        // What is orphaned already stays so. Beside a session that holds a lock there can be others; but a
        // temporary key has been made anew, without a word of the session that held it.
        let is_lock = self.keys[key].held().is_lock();
        let stays = |hold| is_lock == mode.is_lock() && (is_lock || !self.is_living(hold));
        if self.keys[key].holds.head().is_some_and(stays) {
            return;
        }
        self.forget_holds(self.holds.all_of_key(&self.keys, key).collect());
        self.leave_behind(key, mode);
    }

    /// Takes in many temporary keys at once, as a file has them by the million. The same follows as from an
    /// [`Event::Inherited`] for each. O(their number).
    pub fn inherit(&mut self, now: Moment, keys: &[Key<'_>], effects: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        self.lose_moving(&Event::LoadBegins, effects);
        let mode = Mode::Temporary;
        let made = self.keys.hold_all(keys);
        for (key, made) in keys.iter().zip(made) {
            match made {
                Some(made) => self.leave_behind(made, mode),
                None => self.inherited(*key, mode, effects),
            }
        }
    }

    /// A key that nobody holds is held by a connection of a former server. O(1).
    pub(in crate::engine) fn leave_behind(&mut self, key: Id<HeldKey>, mode: Mode) {
        // A lock may have a time to live, of which nobody told.
        self.mark_timed(key, mode.is_lock());
        let grant = Grant {
            client: self.clients.former(),
            // How it was held no longer matters: it is held by nobody.
            terms: Terms::of(match mode.is_lock() {
                true => Mode::Exclusive,
                false => mode,
            }),
            token: self.tokens.last(),
            since: self.now,
        };
        self.write_down(key, &grant);
    }

    /// Nothing is held any more, and there is no session. What is so from now on the data set says that is loaded.
    pub(in crate::engine) fn load_begins(&mut self, effects: &mut Vec<Effect>) {
        self.keys.retire(None, Cause::Server);
        self.keys.lose_sight();
        self.sweep(usize::MAX, effects);
        self.loading = true;
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_unstable_by_key(|(_, session)| session.id);
        for (owner, session) in sessions {
            if let Some(connection) = self.clients[owner].attached {
                let (digest, notify) = (session.digest, session.hears_after == Token::default());
                let client = self.clients[connection].id;
                self.speakers.push((client, digest, notify));
            }
            self.forget_session(owner);
        }
    }

    /// A session is over without a word to anyone. What it holds is orphaned.
    fn forget_session(&mut self, session: Id<Client>) {
        self.clients.detach(session);
        self.sessions.remove(&mut self.timers, session);
        self.clients.end(session, None);
    }

    fn forget_holds(&mut self, holds: Vec<Id<Hold>>) {
        for hold in holds {
            self.forget_hold(hold);
        }
    }

    /// Ends a hold without a word to anyone. The key's record stays, and must be looked after.
    pub(in crate::engine) fn forget_hold(&mut self, hold: Id<Hold>) {
        let owner = self.holds[hold].client;
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.holds.remove(keys, clients, &mut self.timers, hold);
        self.clients.forget_if_done(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{ClientId, Db, Digest, KeySnapshot, KeyState};

    fn key(name: &[u8]) -> Key<'_> {
        Key { db: Db(3), name }
    }

    /// Loads a data set, and somebody watches a key of it.
    fn engine() -> Engine {
        let mut engine = Engine::default();
        let client = ClientId(7);
        let seen = |name, standing| KeySnapshot {
            key: key(name),
            standing,
        };
        let watched = [seen(b"watched", KeyState::Absent)];
        let watch = Event::Watch {
            client,
            seen: &watched,
        };
        let mut effects = Vec::new();
        engine.handle(Moment(1), watch, &mut effects);
        let made = Event::Made {
            key: key(b"watched"),
        };
        engine.handle(Moment(1), Event::LoadBegins, &mut effects);
        engine.handle(Moment(1), made, &mut effects);
        engine
    }

    #[test]
    fn of_two_sessions_with_the_same_digest_the_first_is_taken_in() {
        let (mut engine, mut effects) = (Engine::default(), Vec::new());
        for id in [7, 3] {
            let said = SessionRecord::Session {
                id: SessionId(id),
                digest: Digest([9; 32]),
                grace_ms: 1000,
            };
            engine.handle(Moment(1), Event::SessionRecord(&said), &mut effects);
            engine.check_invariants();
        }
        assert_eq!(engine.session_records(Moment(1)).count(), 1);
    }

    #[test]
    fn many_keys_are_inherited_as_one_by_one() {
        let names: Vec<_> = (0..2000).map(|n| format!("{}", n % 1500)).collect();
        let mut keys: Vec<_> = names.iter().map(|name| key(name.as_bytes())).collect();
        keys.insert(100, key(b"watched"));
        let (mut alone, mut together) = (engine(), engine());
        let mut effects = [Vec::new(), Vec::new()];
        for key in &keys {
            let (key, mode) = (*key, Mode::Temporary);
            alone.handle(Moment(9), Event::Inherited { key, mode }, &mut effects[0]);
        }
        for keys in keys.chunks(700) {
            together.inherit(Moment(9), keys, &mut effects[1]);
        }
        for (engine, effects) in [&mut alone, &mut together].into_iter().zip(&mut effects) {
            engine.check_invariants();
            assert_eq!(engine.gauges().temporary_keys, 1501);
            engine.handle(Moment(9), Event::LoadEnded, effects);
            while engine.has_work(Moment(9)) {
                engine.handle(Moment(9), Event::Work { most: 64 }, effects);
            }
            engine.check_invariants();
        }
        assert_eq!(effects[0], effects[1]);
        // Whoever watches one of them is told twice.
        assert_eq!(effects[0].len(), 1503);
    }
}
