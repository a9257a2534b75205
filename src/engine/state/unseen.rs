//! At which places there may be keys of which it is not known what stands there, since databases have exchanged their contents.
//! See `rules/exchange.rs`.

use crate::engine::state::keys::Keys;
use crate::engine::state::rows::KeyRecord;
use crate::engine::storage::arena::Id;
use std::ops::Range;

/// The places at which there may be unseen keys. All of them are visited in a circle, which an exchange begins anew where it
/// is: so exchanges one after the other keep nobody waiting for ever.
///
/// Invariant: each unseen key stands at one of these places.
#[derive(Default)]
pub(in crate::engine) struct Unseen {
    ahead: Range<usize>,
    /// Those that are next when none is ahead.
    behind: Range<usize>,
}

impl Unseen {
    /// O(1).
    pub fn is_any(&self) -> bool {
        !(self.ahead.is_empty() && self.behind.is_empty())
    }

    /// Whether a place is still to be visited, for tests.
    pub fn has(&self, place: usize) -> bool {
        self.ahead.contains(&place) || self.behind.contains(&place)
    }

    /// Each of so many places may have an unseen key. O(1).
    pub fn begin(&mut self, places: usize) {
        let here = self.ahead.start.min(places);
        (self.ahead, self.behind) = (here..places, 0..here);
    }

    /// Visits the next place. O(1).
    pub fn visit(&mut self, keys: &Keys) -> Option<Id<KeyRecord>> {
        if self.ahead.is_empty() {
            self.ahead = std::mem::take(&mut self.behind);
        }
        let place = self.ahead.start;
        self.ahead.start = keys.place_after(place);
        keys.at(place).filter(|key| keys[*key].is_unseen())
    }
}
