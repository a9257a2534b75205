//! The engine: all rules, independent of the server.
//!
//! Events in ([`Event`]), effects out ([`Effect`]). No clock and no I/O; its only query is for a waiter's rights
//! (`rules/rights.rs`). The same events and rights give the same effects.
//!
//! ```text
//!   event.rs, effect.rs   input and output
//!   record.rs             records that are persisted and replicated
//!   types.rs, mode.rs     ids, keys, times, reasons; lock modes
//!   terms.rs              the terms of a request
//!   pairs.rs              name-value pairs of records, extensible across versions
//!   limits.rs             quotas and bounds
//!   tables.rs             `Engine`: all tables
//!   rules/                what each event does              deadlock/   detection of cycles
//!   state/                the tables                        inspect/    read-only reports
//!   storage/              containers of the tables          check.rs    invariants, for tests
//! ```

#![forbid(unsafe_code)]

mod check;
mod deadlock;
mod effect;
mod event;
mod inspect;
mod limits;
mod mode;
mod pairs;
mod record;
mod rules;
mod state;
mod storage;
mod tables;
mod terms;
mod types;

pub use effect::{
    Effect, Gone, Lost, NameFrom, News, Over, Presence, PresenceChange, Push, Refusal, Reply,
    SnapshotPage, Viewer, Waits,
};
pub use event::{Acquire, Event, KeySnapshot, Raise, Start, Timing, WatchPrefix};
pub use inspect::current::Stale;
pub use inspect::inspection::{Holder, KeyInspection, KeyLine, Page, Waiting, Walk};
pub use inspect::mine::Own;
pub use inspect::sessions::SessionLine;
pub use inspect::survey::{Survey, Surveyed};
pub use inspect::why::Step;
pub use limits::{LOSSES_LOGGED_APART, Limits};
pub use mode::{Mode, ModeKind};
pub use pairs::{Pair, read_number, read_pairs, skip_pairs};
pub use record::{
    FREE, GrantRecord, HELD_KEY, HELD_LOCK, HOLD, Held, SESSION, SessionRecord, TOKENS, hex,
    read_moment_ms, read_token,
};
pub use rules::acks::Counted;
pub use rules::sequence::SequenceName;
pub use state::durations::Durations;
pub use storage::bytes::Bytes;
pub use storage::few::Few;
pub use tables::{Engine, Totals};
pub use terms::{Attributes, Terms, mode_word};
pub use types::{
    AskedAcks, Cause, ClientId, Db, Digest, Form, Key, KeyBuf, KeyState, Kind, Loss, LostRight,
    MAX_GRACE_MS, MAX_MS, Moment, NOBODY, NoRight, Origin, SessionId, Since, Token, Wait,
};

use limits::Budget;
use state::rows::{HeldKey, Hold};
use storage::arena::Id;

/// Current counts, for INFO. O(1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Keys with a hold, whoever their owner is or was.
    pub held_keys: usize,
    pub temporary_keys: usize,
    /// Holds of locks: one per owner and key. Includes those of pending grants.
    pub holds: usize,
    /// Grants that wait for acknowledgements.
    pub grants_pending: usize,
    pub waiters: usize,
    pub watches: usize,
    /// Includes keys whose dead watches are not reaped yet.
    pub watched_keys: usize,
    pub sessions_attached: usize,
    pub sessions_detached: usize,
}

impl Engine {
    /// Handles one event and appends its effects.
    pub fn handle(&mut self, now: Moment, event: Event<'_>, effects: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        self.budget = Budget::of(self.limits.steps_per_event);
        if self.has_key_in_transit() && !event.spares_key_in_transit() {
            self.lose_in_transit(&event, effects);
        }
        self.route(event, effects);
        if self.holds.acks.is_any_broken() {
            self.withdraw_broken(effects);
        }
    }

