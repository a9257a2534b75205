//! What room is left at a key beside those who do not let it go.

use super::edges::Owner;
use crate::engine::mode::{Mode, ModeKind, Modes};
use hashbrown::HashMap;

/// Those who stay at a key: they hold it, or were served in this trial, do not let it go by
/// themselves, and are stuck.
///
/// Invariant: they go with each other.
#[derive(Default)]
pub(super) struct Room<'a> {
    modes: HashMap<Owner<'a>, Mode>,
    /// In which modes, and how many of them in each.
    held: Modes,
    counts: [u32; ModeKind::COUNT],
    /// The semaphore's permits, if they hold such.
    total: u32,
    /// The permits that they have together.
    taken: u64,
    /// In the order in which they came; those who have left, too, until all is settled. Each with the
    /// permits of all up to it, as soon as that is so.
    in_order: Vec<(Owner<'a>, u64)>,
}

impl<'a> Room<'a> {
    /// Whether it was not there yet.
    pub fn enter(&mut self, owner: Owner<'a>, mode: Mode) -> bool {
        let is_new = self.modes.try_insert(owner, mode).is_ok();
        if is_new {
            self.held = self.held.with(mode.kind());
            self.counts[mode.kind() as usize] += 1;
            self.taken += u64::from(mode.permits());
            if let Mode::Permits { total, .. } = mode {
                self.total = total;
            }
            self.in_order.push((owner, 0));
        }
        is_new
    }

    pub fn leave(&mut self, owner: Owner<'a>) {
        if let Some(mode) = self.modes.remove(&owner) {
            let count = &mut self.counts[mode.kind() as usize];
            *count -= 1;
            if *count == 0 {
                self.held = self.held.without(mode.kind());
            }
            self.taken -= u64::from(mode.permits());
        }
    }

    /// Whether somebody else can hold the key in this mode beside them, but for the permits that are left.
    fn goes(&self, asked: Mode) -> bool {
        let is_other = |total| self.held.has(ModeKind::Permits) && total != self.total;
        match asked {
            Mode::Permits { total, .. } if is_other(total) => false,
            _ => asked.goes_with(self.held),
        }
    }

    /// Whether this owner, too, can have the key. O(1).
    pub fn admits(&self, owner: Owner<'a>, asked: Mode) -> bool {
        let has_permits = match asked {
            Mode::Permits { count, total } => self.taken + u64::from(count) <= u64::from(total),
            _ => true,
        };
        has_permits && self.goes(asked) && !self.modes.contains_key(&owner)
    }

    /// Nobody leaves any more.
    pub fn settle(&mut self) {
        let modes = &self.modes;
        self.in_order.retain(|(owner, _)| modes.contains_key(owner));
        let mut taken = 0;
        for (owner, up_to) in &mut self.in_order {
            taken += u64::from(modes[owner].permits());
            *up_to = taken;
        }
    }

    /// With whom there is no room for this owner any more. O(log of those who stay), or O(those of them with whom it goes).
    pub fn who_is_too_many(&self, owner: Owner<'a>, asked: Mode) -> Option<Owner<'a>> {
        let goes = self.goes(asked);
        if goes && self.modes.contains_key(&owner) {
            return Some(owner);
        }
        let fit = match asked {
            Mode::Permits { count, total } if goes => {
                let free = u64::from(total.saturating_sub(count));
                self.in_order.partition_point(|(_, up_to)| *up_to <= free)
            }
            _ => {
                let is_in_way =
                    |(owner, _): &(Owner<'a>, u64)| !asked.is_compatible_with(self.modes[owner]);
                self.in_order.iter().position(is_in_way)?
            }
        };
        self.in_order.get(fit).map(|(owner, _)| *owner)
    }
}
