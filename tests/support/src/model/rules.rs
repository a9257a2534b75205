//! What must be true of every world, whatever has happened. The machine and the server are held
//! against the world; so it is true of them.

use super::command::{Mode, Spot};
use super::holds::Owner;
use super::world::World;

impl World {
    /// The first rule that is broken.
    pub fn check_rules(&self) -> Result<(), String> {
        for spot in self.held_spots() {
            self.check_holders(spot)?;
        }
        for hold in &self.holds {
            let is_there = match hold.owner {
                Owner::Connection(who) => {
                    self.client(who).is_some() && self.session_of(who).is_none()
                }
                Owner::Session(number) => self.session(number).is_some(),
                Owner::Gone(_) | Owner::Over(_) => true,
            };
            if !is_there {
                return Err(format!("{hold:?} is held by nobody"));
            }
            if hold.depth == 0 {
                return Err(format!("{hold:?} is over"));
            }
        }
        for session in &self.sessions {
            let is_attached = session
                .attached
                .is_some_and(|who| self.client(who).is_some());
            if is_attached == session.ends.is_some() {
                return Err(format!("{session:?} is attached to nobody, or ends"));
            }
        }
        self.check_grants()?;
        match self.waiters.iter().find(|w| self.client(w.who).is_none()) {
            Some(waiter) => Err(format!("nobody is there who waits: {waiter:?}")),
            None => Ok(()),
        }
    }

    fn held_spots(&self) -> Vec<Spot> {
        let mut spots: Vec<Spot> = self.holds.iter().map(|hold| hold.spot).collect();
        spots.sort_unstable();
        spots.dedup();
        spots
    }

    /// Those who hold a key go with each other, and it is there.
    fn check_holders(&self, spot: Spot) -> Result<(), String> {
        let held = self.holds_at(spot);
        let owners = held.iter().map(|hold| (hold.owner, hold.label));
        let owners: Vec<_> = owners.collect();
        let twice = (1..owners.len()).any(|at| owners[..at].contains(&owners[at]));
        let readers = held.iter().all(|hold| hold.mode == Mode::Shared);
        let taken = |hold: &&super::holds::Hold| match hold.mode {
            Mode::Permits { count, total } => Some((count, total)),
            _ => None,
        };
        let permits: Vec<(u32, u32)> = held.iter().filter_map(taken).collect();
        let total = permits.first().map_or(0, |(_, total)| *total);
        let suffice = permits.len() == held.len()
            && permits.iter().all(|(_, t)| *t == total)
            && permits.iter().map(|(count, _)| count).sum::<u32>() <= total;
        let together = held.len() == 1 || readers || suffice;
        match !twice && together && self.exists(spot) {
            true => Ok(()),
            false => Err(format!("{spot:?} cannot be held like this: {held:?}")),
        }
    }

    /// Nobody waits who could have what it asks for. True as soon as the keyspace may be written.
    pub fn check_nobody_is_forgotten(&self) -> Result<(), String> {
        match self.first_servable() {
            Some(waiter) => Err(format!("nobody wakes {waiter:?}")),
            None => Ok(()),
        }
    }
}