    #[inline(always)]
    fn route(&mut self, event: Event<'_>, effects: &mut Vec<Effect>) {
        match event {
            Event::Acquire(ask) => self.acquire(ask, effects),
            Event::Drop { client, keys } => self.drop_keys(client, keys, effects),
            Event::Release {
                client,
                key,
                label,
                all,
            } => self.release_lock(client, key, label, all, effects),
            Event::Extend {
                client,
                key,
                label,
                lease_ms,
            } => self.extend(client, key, label, lease_ms, effects),
            Event::Raise(raise) => self.raise(raise, effects),
            Event::Cancel { client, key, label } => self.cancel(client, key, label, effects),
            Event::Watch { client, seen } => self.watch(client, seen, effects),
            Event::Unwatch { client, keys } => self.unwatch(client, keys, effects),
            Event::UnwatchAll { client } => self.unwatch_all(client, effects),
            Event::Start(start) => self.start_session(start, effects),
            Event::Resume {
                client,
                digest,
                notify,
            } => self.resume(client, &digest, notify, effects),
            Event::EndSession { client, later } => self.end_session(client, later, effects),
            Event::KillSession { session, later } => self.kill_session(session, later, effects),
            Event::Detach { client } => self.detach(client, effects),
            Event::Unblocked { client } => self.unblocked(client, effects),
            Event::BlockRefused { client } => self.block_refused(client, effects),
            Event::Abandoned { client, granted } => {
                self.unblock(client);
                self.take_back(client, granted, effects);
            }
            Event::Made { key } => self.made(key, effects),
            Event::Replaced { key, by } => self.replaced(key, by, effects),
            Event::Gone { key, by, why } => self.gone(key, by, why, effects),
            Event::MovedFrom { key } => self.moved_from(key, effects),
            Event::MovedTo { key, by } => self.moved_to(key, by, effects),
            Event::Timed { key } => self.set_timed(key, true),
            Event::Renewed { key } => self.set_timed(key, false),
            Event::Untimed { key } => self.untimed(key, effects),
            Event::Elsewhere { key } => self.elsewhere(key, effects),
            Event::Disowned { key } => self.disowned(key, effects),
            Event::Flushed { db, by } => self.flushed(db, by, effects),
            Event::Swapped { one, other } => self.swapped(one, other, effects),
            Event::Found { seen, gone } => self.found(seen, gone, effects),
            Event::Inherited { key, mode, token } => self.inherited(key, mode, token, effects),
            Event::SessionRecord(record) => self.apply_record(record, effects),
            Event::LoadBegins => self.load_begins(effects),
            Event::LoadEnded => self.load_ended(effects),
            Event::Propagated { offset } => self.propagated(offset),
            Event::Acknowledged { token, replicas } => self.acknowledged(token, replicas, effects),
            Event::Replicas { count } => self.count_replicas(count, effects),
            Event::Ended { client } => self.ended(client),
            Event::Reap { steps } => self.with_budget(steps, Self::reap, effects),
            Event::Demoted { redirect } => self.demoted(redirect, effects),
            Event::Promoted => self.promoted(effects),
            Event::Writes { accepted } => self.writes_refused = !accepted,
            Event::Quarantine { ms } => self.begin_quarantine(ms),
            Event::Tick => self.tick(effects),
            Event::Lapse { steps } => self.with_budget(steps, Self::end_leases, effects),
            Event::LapseOf { keys } => self.end_leases_of(keys, effects),
            Event::RenewAll => self.renew_all(),
            Event::Renew { steps } => self.with_budget(steps, Self::renew, effects),
            Event::Work { steps } => self.with_budget(steps, Self::work, effects),
            about_prefixes => self.route_presence(about_prefixes, effects),
        }
    }

    #[cold]
    fn route_presence(&mut self, event: Event<'_>, effects: &mut Vec<Effect>) {
        match event {
            Event::WatchPrefix(ask) => self.watch_prefix(ask, effects),
            Event::UnwatchPrefix { client, prefix } => {
                self.unwatch_prefix(client, prefix, effects);
            }
            Event::PageCut {
                client,
                prefix,
                last,
            } => self.page_cut(client, prefix, last),
            Event::SightLost { clients } => self.lose_sight(clients, effects),
            Event::PrefixElsewhere { prefix } => self.prefix_elsewhere(prefix, effects),
            Event::Changed { key } => self.changed(key, effects),
            other => unreachable!("{other:?} is about no prefix"),
        }
    }

