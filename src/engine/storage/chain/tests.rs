//! Chains against lists.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Default)]
struct Bead(Link<Bead>);

impl Chained<0> for Bead {
    fn link(&self) -> &Link<Self> {
        &self.0
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.0
    }
}

#[test]
fn records_leave_from_the_middle_and_from_both_ends() {
    let mut arena = Arena::default();
    let mut chain = Chain::<Bead, 0>::default();
    let ids: Vec<_> = (0..5).map(|_| arena.insert(Bead::default())).collect();
    for id in &ids {
        chain.push(&mut arena, *id);
    }
    for (gone, left) in [
        (2, vec![0, 1, 3, 4]),
        (0, vec![1, 3, 4]),
        (4, vec![1, 3]),
        (1, vec![3]),
        (3, vec![]),
    ] {
        chain.remove(&mut arena, ids[gone]);
        let expected: Vec<_> = left.iter().map(|n: &usize| ids[*n]).collect();
        assert_eq!(chain.iter(&arena).collect::<Vec<_>>(), expected);
    }
    assert!(chain.is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    Remove(usize),
    /// To the end of the other chain.
    Move(usize),
}

fn steps() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        2 => Just(Step::Push),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Move),
    ];
    (0..2_usize, step)
}

type Model = VecDeque<Id<Bead>>;

fn check(arena: &Arena<Bead>, chain: &Chain<Bead, 0>, model: &Model) {
    assert!(chain.iter(arena).eq(model.iter().copied()));
    assert_eq!(chain.is_empty(), model.is_empty());
    let ends = (chain.head(), chain.tail(arena));
    assert_eq!(ends, (model.front().copied(), model.back().copied()));
    let mut before = None;
    for id in model {
        assert_eq!(chain.before(arena, *id), before);
        before = Some(*id);
    }
}

proptest! {
    #[test]
    fn a_chain_is_a_list_however_records_join_and_leave(
        steps in proptest::collection::vec(steps(), 1..80)
    ) {
        let mut arena = Arena::default();
        let mut chains: [Chain<Bead, 0>; 2] = Default::default();
        let mut models: [Model; 2] = Default::default();
        for (which, step) in steps {
            let count = models[which].len().max(1);
            match step {
                Step::Push => {
                    let id = arena.insert(Bead::default());
                    chains[which].push(&mut arena, id);
                    models[which].push_back(id);
                }
                Step::Remove(at) => if let Some(id) = models[which].remove(at % count) {
                    chains[which].remove(&mut arena, id);
                    arena.remove(id);
                },
                Step::Move(at) => if let Some(id) = models[which].remove(at % count) {
                    chains[which].remove(&mut arena, id);
                    chains[1 - which].push(&mut arena, id);
                    models[1 - which].push_back(id);
                },
            }
            for (chain, model) in chains.iter().zip(&models) {
                check(&arena, chain, model);
            }
        }
    }
}
