//! Flushes of very many keys: what follows from one is done key by key, in slices.
//!
//! A flush of few keys is done with at once. Otherwise it begins a round: a note says of which keys and by whom, and
//! from then on each key that a fact names is looked after before that fact is, and all others as time allows. So whoever
//! asks finds what is so. A flush that comes in the middle of a round is added to the note. What has been named until then
//! is as it is by then, and is looked after at once: along with each key that is named some others are, so that they cannot
//! become very many before the round is over. Where databases exchange their contents meanwhile, what is only held goes along and
//! is looked after by its new name.

use crate::engine::effect::Effect;
use crate::engine::event::{Event, KeySnapshot, Raise};
use crate::engine::record::SessionRecord;
use crate::engine::state::flushes::Flush;
use crate::engine::state::rows::{Client, Hold, KeyRecord, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, ClientId, Db, Digest, Key, KeyState, Loss};

/// Along with each key that is named one of so many parts is visited of what may be done at once.
const ALONG: usize = 16;

/// As an exchange of databases looks at all keys, one of so many parts of what is left is done along with it: so several of them
/// do not find all of it again and again.
const PARTS: usize = 16;

impl Engine {
    pub(in crate::engine) fn flushed(
        &mut self,
        db: Option<Db>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        if self.loading || self.keys.len() <= self.limits.at_once {
            self.end_flushes(effects);
            for key in self.known(|record| db.is_none_or(|db| db == record.key().db)) {
                self.flush(key, by, effects);
            }
            return;
        }
        if !self.flushes.is_any() {
            self.keys.begin_round();
            self.flushes.places = self.keys.places();
        }
        for key in self.keys.take_named() {
            // The same one may be there twice.
            if !self.keys.has(key) {
                continue;
            }
            match db.is_none_or(|db| db == self.keys[key].key().db) {
                true => self.flush(key, by, effects),
                false => self.keys.name(key),
            }
        }
        self.flushes.add(db, by);
    }

    /// A key went by a flush that was noted.
    fn look_after_flush(&mut self, key: Id<KeyRecord>, flush: Flush, effects: &mut Vec<Effect>) {
        self.flushes.number = Some(flush.number);
        self.flush(key, flush.by, effects);
        self.flushes.number = None;
    }

    /// A key went by a flush.
    fn flush(&mut self, key: Id<KeyRecord>, by: Cause, effects: &mut Vec<Effect>) {
        self.set_present(key, false, effects);
        self.keys[key].set_stands(KeyState::Absent);
        self.lose(key, by, Loss::Flushed, effects);
    }

    /// Whether there is still something to be done of a flush. O(1).
    pub fn is_flushing(&self) -> bool {
        self.flushes.is_any()
    }

    /// Does what is to be done of flushes at this key, since something is about to happen there. The record may be gone
    /// after that, unless somebody waits there or it is ready.
    pub(in crate::engine) fn end_flush_of(
        &mut self,
        key: Id<KeyRecord>,
        effects: &mut Vec<Effect>,
    ) {
        self.keys.name(key);
        if self.keys.is_old(key) {
            let flush = self.flushes.first_of(self.keys[key].key().db);
            self.keys.renew(key);
            if let Some(flush) = flush {
                self.look_after_flush(key, flush, effects);
            }
        }
    }

    /// The same at all keys that somebody asks for whose turn has come.
    pub(in crate::engine) fn end_flushes_for(
        &mut self,
        waiter: Id<Waiter>,
        effects: &mut Vec<Effect>,
    ) {
        if self.flushes.is_any() {
            for key in &*self.queues.keys_of(waiter).collect::<Few<_>>() {
                self.end_flush_of(*key, effects);
            }
        }
    }

    /// Whether a hold was one that went by a flush. It is no more then. O(1) but for the key's other holders.
    pub(in crate::engine) fn end_flush_of_hold(
        &mut self,
        hold: Id<Hold>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let key = self.holds[hold].key;
        let went = self.is_flushed(key);
        if went {
            self.end_flush_of(key, effects);
        }
        went
    }

    /// Does so at up to so many places.
    pub(in crate::engine) fn go_on_flushing(&mut self, most: usize, effects: &mut Vec<Effect>) {
        for _ in 0..most {
            if self.flushes.next >= self.flushes.places {
                break;
            }
            let key = self.keys.at(self.flushes.next);
            if let Some(key) = key.filter(|key| self.keys.is_old(*key)) {
                match self.flushes.first_of(self.keys[key].key().db) {
                    Some(flush) => {
                        self.keys.renew(key);
                        self.look_after_flush(key, flush, effects);
                    }
                    None => self.keys.pass_by(key),
                }
            }
            self.flushes.next = self.keys.place_after(self.flushes.next);
        }
        if self.flushes.is_any() && self.flushes.next >= self.flushes.places {
            self.flushes.end();
            self.keys.end_round();
        }
    }

    /// Before these databases exchange their contents: does what is to be done of flushes at keys that are not only held, and a
    /// part of the rest. O(keys known), in a few nanoseconds each, and the work at those.
    pub(in crate::engine) fn end_flushes_of_others(
        &mut self,
        dbs: [Db; 2],
        effects: &mut Vec<Effect>,
    ) {
        self.go_on_flushing(self.keys.places() / PARTS, effects);
        let others = self.known(|record| dbs.contains(&record.key().db) && !record.is_only_held());
        for key in others {
            if self.is_flushed(key) {
                self.end_flush_of(key, effects);
            }
        }
    }

