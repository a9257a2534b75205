//! The members of two keys, of which each must be found.

use super::*;
use crate::engine::storage::arena::Arena;
use crate::engine::storage::chain::{Chain, Chained, Link};
use proptest::prelude::*;

/// A member of one of two keys.
struct Member {
    mark: (usize, u32),
    link: Link<Member>,
}

impl Chained<0> for Member {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.link
    }
}

proptest! {
    #[test]
    fn each_member_is_found_whatever_the_order_in_which_they_join_and_leave(
        steps in proptest::collection::vec((0..2_usize, 0..5_u8, any::<usize>()), 1..120)
    ) {
        let mut arena = Arena::default();
        let mut chains: [Chain<Member, 0>; 2] = Default::default();
        let mut overflow = Overflow::default();
        let mut in_table = 0;
        for (number, (key, what, which)) in (0..).zip(steps) {
            let chain = &mut chains[key];
            let members: Vec<_> = chain.iter(&arena).collect();
            if what < 3 || members.is_empty() {
                let mark = (key, number);
                let id = arena.insert(Member { mark, link: Link::default() });
                let has_many = overflow.join(chain.iter(&arena), mark, id);
                prop_assert_eq!(has_many, members.len() >= OVERFLOW_THRESHOLD);
                in_table += usize::from(has_many);
                chain.push(&mut arena, id);
            } else {
                let id = members[which % members.len()];
                chain.remove(&mut arena, id);
                let mark = arena.remove(id).mark;
                in_table -= usize::from(overflow.leave(mark, id));
                let is_it = |found: Id<Member>| arena[found].mark == mark;
                prop_assert_eq!(overflow.find(chain.iter(&arena), mark, is_it), None);
                prop_assert!(!overflow.leave(mark, id));
            }
            prop_assert_eq!(overflow.len(), in_table);
            for chain in &chains {
                for (place, id) in chain.iter(&arena).enumerate() {
                    let mark = arena[id].mark;
                    let is_it = |found: Id<Member>| arena[found].mark == mark;
                    prop_assert_eq!(overflow.find(chain.iter(&arena), mark, is_it), Some(id));
                    overflow.check(place, mark, id);
                }
            }
        }
        let members: usize = chains.iter().map(|chain| chain.iter(&arena).count()).sum();
        prop_assert!(overflow.len() <= members);
    }
}
