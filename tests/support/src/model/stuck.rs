//! Cycles of waiting: who can only go on after whom.

use super::command::{Label, Mode, Spot, Who};
use super::queues::Waiter;
use super::world::World;

/// A hold, or one that a waiter will have.
struct Held {
    who: Who,
    label: Label,
    mode: Mode,
    reentrant: bool,
}

impl World {
    /// Whether a waiter must wait for itself, by however many others.
    pub fn closes_cycle(&self, newest: usize) -> bool {
        let mut reached = vec![newest];
        let mut next = 0;
        while let Some(at) = reached.get(next) {
            next += 1;
            for other in self.must_wait_for(*at) {
                if other == newest {
                    return true;
                }
                if !reached.contains(&other) {
                    reached.push(other);
                }
            }
        }
        false
    }

    fn must_wait_for(&self, at: usize) -> Vec<usize> {
        let waiter = &self.waiters[at];
        let mut all = Vec::new();
        for spot in &waiter.spots {
            let ahead = (0..at).filter(|other| self.waiters[*other].spots.contains(spot));
            all.extend(ahead.clone().next_back());
            let to_come = ahead.map(|other| &self.waiters[other]);
            let to_come = to_come
                .filter(|other| other.lease_ms.is_none())
                .map(|other| Held {
                    who: other.who,
                    label: other.label,
                    mode: other.mode,
                    reentrant: other.reentrant,
                });
            let to_come =
                to_come.filter(|held| (held.who, held.label) != (waiter.who, waiter.label));
            let in_way = self.lasting_at(*spot).into_iter().chain(to_come);
            for held in in_way.filter(|held| must_go(waiter, held)) {
                all.extend((0..self.waiters.len()).filter(|other| {
                    let other = &self.waiters[*other];
                    other.who == held.who && (!other.push || other.label == held.label)
                }));
            }
        }
        all
    }

    fn lasting_at(&self, spot: Spot) -> Vec<Held> {
        let holds = self.holds.iter().filter(|hold| hold.spot == spot);
        let lasting = holds.filter_map(|hold| {
            // A lease ends by itself, what the dead left goes, and nobody waits for ever for a session that is detached.
            let mut grants = self.grants.iter();
            let grant = grants.find(|grant| grant.serial == hold.serial);
            let to_come = grant.and_then(|grant| grant.lease_ms);
            let is_over = hold.is_left_behind() || to_come.is_some() || hold.ends.is_some();
            Some(Held {
                who: self.voice(hold.owner).filter(|_| !is_over)?,
                label: hold.label,
                mode: hold.mode,
                reentrant: hold.reentrant,
            })
        });
        lasting.collect()
    }
}

/// Whether a waiter can only have its key after this hold.
fn must_go(waiter: &Waiter, held: &Held) -> bool {
    if (held.who, held.label) == (waiter.who, waiter.label) {
        let again = held.reentrant && waiter.reentrant;
        return !(again && waiter.spots.len() == 1 && held.mode.reenters_as(waiter.mode));
    }
    match (held.mode, waiter.mode) {
        (Mode::Shared, Mode::Shared) => false,
        (
            Mode::Permits { count, total },
            Mode::Permits {
                count: more,
                total: asked,
            },
        ) => total != asked || count + more > total,
        _ => true,
    }
}
