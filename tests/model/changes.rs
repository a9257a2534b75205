//! The few things that can happen to a key, by whatever command, and who hears of them.
//!
//! Each comes with the [`Change`] that a server's events would show of it.

use super::command::{Spot, Who};
use super::told::{News, Push};
use super::world::{Entry, Fact, Owner, Value, Watch, World};

/// What servers tell modules of a change of the keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `new`, of a key that was not there or that was replaced by another.
    New(Spot),
    Deleted(Spot),
    /// By its time, or by an eviction.
    Lapsed(Spot),
    /// `new`, `rename_from`, `rename_to`, or the same with `move`.
    Carried {
        from: Spot,
        to: Spot,
    },
    /// The end of a flush, of one database or of all.
    Flushed(Option<usize>),
    Swapped,
    /// The data set was loaded anew: the keys that there are, and those of them that were held where
    /// it was saved.
    Loaded {
        present: Vec<Spot>,
        held: Vec<Spot>,
    },
}

type Pushes = Vec<(Who, Push)>;

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

    fn watchers(&self, spot: Spot, news: News) -> Pushes {
        let watching = self.watches.iter().filter(|watch| watch.spot == spot);
        watching
            .map(|watch: &Watch| (watch.who, Push { spot, news }))
            .collect()
    }

    fn take_out(&mut self, spot: Spot) -> Option<Entry> {
        let entries = &mut self.databases[spot.db];
        let place = entries.iter().position(|entry| entry.name == spot.name)?;
        Some(entries.remove(place))
    }

    fn put_in(&mut self, spot: Spot, entry: Entry) {
        let name = spot.name;
        self.databases[spot.db].push(Entry { name, ..entry });
    }

    /// What the owner of a key that went hears.
    fn lost(&mut self, spot: Spot, entry: &Entry, by: Option<Who>) -> Pushes {
        let Some(Owner::Connection(owner)) = entry.owner else {
            return Vec::new();
        };
        if by == Some(owner) {
            return Vec::new();
        }
        self.totals.lost += 1;
        let resp3 = self.client(owner).is_some_and(|client| client.resp3);
        let news = News::Lost;
        let push = resp3.then_some((owner, Push { spot, news }));
        push.into_iter().collect()
    }

    /// A key comes into being where there was none.
    pub(super) fn appear(&mut self, spot: Spot, value: Value) {
        assert!(!self.exists(spot));
        self.put_in(spot, Entry::new(spot, value));
        self.tell(self.watchers(spot, News::Added));
    }

    /// A key goes; both its watchers and its owner hear of it.
    fn vanish(&mut self, spot: Spot, by: Option<Who>) -> Pushes {
        let entry = self.take_out(spot).expect("a key that is there");
        let mut pushes = self.watchers(spot, News::Deleted);
        pushes.extend(self.lost(spot, &entry, by));
        pushes
    }

    /// A command makes a key where there was none.
    pub(super) fn make(&mut self, by: Who, spot: Spot, value: Value) {
        self.changed(Some(by), Change::New(spot));
        self.appear(spot, value);
    }

    /// A command deletes a key that is there.
    pub(super) fn delete(&mut self, by: Who, spot: Spot) {
        self.changed(Some(by), Change::Deleted(spot));
        let pushes = self.vanish(spot, Some(by));
        self.tell(pushes);
    }

    /// A key goes by nobody's hand.
    pub(super) fn lapse(&mut self, spot: Spot) {
        self.changed(None, Change::Lapsed(spot));
        let pushes = self.vanish(spot, None);
        self.tell(pushes);
    }

    /// Another key takes the place of what is there, if anything is. A watcher of a key that is
    /// there hears nothing, its owner does.
    pub(super) fn replace(&mut self, by: Who, spot: Spot, value: Value, expires: bool) {
        self.changed(Some(by), Change::New(spot));
        let pushes = match self.take_out(spot) {
            Some(former) => self.lost(spot, &former, Some(by)),
            None => self.watchers(spot, News::Added),
        };
        let entry = Entry {
            expires,
            ..Entry::new(spot, value)
        };
        self.put_in(spot, entry);
        self.tell(pushes);
    }

    /// A key goes by another name from now on, in place of what was there.
    pub(super) fn carry(&mut self, by: Who, from: Spot, to: Spot) {
        self.changed(Some(by), Change::Carried { from, to });
        let entry = self.take_out(from).expect("a key that is there");
        let mut pushes = match self.take_out(to) {
            Some(former) => self.lost(to, &former, Some(by)),
            None => self.watchers(to, News::Added),
        };
        pushes.extend(self.watchers(from, News::Deleted));
        self.put_in(to, entry);
        self.tell(pushes);
    }

    pub(super) fn flush(&mut self, by: Who, db: Option<usize>) {
        self.changed(Some(by), Change::Flushed(db));
        let spots = self.spots().into_iter();
        let mut pushes = Vec::new();
        for spot in spots.filter(|spot| db.is_none_or(|db| db == spot.db)) {
            pushes.extend(self.vanish(spot, Some(by)));
        }
        self.tell(pushes);
    }

    pub(super) fn swap(&mut self, by: Who) {
        let before = self.spots();
        self.databases.swap(0, 1);
        self.changed(Some(by), Change::Swapped);
        self.tell_differences(&before);
    }

    /// Nothing is different after it.
    pub(super) fn reload(&mut self) {
        let spots = self.spots().into_iter();
        let is_held = |spot: &Spot| self.entry(*spot).is_some_and(|entry| entry.owner.is_some());
        let held = spots.filter(is_held).collect();
        let present = self.spots();
        self.changed(None, Change::Loaded { present, held });
    }

    /// What is held here by a connection that is there still stays held.
    pub(super) fn resync(&mut self, present: &[Spot], held: &[Spot]) {
        let before = self.spots();
        let mut pushes = Vec::new();
        for spot in before.iter().filter(|spot| !present.contains(spot)) {
            let entry = self.take_out(*spot).expect("a key that is there");
            pushes.extend(self.lost(*spot, &entry, None));
        }
        for spot in present {
            if !self.exists(*spot) {
                self.put_in(*spot, Entry::new(*spot, Value::Text(String::new())));
            }
            let entry = self.entry_mut(*spot).expect("it is there now");
            entry.owner.take_if(|owner| *owner == Owner::Former);
            if held.contains(spot) {
                entry.owner.get_or_insert(Owner::Former);
            }
        }
        let (present, held) = (present.to_vec(), held.to_vec());
        self.changed(None, Change::Loaded { present, held });
        pushes.extend(self.differences(&before));
        self.tell(pushes);
    }

    fn tell_differences(&mut self, before: &[Spot]) {
        let pushes = self.differences(before);
        self.tell(pushes);
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

    // ---- the module's own removals: no change that a server would tell of ----

    pub(super) fn remove_own(&mut self, owner: Who, spot: Spot) {
        let pushes = self.vanish(spot, Some(owner));
        self.tell(pushes);
    }

    pub(super) fn leave_behind(&mut self, who: Who) {
        let entries = self.databases.iter_mut().flatten();
        for entry in entries.filter(|entry| entry.owner == Some(Owner::Connection(who))) {
            entry.owner = Some(Owner::Ended);
        }
        if !self.slow {
            let spots = self.left_behind();
            let pushes = spots.iter().flat_map(|spot| self.remove(*spot)).collect();
            self.tell(pushes);
        }
    }

    /// The keys whose owners have ended.
    pub fn left_behind(&self) -> Vec<Spot> {
        let is_left = |spot: &Spot| {
            let entry = self.entry(*spot);
            entry.is_some_and(|entry| entry.owner.is_some_and(Owner::is_gone))
        };
        self.spots().into_iter().filter(is_left).collect()
    }

    fn remove(&mut self, spot: Spot) -> Pushes {
        self.totals.removed_by_disconnect += 1;
        self.vanish(spot, None)
    }

    /// A key whose owner has ended is removed.
    pub(super) fn remove_left_behind(&mut self, spot: Spot) {
        let pushes = self.remove(spot);
        self.tell(pushes);
    }
}
