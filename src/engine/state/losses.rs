//! How holds ended that their owners did not end: the latest of them, for `LOCK.LOG`.

use crate::engine::mode::Mode;
use crate::engine::state::rows::{Client, Header};
use crate::engine::storage::arena::Id;
use crate::engine::types::{ClientId, Key, KeyBuf, Loss, Moment, NOBODY, Origin, Token};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// On average an entry takes so many bytes at most: where names are longer, there are fewer entries.
const BYTES_EACH: usize = 1024;

/// Of what one owner loses at once for one reason, so many entries at most stand for one hold each.
const APART: u64 = 100;

/// What is lost within so much time of the loss before is lost at once.
const AT_ONCE_MS: u64 = 1000;

/// Longer labels are cut.
const LONGEST: usize = 128;

/// Of a key's name so many bytes are kept, if it is longer than that and [`MARK`] together.
const LONGEST_KEY: usize = 960;

/// No mark of a name that was cut is longer.
const MARK: usize = 64;

/// A key by the name that it has in the log: where that would be too long it is cut, and ends in a mark that says so and tells it
/// from other such names.
pub fn key_in_log(key: Key<'_>) -> KeyBuf {
    if !is_cut(key) {
        return key.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    key.name.hash(&mut hasher);
    let (bytes, hash) = (key.name.len(), hasher.finish());
    let mark = format!("...({bytes} bytes, {hash:016x})");
    debug_assert!(mark.len() <= MARK);
    let name = [&key.name[..LONGEST_KEY], mark.as_bytes()].concat();
    let key = Key { name: &name, ..key };
    key.to_owned()
}

fn is_cut(key: Key<'_>) -> bool {
    key.name.len() > LONGEST_KEY + MARK
}

/// A hold that its owner did not end; or many that went at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Greater than those of all entries before it.
    pub id: u64,
    pub at: Moment,
    /// Of many, that of the first; and so is what follows.
    pub key: KeyBuf,
    /// The key's name is longer.
    pub is_cut: bool,
    pub token: Token,
    pub label: Box<[u8]>,
    /// 0 where nobody was attached to the session that held it.
    pub client: ClientId,
    /// None until it is known.
    pub origin: Option<Box<Origin>>,
    pub mode: Mode,
    pub held_ms: u64,
    pub why: Loss,
    pub waiters: usize,
    /// The token of the next holder.
    pub next: Option<Token>,
    /// How many holds.
    pub count: u64,
}

impl Lost {
    fn bytes(&self) -> usize {
        let origin = self.origin.as_ref().map_or(0, |origin| origin.bytes());
        size_of::<Entry>() + 2 * self.key.name.len() + self.label.len() + origin
    }
}

struct Entry {
    lost: Lost,
    /// When it began to be held.
    since: Header,
}

/// What is to be written down of a hold.
pub(in crate::engine) struct Ended<'a> {
    pub key: Key<'a>,
    pub owner: Id<Client>,
    pub client: ClientId,
    pub origin: Option<Box<Origin>>,
    pub token: Token,
    pub label: &'a [u8],
    pub mode: Mode,
    pub since: Header,
    pub why: Loss,
    pub waiters: usize,
    /// It is one of many that go for this reason.
    pub is_one_of_many: bool,
    /// For how many it stands.
    pub count: u64,
}

/// What one owner has lost at once, for one reason.
#[derive(Clone, Copy)]
struct Burst {
    client: ClientId,
    count: u64,
    /// The entry of all, once they are many.
    entry: Option<u64>,
    last: Moment,
}

/// Invariant: ids rise; `bytes` is what the entries take together; `open` names the entries without a next holder, each once, the
/// oldest of a key first.
#[derive(Default)]
pub(in crate::engine) struct Losses {
    entries: VecDeque<Entry>,
    bytes: usize,
    most: usize,
    last_id: u64,
    open: HashMap<KeyBuf, VecDeque<u64>>,
    bursts: HashMap<(Id<Client>, Loss), Burst>,
    /// How many of the last entries wait for what only the server knows.
    undescribed: usize,
}

