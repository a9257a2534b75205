//! What everyone is to hear of a step, as it comes about.

use super::command::{Spot, Who};
use super::told::{Heard, Push, Reply};
use super::world::World;

impl World {
    /// A reply, and then what has been caused so far.
    pub(super) fn answer(&mut self, who: Who, reply: Reply, settles: Vec<Spot>) {
        let late = false;
        self.heard[who].push(Heard::Reply {
            reply,
            settles,
            late,
        });
        self.flush_pending();
    }

    pub(super) fn last_reply(&mut self, who: Who) -> Option<&mut Heard> {
        let mut heard = self.heard[who].iter_mut().rev();
        heard.find(|heard| matches!(heard, Heard::Reply { .. }))
    }

    pub(super) fn flush_pending(&mut self) {
        for (pending, heard) in self.pending.iter_mut().zip(&mut self.heard) {
            heard.extend(pending.drain(..).map(Heard::Pushes));
        }
    }

    /// One cause's pushes.
    pub(super) fn tell(&mut self, pushes: Vec<(Who, Push)>) {
        if let Some(gathered) = &mut self.gathered {
            return gathered.extend(pushes);
        }
        for who in 0..self.clients.len() {
            let group: Vec<Push> = pushes
                .iter()
                .filter(|(to, _)| *to == who)
                .map(|(_, push)| *push)
                .collect();
            if !group.is_empty() && self.client(who).is_some() {
                self.pending[who].push(group);
            }
        }
    }
}
