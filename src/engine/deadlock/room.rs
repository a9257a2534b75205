//! What room is left at a key beside those who do not let it go.

use super::edges::Owner;
use crate::engine::mode::{Attributes, Mode};
use hashbrown::HashMap;

/// Those who stay at a key: they hold it, or were served in this trial, do not let it go by
/// themselves, and are stuck.
///
/// Invariant: they go with each other, so `way`, the mode of one of them, answers for all. An owner
/// that has made its hold deeper stays in the mode that it began with.
#[derive(Default)]
pub(super) struct Room<'a> {
    modes: HashMap<Owner<'a>, (Mode, Attributes)>,
    way: Option<Mode>,
    /// The permits that they have together: those of one owner once, however deep its hold will be.
    taken: u64,
    /// In the order in which they came; those who have left, too, until all is settled. Each with the
    /// permits of all up to it, as soon as that is so.
    in_order: Vec<(Owner<'a>, u64)>,
}

impl<'a> Room<'a> {
    /// Whether it was not there yet.
    pub fn enter(&mut self, owner: Owner<'a>, mode: Mode, attributes: Attributes) -> bool {
        let is_new = self.modes.try_insert(owner, (mode, attributes)).is_ok();
        if is_new {
            self.way = Some(mode);
            self.taken += u64::from(mode.permits());
            self.in_order.push((owner, 0));
        }
        is_new
    }

    pub fn leave(&mut self, owner: Owner<'a>) {
        let mode = self.modes.remove(&owner);
        self.taken -= mode.map_or(0, |(mode, _)| u64::from(mode.permits()));
        self.way.take_if(|_| self.modes.is_empty());
    }

    /// Whether this owner, too, can have the key. O(1).
    pub fn admits(
        &self,
        owner: Owner<'a>,
        (asked, attributes): (Mode, Attributes),
        asks_for_one: bool,
    ) -> bool {
        match (self.modes.get(&owner), self.way, asked) {
            (Some((own, its)), ..) => {
                let may_again = its.reentrant && attributes.reentrant;
                may_again && asks_for_one && own.reenters_as(asked)
            }
            (None, None, _) => true,
            (None, Some(way), Mode::Permits { count, total }) => {
                asked.is_compatible_with(way) && self.taken + u64::from(count) <= u64::from(total)
            }
            (None, Some(way), _) => asked.is_compatible_with(way),
        }
    }

    /// Nobody leaves any more.
    pub fn settle(&mut self) {
        let modes = &self.modes;
        self.in_order.retain(|(owner, _)| modes.contains_key(owner));
        let mut taken = 0;
        for (owner, up_to) in &mut self.in_order {
            taken += u64::from(modes[owner].0.permits());
            *up_to = taken;
        }
    }

    /// With whom there is no room for this owner any more. O(log of those who stay).
    pub fn who_is_too_many(&self, owner: Owner<'a>, asked: Mode) -> Option<Owner<'a>> {
        let goes = self.way.is_some_and(|way| asked.is_compatible_with(way));
        if goes && self.modes.contains_key(&owner) {
            return Some(owner);
        }
        let fit = match asked {
            Mode::Permits { count, total } if goes => {
                let free = u64::from(total.saturating_sub(count));
                self.in_order.partition_point(|(_, up_to)| *up_to <= free)
            }
            _ => 0,
        };
        self.in_order.get(fit).map(|(owner, _)| *owner)
    }
}
