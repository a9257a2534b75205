//! Ids in the order of their records' names, in blocks: a few bytes an id, and the next ones after any name are found at once.

use crate::engine::storage::arena::Id;

/// The most ids of a block. To insert one moves half a block on average.
const BLOCK: usize = if cfg!(test) { 8 } else { 512 };

/// The caller says the names, which no two records share, and which stay the same meanwhile.
///
/// Invariant: no block is empty or has more than [`BLOCK`] ids; of two that follow each other one has at least a quarter of that.
pub(in crate::engine) struct Sorted<T> {
    blocks: Vec<Vec<Id<T>>>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Sorted { blocks: Vec::new() }
    }
}

impl<T> Sorted<T> {
    /// Inserts an id that is not there. O(log ids), and moves half a block.
    pub fn insert<'a>(&mut self, id: Id<T>, name: impl Fn(Id<T>) -> &'a [u8]) {
        let own = name(id);
        let at = self.block_of(own, &name);
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(vec![id]);
            return;
        };
        let place = block.partition_point(|other| name(*other) < own);
        block.insert(place, id);
        if block.len() > BLOCK {
            let half = block.split_off(BLOCK / 2);
            self.blocks.insert(at + 1, half);
        }
    }

    /// Removes an id; returns whether it was there. As `insert`.
    pub fn remove<'a>(&mut self, id: Id<T>, name: impl Fn(Id<T>) -> &'a [u8]) -> bool {
        let own = name(id);
        let at = self.block_of(own, &name);
        let Some(block) = self.blocks.get_mut(at) else {
            return false;
        };
        let place = block.partition_point(|other| name(*other) < own);
        if block.get(place) != Some(&id) {
            return false;
        }
        block.remove(place);
        if block.is_empty() {
            self.blocks.remove(at);
        } else if block.len() < BLOCK / 4 {
            self.merge(at.saturating_sub(1));
            self.merge(at);
        }
        true
    }

    /// Merges a block with the next one, if there is one and a block has room for both.
    fn merge(&mut self, at: usize) {
        let lengths = |at: usize| self.blocks.get(at).map(Vec::len);
        if let (Some(one), Some(next)) = (lengths(at), lengths(at + 1))
            && one.min(next) < BLOCK / 4
            && one + next <= BLOCK * 3 / 4
        {
            let next = self.blocks.remove(at + 1);
            self.blocks[at].extend(next);
        }
    }

    /// The ids from this name on, without its own if `after`. O(log ids) to begin.
    pub fn from<'a>(
        &self,
        bound: &[u8],
        after: bool,
        name: impl Fn(Id<T>) -> &'a [u8],
    ) -> impl Iterator<Item = Id<T>> {
        let at = self.block_of(bound, &name);
        let is_before = |id: &Id<T>| match after {
            true => name(*id) <= bound,
            false => name(*id) < bound,
        };
        let first = self.blocks.get(at);
        let place = first.map_or(0, |block| block.partition_point(is_before));
        let ids = self.blocks.iter().skip(at).flatten();
        ids.skip(place).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = Id<T>> {
        self.blocks.iter().flatten().copied()
    }

    /// The block in which this name stands, if any has it; 0 if there are none.
    fn block_of<'a>(&self, own: &[u8], name: &impl Fn(Id<T>) -> &'a [u8]) -> usize {
        let after = self.blocks.partition_point(|block| name(block[0]) <= own);
        after.saturating_sub(1)
    }

    /// Panics unless the invariant holds. O(ids).
    pub fn check<'a>(&self, name: impl Fn(Id<T>) -> &'a [u8]) {
        assert!(
            self.iter()
                .is_sorted_by(|one, next| name(*one) < name(*next))
        );
        let lengths: Vec<_> = self.blocks.iter().map(Vec::len).collect();
        assert!(lengths.iter().all(|length| (1..=BLOCK).contains(length)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::storage::arena::Arena;
    use std::collections::BTreeSet;

    /// A cheap generator of numbers.
    fn numbers() -> impl Iterator<Item = u32> {
        std::iter::successors(Some(1_u32), |last| {
            Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
        })
        .map(|number| number >> 8)
    }

    #[test]
    fn ids_stand_in_the_order_of_their_names_whatever_comes_and_goes() {
        let mut records: Arena<Vec<u8>> = Arena::default();
        let mut sorted = Sorted::default();
        let mut there = BTreeSet::new();
        let mut ids = std::collections::BTreeMap::new();
        let mut numbers = numbers();
        for step in 0..20_000 {
            // First more come than go, then more go.
            let comes = numbers.next().unwrap_or(0) % 10 < if step % 4000 < 2000 { 7 } else { 3 };
            let name = (numbers.next().unwrap_or(0) % 500).to_string().into_bytes();
            if comes && !there.contains(&name) {
                let id = records.insert(name.clone());
                sorted.insert(id, |id| &records[id]);
                ids.insert(name.clone(), id);
                there.insert(name.clone());
            } else if !comes && there.remove(&name) {
                let id = ids.remove(&name).expect("it is there");
                assert!(sorted.remove(id, |id| &records[id]));
                assert!(!sorted.remove(id, |id| &records[id]));
                records.remove(id);
            }
            if step % 50 == 0 {
                sorted.check(|id| &records[id]);
                let all: Vec<_> = sorted.iter().map(|id| records[id].clone()).collect();
                assert!(all.iter().eq(&there));
                for after in [false, true] {
                    let name_of = |id| &*records[id];
                    let from = sorted.from(&name, after, name_of);
                    let from: Vec<_> = from.map(|id| records[id].clone()).collect();
                    let is_meant = |other: &&Vec<u8>| match after {
                        true => **other > name,
                        false => **other >= name,
                    };
                    assert!(from.iter().eq(there.iter().filter(is_meant)));
                }
            }
        }
    }

    #[test]
    fn blocks_do_not_stay_nearly_empty() {
        let mut records: Arena<Vec<u8>> = Arena::default();
        let mut sorted = Sorted::default();
        let mut ids = Vec::new();
        for number in 0..1000_u32 {
            let id = records.insert(number.to_be_bytes().to_vec());
            sorted.insert(id, |id| &records[id]);
            ids.push(id);
        }
        for (number, id) in ids.iter().enumerate() {
            if !number.is_multiple_of(BLOCK) {
                sorted.remove(*id, |id| &records[id]);
            }
        }
        let left = sorted.iter().count();
        assert!(sorted.blocks.len() <= 1 + 4 * left / BLOCK);
    }

    /// docs/commands.md promises it. The blocks of tests are so small that a block itself weighs more than its ids.
    #[test]
    fn an_id_takes_at_most_48_bytes() {
        fn assert_is_small<T>(sorted: &Sorted<T>, ids: usize) {
            let blocks = sorted.blocks.iter();
            let bytes = blocks
                .map(|block| block.capacity() * size_of::<Id<T>>())
                .sum::<usize>()
                + sorted.blocks.capacity() * size_of::<Vec<Id<T>>>();
            assert!(bytes <= 48 * ids, "{bytes} bytes for {ids} ids");
        }
        let mut records: Arena<Vec<u8>> = Arena::default();
        let mut sorted = Sorted::default();
        let mut ids = Vec::new();
        for number in numbers().take(10_000) {
            // Two may have the same number.
            let name = [number, ids.len() as u32].map(u32::to_be_bytes).concat();
            let id = records.insert(name);
            sorted.insert(id, |id| &records[id]);
            ids.push(id);
        }
        assert_is_small(&sorted, ids.len());
        let half = ids.len() / 2;
        for id in &ids[half..] {
            assert!(sorted.remove(*id, |id| &records[id]));
        }
        assert_is_small(&sorted, half);
    }
}