    fn with_budget(
        &mut self,
        steps: usize,
        work: impl FnOnce(&mut Self, &mut Vec<Effect>),
        effects: &mut Vec<Effect>,
    ) {
        self.budget = Budget::of(steps);
        work(self, effects);
    }

    /// Reserves capacity for this many foreign holds that are about to be loaded.
    pub fn reserve_keys(&mut self, keys: usize) {
        self.keys.reserve(keys);
    }

    /// When the shell must send [`Event::Tick`], and then [`Event::Work`] if [`has_work`](Self::has_work). O(1).
    pub fn deadline(&self) -> Option<Moment> {
        self.timers.first()
    }

    /// The precision that this event's time needs; mostly no client waits and nothing has a deadline. O(1).
    pub fn timing(&self, event: &Event<'_>) -> Timing {
        if self.queues.len() == 0 && self.timers.first().is_none() {
            event.timing()
        } else {
            Timing::Exact
        }
    }

    /// The time of the latest event. No wait began later.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// When the first lease expires. O(1).
    pub fn first_lease_end(&self) -> Option<Moment> {
        self.timers.leases.first()
    }

    /// What [`Event::Writes`] has said last. O(1).
    pub fn accepts_writes(&self) -> bool {
        !self.writes_refused
    }

    pub fn is_replica(&self) -> bool {
        self.is_replica
    }

    pub fn is_loading(&self) -> bool {
        self.loading
    }

    /// From when on [`Event::Work`] has something to do. None on a replica: there are no waits, and the master ends leases and
    /// graces. O(1).
    pub fn next_work(&self, now: Moment) -> Option<Moment> {
        if self.is_replica {
            return None;
        }
        if self.has_work_left(now) {
            return Some(now);
        }
        self.deadline()
    }

    /// The same while nothing may be written: from when on [`Event::Tick`] has something to do. O(1).
    pub fn next_tick(&self) -> Option<Moment> {
        let first = self.timers.first_without_writes();
        first.filter(|_| !self.is_replica)
    }

    /// Whether an earlier event has left something to do. O(1).
    fn has_work_left(&self, now: Moment) -> bool {
        self.is_anything_orphaned()
            || self.is_any_ready(now)
            || self.first_hopeless_grant().is_some()
            || !self.given_away.is_empty()
    }

    /// Whether [`Event::Work`] has something to do now. O(1).
    pub fn has_work(&self, now: Moment) -> bool {
        let is_due = |end: Option<Moment>| end.is_some_and(|end| end <= now);
        self.has_work_left(now)
            || is_due(self.timers.leases.first())
            || is_due(self.timers.graces.first())
            || self.has_renewals(now)
    }

    /// Whether no key is watched, held or waited for. O(1).
    pub fn is_idle(&self) -> bool {
        self.keys.held_count() + self.keys.name_count() == 0 && !self.has_key_in_transit()
    }

    /// Whether this key is watched, held or waited for. O(1).
    pub fn knows(&self, key: Key<'_>) -> bool {
        self.keys.find_held(key).is_some() || self.keys.find_name(key).is_some()
    }

    /// None if this key is not watched, held or waited for; otherwise a connected holder, if any. O(dead holders).
    pub fn look_up(&self, key: Key<'_>) -> Option<Option<ClientId>> {
        let Some(held) = self.keys.find_held(key) else {
            return self.keys.find_name(key).map(|_| None);
        };
        let owners = self.living_holds(held).map(|hold| self.owner_of(hold));
        let mut connected = owners.filter(|owner| *owner != types::NOBODY);
        Some(connected.next())
    }

    /// Whether any temporary key is held. O(1).
    pub fn has_temporary_keys(&self) -> bool {
        self.holds.temporary() > 0
    }

