//! The few things that can happen to a key, by whatever command, and who hears of them.
//!
//! Each comes with the [`Change`] that a server's events would show of it.

use super::command::{Spot, Who};
use super::holds::{Hold, Owner};
use super::replies::{Loss, News, Push};
use super::world::{Entry, Fact, Value, Watch, World};

/// What servers tell modules of a change of the keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `new`, of a key that was not there.
    New(Spot),
    /// `new`, and then `copy_to` or `restore`: of a key that was not there, or that was replaced by
    /// another; whether it has a time to live already.
    Replaced(Spot, bool),
    /// What stood there was written over: `set`.
    Overwritten(Spot),
    /// What stands there was changed: `append`, `lpush` and the like.
    Written(Spot),
    /// `expire` or `persist`.
    Timed(Spot, bool),
    Deleted(Spot),
    /// By its time.
    Lapsed(Spot),
    Evicted(Spot),
    /// `new`, `rename_from`, `rename_to`, or the same with `move`.
    Carried {
        from: Spot,
        to: Spot,
    },
    /// The end of a flush, of one database or of all.
    Flushed(Option<usize>),
    Swapped,
    /// A data set is about to be loaded.
    LoadBegins,
    /// It was loaded.
    Loaded {
        keys: Vec<Loaded>,
        /// This server has saved it before that, with its sessions and what they hold.
        own: bool,
    },
}

/// A key of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub spot: Spot,
    pub is_lock: bool,
    pub expires: bool,
    /// It was held where the data set was saved: a temporary key by a connection.
    pub held: bool,
}

pub(super) type Pushes = Vec<(Who, Push)>;

impl World {
    pub fn entry(&self, spot: Spot) -> Option<&Entry> {
        let mut entries = self.databases[spot.db].iter();
        entries.find(|entry| entry.name == spot.name)
    }

    pub(super) fn entry_mut(&mut self, spot: Spot) -> Option<&mut Entry> {
        let mut entries = self.databases[spot.db].iter_mut();
        entries.find(|entry| entry.name == spot.name)
    }

    pub fn exists(&self, spot: Spot) -> bool {
        self.entry(spot).is_some()
    }

    /// Every key that there is.
    pub fn spots(&self) -> Vec<Spot> {
        let all = self.databases.iter().enumerate();
        all.flat_map(|(db, entries)| entries.iter().map(move |entry| (db, entry.name)))
            .map(|(db, name)| Spot { db, name })
            .collect()
    }

    pub(super) fn changed(&mut self, by: Option<Who>, change: Change) {
        self.facts.push(Fact::Changed { by, change });
    }

    pub(super) fn watchers(&self, spot: Spot, news: News) -> Pushes {
        let watching = self.watches.iter().filter(|watch| watch.spot == spot);
        watching
            .map(|watch: &Watch| {
                (
                    watch.who,
                    Push {
                        spot,
                        news,
                        label: 0,
                        unnamed: false,
                    },
                )
            })
            .collect()
    }

    pub(super) fn take_out(&mut self, spot: Spot) -> Option<Entry> {
        let entries = &mut self.databases[spot.db];
        let place = entries.iter().position(|entry| entry.name == spot.name)?;
        Some(entries.remove(place))
    }

    fn put_in(&mut self, spot: Spot, entry: Entry) {
        let name = spot.name;
        self.databases[spot.db].push(Entry { name, ..entry });
    }

    /// A key comes into being where there was none.
    pub(super) fn appear(&mut self, spot: Spot, value: Value) {
        assert!(!self.exists(spot));
        self.put_in(spot, Entry::new(spot, value));
        self.tell(self.watchers(spot, News::Added));
    }

    /// A key goes; both its watchers and its owner hear of it.
    fn vanish(&mut self, spot: Spot, by: Option<Who>, loss: Loss) -> Pushes {
        self.take_out(spot).expect("a key that is there");
        let mut pushes = self.watchers(spot, News::Deleted);
        pushes.extend(self.lose(spot, by, loss));
        pushes
    }

    /// A command makes a key where there was none.
    pub(super) fn make(&mut self, by: Who, spot: Spot, value: Value) {
        self.changed(Some(by), Change::New(spot));
        self.appear(spot, value);
    }

    /// A command deletes a key that is there, in one way or another.
    pub(super) fn delete(&mut self, by: Who, spot: Spot, loss: Loss) {
        self.changed(Some(by), Change::Deleted(spot));
        let pushes = self.vanish(spot, Some(by), loss);
        self.tell(pushes);
    }

    /// A key goes by nobody's hand.
    pub(super) fn lapse(&mut self, spot: Spot) {
        self.changed(None, Change::Lapsed(spot));
        let pushes = self.vanish(spot, None, Loss::Expired);
        self.tell(pushes);
    }

    pub(super) fn evict(&mut self, spot: Spot) {
        self.changed(None, Change::Evicted(spot));
        let pushes = self.vanish(spot, None, Loss::Evicted);
        self.tell(pushes);
    }

    /// Another key takes the place of what is there, if anything is. A watcher of a key that is
    /// there hears nothing, its owner does.
    pub(super) fn replace(&mut self, by: Who, spot: Spot, value: Value, expires: bool) {
        self.changed(Some(by), Change::Replaced(spot, expires));
        let pushes = match self.take_out(spot) {
            Some(_) => self.lose(spot, Some(by), Loss::Overwritten),
            None => self.watchers(spot, News::Added),
        };
        let entry = Entry {
            expires,
            ..Entry::new(spot, value)
        };
        self.put_in(spot, entry);
        self.tell(pushes);
    }

