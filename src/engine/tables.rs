//! The engine's state: all tables, and which records still count.
//!
//! The rules, the search for cycles and the reports add their methods to [`Engine`]; here are those that all of them need. A
//! hold counts while its owner lives and its key was not flushed.

use crate::engine::limits::{Budget, Limits};
use crate::engine::mode::Mode;
use crate::engine::record::SessionRecord;
use crate::engine::state::clients::Clients;
use crate::engine::state::durations::Durations;
use crate::engine::state::holds::Holds;
use crate::engine::state::keys::{Cursor, Keys};
use crate::engine::state::prefixes::Prefixes;
use crate::engine::state::queues::Queues;
use crate::engine::state::renewals::Renewals;
use crate::engine::state::rows::{HeldKey, Hold, Name, Waiter};
use crate::engine::state::sessions::Sessions;
use crate::engine::state::timers::Timers;
use crate::engine::state::tokens::Tokens;
use crate::engine::state::watches::Watches;
use crate::engine::storage::arena::Id;
use crate::engine::terms::Terms;
use crate::engine::types::{ClientId, Digest, Loss, LostRight, Moment};
use std::collections::VecDeque;

/// Counted since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Holds that their owner did not end, by reason, in the order of [`Loss::ALL`].
    pub lost_by: [u64; Loss::ALL.len()],
    pub grants: u64,
    /// Releases after which the key was granted to one or more waiters in the same step.
    pub handoffs: u64,
    /// Waits that timed out.
    pub timeouts: u64,
    /// Grants that too few replicas have acknowledged.
    pub grants_withdrawn: u64,
    pub deadlocks_refused: u64,
    /// Deadlock searches that hit their step limit.
    pub deadlock_searches_cut: u64,
}

impl Totals {
    /// Holds that their owner did not end.
    pub fn lost(&self) -> u64 {
        self.lost_by.iter().sum()
    }

    /// Those whose owner had ended.
    pub fn removed_by_disconnect(&self) -> u64 {
        let of_ended = [Loss::Died, Loss::Killed, Loss::Promoted];
        of_ended.map(|why| self.lost_by[why as usize]).iter().sum()
    }

    /// Those whose owner had not ended.
    pub fn lost_by_living_owners(&self) -> u64 {
        self.lost() - self.removed_by_disconnect()
    }
}

/// See `rules/sweep.rs`.
#[derive(Default)]
pub(super) struct Sweeps {
    pub held: Cursor,
    pub names: Cursor,
    pub looks: Cursor,
}

/// All that the module knows.
#[derive(Default)]
pub struct Engine {
    pub(super) keys: Keys,
    pub(super) clients: Clients,
    pub(super) watches: Watches,
    pub(super) prefixes: Prefixes,
    pub(super) holds: Holds,
    pub(super) queues: Queues,
    pub(super) sessions: Sessions,
    pub(super) timers: Timers,
    /// Names whose queues are to be served when the keyspace may be written.
    pub(super) ready: VecDeque<Id<Name>>,
    /// Records for replicas and files of keys that are another client's now, to be told when the keyspace may be written.
    pub(super) given_away: VecDeque<Box<SessionRecord>>,
    /// The held key between `MovedFrom` and `MovedTo`, detached.
    pub(super) in_transit: Option<Id<HeldKey>>,
    /// The key in transit was lost, and was held in this mode: if `MovedTo` still comes, the key is orphaned there.
    pub(super) lost_in_transit: Option<Mode>,
    /// Some held key may have, or have had, a TTL.
    pub(super) has_times: bool,
    /// Cursors over held keys, over names to sweep, and over names to look at.
    pub(super) sweeps: Sweeps,
    /// A data set is being loaded.
    pub(super) loading: bool,
    /// Connections that were attached to a session when loading began, with its digest and whether they asked for NOTIFY.
    pub(super) attached_before_load: Vec<(ClientId, Digest, bool)>,
    /// This server has a master.
    pub(super) is_replica: bool,
    /// See [`Event::Writes`](crate::engine::Event::Writes).
    pub(super) writes_refused: bool,
    pub(super) tokens: Tokens,
    /// Losses are emitted as effects, for the log.
    pub(super) logs_losses: bool,
    /// The number of losses emitted.
    pub(super) losses_emitted: u64,
    /// While fewer losses than that are closed, grants are emitted, too: the log wants the next holder of each lost key.
    pub(super) losses_closed: u64,
    pub(super) renewals: Renewals,
    /// From request to grant, of the grants that were waited for.
    pub(super) wait_times: Durations,
    /// From grant to end.
    pub(super) hold_times: Durations,
    pub(super) limits: Limits,
    pub(super) totals: Totals,
    pub(super) now: Moment,
    /// Of the event at hand.
    pub(super) budget: Budget,
    /// See `rules/rights.rs`.
    pub(super) lost_right: Option<Box<LostRight>>,
    /// Connected replicas, known while a client asks for ACKS.
    pub(super) replicas: u32,
}

impl Engine {
    /// The holds of a key that count, oldest first. The others are orphaned.
    pub(in crate::engine) fn living_holds(
        &self,
        key: Id<HeldKey>,
    ) -> impl Iterator<Item = Id<Hold>> {
        let holds = self.holds.all_of_key(&self.keys, key);
        holds.filter(|hold| self.is_living(*hold))
    }

    /// Whether no hold of a key counts. False on a replica and while loading, where the engine does not know which owners live.
    /// O(holders).
    pub(in crate::engine) fn is_left_behind(&self, key: Id<HeldKey>) -> bool {
        !self.is_replica && !self.loading && self.living_holds(key).next().is_none()
    }

    /// Whether a hold counts: its owner is a connection, or a session within its grace, and no flush deleted its key. O(1).
    pub(in crate::engine) fn is_living(&self, hold: Id<Hold>) -> bool {
        let Hold { key, client, .. } = self.holds[hold];
        self.clients[client].is_living() && !self.keys.is_retired(key)
    }

    /// Whether a hold's owner was told of it: its grant is not pending. O(1).
    pub(in crate::engine) fn is_settled(&self, hold: Id<Hold>) -> bool {
        self.holds.pending(hold).is_none()
    }

    /// The terms of a hold, with the rest of its lease.
    pub(in crate::engine) fn terms_left(&self, hold: Id<Hold>, now: Moment) -> Terms<Box<[u8]>> {
        Terms {
            lease_ms: self.holds.lease(hold).map(|end| end.ms_since(now)),
            ..self.holds.terms(hold).owned()
        }
    }

    /// The connection of a hold's owner; `NOBODY` for a detached session.
    pub(in crate::engine) fn owner_of(&self, hold: Id<Hold>) -> ClientId {
        self.clients[self.holds[hold].client].id
    }

    /// Whether the wait's connection has ended.
    pub(in crate::engine) fn is_dead_wait(&self, waiter: Id<Waiter>) -> bool {
        !self.clients[self.queues[waiter].client].is_living()
    }

    /// Whether any dead watch or wait is left to reap. O(1).
    pub fn has_dead_waits(&self) -> bool {
        self.clients.first_to_reap().is_some()
    }

    /// Whether this connection has a record and lives. O(1).
    pub fn knows_client(&self, client: ClientId) -> bool {
        self.clients.find(client).is_some()
    }

    /// Whether the dead have left anything to clean up. O(1).
    pub(in crate::engine) fn is_anything_orphaned(&self) -> bool {
        self.clients.has_dead()
    }
}
