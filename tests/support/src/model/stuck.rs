//! Cycles of waiting: who can only go on after whom.

use super::command::{Label, Mode, Spot, Task, Who};
use super::queues::Waiter;
use super::world::World;

/// A hold, or one that a waiter will have.
struct Held {
    who: Who,
    label: Label,
    task: Task,
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
                    task: other.task,
                    mode: other.mode,
                    reentrant: other.reentrant,
                });
            let to_come =
                to_come.filter(|held| (held.who, held.label) != (waiter.who, waiter.label));
            let in_way = self.lasting_at(*spot).into_iter().chain(to_come);
            for held in in_way.filter(|held| must_go(waiter, held)) {
                let handed_on = may_be_handed_on(waiter, &held);
                all.extend((0..self.waiters.len()).filter(|other| {
                    let other = &self.waiters[*other];
                    let by_its_task = other.task == held.task && !handed_on;
                    other.who == held.who && (!other.push || by_its_task)
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
                task: hold.task,
                mode: hold.mode,
                reentrant: hold.reentrant,
            })
        });
        lasting.collect()
    }
}

/// Another owner's, of the waiter's own task, beside which others can hold the key: the task may have given it to another one, so
/// that only what keeps the whole connection standing keeps it.
fn may_be_handed_on(waiter: &Waiter, held: &Held) -> bool {
    let is_own = (held.who, held.task) == (waiter.who, waiter.task);
    let is_alone = matches!(held.mode, Mode::Temporary | Mode::Exclusive);
    is_own && held.label != waiter.label && !is_alone
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
