//! An arena against a map; stale ids.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn slots_are_reused() {
    let mut arena = Arena::default();
    let ids: Vec<_> = (0..2000).map(|n| arena.insert(n)).collect();
    assert_eq!(arena.len(), 2000);
    assert_eq!(arena.remove(ids[700]), 700);
    let again = arena.insert(9);
    assert_eq!(again.slot(), ids[700].slot());
    assert_eq!(arena[again], 9);
    assert_eq!(arena.iter().count(), 2000);
    assert_eq!((arena.slot_count(), arena.at(700)), (2000, Some(again)));
    arena.remove(again);
    assert_eq!((arena.slot_count(), arena.at(700)), (2000, None));
    assert_eq!(arena.at(2000), None);
}

#[test]
fn a_chunk_is_freed_with_its_last_record() {
    let mut arena = Arena::default();
    let ids: Vec<_> = (0..10 * CHUNK).map(|n| arena.insert(n)).collect();
    let survivor = ids[3 * CHUNK];
    for id in ids.iter().filter(|id| **id != survivor) {
        arena.remove(*id);
    }
    let with_memory = arena.slots.iter().filter(|slots| slots.is_some());
    assert_eq!((arena.len(), arena[survivor]), (1, 3 * CHUNK));
    assert!(
        with_memory.count() <= 3,
        "the survivor's, the spare, and that of the slot that was freed last"
    );
    let mut slot = 0;
    let mut looks = 0;
    while arena.at(slot) != Some(survivor) {
        slot = arena.next_slot(slot);
        looks += 1;
    }
    assert!(
        looks <= 2 * CHUNK + 3,
        "chunks that are not allocated are skipped: {looks}"
    );
    let again: Vec<_> = (0..3 * CHUNK).map(|n| arena.insert(n)).collect();
    assert_eq!(arena.iter().count(), again.len() + 1);
    assert_eq!(arena.chunks.len(), 10, "slots are reused");
}

#[test]
fn inserting_and_removing_one_record_neither_allocates_nor_frees() {
    let mut arena = Arena::default();
    let ids: Vec<_> = (0..4 * CHUNK).map(|n| arena.insert(n)).collect();
    for id in ids {
        arena.remove(id);
    }
    let memory = |arena: &Arena<usize>| arena.slots.iter().flatten().count();
    let kept = memory(&arena);
    assert!(
        kept <= 2,
        "the spare, and that of the slot that was freed last"
    );
    for n in 0..3 {
        let alone = arena.insert(n);
        assert_eq!((arena[alone], memory(&arena)), (n, kept));
        arena.remove(alone);
        assert_eq!(memory(&arena), kept);
    }
}

/// An id whose slot was reused this many times since. See [`generation`].
#[cfg(debug_assertions)]
fn stale(others: u32) -> (Arena<u32>, Id<u32>) {
    let mut arena = Arena::default();
    let stale = arena.insert(0);
    let mut there = stale;
    for other in 1..=others {
        arena.remove(there);
        there = arena.insert(other);
        assert!(arena.at(stale.slot()) == Some(there) && there != stale);
    }
    (arena, stale)
}

#[cfg(debug_assertions)]
#[test]
#[should_panic = "a stale id"]
fn a_stale_id_reads_no_other_record() {
    let (arena, stale) = stale(1);
    let _ = arena[stale];
}

#[cfg(debug_assertions)]
#[test]
#[should_panic = "a stale id"]
fn a_stale_id_changes_no_other_record() {
    let (mut arena, stale) = stale(2);
    arena[stale] = 7;
}

#[cfg(debug_assertions)]
#[test]
#[should_panic = "a stale id"]
fn a_stale_id_removes_no_other_record() {
    let (mut arena, stale) = stale((1 << generation::BITS) - 1);
    arena.remove(stale);
}

#[test]
fn an_optional_id_costs_nothing() {
    assert_eq!(size_of::<Option<Id<String>>>(), 4);
}

#[test]
fn the_spare_chunk_stays_allocated_however_often_it_becomes_empty() {
    let mut arena = Arena::default();
    let full: Vec<_> = (0..CHUNK).map(|n| arena.insert(n)).collect();
    let mut other = full[0];
    for n in 0..3 {
        let alone = arena.insert(n);
        assert_eq!(alone.slot(), CHUNK);
        arena.remove(alone);
        arena.remove(other);
        assert!(arena.chunks[1].is_empty() && arena.slots[1].is_some());
        other = arena.insert(n);
        assert_eq!(other.slot(), full[0].slot());
    }
}

