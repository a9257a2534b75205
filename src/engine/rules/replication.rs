//! Replication and persistence: the replication stream, the append-only file, RDB files.
//!
//! Keys are replicated without their owners: connections end with their server. Sessions survive it, so they are replicated in
//! full. A replica keeps each key for the *foreign client* or for sessions, never for both: while a session holds a key, its
//! other holders do not matter there.

use crate::engine::effect::{Effect, Gone, Over};
use crate::engine::event::Event;
use crate::engine::limits::Budget;
use crate::engine::mode::Mode;
use crate::engine::record::{Held, NO_SESSION, SessionRecord};
use crate::engine::state::holds::Grant;
use crate::engine::state::rows::{Client, ClientKind, Death, HeldKey, Hold};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::terms::Terms;
use crate::engine::types::{Cause, Key, Loss, Moment, SessionId, Token};

impl Engine {
    /// A full dump of all sessions and their holds. O(sessions and holds).
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
        let mut terms = self.terms_left(hold, now);
        // Acknowledgements are not replicated: a pending grant's lease counts from the grant.
        if let Some(pending) = self.holds.pending_grant(hold) {
            terms.lease_ms = terms.lease_ms.or(pending.lease_ms);
        }
        Held {
            session,
            key: self.keys.key_of(key).to_owned(),
            terms,
            depth,
            shared_below,
            token: self.holds[hold].token,
            timed: self.keys[key].is_timed() && !self.holds.mode(hold).is_lock(),
        }
    }

    /// Replicates a hold, if a session owns it. O(1).
    #[inline]
    pub(in crate::engine) fn replicate_hold(&self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        if self.is_of_session(hold) {
            self.replicate_session_hold(hold, effects);
        }
    }

    /// Replicates a raised token. A replica does not know the tokens of other connections' locks.
    pub(in crate::engine) fn replicate_raise(&self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        if self.is_of_session(hold) {
            self.replicate_session_hold(hold, effects);
        } else if !self.holds.mode(hold).is_lock() {
            let held = self.held(hold, NO_SESSION, self.now);
            effects.push(Effect::Replicate(Box::new(SessionRecord::Held(held))));
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
        !self.sessions.is_empty() && self.session_on_replicas(hold).is_some()
    }

    /// The record to replicate if this hold ends and its key stays. O(1).
    #[inline]
    pub(in crate::engine) fn freed(&self, hold: Id<Hold>) -> Option<Box<SessionRecord>> {
        match self.is_of_session(hold) {
            true => self.freed_by_session(hold),
            false => None,
        }
    }

    #[cold]
    fn freed_by_session(&self, hold: Id<Hold>) -> Option<Box<SessionRecord>> {
        Some(Box::new(SessionRecord::Freed {
            session: self.session_on_replicas(hold)?,
            key: self.keys.key_of(self.holds[hold].key).to_owned(),
            label: self.holds.label(hold).into(),
            token: Some(self.holds[hold].token),
        }))
    }

    /// The session to which this hold belongs on replicas. O(1).
    pub(in crate::engine) fn session_on_replicas(&self, hold: Id<Hold>) -> Option<SessionId> {
        let owner = self.holds[hold].client;
        match self.clients[owner].kind {
            ClientKind::Session { .. } => Some(self.sessions.get(owner)?.id),
            ClientKind::Dead(Death::Withdrawn { session }) => session,
            _ => None,
        }
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
                // Two sessions never share a secret: the file or stream is damaged.
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
                token,
            } => match *session {
                NO_SESSION => self.apply_given_away(key.as_key(), *token, effects),
                session => self.apply_freed(session, key.as_key(), label, *token),
            },
        }
    }

    fn apply_held(&mut self, held: &Held, effects: &mut Vec<Effect>) {
        self.tokens.apply(held.token);
        let Some(owner) = self.sessions.numbered(held.session) else {
            let (key, token) = (held.key.as_key(), Some(held.token));
            return self.inherited(key, held.terms.mode, token, effects);
        };
        let at = held.key.as_key();
        if let Some(name) = self.name(at, effects) {
            self.set_state(name, held.terms.mode.key_state(), effects);
        }
        let key = self.keys.get_or_insert_held(self.keys.lookup(at), at);
        let shown = self.shown_token(key);
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
        let hold = self.add_hold(key, &grant);
        self.holds.set_depths(hold, (held.depth, held.shared_below));
        // A lock may have a TTL: that is not replicated.
        self.mark_timed(key, held.timed || held.terms.mode.is_lock());
        self.show_difference(key, shown, effects);
    }

    fn apply_freed(
        &mut self,
        session: SessionId,
        name: Key<'_>,
        label: &[u8],
        token: Option<Token>,
    ) {
        let Some(owner) = self.sessions.numbered(session) else {
            return;
        };
        let Some(key) = self.keys.find_held(name) else {
            return;
        };
        let Some(hold) = self.holds.find(&self.keys, key, owner, label) else {
            return;
        };
        // It may hold the key again, by a later grant.
        if token.is_some_and(|token| token != self.holds[hold].token) {
            return;
        }
        let mode = self.holds.mode(hold);
        // A temporary key is still shown as what it was.
        let token = self.shown_token(key);
        self.forget_hold(hold);
        if self.keys[key].holds.is_empty() {
            self.add_ownerless_hold(key, mode, token);
        }
    }

    /// The key is another client's now: nobody holds it any more as it was granted with this token or before.
    fn apply_given_away(&mut self, name: Key<'_>, token: Option<Token>, effects: &mut Vec<Effect>) {
        let Some(key) = self.keys.find_held(name) else {
            return;
        };
        let shown = self.shown_token(key);
        let holds = self.holds.all_of_key(&self.keys, key);
        let is_over = |hold: &Id<Hold>| {
            !self.is_living(*hold) && token.is_none_or(|token| self.holds[*hold].token <= token)
        };
        self.forget_holds(holds.filter(is_over).collect());
        self.hide_if_ended(key, shown, Gone::Lost(Loss::Overwritten), effects);
        if self.keys[key].holds.is_empty() {
            self.keys.remove_held(key);
        }
    }

    /// A key whose holder is a connection of another server. It is orphaned: it blocks nobody, and is removed once this server is
    /// a master.
    pub(in crate::engine) fn inherited(
        &mut self,
        key: Key<'_>,
        mode: Mode,
        token: Option<Token>,
        effects: &mut Vec<Effect>,
    ) {
        self.tokens.apply(token.unwrap_or_default());
        let lookup = self.keys.lookup(key);
        if let Some(name) = lookup.name {
            self.refresh(name, effects);
            self.set_state(name, mode.key_state(), effects);
        }
        let key = self.keys.get_or_insert_held(lookup, key);
        if lookup.held.is_none() {
            // The usual case, by the million: skip the checks below.
            self.add_ownerless_hold(key, mode, token);
            return self.show(key, effects);
        }
        let shown = self.shown_token(key);
        // A master knows the holders of its keys, unless it is loading.
        let is_known = !self.is_replica && !self.loading;
        if is_known && self.living_holds(key).next().is_some() {
            return;
        }
        // An orphan stays one. A lock held by a session can have other holders; a temporary key was created anew, so the session
        // has lost it.
        let is_lock = self.keys[key].held().is_lock();
        let stays =
            |hold: &Id<Hold>| is_lock == mode.is_lock() && (is_lock || !self.is_living(*hold));
        if let Some(hold) = self.keys[key].holds.head().filter(stays) {
            if let Some(token) = token.filter(|_| !self.is_living(hold)) {
                self.holds.replace_token(hold, token);
            }
            return self.show_difference(key, shown, effects);
        }
        self.forget_holds(self.holds.all_of_key(&self.keys, key).collect());
        self.add_ownerless_hold(key, mode, token);
        self.show_difference(key, shown, effects);
    }

    /// Adds many temporary keys at once, as when an RDB file is loaded; equivalent to an [`Event::Inherited`] for each. The tokens are
    /// those of the first keys, or none. O(keys).
    pub fn inherit(
        &mut self,
        now: Moment,
        keys: &[Key<'_>],
        tokens: &[Token],
        effects: &mut Vec<Effect>,
    ) {
        self.now = self.now.max(now);
        self.tokens
            .apply(tokens.iter().copied().max().unwrap_or_default());
        self.lose_in_transit(&Event::LoadBegins, effects);
        let mode = Mode::Temporary;
        let made = self.keys.insert_all_held(keys);
        for (at, (key, made)) in keys.iter().zip(made).enumerate() {
            let token = tokens.get(at).copied();
            match made {
                Some(made) => self.add_ownerless_hold(made, mode, token),
                None => self.inherited(*key, mode, token, effects),
            }
        }
    }

    /// Adds a hold of the foreign client to an unheld key. O(1).
    pub(in crate::engine) fn add_ownerless_hold(
        &mut self,
        key: Id<HeldKey>,
        mode: Mode,
        token: Option<Token>,
    ) {
        // A lock may have a TTL: that is not replicated.
        self.mark_timed(key, mode.is_lock());
        let grant = Grant {
            client: self.clients.foreign(),
            // An orphan's exact mode does not matter.
            terms: Terms::of(match mode.is_lock() {
                true => Mode::Exclusive,
                false => mode,
            }),
            // One that is not known is not greater than the last.
            token: token.unwrap_or_else(|| self.tokens.last()),
            since: self.now,
        };
        self.add_hold(key, &grant);
    }

    /// A load begins: drops all holds and sessions. The data set says what exists from now on.
    pub(in crate::engine) fn load_begins(&mut self, effects: &mut Vec<Effect>) {
        self.end_all_prefixes(Over::Loaded, effects);
        self.given_away.clear();
        self.keys.retire(None, Cause::Server);
        self.keys.forget_states();
        self.budget = Budget::unlimited();
        self.sweep(effects);
        self.loading = true;
        let sessions = self.sessions.iter();
        let mut sessions: Vec<_> = sessions
            .map(|(owner, session)| (session.id, owner))
            .collect();
        sessions.sort_unstable();
        for (_, owner) in sessions {
            if let Some(session) = self.sessions.get(owner)
                && self.clients[owner].attached().is_some()
            {
                let notify = session.notify_after == Token::default();
                let attached = (self.clients[owner].id, session.digest, notify);
                self.attached_before_load.push(attached);
            }
            self.forget_session(owner);
        }
    }

    /// Ends a session silently; its holds are orphaned.
    fn forget_session(&mut self, session: Id<Client>) {
        self.clients.detach(session);
        self.sessions.remove(&mut self.timers, session);
        self.clients.end(session, Death::Closed);
    }

    fn forget_holds(&mut self, holds: Vec<Id<Hold>>) {
        for hold in holds {
            self.forget_hold(hold);
        }
    }

    /// Ends a hold silently. The caller removes the key's record if this was its last hold.
    pub(in crate::engine) fn forget_hold(&mut self, hold: Id<Hold>) {
        let owner = self.holds[hold].client;
        self.remove_hold(hold);
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
        let seen = |name, state| KeySnapshot {
            key: key(name),
            state,
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
    fn a_key_that_is_inherited_has_the_token_of_its_last_grant_and_later_ones_are_greater() {
        let (mut engine, mut effects) = (Engine::default(), Vec::new());
        engine.handle(Moment(1), Event::Demoted { redirect: false }, &mut effects);
        let (held, mode) = (key(b"k"), Mode::Temporary);
        for (token, expected) in [
            (None, 0),
            (Some(Token(7)), 7),
            (Some(Token(9)), 9),
            (None, 9),
        ] {
            let inherited = Event::Inherited {
                key: held,
                mode,
                token,
            };
            engine.handle(Moment(1), inherited, &mut effects);
            engine.check_invariants();
            let id = engine.keys.find_held(held).expect("it is held");
            let hold = engine.keys[id].holds.head().expect("by somebody");
            assert_eq!(engine.holds[hold].token, Token(expected));
        }
        assert!(engine.take_token(&mut effects) > Token(9));
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
        let tokens: Vec<_> = (1..=keys.len() as u64).map(Token).collect();
        for (key, token) in keys.iter().zip(&tokens) {
            let inherited = Event::Inherited {
                key: *key,
                mode: Mode::Temporary,
                token: Some(*token),
            };
            alone.handle(Moment(9), inherited, &mut effects[0]);
        }
        for (keys, tokens) in keys.chunks(700).zip(tokens.chunks(700)) {
            together.inherit(Moment(9), keys, tokens, &mut effects[1]);
        }
        let [one, other] = [&alone, &together].map(|engine| {
            let mut all: Vec<_> = engine.temporary_keys().collect();
            all.sort_unstable();
            all
        });
        assert_eq!(one, other);
        assert!(one.contains(&(key(b"0"), Token(1502))));
        for (engine, effects) in [&mut alone, &mut together].into_iter().zip(&mut effects) {
            engine.check_invariants();
            assert_eq!(engine.gauges().temporary_keys, 1501);
            engine.handle(Moment(9), Event::LoadEnded, effects);
            while engine.has_work(Moment(9)) {
                engine.handle(Moment(9), Event::Work { steps: 64 }, effects);
            }
            engine.check_invariants();
        }
        assert_eq!(effects[0], effects[1]);
        // Whoever watches one of them is told twice.
        assert_eq!(effects[0].len(), 1503);
    }
}
