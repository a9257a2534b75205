//! Circles of waiting, tried out: what if everyone who can go on does?

use super::command::{Label, Mode, Spot, Who};
use super::world::World;

/// A hold in the dream.
struct Held {
    who: Who,
    label: Label,
    spot: Spot,
    mode: Mode,
}

impl World {
    /// The places of those waiters that would wait for ever, even if every owner that does not wait
    /// gave back all that it holds, and so on with those who are served then.
    pub fn stuck(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = (0..self.waiters.len()).collect();
        let mut held: Vec<Held> = Vec::new();
        for hold in &self.holds {
            // A lease ends by itself, what the dead left goes, and nobody waits for ever for a session that is detached.
            let mut grants = self.grants.iter();
            let grant = grants.find(|grant| grant.serial == hold.serial);
            let to_come = grant.and_then(|grant| grant.lease_ms);
            let is_over = hold.is_gone() || to_come.is_some();
            let owner = self.voice(hold.owner).filter(|_| !is_over);
            if let (Some(who), None) = (owner, hold.ends) {
                let (label, spot, mode) = (hold.label, hold.spot, hold.mode);
                held.push(Held {
                    who,
                    label,
                    spot,
                    mode,
                });
            }
        }
        loop {
            held.retain(|held| {
                let mut waiters = waiting.iter().map(|at| &self.waiters[*at]);
                waiters.any(|waiter| {
                    waiter.who == held.who && (!waiter.push || waiter.label == held.label)
                })
            });
            let served = waiting
                .iter()
                .position(|at| self.goes_on(*at, &waiting, &held));
            let Some(served) = served else { return waiting };
            let waiter = &self.waiters[waiting.remove(served)];
            for spot in waiter.spots.iter().filter(|_| waiter.lease_ms.is_none()) {
                held.push(Held {
                    who: waiter.who,
                    label: waiter.label,
                    spot: *spot,
                    mode: waiter.mode,
                });
            }
        }
    }

    /// Whether this one is first in all its queues and goes with all that is still held.
    fn goes_on(&self, at: usize, waiting: &[usize], held: &[Held]) -> bool {
        let waiter = &self.waiters[at];
        waiter.spots.iter().all(|spot| {
            let first = waiting
                .iter()
                .find(|at| self.waiters[**at].spots.contains(spot));
            let there: Vec<&Held> = held.iter().filter(|held| held.spot == *spot).collect();
            let is_own = |held: &&&Held| (held.who, held.label) == (waiter.who, waiter.label);
            let admitted = match (there.iter().find(is_own), waiter.mode) {
                (Some(_), _) => false,
                (None, Mode::Temporary | Mode::Exclusive) => there.is_empty(),
                (None, Mode::Shared) => there.iter().all(|held| held.mode == Mode::Shared),
                (None, Mode::Permits { count, total }) => {
                    let mut taken = count;
                    let all = there.iter().all(|held| match held.mode {
                        Mode::Permits { count, total: t } => {
                            taken += count;
                            t == total
                        }
                        _ => false,
                    });
                    all && taken <= total
                }
            };
            first == Some(&at) && admitted
        })
    }
}