    /// Does all that is to be done of flushes.
    pub(in crate::engine) fn end_flushes(&mut self, effects: &mut Vec<Effect>) {
        while self.flushes.is_any() {
            self.go_on_flushing(usize::MAX, effects);
        }
    }

    /// Before a fact in the middle of a round: whatever it is about is as the flushes have left it.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn end_flushes_before(
        &mut self,
        event: &Event<'_>,
        effects: &mut Vec<Effect>,
    ) {
        match *event {
            Event::Acquire(ask) => {
                self.end_flush_of_seen(ask.seen, effects);
                self.end_flushes_at_limit(ask.client, ask.seen.len(), effects);
            }
            Event::Watch { seen, .. } => self.end_flush_of_seen(seen, effects),
            Event::Found { seen, .. } => self.end_flush_of_seen(&[seen], effects),
            Event::Drop { keys, .. } | Event::Unwatch { keys, .. } | Event::LapseOf { keys } => {
                self.end_flush_of_all(keys, effects);
            }
            Event::Release { key, .. }
            | Event::Extend { key, .. }
            | Event::Raise(Raise { key, .. })
            | Event::Cancel { key, .. }
            | Event::Made { key }
            | Event::Replaced { key, .. }
            | Event::Gone { key, .. }
            | Event::MovedFrom { key }
            | Event::MovedTo { key, .. }
            | Event::Timed { key }
            | Event::Renewed { key }
            | Event::Untimed { key }
            | Event::Elsewhere { key }
            | Event::Disowned { key }
            | Event::Inherited { key, .. } => self.end_flush_of_all(&[key], effects),
            Event::SessionRecord(SessionRecord::Held(held)) => {
                self.end_flush_of_all(&[held.key.as_key()], effects)
            }
            Event::SessionRecord(SessionRecord::Freed { key, .. }) => {
                self.end_flush_of_all(&[key.as_key()], effects);
            }
            Event::Start(start) => self.end_flush_of_holds(start.client, effects),
            Event::Detach { client } => self.end_flush_of_holds(client, effects),
            Event::KillSession { session, .. } => {
                if let Some(session) = self.sessions.numbered(session) {
                    self.end_flush_of_first(session, effects);
                }
            }
            Event::EndSession { client, .. } => self.end_flush_of_holds(client, effects),
            Event::Resume { client, digest, .. } => {
                self.end_flush_of_holds(client, effects);
                self.end_flush_of_session(&digest, effects);
            }
            Event::LoadBegins | Event::Demoted { .. } => self.end_flushes(effects),
            Event::UnwatchAll { .. }
            | Event::Unblocked { .. }
            | Event::BlockRefused { .. }
            | Event::Abandoned { .. }
            | Event::RightsChanged
            | Event::Rights { .. }
            | Event::Flushed { .. }
            | Event::Swapped { .. }
            | Event::SessionRecord(
                SessionRecord::Session { .. } | SessionRecord::SessionEnded(_),
            )
            | Event::LoadEnded
            | Event::Propagated { .. }
            | Event::Acknowledged { .. }
            | Event::Replicas { .. }
            | Event::Ended { .. }
            | Event::Fade { .. }
            | Event::Promoted
            | Event::Quarantine { .. }
            | Event::Tick
            | Event::Lapse { .. }
            | Event::RenewAll
            | Event::Renew { .. }
            | Event::Work { .. } => {}
        }
    }

    fn end_flush_of_seen(&mut self, seen: &[KeySnapshot<'_>], effects: &mut Vec<Effect>) {
        for seen in seen {
            self.end_flush_of_all(&[seen.key], effects);
        }
    }

    fn end_flush_of_all(&mut self, keys: &[Key<'_>], effects: &mut Vec<Effect>) {
        for key in keys {
            if let Some(key) = self.keys.find(*key) {
                self.end_flush_of(key, effects);
            }
            self.go_on_flushing(self.limits.at_once / ALONG, effects);
        }
    }

    /// Who has no room for so many more has more of it perhaps, after a flush.
    fn end_flushes_at_limit(&mut self, client: ClientId, more: usize, effects: &mut Vec<Effect>) {
        let id = self.clients.find(client);
        if id.is_some_and(|id| self.check_room(id, more).is_err()) {
            self.end_flush_of_holds(client, effects);
        }
    }

    /// What a connection, or its session, holds is counted: of very much that went, some may be counted still.
    fn end_flush_of_holds(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        if let Some(client) = self.clients.find(client) {
            self.end_flush_of_first(self.clients.owner(client), effects);
        }
    }

    fn end_flush_of_session(&mut self, digest: &Digest, effects: &mut Vec<Effect>) {
        if let Some(session) = self.sessions.find(digest) {
            self.end_flush_of_first(session, effects);
        }
    }

    fn end_flush_of_first(&mut self, owner: Id<Client>, effects: &mut Vec<Effect>) {
        let holds = self.holds.of_client(&self.clients, owner);
        let holds = holds.take(self.limits.at_once.max(1));
        let keys: Vec<_> = holds.map(|hold| self.holds[hold].key).collect();
        for key in keys {
            // One that is gone was that of several of these, and what is there now is new.
            if self.keys.has(key) && self.is_flushed(key) {
                self.end_flush_of(key, effects);
            }
        }
    }
}
