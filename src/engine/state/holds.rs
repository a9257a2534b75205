//! Who holds what, and in what way.

mod check;
mod notify;
mod plain;
mod sizes;

use crate::engine::mode::{Mode, ModeKind};
use crate::engine::state::acks::Acks;
use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Keys;
use crate::engine::state::owner::{Owner, OwnerKey};
use crate::engine::state::rows::{Ack, Client, Extra, Header, HeldKey, Hold, PendingGrant};
use crate::engine::state::timers::{Timer, Timers};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::storage::index;
use crate::engine::storage::overflow::Overflow;
use crate::engine::terms::{Kept, Terms};
use crate::engine::types::{Moment, Token};
use hashbrown::HashMap;
use sizes::Sizes;
use std::ops;

impl Hold {
    pub fn extra<'a>(&self, extras: &'a Arena<Extra>) -> Option<&'a Extra> {
        self.header.extra().map(|extra| &extras[extra])
    }

    pub fn label<'a>(&self, extras: &'a Arena<Extra>) -> &'a [u8] {
        self.extra(extras).map_or(&[], |extra| &extra.kept.label)
    }
}

/// A grant, as it is written down.
pub(in crate::engine) struct Grant<'a> {
    pub client: Id<Client>,
    /// With `acks` it waits for acknowledgements, see [`Acks`].
    pub terms: Terms<&'a [u8]>,
    pub token: Token,
    pub since: Moment,
}

/// Invariant: a hold stands in its key's chain and in its client's, once each. The holds of one key
/// go with each other, have different owners (a client with a label), and together take no more
/// permits than there are; `permits` has their sum for each semaphore. `held` of a key's record has their modes. `sizes` has how many holds
/// each key with an overflow has. `extras` has the records that holds name, each once; those with a label stand in their
/// owner's chain in `owners`.
#[derive(Default)]
pub(in crate::engine) struct Holds {
    all: Arena<Hold>,
    extras: Arena<Extra>,
    overflow: Overflow<Hold>,
    /// The same holds, by their tokens.
    by_token: Overflow<Hold>,
    /// Of each owner with a label, the records of its holds.
    owners: HashMap<OwnerKey, Chain<Extra, { Extra::BY_OWNER }>>,
    permits: HashMap<Id<HeldKey>, Permits>,
    sizes: Sizes,
    temporary: usize,
    /// The grants of some of them that replicas are to acknowledge.
    pub acks: Acks,
}

/// The permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Permits {
    taken: u32,
    total: u32,
}

impl Holds {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The places among which they stand.
    pub fn places(&self) -> usize {
        self.all.places()
    }

    /// The hold at a place, if there is one. O(1).
    pub fn at(&self, place: usize) -> Option<Id<Hold>> {
        self.all.at(place)
    }

    /// How many holds a key has. O(1).
    pub fn count(&self, keys: &Keys, key: Id<HeldKey>) -> usize {
        let many = self.sizes.of(key);
        many.unwrap_or_else(|| self.all_of_key(keys, key).count())
    }

    /// The memory that a hold takes.
    pub fn bytes_of(&self, id: Id<Hold>) -> usize {
        let extra = self.extra(id);
        let bytes = |extra: &Extra| size_of::<Extra>() + extra.kept.terms().bytes();
        size_of::<Hold>() + extra.map_or(0, bytes)
    }

    /// How many of them are temporary keys.
    pub fn temporary(&self) -> usize {
        self.temporary
    }

