//! Holds: which owner holds which key, in which mode.

mod check;
mod notify;
mod plain;

use crate::engine::mode::{Mode, ModeKind};
use crate::engine::state::acks::Acks;
use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Keys;
use crate::engine::state::rows::{Client, Extra, Header, HeldKey, Hold, PendingGrant};
use crate::engine::state::task::{Task, TaskKey};
use crate::engine::state::timers::Timers;
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::storage::index;
use crate::engine::storage::overflow::{OVERFLOW_THRESHOLD, Overflow};
use crate::engine::terms::{Kept, Terms};
use crate::engine::types::{Moment, Token};
use hashbrown::HashMap;
use std::ops;

impl Hold {
    pub fn extra<'a>(&self, extras: &'a Arena<Extra>) -> Option<&'a Extra> {
        self.header.extra().map(|extra| &extras[extra])
    }

    pub fn label<'a>(&self, extras: &'a Arena<Extra>) -> &'a [u8] {
        self.extra(extras).map_or(&[], |extra| &extra.kept.label)
    }
}

/// The parameters of a new hold.
pub(in crate::engine) struct Grant<'a> {
    pub client: Id<Client>,
    /// With `acks` the hold is pending, see [`Acks`].
    pub terms: Terms<&'a [u8]>,
    pub token: Token,
    pub since: Moment,
}

/// Invariant: a hold is in its key's list and in its client's, once each. The holds of one key have compatible modes and
/// different owners (a client with a label), and take no more permits than there are. The key's record has their number, their
/// modes, and the sum of their permits; `overflow` and `by_token` are empty of the holds of a key that has only a few. `extras`
/// has the records that holds refer to, once each; those whose task has a name are in its list in `tasks`.
#[derive(Default)]
pub(in crate::engine) struct Holds {
    all: Arena<Hold>,
    extras: Arena<Extra>,
    overflow: Overflow<Hold>,
    /// The holds of `overflow`, by token.
    by_token: Overflow<Hold>,
    /// List heads of the holds of each task with a name.
    tasks: HashMap<TaskKey, Chain<Extra, { Extra::BY_TASK }>>,
    temporary: usize,
    /// For tests: plain holds are handled like others.
    pub without_fast_paths: bool,
    /// Grants that wait for acknowledgements.
    pub acks: Acks,
}

impl Holds {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of slots, for cursors.
    pub fn slot_count(&self) -> usize {
        self.all.slot_count()
    }

    /// The hold in a slot, if any. O(1).
    pub fn at(&self, place: usize) -> Option<Id<Hold>> {
        self.all.at(place)
    }

    /// The memory of a hold, in bytes.
    pub fn bytes_of(&self, id: Id<Hold>) -> usize {
        let extra = self.extra(id);
        let bytes = |extra: &Extra| size_of::<Extra>() + extra.kept.terms().bytes();
        size_of::<Hold>() + extra.map_or(0, bytes)
    }

    /// The number of temporary keys.
    pub fn temporary(&self) -> usize {
        self.temporary
    }

    /// An owner's hold of a key. O(1).
    #[inline]
    pub fn find(
        &self,
        keys: &Keys,
        key: Id<HeldKey>,
        client: Id<Client>,
        label: &[u8],
    ) -> Option<Id<Hold>> {
        let holds = &keys[key].holds;
        let first = holds.head()?;
        let is_of = |id| self.all[id].client == client && self.has_label(id, label);
        if is_of(first) {
            return Some(first);
        }
        // Usually there is no other.
        if holds.tail(&self.all) == Some(first) {
            return None;
        }
        self.find_in_overflow(holds, key, client, label)
    }

    #[cold]
    fn find_in_overflow(
        &self,
        holds: &Chain<Hold, { Hold::BY_KEY }>,
        key: Id<HeldKey>,
        client: Id<Client>,
        label: &[u8],
    ) -> Option<Id<Hold>> {
        let is_it = |id: Id<Hold>| {
            let hold = &self.all[id];
            hold.key == key && hold.client == client && self.has_label(id, label)
        };
        self.overflow
            .find(holds.iter(&self.all), (key, client, label), is_it)
    }

    /// The hold of this key with this token. O(1).
    pub fn with_token(&self, keys: &Keys, key: Id<HeldKey>, token: Token) -> Option<Id<Hold>> {
        let is_it = |id: Id<Hold>| self.all[id].key == key && self.all[id].token == token;
        let chain = keys[key].holds.iter(&self.all);
        self.by_token.find(chain, (key, token), is_it)
    }

    /// Raises a hold's token to one that no other hold of the key has. O(1).
    pub fn raise(&mut self, id: Id<Hold>, token: Token) {
        let previous = self.all[id].token;
        let granted_as = &mut self.extra_mut(id).granted_as;
        granted_as.get_or_insert(previous);
        self.replace_token(id, token);
    }