#[test]
fn a_chunk_to_spare_that_is_in_use_again_keeps_its_records_when_another_becomes_empty() {
    let mut arena = Arena::default();
    let full: Vec<_> = (0..CHUNK).map(|n| arena.insert(n)).collect();
    let emptied = [1, 2].map(|n| arena.insert(n));
    emptied.into_iter().chain([full[0]]).for_each(|id| {
        arena.remove(id);
    });
    assert_eq!(arena.spare, Some(1));
    let first = arena.insert(0);
    let [kept, other] = [3, 4].map(|n| arena.insert(n));
    assert_eq!((first.slot(), kept.slot() / CHUNK), (0, 1));
    let rest = full[1..].iter().copied();
    rest.chain([first, other]).for_each(|id| {
        arena.remove(id);
    });
    assert_eq!((arena.spare, arena[kept]), (Some(0), 3));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert {
        count: usize,
    },
    /// Starting at one record, every `every`-th.
    Remove {
        from: usize,
        every: usize,
        count: usize,
    },
    InsertAndRemove,
}

fn steps() -> impl Strategy<Value = Step> {
    let remove = (any::<usize>(), 1..4_usize, 1..2 * CHUNK);
    prop_oneof![
        (1..2 * CHUNK).prop_map(|count| Step::Insert { count }),
        remove.prop_map(|(from, every, count)| Step::Remove { from, every, count }),
        Just(Step::InsertAndRemove),
    ]
}

/// Asserts that the arena has exactly these records, and its invariants.
fn check(arena: &Arena<usize>, model: &BTreeMap<usize, (Id<usize>, usize)>) {
    assert_eq!(arena.len(), model.len());
    let there = arena.iter().map(|(id, value)| (id.slot(), (id, *value)));
    assert!(there.eq(model.iter().map(|(slot, record)| (*slot, *record))));
    let mut walked = Vec::new();
    let mut slot = 0;
    while slot < arena.slot_count() {
        walked.extend(arena.at(slot));
        let after = arena.next_slot(slot);
        assert!(after > slot);
        slot = after;
    }
    assert!(walked.iter().eq(model.values().map(|(id, _)| id)));
    assert!(walked.iter().all(|id| arena[*id] == model[&id.slot()].1));
    assert_eq!(arena.at(slot), None);
    for (number, chunk) in arena.chunks.iter().enumerate() {
        check_chunk(arena, number, chunk);
    }
    let is_empty = |slots: &&Slots<usize>| {
        let slots = slots.iter().flat_map(|slots| slots.iter());
        slots.flatten().next().is_none()
    };
    let kept = arena.slots.iter().filter(|slots| slots.is_some());
    assert!(kept.filter(is_empty).count() <= 2);
}

fn check_chunk(arena: &Arena<usize>, number: usize, chunk: &Chunk) {
    let is_free = |slot: &usize| {
        let last_freed = arena.last_freed.map(Id::slot);
        arena.at(*slot).is_none() && last_freed != Some(*slot)
    };
    let first = number * CHUNK;
    let used = first + usize::from(chunk.used);
    let free: BTreeSet<_> = { chunk.free.iter() }
        .map(|slot| first + usize::from(*slot))
        .collect();
    assert_eq!(free.len(), chunk.free.len());
    assert!(free.into_iter().eq((first..used).filter(is_free)));
    assert!((used..first + CHUNK).all(|slot| arena.at(slot).is_none()));
    let named = arena.roomy.iter().filter(|roomy| **roomy == number as u32);
    assert_eq!(named.count(), usize::from(chunk.is_roomy));
    assert_eq!(chunk.is_roomy, !chunk.is_full());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_arena_is_a_map_whatever_the_order_of_steps(
        steps in proptest::collection::vec(steps(), 1..40)
    ) {
        let mut arena = Arena::default();
        let mut model = BTreeMap::new();
        let mut values = 0..;
        for step in steps {
            match step {
                Step::Insert { count } => for value in values.by_ref().take(count) {
                    let id = arena.insert(value);
                    prop_assert!(model.insert(id.slot(), (id, value)).is_none());
                },
                Step::Remove { from, every, count } => {
                    let from = from % model.len().max(1);
                    let gone: Vec<_> = model.values().skip(from).step_by(every).take(count).copied().collect();
                    for (id, value) in gone {
                        prop_assert_eq!(arena.remove(id), value);
                        model.remove(&id.slot());
                    }
                }
                Step::InsertAndRemove => {
                    let id = arena.insert(0);
                    prop_assert!(!model.contains_key(&id.slot()));
                    prop_assert_eq!(arena.remove(id), 0);
                }
            }
            check(&arena, &model);
        }
    }
}
