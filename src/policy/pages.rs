//! How long the next page of a watch of a prefix may be.
//!
//! After a failover thousands of clients ask for their first page in one turn of the server's event loop, and nobody else is served
//! before all of them are. So the pages of one turn share a budget: the first ones are whole, and the later ones have fewer keys,
//! the last ones very few. They go on in the next turn, which serves the others, too.

use crate::engine::Limits;

/// A page's share of what is left.
const SHARE: usize = 8;

/// What the pages of this turn have cost, in keys of usual length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    spent: usize,
}

/// How much a page may have. It has at least one key, if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    pub keys: usize,
    /// No key is added once there are so many bytes of names and values.
    pub bytes: usize,
}

impl Pages {
    /// Of a whole page.
    const WHOLE: Allowance = Allowance {
        keys: Limits::DEFAULT.keys_per_page,
        bytes: 256 << 10,
    };
    /// Keys of all pages of a turn: some 3 ms.
    const KEYS: usize = 10_000;
    /// What a page has in any case: about as much work as the rest of the command.
    const LEAST_KEYS: usize = 10;
    const BYTES_PER_KEY: usize = Self::WHOLE.bytes / Self::WHOLE.keys;

    /// That of the next page.
    pub fn next(self) -> Allowance {
        let left = Self::KEYS.saturating_sub(self.spent);
        let keys = (left / SHARE).clamp(Self::LEAST_KEYS, Self::WHOLE.keys);
        let bytes = Self::WHOLE.bytes * keys / Self::WHOLE.keys;
        Allowance { keys, bytes }
    }

    /// A page was made of so many keys, which had so many bytes.
    pub fn spend(&mut self, keys: usize, bytes: usize) {
        self.spent += keys.max(bytes / Self::BYTES_PER_KEY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_turn_share_a_budget() {
        let mut pages = Pages::default();
        let mut all = Vec::new();
        for _ in 0..1000 {
            let Allowance { keys, bytes } = pages.next();
            assert!(bytes >= keys * 200);
            pages.spend(keys, 0);
            all.push(keys);
        }
        assert_eq!(all[..3], [1000, 1000, 1000]);
        assert!(all.is_sorted_by(|one, other| one >= other));
        assert_eq!(all[999], 10);
        let sum: usize = all.iter().sum();
        assert!((10_000..10_000 + 1000 * 10).contains(&sum), "{sum}");
    }

    #[test]
    fn long_values_count_as_several_keys() {
        let mut pages = Pages::default();
        assert_eq!(pages.next(), Pages::WHOLE);
        for _ in 0..10 {
            pages.spend(64, 256 << 10);
        }
        assert_eq!(pages.next().keys, 10);
        assert!(pages.next().bytes < 4096);
    }
}
