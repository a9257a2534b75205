//! Holders and waiters: of one key, and listed by cursor.

use crate::engine::limits::{
    ENTRIES_COUNTED, ENTRIES_PER_LISTED_KEY, KEYS_LISTED_AT_ONCE, MATCHED_BYTES_PER_LISTED_KEY,
};
use crate::engine::mode::ModeKind;
use crate::engine::state::rows::{Client, HeldKey, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::terms::Terms;
use crate::engine::types::{ClientId, Db, Key, KeyBuf, Moment, NOBODY, Token};

/// The reply of LOCK.INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyInspection {
    /// The most restrictive mode in which it is held; else that of the first waiter.
    pub kind: Option<ModeKind>,
    /// The permits of a held semaphore.
    pub total: Option<u32>,
    /// Oldest first, up to the requested number.
    pub holders: Vec<Holder>,
    pub holder_count: usize,
    /// In queue order, up to the requested number.
    pub waiters: Vec<Waiting>,
    pub waiter_count: usize,
}

/// A request of LOCK.LIST: one step of a walk over the keys that are held or waited for.
pub struct Walk<'a> {
    /// 0, or the cursor of the previous page.
    pub cursor: u64,
    pub db: Db,
    /// Selects keys that this connection holds or waits for; with 0, keys held by detached sessions.
    pub client: Option<ClientId>,
    /// Selects keys by name, by a pattern of so many bytes.
    pub is_meant: &'a dyn Fn(&[u8]) -> bool,
    pub pattern_len: usize,
    /// Keys to visit, approximately.
    pub count: u64,
}

impl Walk<'_> {
    /// What it costs to match a name, in keys.
    fn match_cost(&self, key: Key<'_>) -> usize {
        key.name.len().saturating_mul(self.pattern_len) / MATCHED_BYTES_PER_LISTED_KEY
    }
}

/// The keys found by one step of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// 0 at the end.
    pub cursor: u64,
    pub lines: Vec<KeyLine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The connection that holds, or that is attached to the session that does; 0 for a detached session.
    pub client: ClientId,
    /// Of a session: whether it is attached. None for a connection.
    pub session: Option<bool>,
    /// With the rest of its lease.
    pub terms: Terms<Box<[u8]>>,
    pub token: Token,
    pub depth: u32,
    pub held_ms: u64,
    /// Of a pending grant: the replicas that have acknowledged it, and the number required.
    pub acks: Option<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub client: ClientId,
    pub terms: Terms<Box<[u8]>>,
    pub waiting_ms: u64,
}

/// A line of LOCK.LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    pub key: KeyBuf,
    /// As [`Holder::client`].
    pub holders: Vec<ClientId>,
    pub waiters: usize,
    /// The age of its oldest hold.
    pub oldest_ms: Option<u64>,
}

/// A key that is held or has a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyRef {
    /// Not held.
    Name(Id<Name>),
    /// Held, and its name if it is watched or waited for.
    Held(Id<HeldKey>, Option<Id<Name>>),
}

impl KeyRef {
    fn held(self) -> Option<Id<HeldKey>> {
        match self {
            KeyRef::Held(held, _) => Some(held),
            KeyRef::Name(_) => None,
        }
    }

    fn name(self) -> Option<Id<Name>> {
        match self {
            KeyRef::Held(_, name) => name,
            KeyRef::Name(name) => Some(name),
        }
    }
}

/// A position of a walk: the arena slot of a held key, or of a name.
#[derive(Clone, Copy)]
enum Position {
    Held(usize),
    Name(usize),
}

impl Position {
    fn of(cursor: u64) -> Self {
        let slot = usize::try_from(cursor / 2).unwrap_or(usize::MAX);
        match cursor % 2 {
            0 => Position::Held(slot),
            _ => Position::Name(slot),
        }
    }

    /// 0 only for the first position.
    fn cursor(self) -> u64 {
        match self {
            Position::Held(slot) => slot as u64 * 2,
            Position::Name(slot) => slot as u64 * 2 + 1,
        }
    }
}

