//! Two lists that share an overflow index: each entry must be found.

use super::*;
use crate::engine::storage::arena::Arena;
use crate::engine::storage::chain::{Chain, Chained, Link};
use proptest::prelude::*;

/// An entry of one of two lists, with its hash key.
struct Entry {
    hash_key: (usize, u32),
    link: Link<Entry>,
}

impl Chained<0> for Entry {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.link
    }
}

proptest! {
    #[test]
    fn each_entry_is_found_whatever_the_order_of_steps(
        steps in proptest::collection::vec((0..2_usize, 0..5_u8, any::<usize>()), 1..120)
    ) {
        let mut arena = Arena::default();
        let mut chains: [Chain<Entry, 0>; 2] = Default::default();
        let mut overflow = Overflow::default();
        let mut indexed = 0;
        for (number, (list, what, which)) in (0..).zip(steps) {
            let chain = &mut chains[list];
            let entries: Vec<_> = chain.iter(&arena).collect();
            if what < 3 || entries.is_empty() {
                let hash_key = (list, number);
                let id = arena.insert(Entry { hash_key, link: Link::default() });
                let is_long = overflow.join(chain.iter(&arena), hash_key, id);
                prop_assert_eq!(is_long, entries.len() >= OVERFLOW_THRESHOLD);
                indexed += usize::from(is_long);
                chain.push(&mut arena, id);
            } else {
                let id = entries[which % entries.len()];
                chain.remove(&mut arena, id);
                let hash_key = arena.remove(id).hash_key;
                indexed -= usize::from(overflow.leave(hash_key, id));
                let is_it = |found: Id<Entry>| arena[found].hash_key == hash_key;
                prop_assert_eq!(overflow.find(chain.iter(&arena), hash_key, is_it), None);
                prop_assert!(!overflow.leave(hash_key, id));
            }
            prop_assert_eq!(overflow.len(), indexed);
            for chain in &chains {
                for (position, id) in chain.iter(&arena).enumerate() {
                    let hash_key = arena[id].hash_key;
                    let is_it = |found: Id<Entry>| arena[found].hash_key == hash_key;
                    prop_assert_eq!(overflow.find(chain.iter(&arena), hash_key, is_it), Some(id));
                    overflow.check(position, hash_key, id);
                }
            }
        }
        let entries: usize = chains.iter().map(|chain| chain.iter(&arena).count()).sum();
        prop_assert!(overflow.len() <= entries);
    }
}
