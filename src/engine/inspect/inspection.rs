//! Who holds and who waits, for an operator at three in the morning.

use crate::engine::limits::{ENTRIES_COUNTED, ENTRIES_PER_LISTED_KEY, KEYS_LISTED_AT_ONCE};
use crate::engine::mode::{Mode, ModeKind};
use crate::engine::state::rows::{Client, HeldKey, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Db, Key, KeyBuf, Moment, NOBODY, Token};

/// What there is to tell about one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyInspection {
    /// In which mode it is held, or asked for by who is first in line; of several the one that says most of the key.
    pub kind: Option<ModeKind>,
    /// How many permits it has, if it is held as a semaphore.
    pub total: Option<u32>,
    /// The oldest first, as many as were asked for.
    pub holders: Vec<Holder>,
    pub holder_count: usize,
    /// In the order in which they will be served, as many as were asked for.
    pub waiters: Vec<Waiting>,
    pub waiter_count: usize,
}

/// A step of a walk through the keys that are held or waited for.
pub struct Walk<'a> {
    /// 0 at the beginning, and then what the step before gave.
    pub cursor: u64,
    pub db: Db,
    /// Only those that this connection holds or waits for; with 0 those that detached sessions hold.
    pub client: Option<ClientId>,
    /// Only those with such a name.
    pub is_meant: &'a dyn Fn(&[u8]) -> bool,
    /// About how many keys are looked at.
    pub count: u64,
}

/// What a step of a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// 0 at the end.
    pub cursor: u64,
    pub lines: Vec<KeyLine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// 0 where nobody is attached to the session that holds.
    pub client: ClientId,
    /// Whether somebody is attached to the session that holds; none where a connection does.
    pub session: Option<bool>,
    pub label: Box<[u8]>,
    pub mode: Mode,
    pub token: Token,
    pub depth: u32,
    pub held_ms: u64,
    /// What is left of its lease.
    pub lease_ms: Option<u64>,
    /// How many replicas have acknowledged its grant, and are to; none where that does not matter, or not any more.
    pub acks: Option<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub client: ClientId,
    pub label: Box<[u8]>,
    pub mode: Mode,
    pub waiting_ms: u64,
}

/// A key in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    pub key: KeyBuf,
    /// 0 where nobody is attached to the session that holds.
    pub holders: Vec<ClientId>,
    pub waiters: usize,
    /// How long the longest hold has lasted.
    pub oldest_ms: Option<u64>,
}

/// A key that is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyRef {
    /// It is not held.
    Name(Id<Name>),
    /// It is held, with the name at which somebody watches it or waits for it, if anybody does.
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

/// A stop of a walk: the place of a held key, or of a name.
#[derive(Clone, Copy)]
enum Position {
    Held(usize),
    Name(usize),
}

impl Position {
    fn of(cursor: u64) -> Self {
        let place = usize::try_from(cursor / 2).unwrap_or(usize::MAX);
        match cursor % 2 {
            0 => Position::Held(place),
            _ => Position::Name(place),
        }
    }

    /// Not 0 but for the first.
    fn cursor(self) -> u64 {
        match self {
            Position::Held(place) => place as u64 * 2,
            Position::Name(place) => place as u64 * 2 + 1,
        }
    }
}

impl Engine {
    /// Who holds a key and who waits for it, no more than `most` of each; nothing where nobody does. O(most).
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
        let asked = waiters.first().map(|waiter| waiter.mode.kind());
        let held = held.filter(|_| !holders.is_empty());
        let inspection = KeyInspection {
            kind: held.map_or(asked, |held| self.keys[held].held().first()),
            total: held.and_then(|held| self.holds.total(held)),
            holder_count: held.map_or(0, |held| self.count_living(held)),
            waiter_count: name.map_or(0, |name| self.count_waiting(name)),
            holders,
            waiters,
        };
        let anyone = inspection.holder_count > 0 || inspection.waiter_count > 0;
        anyone.then_some(inspection)
    }

    fn count_living(&self, key: Id<HeldKey>) -> usize {
        let count = self.holds.count(&self.keys, key);
        if !self.is_anything_orphaned() || count > ENTRIES_COUNTED {
            return count;
        }
        self.living_holds(key).count()
    }

    pub(in crate::engine) fn count_waiting(&self, name: Id<Name>) -> usize {
        let count = self.queues.count(&self.keys, name);
        if !self.has_dead_waits() || count > ENTRIES_COUNTED {
            return count;
        }
        let waiters = self.queues.of_name(&self.keys, name);
        waiters.filter(|waiter| !self.is_dead_wait(*waiter)).count()
    }

    /// The next of the keys of a database that are held or waited for, in no particular order. O(count), and besides what is
    /// told of the last of them.
    ///
    /// First come the held keys, with who waits for them, and then the names that are only waited for. Each keeps its place, so a
    /// walk meets whatever is held, or waited for and not held, from its beginning to its end.
    pub fn list(&self, now: Moment, walk: &Walk<'_>) -> Page {
        let count = usize::try_from(walk.count).unwrap_or(usize::MAX);
        let is_meant = |key: Key<'_>| key.db == walk.db && (walk.is_meant)(key.name);
        if let Some(id) = walk.client.filter(|id| *id != NOBODY) {
            let Some(client) = self.clients.find(id) else {
                return Page::default();
            };
            if let Some(key_refs) = self.key_refs_of_client(client, count.max(KEYS_LISTED_AT_ONCE))
            {
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
            if let Some(key_ref) = self.key_ref_at(at)
                && is_meant(self.key_of_ref(key_ref))
            {
                let (held, name) = (key_ref.held(), key_ref.name());
                let holds = held.map_or(0, |held| self.holds.count(&self.keys, held));
                looked += holds / ENTRIES_PER_LISTED_KEY;
                let concerns = walk.client.is_none_or(|client| {
                    let waits = name.map_or(0, |name| self.queues.count(&self.keys, name));
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
            Position::Held(place) if place >= self.keys.held_places().places() => {
                Some(Position::Name(0))
            }
            Position::Held(place) => {
                Some(Position::Held(self.keys.held_places().place_after(place)))
            }
            Position::Name(place) if place >= self.keys.name_places().places() => None,
            Position::Name(place) => {
                Some(Position::Name(self.keys.name_places().place_after(place)))
            }
        }
    }

    /// What is there, but for a name whose key is held.
    fn key_ref_at(&self, at: Position) -> Option<KeyRef> {
        match at {
            Position::Held(place) => self.key_ref_of_held(self.keys.held_places().at(place)?),
            Position::Name(place) => {
                let key_ref = self.key_ref_of_name(self.keys.name_places().at(place)?);
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

    /// What a connection or its session holds or waits for, unless that is more than so many. O(its number).
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
            label: self.holds.label(id).into(),
            mode: self.holds.mode(id),
            token: hold.token,
            depth: self.holds.depth(id),
            held_ms: hold.header.since().held_ms(now),
            lease_ms: self.holds.lease(id).map(|end| end.ms_since(now)),
            acks: (self.holds.pending_grant(id)).map(|grant| (grant.got, grant.wanted)),
        })
    }

    fn waiting_line(&self, now: Moment, id: Id<Waiter>) -> Waiting {
        let waiter = &self.queues[id];
        Waiting {
            client: waiter.reply_to.client,
            label: waiter.terms.label[..].into(),
            mode: waiter.terms.mode,
            waiting_ms: now.ms_since(waiter.since),
        }
    }
}