impl Engine {
    /// The holders and waiters of a key, at most `most` of each; none if it has neither. O(most).
    pub fn inspect(&self, now: Moment, key: Key<'_>, most: usize) -> Option<KeyInspection> {
        let (held, name) = (self.keys.find_held(key), self.keys.find_name(key));
        let holds = held.into_iter();
        let holders: Vec<_> = holds
            .flat_map(|held| self.holds.all_of_key(&self.keys, held))
            .take(most.saturating_add(ENTRIES_COUNTED))
            .filter_map(|hold| self.holder_line(now, hold))
            .take(most)
            .collect();
        let waiters = name.into_iter();
        let waiters: Vec<_> = waiters
            .flat_map(|name| self.queues.of_name(&self.keys, name))
            .take(most.saturating_add(ENTRIES_COUNTED))
            .filter(|waiter| !self.is_dead_wait(*waiter))
            .map(|waiter| self.waiting_line(now, waiter))
            .take(most)
            .collect();
        let asked = waiters.first().map(|waiter| waiter.terms.mode.kind());
        let held = held.filter(|_| !holders.is_empty());
        let inspection = KeyInspection {
            kind: held.map_or(asked, |held| self.keys[held].held().most_restrictive()),
            total: held.and_then(|held| self.holds.total(&self.keys, held)),
            holder_count: held.map_or(0, |held| self.count_living(held)),
            waiter_count: name.map_or(0, |name| self.count_waiting(name)),
            holders,
            waiters,
        };
        let anyone = inspection.holder_count > 0 || inspection.waiter_count > 0;
        anyone.then_some(inspection)
    }

    fn count_living(&self, key: Id<HeldKey>) -> usize {
        let count = self.keys[key].hold_count as usize;
        if !self.is_anything_orphaned() || count > ENTRIES_COUNTED {
            return count;
        }
        self.living_holds(key).count()
    }

    pub(in crate::engine) fn count_waiting(&self, name: Id<Name>) -> usize {
        let count = self.keys[name].queue_length as usize;
        if !self.has_dead_waits() || count > ENTRIES_COUNTED {
            return count;
        }
        let waiters = self.queues.of_name(&self.keys, name);
        waiters.filter(|waiter| !self.is_dead_wait(*waiter)).count()
    }

    /// The next keys of a database that are held or waited for, in no particular order. O(count + holders and waiters of the last
    /// key).
    ///
    /// Held keys come first, then names that are only waited for. Records keep their slots, so a full walk returns each key that is
    /// held during all of it, or waited for and not held during all of it.
    pub fn list(&self, now: Moment, walk: &Walk<'_>) -> Page {
        let count = usize::try_from(walk.count).unwrap_or(usize::MAX);
        let is_meant = |key: Key<'_>| key.db == walk.db && (walk.is_meant)(key.name);
        if let Some(id) = walk.client.filter(|id| *id != NOBODY) {
            let Some(client) = self.clients.find(id) else {
                return Page::default();
            };
            let most = count.max(KEYS_LISTED_AT_ONCE);
            let is_cheap = |key_refs: &Vec<KeyRef>| {
                let costs = key_refs.iter();
                let costs = costs.map(|key_ref| walk.match_cost(self.key_of_ref(*key_ref)));
                costs.sum::<usize>() <= most
            };
            if let Some(key_refs) = self.key_refs_of_client(client, most).filter(is_cheap) {
                let lines = key_refs
                    .into_iter()
                    .map(|key_ref| self.key_line(now, key_ref));
                return Page {
                    cursor: 0,
                    lines: lines
                        .flatten()
                        .filter(|line| is_meant(line.key.as_key()))
                        .collect(),
                };
            }
        }
        let mut page = Page::default();
        let mut at = Position::of(walk.cursor);
        let mut looked = 0;
        while let Some(next) = self.position_after(at) {
            if looked >= count {
                page.cursor = at.cursor();
                break;
            }
            looked += 1;
            let key_ref = self.key_ref_at(at);
            let key = key_ref.map(|key_ref| self.key_of_ref(key_ref));
            looked += key.map_or(0, |key| walk.match_cost(key));
            if let Some(key_ref) = key_ref
                && key.is_some_and(&is_meant)
            {
                let (held, name) = (key_ref.held(), key_ref.name());
                let holds = held.map_or(0, |held| self.keys[held].hold_count as usize);
                looked += holds / ENTRIES_PER_LISTED_KEY;
                let concerns = walk.client.is_none_or(|client| {
                    let waits = name.map_or(0, |name| self.keys[name].queue_length as usize);
                    looked += waits / ENTRIES_PER_LISTED_KEY;
                    self.concerns(key_ref, client)
                });
                let line = concerns.then(|| self.key_line(now, key_ref));
                page.lines.extend(line.flatten());
            }
            at = next;
        }
        page
    }

    /// The next position; none after the last.
    fn position_after(&self, at: Position) -> Option<Position> {
        match at {
            Position::Held(slot) if slot >= self.keys.held_arena().slot_count() => {
                Some(Position::Name(0))
            }
            Position::Held(slot) => Some(Position::Held(self.keys.held_arena().next_slot(slot))),
            Position::Name(slot) if slot >= self.keys.name_arena().slot_count() => None,
            Position::Name(slot) => Some(Position::Name(self.keys.name_arena().next_slot(slot))),
        }
    }

