//! All that the engine knows, and what can be said of it at a glance.
//!
//! The rules, and what looks for cycles or tells about all this, add their functions to [`Engine`]; here are those that each of
//! them needs: which of what is written down still counts. A hold counts as long as its owner lives, its grant was not
//! withdrawn, and its key did not go by a flush.

use crate::engine::limits::Limits;
use crate::engine::mode::Mode;
use crate::engine::state::clients::Clients;
use crate::engine::state::holds::Holds;
use crate::engine::state::keys::{Cursor, Keys};
use crate::engine::state::queues::Queues;
use crate::engine::state::renewals::Renewals;
use crate::engine::state::rows::{Ack, HeldKey, Hold, Name, Waiter};
use crate::engine::state::sessions::Sessions;
use crate::engine::state::timers::Timers;
use crate::engine::state::tokens::Tokens;
use crate::engine::state::wait_times::WaitTimes;
use crate::engine::state::watches::Watches;
use crate::engine::storage::arena::Id;
use crate::engine::types::{ClientId, Digest, Loss, Moment};
use std::collections::VecDeque;

/// Counted since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Holds that were given back because their owner's connection had ended, or its session.
    pub keys_removed_by_disconnect: u64,
    /// Holds that ended other than by their owner.
    pub lost: u64,
    /// The same by reason, in the order of [`Loss::ALL`], and those whose owner is no more.
    pub lost_by: [u64; Loss::ALL.len()],
    pub grants: u64,
    /// How often a key was handed over in the step in which it became free, to one waiter or to several.
    pub handoffs: u64,
    /// Waits that ended without a grant because their time was over.
    pub timeouts: u64,
    /// Grants that too few replicas have acknowledged.
    pub grants_withdrawn: u64,
    pub deadlocks_refused: u64,
    /// Searches for a cycle that were given up.
    pub deadlock_searches_cut: u64,
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
    pub(super) holds: Holds,
    pub(super) queues: Queues,
    pub(super) sessions: Sessions,
    pub(super) timers: Timers,
    /// Names whose queues can perhaps be served, as soon as the keyspace may be written.
    pub(super) ready: VecDeque<Id<Name>>,
    /// A held key whose old name has gone and whose new name is about to be told.
    pub(super) moving: Option<Id<HeldKey>>,
    /// What was moving was lost on its way, and was held so: at its new name, if that is told yet, it is nobody's.
    pub(super) lost_on_its_way: Option<Mode>,
    /// Some key that is or was known had a time to live, perhaps.
    pub(super) has_times: bool,
    /// Where to go on with what went by flushes, with names at which nothing stands since, and with those to look at.
    pub(super) sweeps: Sweeps,
    /// A data set is being loaded.
    pub(super) loading: bool,
    /// Who spoke for a session when that began, for which, and whether it is to be told of all that this loses.
    pub(super) speakers: Vec<(ClientId, Digest, bool)>,
    /// A master decides about the keys.
    pub(super) is_replica: bool,
    pub(super) tokens: Tokens,
    /// Losses are effects, for a log.
    pub(super) logs_losses: bool,
    /// How many losses were effects.
    pub(super) losses_told: u64,
    /// As long as that is more than so many, grants are effects, too: the next holder of some key belongs into the log.
    pub(super) losses_closed: u64,
    pub(super) renewals: Renewals,
    pub(super) waits: WaitTimes,
    pub(super) limits: Limits,
    pub(super) totals: Totals,
    pub(super) now: Moment,
    /// How many keys were granted in this step to requests for several each.
    pub(super) several_granted: usize,
    /// How many replicas are connected, as far as somebody asks for acknowledgements.
    pub(super) replicas: u32,
}

impl Engine {
    /// The holds of a key that count, the oldest first. The others are orphaned, and to be removed.
    pub(in crate::engine) fn living_holds(
        &self,
        key: Id<HeldKey>,
    ) -> impl Iterator<Item = Id<Hold>> {
        let holds = self.holds.all_of_key(&self.keys, key);
        holds.filter(|hold| self.is_living(*hold))
    }

    /// Whether a hold counts: its owner is alive, or a session within its grace; its grant was not withdrawn; and its key did not
    /// go by a flush. O(1).
    pub(in crate::engine) fn is_living(&self, hold: Id<Hold>) -> bool {
        let Hold { key, client, .. } = self.holds[hold];
        !self.clients[client].ended
            && self.holds.ack(hold) != Ack::Withdrawn
            && !self.keys.is_retired(key)
    }

    /// Whether a hold is its owner's: it was acknowledged as often as that wanted. O(1).
    pub(in crate::engine) fn is_settled(&self, hold: Id<Hold>) -> bool {
        self.holds.ack(hold) == Ack::Settled
    }

    /// The connection of a hold's owner, or `NOBODY` for that of a session that has none now.
    pub(in crate::engine) fn owner_of(&self, hold: Id<Hold>) -> ClientId {
        self.clients[self.holds[hold].client].id
    }

    /// Whether a wait is that of an ended connection.
    pub(in crate::engine) fn is_faded(&self, waiter: Id<Waiter>) -> bool {
        self.clients[self.queues[waiter].client].ended
    }

    /// Whether ended connections have left watches or waits. O(1).
    pub fn is_fading(&self) -> bool {
        self.clients.first_fading().is_some()
    }

    /// Whether this connection has come to the engine's notice and lives. O(1).
    pub fn knows_client(&self, client: ClientId) -> bool {
        self.clients.find(client).is_some()
    }

    /// Whether ended connections have left anything, or withdrawn grants. O(1).
    pub(in crate::engine) fn is_anything_orphaned(&self) -> bool {
        self.clients.is_anyone_ended() || self.holds.acks.has_withdrawn()
    }
}
