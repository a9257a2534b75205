//! The temporary keys of a space that watches of prefixes show, sorted by name.
//!
//! A database has such an index from its first WATCHTP on. It goes along with SWAPDB; a flush leaves an empty one. While it is built
//! it has those keys that were visited or have changed since it was begun, each with a flag.

use crate::engine::state::keys::{Keys, ShownPage};
use crate::engine::state::rows::{Flags, HeldKey, SpaceId};
use crate::engine::storage::arena::Id;
use crate::engine::types::{Db, Key};

impl Keys {
    /// Whether any space has an index. O(1).
    #[inline]
    pub fn has_index(&self) -> bool {
        self.indexes > 0
    }

    /// Whether a key is in its space's index, and its space is not retired. O(1).
    pub fn is_shown(&self, held: Id<HeldKey>) -> bool {
        self.has_index() && self.held[held].flags.has(Flags::SHOWN) && !self.is_retired(held)
    }

    /// Adds a key to the index of its space. Returns whether it was not there; none if the space has no index. O(log keys).
    pub fn set_shown(&mut self, id: Id<HeldKey>) -> Option<bool> {
        let held = &mut self.held;
        let shown = &mut self.spaces[held[id].space.0 as usize].shown;
        let shown = shown.as_mut()?;
        if held[id].flags.has(Flags::SHOWN) {
            return Some(false);
        }
        held[id].flags.set(Flags::SHOWN, true);
        shown.sorted.insert(id, |id| &*held[id].name);
        Some(true)
    }

    /// Removes a key from the index of its space. O(log keys).
    pub fn set_hidden(&mut self, id: Id<HeldKey>) {
        let held = &mut self.held;
        held[id].flags.set(Flags::SHOWN, false);
        let shown = &mut self.spaces[held[id].space.0 as usize].shown;
        if let Some(shown) = shown {
            shown.sorted.remove(id, |id| &*held[id].name);
        }
    }

    /// Whether a database has an index that is built. If it has none, building begins.
    pub fn is_indexed(&mut self, db: Db) -> bool {
        let space = self.database_mut(db).space;
        if self.spaces[space.0 as usize].shown.is_none() {
            self.spaces[space.0 as usize].shown = Some(Box::default());
            self.indexes += 1;
            self.building.push(space);
        }
        !self.building.contains(&space)
    }

    /// Whether the space of a key has an index that is built.
    pub fn is_indexed_whole(&self, held: Id<HeldKey>) -> bool {
        let space = self.held[held].space;
        self.spaces[space.0 as usize].shown.is_some() && !self.building.contains(&space)
    }

    /// Whether any index is being built. O(1).
    pub fn is_building_index(&self) -> bool {
        !self.building.is_empty()
    }

    /// Visits one slot for the index that is being built; returns a key of its space that is not in it. O(1).
    pub fn next_to_index(&mut self) -> Option<Id<HeldKey>> {
        let space = *self.building.first()?;
        let shown = self.spaces[space.0 as usize].shown.as_mut()?;
        let slot = shown.next_slot;
        if slot >= self.held.slot_count() {
            self.building.remove(0);
            return None;
        }
        shown.next_slot = self.held.next_slot(slot);
        let found = self.held.at(slot)?;
        let held = &self.held[found];
        (held.space == space && !held.flags.has(Flags::SHOWN)).then_some(found)
    }

    /// The first `most` shown keys that begin with this prefix, after this name if one is given. O(most + log keys).
    pub fn shown_page(&self, prefix: Key<'_>, after: Option<&[u8]>, most: usize) -> ShownPage {
        let space = self.space_of(prefix.db);
        let shown = space.and_then(|space| self.spaces[space.0 as usize].shown.as_ref());
        let name = |id: Id<HeldKey>| &*self.held[id].name;
        let bound = after.unwrap_or(prefix.name);
        let from = shown.map(|shown| shown.sorted.from(bound, after.is_some(), name));
        let from = from.into_iter().flatten();
        let mut all = from.take_while(|id| name(*id).starts_with(prefix.name));
        let keys = all.by_ref().take(most).collect();
        let is_last = all.next().is_none();
        ShownPage { keys, is_last }
    }

    /// A space is retired, and this one is its database's now: it has an index if that one had.
    pub(super) fn inherit_index(&mut self, retired: SpaceId, new: SpaceId) {
        let has_one = self.spaces[retired.0 as usize].shown.take().is_some();
        self.building.retain(|space| *space != retired);
        self.spaces[new.0 as usize].shown = has_one.then(Box::default);
    }

    /// Removes all indexes. O(held keys) if there are any.
    pub fn drop_indexes(&mut self) {
        if !self.has_index() {
            return;
        }
        (self.indexes, self.building) = (0, Vec::new());
        for space in &mut self.spaces {
            space.shown = None;
        }
        for id in self.all_held().collect::<Vec<_>>() {
            self.held[id].flags.set(Flags::SHOWN, false);
        }
    }

    /// Panics unless each index has the keys of its space with the flag, in order; see [`check`](Self::check).
    pub(super) fn check_indexes(&self) {
        let all = self.spaces.iter().filter(|space| space.shown.is_some());
        assert_eq!(all.count(), self.indexes);
        let name = |id: Id<HeldKey>| &*self.held[id].name;
        for (number, space) in self.spaces.iter().enumerate() {
            let Some(shown) = &space.shown else { continue };
            shown.sorted.check(name);
            assert!(space.retired.is_none());
            let space = SpaceId(number as u32);
            let is_its = |held: &HeldKey| held.space == space && held.flags.has(Flags::SHOWN);
            assert!(shown.sorted.iter().all(|id| is_its(&self.held[id])));
            let flagged = self.held.iter().filter(|(_, held)| is_its(held));
            assert_eq!(flagged.count(), shown.sorted.iter().count());
        }
    }
}