    /// The hold is known by another token from now on. O(1).
    pub fn replace_token(&mut self, id: Id<Hold>, token: Token) {
        let Hold {
            key,
            token: previous,
            ..
        } = self.all[id];
        if self.by_token.leave((key, previous), id) {
            self.by_token.add((key, token), id);
        }
        self.all[id].token = token;
    }

    /// The token of the pending grant of this hold, if it is pending. O(1).
    pub fn pending(&self, id: Id<Hold>) -> Option<Token> {
        self.extra(id)?.pending
    }

    /// The hold's grant is not pending any more. O(1).
    pub fn settle(&mut self, id: Id<Hold>) {
        self.extra_mut(id).pending = None;
    }

    /// The pending grant of this hold, if it is pending. O(log pending grants).
    pub fn pending_grant(&self, id: Id<Hold>) -> Option<&PendingGrant> {
        self.acks.get(self.pending(id)?)
    }

    /// The token of the grant, before any raise. O(1).
    pub fn granted_as(&self, id: Id<Hold>) -> Token {
        let raised = self.extra(id).and_then(|extra| extra.granted_as);
        raised.unwrap_or(self.all[id].token)
    }

    pub fn mode(&self, id: Id<Hold>) -> Mode {
        let in_extra = || {
            self.extra(id)
                .map_or(Mode::Exclusive, |extra| extra.kept.mode)
        };
        self.all[id].header.mode().unwrap_or_else(in_extra)
    }

    /// Its terms, without the lease.
    pub fn terms(&self, id: Id<Hold>) -> Terms<&[u8]> {
        let mode = self.mode(id);
        let kept = self.extra(id).map(|extra| extra.kept.terms());
        Terms {
            mode,
            attributes: self.all[id].header.attributes(),
            ..kept.unwrap_or(Terms::of(mode))
        }
    }

    pub fn label(&self, id: Id<Hold>) -> &[u8] {
        self.all[id].label(&self.extras)
    }

    /// See [`Terms::task`].
    pub fn task(&self, id: Id<Hold>) -> &[u8] {
        self.extra(id).map_or(&[], |extra| extra.kept.task())
    }

    /// Whether it has this label. Skips the comparison of two empty labels, as nearly all are: an empty slice may point anywhere,
    /// and a zero-length compare there costs some processors 100 ns.
    pub fn has_label(&self, id: Id<Hold>, label: &[u8]) -> bool {
        let own = self.label(id);
        own.len() == label.len() && (own.is_empty() || own == label)
    }

    pub fn lease(&self, id: Id<Hold>) -> Option<Moment> {
        self.extra(id).and_then(|extra| extra.lease)
    }

    /// The number of releases until it ends.
    pub fn depth(&self, id: Id<Hold>) -> u32 {
        self.extra(id)
            .map_or(1, |extra| extra.depth + extra.shared_below)
    }

    /// Whether it has an [`Extra`].
    pub fn has_extra(&self, id: Id<Hold>) -> bool {
        self.extra(id).is_some()
    }

    /// The number of holds with an [`Extra`]. O(1).
    pub fn extras(&self) -> usize {
        self.extras.len()
    }

    /// The depth in its own mode, and that of shared re-entries below.
    pub fn depths(&self, id: Id<Hold>) -> (u32, u32) {
        self.extra(id)
            .map_or((1, 0), |extra| (extra.depth, extra.shared_below))
    }

    pub fn set_depths(&mut self, id: Id<Hold>, depths: (u32, u32)) {
        if depths != self.depths(id) {
            let extra = self.extra_mut(id);
            (extra.depth, extra.shared_below) = depths;
        }
    }

    /// Counts a re-entry: in its own mode, or as shared below an exclusive hold.
    pub fn reenter(&mut self, id: Id<Hold>, mode: Mode) {
        let is_same = self.mode(id) == mode;
        let extra = self.extra_mut(id);
        if is_same {
            extra.depth += 1;
        } else {
            extra.shared_below += 1;
        }
    }

    /// Counts a release that is not the last. Returns whether the hold became shared by it.
    pub fn lower(&mut self, keys: &mut Keys, id: Id<Hold>) -> bool {
        let (previous, mode) = (self.mode(id), Mode::Shared);
        let extra = self.extra_mut(id);
        if extra.depth > 1 {
            extra.depth -= 1;
            return false;
        }
        extra.depth = std::mem::take(&mut extra.shared_below);
        self.all[id].header.set_mode(mode);
        let record = &mut keys[self.all[id].key];
        record.set_held(record.held().without(previous.kind()).with(mode.kind()));
        true
    }

