//! Who holds and who waits, for an operator at three in the morning.

use crate::engine::limits::{ENTRIES_COUNTED, ENTRIES_PER_LISTED_KEY, KEYS_LISTED_AT_ONCE};
use crate::engine::mode::{Mode, ModeKind};
use crate::engine::state::rows::{Client, Hold, KeyRecord, Waiter};
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

impl Engine {
    /// Who holds a key and who waits for it, no more than `most` of each; nothing where nobody does. O(most).
    pub fn inspect(&self, now: Moment, key: Key<'_>, most: usize) -> Option<KeyInspection> {
        let key = self.keys.find(key)?;
        let holders = self.holds_at(key);
        let waiters = self.queues.of_key(&self.keys, key);
        let holders: Vec<_> = holders
            .take(most.saturating_add(ENTRIES_COUNTED))
            .filter_map(|hold| self.holder_line(now, hold))
            .take(most)
            .collect();
        let waiters: Vec<_> = waiters
            .take(most.saturating_add(ENTRIES_COUNTED))
            .filter(|waiter| !self.is_faded(*waiter))
            .map(|waiter| self.waiting_line(now, waiter))
            .take(most)
            .collect();
        let asked = waiters.first().map(|waiter| waiter.mode.kind());
        let inspection = KeyInspection {
            kind: match holders.is_empty() {
                true => asked,
                false => self.keys[key].held().first(),
            },
            total: self.holds.total(key).filter(|_| !holders.is_empty()),
            holders,
            holder_count: self.count_living(key),
            waiters,
            waiter_count: self.count_waiting(key),
        };
        let anyone = inspection.holder_count > 0 || inspection.waiter_count > 0;
        anyone.then_some(inspection)
    }

    fn count_living(&self, key: Id<KeyRecord>) -> usize {
        let count = match self.is_flushed(key) {
            true => 0,
            false => self.holds.count(&self.keys, key),
        };
        if !self.is_anything_orphaned() || count > ENTRIES_COUNTED {
            return count;
        }
        self.living_holds(key).count()
    }

    pub(in crate::engine) fn count_waiting(&self, key: Id<KeyRecord>) -> usize {
        let count = self.queues.count(&self.keys, key);
        if !self.is_fading() || count > ENTRIES_COUNTED {
            return count;
        }
        let waiters = self.queues.of_key(&self.keys, key);
        waiters.filter(|waiter| !self.is_faded(*waiter)).count()
    }

    /// The next of the keys of a database that are held or waited for, in no particular order. O(count), and besides what is
    /// told of the last of them.
    ///
    /// A key's record keeps its place, so a walk through the places meets whatever is there from its beginning to its end.
    pub fn list(&self, now: Moment, walk: &Walk<'_>) -> Page {
        let count = usize::try_from(walk.count).unwrap_or(usize::MAX);
        let is_meant = |key: Key<'_>| key.db == walk.db && (walk.is_meant)(key.name);
        if let Some(id) = walk.client.filter(|id| *id != NOBODY) {
            let Some(client) = self.clients.find(id) else {
                return Page::default();
            };
            if let Some(keys) = self.keys_of_client(client, count.max(KEYS_LISTED_AT_ONCE)) {
                let keys = keys.into_iter();
                let meant = keys.filter(|key| is_meant(self.keys[*key].key()));
                return Page {
                    cursor: 0,
                    lines: meant.filter_map(|key| self.key_line(now, key)).collect(),
                };
            }
        }
        let mut page = Page::default();
        let mut place = usize::try_from(walk.cursor).unwrap_or(usize::MAX);
        let mut looked = 0;
        while place < self.keys.places() {
            if looked >= count {
                page.cursor = place as u64;
                break;
            }
            looked += 1;
            if let Some(key) = self.keys.at(place)
                && is_meant(self.keys[key].key())
            {
                looked += self.holds.count(&self.keys, key) / ENTRIES_PER_LISTED_KEY;
                let concerns = walk.client.is_none_or(|client| {
                    looked += self.queues.count(&self.keys, key) / ENTRIES_PER_LISTED_KEY;
                    self.concerns(key, client)
                });
                page.lines
                    .extend(concerns.then(|| self.key_line(now, key)).flatten());
            }
            place = self.keys.place_after(place);
        }
        page
    }

    /// The keys that a connection or its session holds or waits for, unless they are more than so many. O(their number).
    fn keys_of_client(&self, client: Id<Client>, most: usize) -> Option<Vec<Id<KeyRecord>>> {
        let owner = self.clients.owner(client);
        let count = self.clients[client].place_count as usize;
        if count + self.clients[owner].hold_count as usize > most {
            return None;
        }
        let waits = self.queues.of_client(&self.clients, client);
        let asked = waits.flat_map(|waiter| self.queues.keys_of(waiter));
        let holds = self.holds.of_client(&self.clients, owner);
        let mut keys: Vec<_> = holds
            .map(|hold| self.holds[hold].key)
            .chain(asked)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        Some(keys)
    }

    /// Whether a connection holds or waits for a key. O(holders and waiters).
    fn concerns(&self, key: Id<KeyRecord>, client: ClientId) -> bool {
        let holds = self.holds_at(key);
        let waits = self.queues.of_key(&self.keys, key);
        let mut owners = holds
            .map(|hold| self.holds[hold].client)
            .chain(waits.map(|waiter| self.queues[waiter].client));
        owners.any(|owner| {
            let owner = &self.clients[owner];
            owner.id == client && !owner.ended
        })
    }

    fn key_line(&self, now: Moment, id: Id<KeyRecord>) -> Option<KeyLine> {
        let living = || self.living_holds(id).map(|id| &self.holds[id]);
        let line = KeyLine {
            key: self.keys[id].key().to_owned(),
            holders: living().map(|hold| self.clients[hold.client].id).collect(),
            waiters: self.count_waiting(id),
            oldest_ms: living().map(|hold| hold.header.since().held_ms(now)).max(),
        };
        (!line.holders.is_empty() || line.waiters > 0).then_some(line)
    }

    pub(in crate::engine) fn holder_line(&self, now: Moment, id: Id<Hold>) -> Option<Holder> {
        let hold = &self.holds[id];
        let owner = &self.clients[hold.client];
        self.is_living(id).then(|| Holder {
            client: owner.id,
            session: owner.is_session.then_some(owner.attached.is_some()),
            label: self.holds.label(id).into(),
            mode: self.holds.mode(id),
            token: hold.token,
            depth: self.holds.depth(id),
            held_ms: hold.header.since().held_ms(now),
            lease_ms: self.holds.lease(id).map(|end| end.ms_since(now)),
            acks: (self.holds.pending(id)).map(|grant| (grant.got, grant.wanted)),
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