    /// What is there, but for a name whose key is held.
    fn key_ref_at(&self, at: Position) -> Option<KeyRef> {
        match at {
            Position::Held(slot) => self.key_ref_of_held(self.keys.held_arena().at(slot)?),
            Position::Name(slot) => {
                let key_ref = self.key_ref_of_name(self.keys.name_arena().at(slot)?);
                key_ref.held().is_none().then_some(key_ref)
            }
        }
    }

    /// Nothing if a flush has deleted the key.
    fn key_ref_of_held(&self, held: Id<HeldKey>) -> Option<KeyRef> {
        (!self.keys.is_retired(held)).then(|| KeyRef::Held(held, self.keys.name_of(held)))
    }

    fn key_ref_of_name(&self, name: Id<Name>) -> KeyRef {
        let held = self.keys.held_at(name);
        held.map_or(KeyRef::Name(name), |held| KeyRef::Held(held, Some(name)))
    }

    fn key_of_ref(&self, key_ref: KeyRef) -> Key<'_> {
        match key_ref {
            KeyRef::Held(held, _) => self.keys.key_of(held),
            KeyRef::Name(name) => self.keys[name].key(),
        }
    }

    /// The keys that a connection or its session holds or waits for; none if they are more than `most`. O(their number).
    fn key_refs_of_client(&self, client: Id<Client>, most: usize) -> Option<Vec<KeyRef>> {
        let owner = self.clients.owner(client);
        let count = self.clients[client].place_count as usize;
        if count + self.clients[owner].hold_count as usize > most {
            return None;
        }
        let waits = self.queues.of_client(&self.clients, client);
        let asked = waits.flat_map(|waiter| self.queues.names_of(waiter));
        let asked = asked.map(|name| self.key_ref_of_name(name));
        let holds = self.holds.of_client(&self.clients, owner);
        let held = holds.filter_map(|hold| self.key_ref_of_held(self.holds[hold].key));
        let mut key_refs: Vec<_> = held.chain(asked).collect();
        key_refs.sort_unstable();
        key_refs.dedup();
        Some(key_refs)
    }

    /// Whether a connection holds or waits for a key. O(holders and waiters).
    fn concerns(&self, key_ref: KeyRef, client: ClientId) -> bool {
        let holds = key_ref.held().into_iter();
        let holds = holds.flat_map(|held| self.holds.all_of_key(&self.keys, held));
        let waits = key_ref.name().into_iter();
        let waits = waits.flat_map(|name| self.queues.of_name(&self.keys, name));
        let mut owners = holds
            .map(|hold| self.holds[hold].client)
            .chain(waits.map(|waiter| self.queues[waiter].client));
        owners.any(|owner| {
            let owner = &self.clients[owner];
            owner.id == client && owner.is_living()
        })
    }

    fn key_line(&self, now: Moment, key_ref: KeyRef) -> Option<KeyLine> {
        let living = || {
            let holds = key_ref.held().into_iter();
            let holds = holds.flat_map(|held| self.living_holds(held));
            holds.map(|hold| &self.holds[hold])
        };
        let line = KeyLine {
            key: self.key_of_ref(key_ref).to_owned(),
            holders: living().map(|hold| self.clients[hold.client].id).collect(),
            waiters: (key_ref.name()).map_or(0, |name| self.count_waiting(name)),
            oldest_ms: living().map(|hold| hold.header.since().held_ms(now)).max(),
        };
        (!line.holders.is_empty() || line.waiters > 0).then_some(line)
    }

    pub(in crate::engine) fn holder_line(&self, now: Moment, id: Id<Hold>) -> Option<Holder> {
        let hold = &self.holds[id];
        let owner = &self.clients[hold.client];
        self.is_living(id).then(|| Holder {
            client: owner.id,
            session: owner.is_session().then(|| owner.attached().is_some()),
            terms: self.terms_left(id, now),
            token: hold.token,
            depth: self.holds.depth(id),
            held_ms: hold.header.since().held_ms(now),
            acks: (self.holds.pending_grant(id)).map(|grant| (grant.got, grant.wanted)),
        })
    }

    fn waiting_line(&self, now: Moment, id: Id<Waiter>) -> Waiting {
        let waiter = &self.queues[id];
        Waiting {
            client: waiter.reply_to.client,
            terms: waiter.terms.owned(),
            waiting_ms: now.ms_since(waiter.since),
        }
    }
}