    /// Whether all holds of this key are orphaned, and it is about to be removed. False on a replica and while loading, where the
    /// engine does not know which owners live. O(holders).
    pub fn is_orphaned(&self, key: Key<'_>) -> bool {
        let held = self.keys.find_held(key);
        held.is_some_and(|held| self.is_left_behind(held))
    }

    /// The connections that hold this key, oldest hold first; a connection occurs once per label. O(holders).
    pub fn holders(&self, key: Key<'_>) -> Few<ClientId> {
        let held = self.keys.find_held(key).into_iter();
        let living = held.flat_map(|held| self.living_holds(held));
        living.map(|hold| self.owner_of(hold)).collect()
    }

    /// The token with which a key's oldest hold was granted. O(1).
    pub fn first_granted_as(&self, key: Key<'_>) -> Option<Token> {
        let held = self.keys.find_held(key)?;
        let hold = self.keys[held].holds.head()?;
        Some(self.holds.granted_as(hold))
    }

    /// Whether any held key may have a TTL, and so may be expired. Mostly none has one. O(1).
    pub fn may_any_be_expired(&self) -> bool {
        self.has_times || self.renewals.backstop_ms > 0
    }

    /// Whether this key is held and may have a TTL. O(1).
    pub fn may_be_expired(&self, key: Key<'_>) -> bool {
        let is_timed = |held: Id<HeldKey>| self.keys[held].is_timed();
        (self.has_times && self.keys.find_held(key).is_some_and(is_timed)) || self.has_backstop(key)
    }

    /// The state of a key that is present. O(1).
    pub fn key_state(&self, key: Key<'_>) -> KeyState {
        self.held_state(key).unwrap_or(KeyState::Other)
    }

    /// The state of a key that is held, if it is. O(1).
    pub fn held_state(&self, key: Key<'_>) -> Option<KeyState> {
        let held = self.keys.find_held(key)?;
        Some(self.keys[held].held().key_state())
    }

    /// Whether `MovedTo` is expected.
    pub fn has_key_in_transit(&self) -> bool {
        self.in_transit.is_some() || self.lost_in_transit.is_some()
    }

    /// The temporary keys that are not held by sessions, with their tokens, for files. O(held keys).
    pub fn temporary_keys(&self) -> impl Iterator<Item = (Key<'_>, Token)> {
        let is_it = |hold: &Id<Hold>| {
            let owner = self.holds[*hold].client;
            self.holds.mode(*hold) == Mode::Temporary && self.sessions.get(owner).is_none()
        };
        let temporary = move |held: Id<HeldKey>| {
            let hold = self.keys[held].holds.head().filter(is_it)?;
            Some((self.keys.key_of(held), self.holds[hold].token))
        };
        let held = self.keys.all_held();
        held.filter(|held| !self.keys.is_retired(*held))
            .filter_map(temporary)
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The last fencing token granted, or the beginning of the epoch.
    pub fn last_token(&self) -> Token {
        self.tokens.last()
    }

    /// The last fencing token granted here or on another server, if any is known.
    pub fn last_token_given(&self) -> Option<Token> {
        self.tokens.last_given()
    }

    /// The times from request to grant, of the grants that were waited for.
    pub fn wait_times(&self) -> &Durations {
        &self.wait_times
    }

    /// The times from grant to end of all holds that have ended, except those of other servers.
    pub fn hold_times(&self) -> &Durations {
        &self.hold_times
    }

    pub fn gauges(&self) -> Gauges {
        let dead = self.clients.dead();
        Gauges {
            held_keys: self.keys.held_count() - self.keys.retired_count(),
            temporary_keys: self.holds.temporary(),
            holds: self.holds.len() - self.holds.temporary(),
            grants_pending: self.holds.acks.len(),
            waiters: self.queues.len() - dead.waits,
            watches: self.watches.len() + self.prefixes.len() - dead.watches,
            watched_keys: self.watches.watched_keys(),
            sessions_attached: self.clients.attached(),
            sessions_detached: self.sessions.len() - self.clients.attached(),
        }
    }
}