    /// A lock that is written over is lost; the server does not say by whose hand, and so its owner is
    /// told in any case. What is held only by who is no more is the writer's from now on.
    pub(super) fn overwrite(&mut self, spot: Spot, value: Value) {
        let is_left_behind = self.holds_at(spot).iter().all(|hold| hold.is_left_behind());
        let entry = self.entry_mut(spot).expect("a key that is there");
        let was_lock = entry.value == Value::Lock;
        (entry.value, entry.expires) = (value, false);
        self.changed(None, Change::Overwritten(spot));
        if was_lock || is_left_behind {
            let pushes = self.lose(spot, None, Loss::Overwritten);
            self.tell(pushes);
        }
    }

    /// A key goes by another name from now on, in place of what was there.
    pub(super) fn carry(&mut self, by: Who, from: Spot, to: Spot) {
        self.changed(Some(by), Change::Carried { from, to });
        // In which order what comes between is told is not said.
        let outer = self.gathered.replace(Vec::new());
        self.meddle(by, from);
        let meanwhile = self.gathered.take().unwrap_or_default();
        self.gathered = outer;
        let entry = self.take_out(from).expect("a key that is there");
        let mut pushes = match self.take_out(to) {
            Some(_) => self.lose(to, Some(by), Loss::Overwritten),
            None => self.watchers(to, News::Added),
        };
        pushes.extend(self.watchers(from, News::Deleted));
        pushes.extend(self.withdraw_all_that_go(|spot| spot == from));
        self.put_in(to, entry);
        for hold in self.holds.iter_mut().filter(|hold| hold.spot == from) {
            hold.renamed |= from.name != to.name;
            hold.spot = to;
        }
        pushes.extend(meanwhile);
        self.tell(pushes);
    }

    pub(super) fn flush(&mut self, by: Who, db: Option<usize>) {
        self.changed(Some(by), Change::Flushed(db));
        let spots = self.spots().into_iter();
        let mut pushes = Vec::new();
        for spot in spots.filter(|spot| db.is_none_or(|db| db == spot.db)) {
            pushes.extend(self.vanish(spot, Some(by), Loss::Flushed));
        }
        self.tell(pushes);
    }

    pub(super) fn swap(&mut self, by: Who) {
        let before = self.spots();
        let withdrawn = self.withdraw_all_that_go(|_| true);
        self.databases.swap(0, 1);
        self.prefixes.clear();
        for hold in &mut self.holds {
            hold.spot.db = 1 - hold.spot.db;
        }
        self.changed(Some(by), Change::Swapped);
        let mut pushes = self.differences(&before);
        pushes.extend(withdrawn);
        self.tell(pushes);
    }

    /// Everybody loses everything, and then sessions have what the file says, which is what they had. Meanwhile somebody goes.
    pub(super) fn reload(&mut self, goes: Option<Who>) {
        let mut kept = self.holds.clone();
        kept.retain(|hold| matches!(hold.owner, Owner::Session(_)));
        let is_bound =
            |spot: &Spot| self.is_held(*spot) && !kept.iter().any(|its| its.spot == *spot);
        let bound: Vec<Spot> = self.spots().into_iter().filter(is_bound).collect();
        let kept: Vec<Hold> = kept.into_iter().map(|hold| self.saved(hold)).collect();
        self.lose_all();
        goes.into_iter().for_each(|who| self.end(who));
        self.holds = kept;
        self.load(&bound, true);
        self.go_on_with_sessions();
    }

    /// The data set of another server is there, and nothing else.
    pub(super) fn resync(&mut self, present: &[Spot], held: &[Spot], locks: &[Spot]) {
        let before = self.spots();
        self.lose_all();
        self.sessions.clear();
        for spot in before.iter().filter(|spot| !present.contains(spot)) {
            self.take_out(*spot).expect("a key that is there");
        }
        for spot in present.iter().filter(|spot| !before.contains(spot)) {
            let value = match locks.contains(spot) {
                true => Value::Lock,
                false => Value::Text(String::new()),
            };
            let entry = Entry::new(*spot, value);
            let expires = true;
            self.put_in(*spot, Entry { expires, ..entry });
        }
        self.load(held, false);
        self.tell(self.differences(&before));
    }

    /// A load begins as a flush does.
    fn lose_all(&mut self) {
        self.changed(None, Change::LoadBegins);
        self.prefixes.clear();
        let mut pushes = Vec::new();
        for spot in self.spots() {
            pushes.extend(self.lose(spot, None, Loss::Flushed));
        }
        self.tell(pushes);
    }

    /// Takes over what is there. What no session holds of it was held by connections of whoever saved it. (A lock would not be
    /// there if it were not held.)
    fn load(&mut self, held: &[Spot], own: bool) {
        let mut keys = Vec::new();
        let former = Owner::Gone(self.next_gone());
        for spot in self.spots() {
            let entry = self.entry(spot).expect("a key that is there");
            let is_lock = entry.value == Value::Lock;
            let (expires, held) = (entry.expires, is_lock || held.contains(&spot));
            keys.push(Loaded {
                spot,
                is_lock,
                expires,
                held,
            });
            if held {
                self.inherit(spot, former);
            }
        }
        self.changed(None, Change::Loaded { keys, own });
    }

    /// What watchers hear when not these keys exist any more but those that do now.
    fn differences(&self, before: &[Spot]) -> Pushes {
        let now = self.spots();
        let gone = before.iter().filter(|spot| !now.contains(spot));
        let come = now.iter().filter(|spot| !before.contains(spot));
        gone.map(|spot| (*spot, News::Deleted))
            .chain(come.map(|spot| (*spot, News::Added)))
            .flat_map(|(spot, news)| self.watchers(spot, news))
            .collect()
    }
}
