//! Consistency of keys, names, spaces and databases.

use crate::engine::state::keys::{Keys, Stale};
use crate::engine::state::rows::{HeldKey, SpaceId};
use crate::engine::storage::arena::Id;

impl Keys {
    /// Panics unless the invariant holds, with this key detached. O(everything).
    pub fn check(&self, in_transit: Option<Id<HeldKey>>) {
        assert_eq!(
            self.held_index.len() + usize::from(in_transit.is_some()),
            self.held.len()
        );
        assert_eq!(self.name_index.len(), self.names.len());
        self.check_indexes();
        let mut keys = vec![0; self.spaces.len()];
        for (id, held) in self.held.iter() {
            keys[held.space.0 as usize] += 1;
            let is_found = self.find_held(self.key_of(id)) == Some(id);
            assert_eq!(is_found, !self.is_retired(id) && in_transit != Some(id));
        }
        assert!(self.databases.is_sorted_by_key(|database| database.db));
        for database in &self.databases {
            let space = &self.spaces[database.space.0 as usize];
            assert!(space.db == database.db && space.retired.is_none());
            let names = || self.names.iter().filter(|(_, name)| name.db == space.db);
            assert_eq!(names().count(), database.names as usize);
            let stale = names().filter(|(id, _)| self.is_stale(*id)).count();
            assert_eq!(stale, database.stale as usize);
        }
        let (mut live, mut retired) = (0, 0);
        for (place, space) in self.spaces.iter().enumerate() {
            if self.free.contains(&SpaceId(place as u32)) {
                assert_eq!(keys[place], 0);
                continue;
            }
            assert_eq!(keys[place], space.keys);
            live += usize::from(space.retired.is_none());
            if space.retired.is_some() {
                assert!(space.keys > 0 && self.retired_spaces.contains(&SpaceId(place as u32)));
                retired += space.keys as usize;
            }
        }
        assert_eq!((live, retired), (self.databases.len(), self.retired));
        let spaces = live + self.retired_spaces.len() + self.free.len();
        assert_eq!(spaces, self.spaces.len());
        let sum = |began_empty: bool| {
            let meant = self
                .databases
                .iter()
                .filter(|db| db.began_empty == began_empty);
            meant.map(|db| db.stale as usize).sum::<usize>()
        };
        let (absent, unknown) = (sum(true), sum(false));
        assert_eq!(self.stale, Stale { absent, unknown });
        for (id, name) in self.names.iter() {
            assert_eq!(self.find_name(name.key()), Some(id));
            assert!(
                !name.is_unreferenced(),
                "{:?} is kept for nothing",
                name.key()
            );
        }
    }
}