impl Losses {
    /// So many entries at most from now on.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
        if most == 0 {
            self.bursts.clear();
        }
        self.shrink();
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// Forgets all entries. Ids go on.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.open.clear();
        self.bursts.clear();
        (self.bytes, self.undescribed) = (0, 0);
    }

    #[inline]
    pub fn is_anything_undescribed(&self) -> bool {
        self.undescribed > 0
    }

    /// Writes a hold down that ends. O(1).
    pub fn add(&mut self, now: Moment, ended: &Ended<'_>) {
        if self.most == 0 {
            return;
        }
        let burst = self.burst(now, ended);
        let (apart, entry) = (burst.count <= APART && !ended.is_one_of_many, burst.entry);
        if let Some(entry) = entry.and_then(|id| self.find(id)) {
            entry.lost.count += ended.count;
            return;
        }
        let id = self.push(now, ended);
        if !apart && let Some(burst) = self.bursts.get_mut(&(ended.owner, ended.why)) {
            burst.entry = Some(id);
        }
        self.shrink();
    }

    /// Counts it among what its owner loses at once. Of more owners than there are entries all are forgotten.
    fn burst(&mut self, now: Moment, ended: &Ended<'_>) -> Burst {
        let owner = (ended.owner, ended.why);
        if self.bursts.len() >= self.most && !self.bursts.contains_key(&owner) {
            self.bursts.clear();
        }
        let new = Burst {
            client: ended.client,
            count: 0,
            entry: None,
            last: now,
        };
        let burst = self.bursts.entry(owner).or_insert(new);
        if burst.client != ended.client || now.ms_since(burst.last) >= AT_ONCE_MS {
            *burst = new;
        }
        burst.count += 1;
        burst.last = now;
        *burst
    }

    fn push(&mut self, now: Moment, ended: &Ended<'_>) -> u64 {
        self.last_id += 1;
        let key = key_in_log(ended.key);
        let lost = Lost {
            id: self.last_id,
            is_cut: is_cut(ended.key),
            at: now,
            token: ended.token,
            label: ended.label[..ended.label.len().min(LONGEST)].into(),
            client: ended.client,
            origin: ended.origin.clone(),
            mode: ended.mode,
            held_ms: ended.since.held_ms(now),
            why: ended.why,
            waiters: ended.waiters,
            next: None,
            count: ended.count,
            key: key.clone(),
        };
        self.open.entry(key).or_default().push_back(lost.id);
        self.bytes += lost.bytes();
        let since = ended.since;
        self.entries.push_back(Entry { lost, since });
        self.undescribed += 1;
        self.last_id
    }

    fn find(&mut self, id: u64) -> Option<&mut Entry> {
        let first = self.entries.front()?.lost.id;
        let place = usize::try_from(id.checked_sub(first)?).ok()?;
        self.entries.get_mut(place)
    }

    /// Forgets the oldest entries while there are too many, or they take too much.
    fn shrink(&mut self) {
        while self.entries.len() > self.most || self.bytes > self.most * BYTES_EACH {
            let Some(Entry { lost, .. }) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= lost.bytes();
            self.undescribed = self.undescribed.min(self.entries.len());
            if lost.next.is_none()
                && let Some(open) = self.open.get_mut(&lost.key)
            {
                // Very many may have lost one key at once: it is the oldest of all.
                let first = open.pop_front();
                debug_assert_eq!(first, Some(lost.id));
                if open.is_empty() {
                    self.open.remove(&lost.key);
                }
            }
        }
    }

    /// Somebody was granted a key: is it lost by somebody, the next holder is this one. O(1) besides those.
    #[inline]
    pub fn granted(&mut self, key: Key<'_>, token: Token) {
        if !self.open.is_empty() {
            self.note_next(key, token);
        }
    }

    fn note_next(&mut self, key: Key<'_>, token: Token) {
        for id in self.open.remove(&key_in_log(key)).unwrap_or_default() {
            if let Some(entry) = self.find(id) {
                entry.lost.next = Some(token);
            }
        }
    }

    /// Adds what only the server knows to the entries that came since the last time: the moment, and of these connections
    /// what they are.
    pub fn describe(&mut self, now: Moment, clients: &[(ClientId, Origin)]) {
        let from = self.entries.len() - self.undescribed;
        self.undescribed = 0;
        for Entry { lost, since } in self.entries.range_mut(from..) {
            (lost.at, lost.held_ms) = (now, since.held_ms(now));
            if lost.origin.is_none()
                && let Ok(place) = clients.binary_search_by_key(&lost.client, |(id, _)| *id)
            {
                let origin = Box::new(clients[place].1.clone());
                self.bytes += origin.bytes();
                lost.origin = Some(origin);
            }
        }
        self.shrink();
    }

    /// The living connections of those entries, in their order.
    pub fn to_describe(&self) -> Vec<ClientId> {
        let from = self.entries.len() - self.undescribed;
        let entries = self.entries.range(from..);
        let open =
            entries.filter(|entry| entry.lost.origin.is_none() && entry.lost.client != NOBODY);
        let mut clients: Vec<_> = open.map(|entry| entry.lost.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// The entries, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = &Lost> {
        self.entries.iter().rev().map(|entry| &entry.lost)
    }

    /// Panics unless the invariant holds. O(entries).
    pub fn check(&self) {
        let bytes = self.entries.iter().map(|entry| entry.lost.bytes());
        assert_eq!(self.bytes, bytes.sum());
        assert!(self.bytes <= self.most * BYTES_EACH && self.entries.len() <= self.most);
        let open: Vec<_> = self.iter().filter(|lost| lost.next.is_none()).collect();
        for lost in &open {
            assert!(self.open[&lost.key].contains(&lost.id));
        }
        assert_eq!(open.len(), self.open.values().map(VecDeque::len).sum());
        let ids: Vec<u64> = self.iter().map(|lost| lost.id).collect();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1] + 1));
    }
}
