//! Flushes of very many keys: what follows from one is done key by key, in slices.
//!
//! A flush of few keys is done with at once. Otherwise it begins a round: a note says of which keys and by whom, and
//! from then on each key that a fact names is looked after before that fact is, and all others as time allows. So whoever
//! asks finds what is so. A flush that comes in the middle of a round is added to the note. What has been named until then
//! is as it is by then, and is looked after at once: along with each key that is named some others are, so that they cannot
//! become very many before the round is over. Where databases exchange their contents meanwhile, what is only held goes along and
//! is looked after by its new name.

use crate::engine::Engine;
use crate::engine::effect::Effect;
use crate::engine::event::{Event, KeySnapshot, Raise};
use crate::engine::record::SessionRecord;
use crate::engine::state::rows::{Ack, Client, Hold, KeyRecord, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::types::{Cause, ClientId, Db, Digest, Key, KeyState, Loss};

/// Along with each key that is named one of so many parts is visited of what may be done at once.
const ALONG: usize = 16;

/// As an exchange of databases looks at all keys, one of so many parts of what is left is done along with it: so several of them
/// do not find all of it again and again.
const PARTS: usize = 16;

/// Invariant: `all` is empty between two rounds. In a round, each key whose record is of an earlier one went by the first of
/// `all` that is for its database, if one is. No record before `next` is such a key.
#[derive(Default)]
pub(in crate::engine) struct Flushes {
    all: Vec<Flush>,
    /// How many have ever been noted here.
    count: u32,
    /// Which of them is being looked after at a key; none where it is one that is done with at once.
    number: Option<u32>,
    /// At which place to go on.
    next: usize,
    /// So many places there were when the round began.
    places: usize,
}

/// A flush that is done with key by key.
#[derive(Clone, Copy)]
struct Flush {
    /// Of all where it names none.
    db: Option<Db>,
    by: Cause,
    /// How many there were with it.
    number: u32,
}

impl Flushes {
    /// How many flushes have been done with key by key, or are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the flush that is being looked after came before the end of this owner, which has ended. O(1).
    pub fn is_before_end_of(&self, owner: &Client) -> bool {
        self.number
            .is_some_and(|number| number <= owner.ended_after)
    }

    /// Whether a round goes on. O(1).
    pub fn is_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Of so many places nothing is left to be done.
    pub fn passed(&self) -> usize {
        self.next
    }

    fn first_of(&self, db: Db) -> Option<Flush> {
        let mut all = self.all.iter();
        all.find(|flush| flush.db.is_none_or(|of| of == db))
            .copied()
    }

    /// Unless an earlier one is for the same keys.
    fn add(&mut self, db: Option<Db>, by: Cause) {
        let is_for = |of: Option<Db>| of.is_none() || of == db;
        if !self.all.iter().any(|flush| is_for(flush.db)) {
            self.count += 1;
            let number = self.count;
            self.all.push(Flush { db, by, number });
            self.next = 0;
        }
    }

    /// Databases have exchanged their contents, and the keys that are still to be worked off their names. O(flushes).
    pub fn exchange(&mut self, one: Db, other: Db) {
        for flush in &mut self.all {
            flush.db = flush.db.map(|of| of.exchanged(one, other));
        }
    }
}

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
        self.put(key, KeyState::Absent);
        self.lose(key, by, Loss::Flushed, effects);
    }

    /// Whether there is still something to be done of a flush. O(1).
    pub fn is_flushing(&self) -> bool {
        self.flushes.is_any()
    }

    /// Whether what is written down at this key went by a flush. O(1) besides the databases that were flushed.
    pub(in crate::engine) fn is_flushed(&self, key: Id<KeyRecord>) -> bool {
        self.flushes.is_any()
            && self.keys.is_old(key)
            && self.flushes.first_of(self.keys[key].key().db).is_some()
    }

    /// Who holds a key, the oldest hold first: nobody whose hold went by a flush.
    pub(in crate::engine) fn holds_at(&self, key: Id<KeyRecord>) -> impl Iterator<Item = Id<Hold>> {
        let most = match self.is_flushed(key) {
            true => 0,
            false => usize::MAX,
        };
        self.holds.all_of_key(&self.keys, key).take(most)
    }

    /// Those of them whose owner is alive. The others are orphaned, and to be removed.
    pub(in crate::engine) fn living_holds(
        &self,
        key: Id<KeyRecord>,
    ) -> impl Iterator<Item = Id<Hold>> {
        self.holds_at(key).filter(|hold| self.is_living(*hold))
    }

    /// Whether the owner of a hold is alive, or a session within its grace; and its grant was not withdrawn. O(1).
    pub(in crate::engine) fn is_living(&self, hold: Id<Hold>) -> bool {
        !self.clients[self.holds[hold].client].ended && self.holds.ack(hold) != Ack::Withdrawn
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
            self.flushes = Flushes {
                count: self.flushes.count,
                ..Flushes::default()
            };
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
