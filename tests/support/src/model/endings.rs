//! How holds ended that their owners did not end, one by one, as `LOCK.LOG` tells it.

use super::command::{Label, Mode, Spot, Who};
use super::holds::Hold;
use super::replies::Serial;
use super::world::World;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub spot: Spot,
    pub label: Label,
    pub mode: Mode,
    pub serial: Serial,
    /// Its place in [`REASONS`](super::totals::REASONS).
    pub reason: usize,
    /// The connection that spoke for its owner; nobody where that is no more.
    pub who: Option<Who>,
    /// How many waited for the key then.
    pub waiters: usize,
    /// The next who was granted the key.
    pub next: Option<Serial>,
}

impl World {
    pub(super) fn note_ending(&mut self, hold: &Hold, reason: usize) {
        self.totals.reasons[reason] += 1;
        self.endings.push(Ending {
            spot: hold.spot,
            label: hold.label,
            mode: hold.mode,
            serial: hold.serial,
            reason,
            who: self.voice(hold.owner),
            waiters: self.queue(hold.spot).len(),
            next: None,
        });
    }

    /// Whoever is granted a key is the next holder for all who had lost it until then.
    pub(super) fn note_next(&mut self, hold: &Hold) {
        let open = self.endings.iter_mut().filter(|its| its.next.is_none());
        for ending in open.filter(|its| its.spot == hold.spot) {
            ending.next = Some(hold.serial);
        }
    }
}