    /// The holds of a task with a name, oldest first. O(1) to begin.
    pub fn of_task(&self, client: Id<Client>, name: &[u8]) -> impl Iterator<Item = Id<Hold>> {
        let chain = self.tasks.get(&Task(client, name)).into_iter();
        let extras = chain.flat_map(|chain| chain.iter(&self.extras));
        extras.filter_map(|extra| self.extras[extra].hold)
    }

    /// Called once per hold.
    fn set_kept(&mut self, id: Id<Hold>, client: Id<Client>, kept: Kept) {
        let extra = self.extra_mut(id);
        extra.kept = kept;
        if !extra.kept.task().is_empty() {
            extra.hold = Some(id);
            self.join_task(client, id);
        }
    }

    fn join_task(&mut self, client: Id<Client>, id: Id<Hold>) {
        if let Some(extra) = self.all[id].header.extra() {
            let name = self.extras[extra].kept.task().clone();
            if !name.is_empty() {
                let chain = self.tasks.entry((client, name)).or_default();
                chain.push(&mut self.extras, extra);
            }
        }
    }

    fn leave_task(&mut self, client: Id<Client>, id: Id<Extra>) {
        let kept = std::mem::take(&mut self.extras[id].kept);
        let (name, task) = (kept.task(), Task(client, kept.task()));
        if let Some(chain) = self.tasks.get_mut(&task).filter(|_| !name.is_empty()) {
            chain.remove(&mut self.extras, id);
            if chain.is_empty() {
                index::take(&mut self.tasks, &task);
            }
        }
        self.extras[id].kept = kept;
    }

    /// Gives a hold to another client, that has none of this key with its label. O(1).
    pub fn give_to(&mut self, clients: &mut Clients, id: Id<Hold>, to: Id<Client>) {
        let Hold {
            key,
            client: from,
            header,
            ..
        } = self.all[id];
        if let Some(extra) = header.extra() {
            self.leave_task(from, extra);
            self.join_task(to, id);
        }
        let label = self.all[id].label(&self.extras);
        if self.overflow.leave((key, from, label), id) {
            self.overflow.add((key, to, label), id);
        }
        self.all[id].client = to;
        clients[from].holding.remove(&mut self.all, id);
        clients[from].hold_count -= 1;
        clients[to].holding.push(&mut self.all, id);
        clients[to].hold_count += 1;
    }

    fn extra(&self, id: Id<Hold>) -> Option<&Extra> {
        self.all[id].extra(&self.extras)
    }

    /// Allocated if there is none.
    fn extra_mut(&mut self, id: Id<Hold>) -> &mut Extra {
        let extra = self.all[id].header.extra().unwrap_or_else(|| {
            let made = self.extras.insert(Extra::default());
            self.all[id].header.set_extra(made);
            made
        });
        &mut self.extras[extra]
    }

    /// All holds of a key, oldest first, orphaned ones included.
    pub fn all_of_key(&self, keys: &Keys, key: Id<HeldKey>) -> impl Iterator<Item = Id<Hold>> {
        keys[key].holds.iter(&self.all)
    }

    /// A client's holds, oldest first.
    pub fn of_client(
        &self,
        clients: &Clients,
        client: Id<Client>,
    ) -> impl Iterator<Item = Id<Hold>> {
        self.of_client_after(clients, client, None)
    }

    /// Those after `last`, or all.
    pub fn of_client_after(
        &self,
        clients: &Clients,
        client: Id<Client>,
        last: Option<Id<Hold>>,
    ) -> impl Iterator<Item = Id<Hold>> {
        clients[client].holding.iter_after(&self.all, last)
    }

    /// Whether the key's holders admit another owner in this mode. O(1).
    pub fn admit(&self, keys: &Keys, key: Id<HeldKey>, mode: Mode) -> bool {
        mode.is_compatible_with_all(keys[key].held()) && self.has_permits(keys, key, mode)
    }

    /// Whether a semaphore has enough permits left. O(1).
    fn has_permits(&self, keys: &Keys, key: Id<HeldKey>, mode: Mode) -> bool {
        let Mode::Permits { count, total } = mode else {
            return true;
        };
        let is_total = self.total(keys, key).is_none_or(|other| other == total);
        is_total && count <= total.saturating_sub(keys[key].permits_taken)
    }

    /// The total permits of a key that is held as a semaphore: all its holds agree on them. O(1).
    pub fn total(&self, keys: &Keys, key: Id<HeldKey>) -> Option<u32> {
        match self.mode(keys[key].holds.head()?) {
            Mode::Permits { total, .. } => Some(total),
            _ => None,
        }
    }