    /// The hold of this owner, a connection or a session with a label. O(1).
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
        // As a rule there is no other.
        if holds.tail(&self.all) == Some(first) {
            return None;
        }
        self.find_among(holds, key, client, label)
    }

    #[cold]
    fn find_among(
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

    /// A hold has a greater token from now on, which no other hold of its key has. O(1).
    pub fn raise(&mut self, id: Id<Hold>, token: Token) {
        let Hold {
            key, token: former, ..
        } = self.all[id];
        if self.by_token.leave((key, former), id) {
            self.by_token.add((key, token), id);
        }
        let granted_as = &mut self.extra_mut(id).granted_as;
        granted_as.get_or_insert(former);
        self.all[id].token = token;
    }

    /// What it is to the acknowledgements of its grant. O(1).
    pub fn ack(&self, id: Id<Hold>) -> Ack {
        self.extra(id).map_or(Ack::Settled, |extra| extra.ack)
    }

    /// O(log of the withdrawn).
    pub fn set_ack(&mut self, id: Id<Hold>, ack: Ack) {
        let former = std::mem::replace(&mut self.extra_mut(id).ack, ack);
        let owner = self.all[id].client;
        if former == Ack::Withdrawn {
            self.acks.forget_withdrawn(id, owner);
        }
        if ack == Ack::Withdrawn {
            self.acks.withdraw(id, owner);
        }
    }

    /// What is known of a grant that waits for acknowledgements, of which this is a hold. O(log of such grants).
    pub fn pending(&self, id: Id<Hold>) -> Option<&PendingGrant> {
        match self.ack(id) {
            Ack::Pending(token) => self.acks.get(token),
            Ack::Settled | Ack::Withdrawn => None,
        }
    }

    /// The token with which a hold was granted. O(1).
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

    /// On what terms it is held, but for its lease.
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

    /// Whether it has this label. Two empty ones, as nearly all are, are not compared byte by byte: an empty slice may point
    /// anywhere, and some processors take a hundred nanoseconds to find out that nothing is to be read there.
    pub fn has_label(&self, id: Id<Hold>, label: &[u8]) -> bool {
        let own = self.label(id);
        own.len() == label.len() && (own.is_empty() || own == label)
    }

    pub fn lease(&self, id: Id<Hold>) -> Option<Moment> {
        self.extra(id).and_then(|extra| extra.lease)
    }

    /// How often it must be released before it ends.
    pub fn depth(&self, id: Id<Hold>) -> u32 {
        self.extra(id)
            .map_or(1, |extra| extra.depth + extra.shared_below)
    }

    /// Whether it has a label, a lease, permits or more than one depth.
    pub fn has_extra(&self, id: Id<Hold>) -> bool {
        self.extra(id).is_some()
    }

    /// How many have. O(1).
    pub fn extras(&self) -> usize {
        self.extras.len()
    }

    /// In its mode, and below that shared: see [`depth`](Self::depth).
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

    /// Acquired once more: in its mode, or shared below an exclusive hold.
    pub fn reenter(&mut self, id: Id<Hold>, mode: Mode) {
        let is_same = self.mode(id) == mode;
        let extra = self.extra_mut(id);
        if is_same {
            extra.depth += 1;
        } else {
            extra.shared_below += 1;
        }
    }

    /// Released once, of several times. Whether it is only shared from now on, and was not before.
    pub fn lower(&mut self, keys: &mut Keys, id: Id<Hold>) -> bool {
        let (former, mode) = (self.mode(id), Mode::Shared);
        let extra = self.extra_mut(id);
        if extra.depth > 1 {
            extra.depth -= 1;
            return false;
        }
        extra.depth = std::mem::take(&mut extra.shared_below);
        self.all[id].header.set_mode(mode);
        let record = &mut keys[self.all[id].key];
        record.set_held(record.held().without(former.kind()).with(mode.kind()));
        true
    }

    /// The holds of an owner with a label, the oldest first. To find it O(1).
    pub fn of_owner(&self, client: Id<Client>, label: &[u8]) -> impl Iterator<Item = Id<Hold>> {
        let chain = self.owners.get(&Owner(client, label)).into_iter();
        let extras = chain.flat_map(|chain| chain.iter(&self.extras));
        extras.filter_map(|extra| self.extras[extra].hold)
    }

    /// Once.
    fn set_kept(&mut self, id: Id<Hold>, client: Id<Client>, kept: Kept) {
        let extra = self.extra_mut(id);
        extra.kept = kept;
        if extra.kept.label.is_empty() {
            return;
        }
        extra.hold = Some(id);
        let owner = (client, extra.kept.label.clone());
        if let Some(extra) = self.all[id].header.extra() {
            let chain = self.owners.entry(owner).or_default();
            chain.push(&mut self.extras, extra);
        }
    }

    fn forget_label(&mut self, client: Id<Client>, id: Id<Extra>) {
        let label = std::mem::take(&mut self.extras[id].kept.label);
        let owner = Owner(client, &label);
        if let Some(chain) = self.owners.get_mut(&owner).filter(|_| !label.is_empty()) {
            chain.remove(&mut self.extras, id);
            if chain.is_empty() {
                index::take(&mut self.owners, &owner);
            }
        }
    }

    fn extra(&self, id: Id<Hold>) -> Option<&Extra> {
        self.all[id].extra(&self.extras)
    }

    /// Made where there is none.
    fn extra_mut(&mut self, id: Id<Hold>) -> &mut Extra {
        let extra = self.all[id].header.extra().unwrap_or_else(|| {
            let made = self.extras.insert(Extra::default());
            self.all[id].header.set_extra(made);
            made
        });
        &mut self.extras[extra]
    }

    /// All holds of a key, the oldest first: also those of owners that are gone.
    pub fn all_of_key(&self, keys: &Keys, key: Id<HeldKey>) -> impl Iterator<Item = Id<Hold>> {
        keys[key].holds.iter(&self.all)
    }

    /// The connection's holds, the oldest first.
    pub fn of_client(
        &self,
        clients: &Clients,
        client: Id<Client>,
    ) -> impl Iterator<Item = Id<Hold>> {
        clients[client].holding.iter(&self.all)
    }

    /// Whether the key's holders let another owner hold it in this way. O(1).
    pub fn admit(&self, keys: &Keys, key: Id<HeldKey>, mode: Mode) -> bool {
        mode.goes_with(keys[key].held()) && self.has_permits(key, mode)
    }

    /// Whether what a semaphore has left is enough. O(1).
    fn has_permits(&self, key: Id<HeldKey>, mode: Mode) -> bool {
        let Mode::Permits { count, total } = mode else {
            return true;
        };
        self.permits.get(&key).is_none_or(|permits| {
            permits.total == total && count <= total.saturating_sub(permits.taken)
        })
    }

    /// How many permits the semaphore has that a key is held as, if it is. O(1).
    pub fn total(&self, key: Id<HeldKey>) -> Option<u32> {
        self.permits.get(&key).map(|permits| permits.total)
    }

    /// Writes down a hold that the others admit. O(1), with a lease O(log of leases).
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
            self.extra_mut(id).ack = Ack::Pending(grant.token);
            self.acks.hold_begins(grant.token, id);
        }
        self.join_key(keys, id, key);
        self.temporary += usize::from(!terms.mode.is_lock());
        let client = &mut clients[grant.client];
        client.holding.push(&mut self.all, id);
        client.hold_count += 1;
        id
    }

    /// Ends a hold. O(1), with a lease O(log of leases).
    pub fn remove(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        timers: &mut Timers,
        id: Id<Hold>,
    ) {
        self.leave_key(keys, id);
        self.leave_owner(clients, timers, id);
    }

    fn leave_key(&mut self, keys: &mut Keys, id: Id<Hold>) {
        let hold = &self.all[id];
        let (key, client) = (hold.key, hold.client);
        let mode = self.mode(id);
        let record = &mut keys[key];
        if !record.has_one_hold() {
            let (label, token) = (hold.label(&self.extras), hold.token);
            let is_further = self.overflow.leave((key, client, label), id);
            if is_further {
                self.by_token.leave((key, token), id);
            }
            self.sizes.leave(key);
        }
        record.set_one_hold(false);
        record.holds.remove(&mut self.all, id);
        if record.holds.is_empty() {
            record.set_unheld();
        } else if !self.is_held_as(record, mode) {
            record.set_held(record.held().without(mode.kind()));
        }
        if let Mode::Permits { count, .. } = mode {
            self.give_permits_back(key, count);
        }
    }

    /// Whether a key is held in such a mode by somebody else than who has just let it go. O(modes): of all modes in which a key
    /// is held, one is that of several holders, so among the first few there is one of these.
    fn is_held_as(&self, record: &HeldKey, mode: Mode) -> bool {
        let kind = mode.kind();
        let mut holds = record.holds.iter(&self.all).take(ModeKind::COUNT);
        kind.goes_with(kind) && holds.any(|hold| self.mode(hold).kind() == kind)
    }

    fn give_permits_back(&mut self, key: Id<HeldKey>, count: u32) {
        if let Some(permits) = self.permits.get_mut(&key) {
            permits.taken -= count;
            if permits.taken == 0 {
                index::take(&mut self.permits, &key);
            }
        }
    }

    fn join_key(&mut self, keys: &mut Keys, id: Id<Hold>, key: Id<HeldKey>) {
        let record = &mut keys[key];
        let client = self.all[id].client;
        // As a rule it is the key's first, which needs none of this.
        let is_first = record.holds.is_empty();
        record.set_one_hold(is_first);
        if !is_first {
            let chain = record.holds.iter(&self.all);
            let label = self.all[id].label(&self.extras);
            if self.overflow.join(chain, (key, client, label), id) {
                self.by_token.add((key, self.all[id].token), id);
                self.sizes.join(key);
            }
        }
        record.holds.push(&mut self.all, id);
        let mode = self.mode(id);
        record.set_held(record.held().with(mode.kind()));
        if let Mode::Permits { count, total } = mode {
            let permits = self.permits.entry(key);
            permits.or_insert(Permits { taken: 0, total }).taken += count;
        }
    }

    fn leave_owner(&mut self, clients: &mut Clients, timers: &mut Timers, id: Id<Hold>) {
        let hold = &self.all[id];
        let (client, header) = (hold.client, hold.header);
        if let Some(extra) = header.extra() {
            self.set_lease(timers, id, None);
            match self.extras[extra].ack {
                Ack::Settled => {}
                Ack::Pending(token) => self.acks.hold_ends(token, id),
                Ack::Withdrawn => self.acks.forget_withdrawn(id, client),
            }
            self.forget_label(client, extra);
            self.extras.remove(extra);
        }
        let owner = &mut clients[client];
        owner.holding.remove(&mut self.all, id);
        owner.hold_count -= 1;
        self.all.remove(id);
        self.temporary -= usize::from(header.is_temporary());
    }

    /// Lets a hold end by itself at this moment, or not at all. O(log of leases).
    pub fn set_lease(&mut self, timers: &mut Timers, id: Id<Hold>, lease: Option<Moment>) {
        let former = self.lease(id);
        if former != lease {
            timers.set(Timer::Lease(id), former, lease);
            self.extra_mut(id).lease = lease;
        }
    }

    /// The leases, for tests.
    pub fn leases(&self) -> impl Iterator<Item = (Moment, Timer)> {
        let leases = self.all.iter().map(|(id, _)| (self.lease(id), id));
        leases.filter_map(|(end, id)| Some((end?, Timer::Lease(id))))
    }
}

impl ops::Index<Id<Hold>> for Holds {
    type Output = Hold;
    fn index(&self, id: Id<Hold>) -> &Hold {
        &self.all[id]
    }
}

impl ops::IndexMut<Id<Hold>> for Holds {
    fn index_mut(&mut self, id: Id<Hold>) -> &mut Hold {
        &mut self.all[id]
    }
}
