//! What everyone is to hear of a step, as it comes about.

use super::command::{Spot, Who};
use super::replies::{Heard, News, Push, Reply};
use super::world::World;

impl World {
    /// A reply, and then what has been caused so far.
    pub(super) fn answer(&mut self, who: Who, reply: Reply, settles: Vec<Spot>) {
        if self.is_swallowed(who) {
            return self.flush_pending();
        }
        let late = false;
        self.heard[who].push(Heard::Reply {
            reply,
            settles,
            late,
        });
        self.flush_pending();
    }

    /// What a command of ours tells its own connection of requests and holds comes before its reply.
    pub(super) fn tell_in_front(&mut self, who: Who) {
        let causes = std::mem::take(&mut self.pending[who]);
        for cause in causes {
            let (after, before): (Vec<_>, Vec<_>) = cause.into_iter().partition(Push::is_watch);
            if !before.is_empty() {
                self.heard[who].push(Heard::InFront(before));
            }
            if !after.is_empty() {
                self.pending[who].push(after);
            }
        }
    }

    /// A transaction is over: what it was granted and has given back itself, it does not hear of.
    pub(super) fn leave_out_what_was_given_back(&mut self, who: Who) {
        let holds = &self.holds;
        let all = self.pending[who].concat();
        let mut at = 0;
        for cause in &mut self.pending[who] {
            cause.retain(|push| {
                at += 1;
                let News::Granted(_, serial) = push.news else {
                    return true;
                };
                let is_same = |other: &&Push| {
                    (other.spot, other.label) == (push.spot, push.label) && !other.is_watch()
                };
                let next = all[at..].iter().find(is_same);
                let is_lost = next.is_some_and(|next| matches!(next.news, News::Lost(..)));
                is_lost || holds.iter().any(|hold| hold.granted_as == serial)
            });
        }
        self.pending[who].retain(|cause| !cause.is_empty());
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
