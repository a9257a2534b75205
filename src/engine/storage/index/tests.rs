//! An index of many records with few hashes, against a list.

use super::*;
use crate::engine::storage::arena::Arena;
use proptest::prelude::*;

#[test]
fn a_large_table_is_freed_with_its_last_entry() {
    let mut arena = Arena::default();
    let mut index = Index::default();
    let ids: Vec<_> = (0..2 * LARGE).map(|n| arena.insert(n)).collect();
    for (n, id) in ids.iter().enumerate() {
        index.insert_hashed(n as u32, *id);
    }
    for (n, id) in ids.iter().enumerate() {
        assert!(index.table.capacity() > LARGE && index.remove_hashed(n as u32, *id));
    }
    assert!(index.is_empty() && index.table.capacity() == 0);
}

proptest! {
    /// Five hashes, so most records collide.
    #[test]
    fn each_record_is_found_under_its_hash_and_no_other(
        steps in proptest::collection::vec((0..5_u32, any::<bool>(), any::<usize>()), 1..100)
    ) {
        let mut arena = Arena::default();
        let mut index = Index::default();
        let mut model: Vec<(u32, Id<u32>)> = Vec::new();
        for (hash, comes, which) in steps {
            if comes || model.is_empty() {
                let id = arena.insert(hash);
                index.insert_hashed(hash, id);
                model.push((hash, id));
            } else {
                let (its, id) = model.swap_remove(which % model.len());
                prop_assert_eq!(index.remove_hashed(hash, id), hash == its);
                prop_assert_eq!(index.remove_hashed(its, id), hash != its);
                prop_assert!(!index.remove_hashed(its, id));
                arena.remove(id);
            }
            prop_assert_eq!((index.len(), index.is_empty()), (model.len(), model.is_empty()));
            for (its, id) in &model {
                for hash in 0..5 {
                    let found = index.find_hashed(hash, |found| found == *id);
                    prop_assert_eq!(found, (hash == *its).then_some(*id));
                    prop_assert_eq!(index.find_hashed(hash, |_| false), None);
                }
            }
        }
    }
}