    /// Adds a hold that the key's other holds admit. O(1), with a lease O(log leases).
    pub fn add(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        timers: &mut Timers,
        key: Id<HeldKey>,
        grant: &Grant<'_>,
    ) -> Id<Hold> {
        let terms = &grant.terms;
        let id = self.all.insert(Hold {
            key,
            client: grant.client,
            token: grant.token,
            header: Header::new(terms.mode, terms.attributes, grant.since),
            by_key: Link::default(),
            by_client: Link::default(),
        });
        if let Some(kept) = terms.kept() {
            self.set_kept(id, grant.client, kept);
        }
        let lease = terms.lease_from(grant.since);
        if lease.is_some() {
            self.set_lease(timers, id, lease);
        }
        if terms.acks.is_some() {
            self.extra_mut(id).pending = Some(grant.token);
            self.acks.hold_begins(grant.token, id);
        }
        self.link_to_key(keys, id, key, grant);
        self.temporary += usize::from(!terms.mode.is_lock());
        let client = &mut clients[grant.client];
        client.holding.push(&mut self.all, id);
        client.hold_count += 1;
        id
    }

    /// Removes a hold. O(1), with a lease O(log leases).
    pub fn remove(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        timers: &mut Timers,
        id: Id<Hold>,
    ) {
        self.unlink_from_key(keys, id);
        self.unlink_from_owner(clients, timers, id);
    }

    fn unlink_from_key(&mut self, keys: &mut Keys, id: Id<Hold>) {
        let hold = &self.all[id];
        let mode = self.mode(id);
        let record = &mut keys[hold.key];
        if record.hold_count as usize > OVERFLOW_THRESHOLD {
            self.leave_overflow(id);
        }
        record.hold_count -= 1;
        record.holds.remove(&mut self.all, id);
        if record.hold_count as usize == OVERFLOW_THRESHOLD {
            for id in record.holds.iter(&self.all).collect::<Vec<_>>() {
                self.leave_overflow(id);
            }
        }
        if record.holds.is_empty() {
            record.set_unheld();
        } else if !self.is_still_held_in(record, mode) {
            record.set_held(record.held().without(mode.kind()));
        }
        record.permits_taken -= mode.permits();
    }

    #[cold]
    fn leave_overflow(&mut self, id: Id<Hold>) {
        let hold = &self.all[id];
        let label = hold.label(&self.extras);
        if self.overflow.leave((hold.key, hold.client, label), id) {
            self.by_token.leave((hold.key, hold.token), id);
        }
    }

    /// Whether any hold left on a key has this mode. O(modes): at most one of a key's modes has several holders, so one of them
    /// is among the first few.
    fn is_still_held_in(&self, record: &HeldKey, mode: Mode) -> bool {
        let kind = mode.kind();
        let mut holds = record.holds.iter(&self.all).take(ModeKind::COUNT);
        kind.is_compatible_with(kind) && holds.any(|hold| self.mode(hold).kind() == kind)
    }

    fn link_to_key(&mut self, keys: &mut Keys, id: Id<Hold>, key: Id<HeldKey>, grant: &Grant<'_>) {
        let (record, mode) = (&mut keys[key], grant.terms.mode);
        // Usually it is the key's first hold, which needs no overflow.
        if record.hold_count > 0 {
            let chain = record.holds.iter(&self.all);
            let owner = (key, grant.client, grant.terms.label);
            if self.overflow.join(chain, owner, id) {
                self.by_token.add((key, grant.token), id);
            }
        }
        record.holds.push(&mut self.all, id);
        record.hold_count += 1;
        record.set_held(record.held().with(mode.kind()));
        record.permits_taken += mode.permits();
    }

    fn unlink_from_owner(&mut self, clients: &mut Clients, timers: &mut Timers, id: Id<Hold>) {
        let hold = &self.all[id];
        let (client, header) = (hold.client, hold.header);
        if let Some(extra) = header.extra() {
            self.set_lease(timers, id, None);
            if let Some(token) = self.extras[extra].pending {
                self.acks.hold_ends(token, id);
            }
            self.leave_task(client, extra);
            self.extras.remove(extra);
        }
        let owner = &mut clients[client];
        owner.holding.remove(&mut self.all, id);
        owner.hold_count -= 1;
        self.all.remove(id);
        self.temporary -= usize::from(header.is_temporary());
    }

    /// Sets or clears the end of a hold's lease. O(log leases).
    pub fn set_lease(&mut self, timers: &mut Timers, id: Id<Hold>, lease: Option<Moment>) {
        let previous = self.lease(id);
        if previous != lease {
            timers.leases.set(id, previous, lease);
            self.extra_mut(id).lease = lease;
        }
    }
}

impl ops::Index<Id<Hold>> for Holds {
    type Output = Hold;
    #[inline]
    fn index(&self, id: Id<Hold>) -> &Hold {
        &self.all[id]
    }
}

impl ops::IndexMut<Id<Hold>> for Holds {
    #[inline]
    fn index_mut(&mut self, id: Id<Hold>) -> &mut Hold {
        &mut self.all[id]
    }
}
