//! The log of `LOCK.LOG`: a ring of the latest holds that were lost, not released.

use crate::engine::{
    ClientId, Key, KeyBuf, LOSSES_LOGGED_APART, Loss, Lost, Moment, NOBODY, Origin, Token,
};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Average bound of an entry's size: with long names the log has fewer entries.
const BYTES_PER_ENTRY: usize = 1024;

/// A burst ends after this time without a loss.
const BURST_GAP_MS: u64 = 1000;

/// Longer labels are truncated.
const MAX_LABEL_BYTES: usize = 128;

/// Names longer than this plus [`MAX_MARK_BYTES`] are truncated to this length.
const CUT_NAME_BYTES: usize = 960;

/// Bound of the suffix of a truncated name.
const MAX_MARK_BYTES: usize = 64;

/// A key as logged: a long name is truncated and gets a suffix with its length and hash.
pub fn key_in_log(key: Key<'_>) -> KeyBuf {
    if !is_cut(key) {
        return key.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    key.name.hash(&mut hasher);
    let (bytes, hash) = (key.name.len(), hasher.finish());
    let mark = format!("...({bytes} bytes, {hash:016x})");
    debug_assert!(mark.len() <= MAX_MARK_BYTES);
    let name = [&key.name[..CUT_NAME_BYTES], mark.as_bytes()].concat();
    let key = Key { name: &name, ..key };
    key.to_owned()
}

fn is_cut(key: Key<'_>) -> bool {
    key.name.len() > CUT_NAME_BYTES + MAX_MARK_BYTES
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Greater than those of all entries before it.
    pub id: u64,
    pub at: Moment,
    /// Its key and label may be truncated.
    pub lost: Box<Lost>,
    pub is_cut: bool,
    /// The token of the next holder.
    pub next: Option<Token>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let Lost {
            key, label, origin, ..
        } = &*self.lost;
        let origin = origin.as_ref().map_or(0, |origin| origin.bytes());
        size_of::<Entry>() + size_of::<Lost>() + 2 * key.name.len() + label.len() + origin
    }
}

/// Losses of one owner for one reason, without a gap.
#[derive(Clone, Copy)]
struct Burst {
    client: ClientId,
    count: u64,
    /// The entry that the later losses of the burst share.
    shared: Option<u64>,
    last: Moment,
}

/// Invariant: ids are consecutive; `bytes` is the sum over all entries; `open` has the ids of entries without a next
/// holder, per key, oldest first.
#[derive(Default)]
pub struct LossLog {
    entries: VecDeque<Entry>,
    bytes: usize,
    most: usize,
    last_id: u64,
    /// Losses added; many may share an entry.
    added: u64,
    open: HashMap<KeyBuf, VecDeque<u64>>,
    bursts: HashMap<(u32, Loss), Burst>,
}

impl LossLog {
    /// Sets the capacity, in entries.
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

    /// Removes all entries. Ids continue.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.open.clear();
        self.bursts.clear();
        self.bytes = 0;
    }

    /// The number of losses added, if no entry lacks its next holder.
    pub fn closed(&self) -> Option<u64> {
        self.open.is_empty().then_some(self.added)
    }

    /// Adds a lost hold. Returns its entry and client if the client is still to be [described](Self::describe). O(1).
    pub fn add(&mut self, now: Moment, lost: Box<Lost>) -> Option<(u64, ClientId)> {
        self.added += 1;
        let burst = self.burst(now, &lost);
        let is_apart = burst.count <= u64::from(LOSSES_LOGGED_APART) && !lost.is_one_of_many;
        if let Some(shared) = burst.shared.and_then(|id| self.find(id)) {
            shared.lost.count += lost.count;
            return None;
        }
        let (owner, client) = ((lost.owner, lost.why), lost.client);
        let wants_origin = lost.origin.is_none() && client != NOBODY;
        let id = self.push(now, lost);
        if !is_apart && let Some(burst) = self.bursts.get_mut(&owner) {
            burst.shared = Some(id);
        }
        self.shrink();
        wants_origin.then_some((id, client))
    }

    /// Counts a loss in its owner's burst. If there are more bursts than the capacity, all bursts end.
    fn burst(&mut self, now: Moment, lost: &Lost) -> Burst {
        let owner = (lost.owner, lost.why);
        if self.bursts.len() >= self.most && !self.bursts.contains_key(&owner) {
            self.bursts.clear();
        }
        let new = Burst {
            client: lost.client,
            count: 0,
            shared: None,
            last: now,
        };
        let burst = self.bursts.entry(owner).or_insert(new);
        if burst.client != lost.client || now.ms_since(burst.last) >= BURST_GAP_MS {
            *burst = new;
        }
        burst.count += 1;
        burst.last = now;
        *burst
    }

    fn push(&mut self, at: Moment, mut lost: Box<Lost>) -> u64 {
        self.last_id += 1;
        let is_cut = is_cut(lost.key.as_key());
        if is_cut {
            lost.key = key_in_log(lost.key.as_key());
        }
        if lost.label.len() > MAX_LABEL_BYTES {
            lost.label = lost.label[..MAX_LABEL_BYTES].into();
        }
        let open = self.open.entry(lost.key.clone()).or_default();
        open.push_back(self.last_id);
        let entry = Entry {
            id: self.last_id,
            at,
            lost,
            is_cut,
            next: None,
        };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        self.last_id
    }

    fn find(&mut self, id: u64) -> Option<&mut Entry> {
        let first = self.entries.front()?.id;
        let place = usize::try_from(id.checked_sub(first)?).ok()?;
        self.entries.get_mut(place)
    }

    /// Removes the oldest entries while the log exceeds its capacity or its bytes.
    fn shrink(&mut self) {
        while self.entries.len() > self.most || self.bytes > self.most * BYTES_PER_ENTRY {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= entry.bytes();
            if entry.next.is_none()
                && let Some(open) = self.open.get_mut(&entry.lost.key)
            {
                // The entry is the oldest of all, hence of its key: no search, even if very many owners lost one key.
                let first = open.pop_front();
                debug_assert_eq!(first, Some(entry.id));
                if open.is_empty() {
                    self.open.remove(&entry.lost.key);
                }
            }
        }
    }

    /// A key was granted: sets the next holder of its open entries. O(open entries of the key).
    pub fn granted(&mut self, key: Key<'_>, token: Token) {
        for id in self.open.remove(&key_in_log(key)).unwrap_or_default() {
            if let Some(entry) = self.find(id) {
                entry.next = Some(token);
            }
        }
    }

    /// Adds the origin of an entry's client.
    pub fn describe(&mut self, id: u64, origin: Origin) {
        let Some(entry) = self.find(id) else { return };
        let bytes = origin.bytes();
        entry.lost.origin = Some(Box::new(origin));
        self.bytes += bytes;
        self.shrink();
    }

    /// The entries, latest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// Panics unless the invariant holds. O(entries).
    pub fn check(&self) {
        let bytes = self.entries.iter().map(Entry::bytes);
        assert_eq!(self.bytes, bytes.sum());
        assert!(self.bytes <= self.most * BYTES_PER_ENTRY && self.entries.len() <= self.most);
        let open: Vec<_> = self.iter().filter(|entry| entry.next.is_none()).collect();
        for entry in &open {
            assert!(self.open[&entry.lost.key].contains(&entry.id));
        }
        assert_eq!(open.len(), self.open.values().map(VecDeque::len).sum());
        let ids: Vec<u64> = self.iter().map(|entry| entry.id).collect();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1] + 1));
    }
}
