//! What the engine's log says of each hold that its owner did not end, against the model's word.

use crate::compare::is_mode;
use crate::model::command::LABELS;
use crate::model::endings::Ending;
use crate::model::world::REASONS;
use crate::trial::Trial;
use crate::words::key_of;
use std::cmp::Reverse;
use tether::engine::Loss;
use tether::policy::losses::Entry;

/// How much of the log was compared.
#[derive(Default)]
pub struct Compared {
    /// The id of the last entry.
    last: u64,
    /// The entries whose key nobody has been granted since, and which endings they are.
    open: Vec<(u64, usize)>,
    /// How many of the model's endings.
    endings: usize,
}

impl Trial {
    /// The entries of this step are the endings of this step, in whatever order; and who is granted a key is the next holder in
    /// the entries of those that lost it.
    pub fn compare_log(&mut self) -> Result<(), String> {
        let new = self.machine.losses.iter();
        let mut new: Vec<Entry> = new
            .take_while(|entry| entry.id > self.logged.last)
            .cloned()
            .collect();
        self.logged.last = new.first().map_or(self.logged.last, |entry| entry.id);
        // What connections of a former server held was nobody's here.
        new.retain(|entry| entry.lost.why != Loss::Promoted);
        new.reverse();
        let first = self.logged.endings;
        let mut endings: Vec<usize> = (first..self.world.endings.len()).collect();
        if new.len() != endings.len() || new.iter().any(|entry| entry.lost.count != 1) {
            let expected = &self.world.endings[first..];
            return Err(format!("{new:?} is logged and not {expected:?}"));
        }
        // Those whose token was heard of come first, and of the others tokens rise with the grants.
        new.sort_by_key(|entry| entry.lost.token);
        endings.sort_by_key(|at| self.world.endings[*at].serial);
        for entry in &new {
            let meant = endings.iter().position(|at| {
                let ending = &self.world.endings[*at];
                self.is_logged_as(ending, entry)
                    && self.tokens.was(ending.serial, entry.lost.token.0 as i64)
            });
            let Some(at) = meant else {
                let expected: Vec<&Ending> =
                    endings.iter().map(|at| &self.world.endings[*at]).collect();
                return Err(format!("{entry:?} is logged, and none of {expected:?}"));
            };
            self.logged.open.push((entry.id, endings.remove(at)));
        }
        self.logged.endings = self.world.endings.len();
        self.compare_next_holders()
    }

    fn is_logged_as(&self, ending: &Ending, entry: &Entry) -> bool {
        let lost = &entry.lost;
        let who = ending.who.map(|who| self.machine.id(who));
        lost.key.as_key() == key_of(ending.spot.db, ending.spot.name)
            && *lost.label == *LABELS[ending.label]
            && is_mode(ending.mode, lost.mode)
            && REASONS[ending.reason].contains(&lost.why.name())
            && lost.waiters == ending.waiters
            && who.is_none_or(|who| who.is_none_or(|id| id == lost.client))
    }

    fn compare_next_holders(&mut self) -> Result<(), String> {
        let mut open = std::mem::take(&mut self.logged.open);
        // The latest first, as in the log, which is so gone through once.
        open.sort_unstable_by_key(|(id, _)| Reverse(*id));
        let mut log = self.machine.losses.iter();
        let mut wrong = None;
        open.retain(|(id, at)| {
            let ending = &self.world.endings[*at];
            let entry = log
                .find(|entry| entry.id == *id)
                .expect("the log is long enough");
            let is_right = match (ending.next, entry.next) {
                (None, None) => true,
                (Some(serial), Some(token)) => self.tokens.was(serial, token.0 as i64),
                _ => false,
            };
            if !is_right {
                wrong = Some(format!("{entry:?} is logged and not {ending:?}"));
            }
            ending.next.is_none()
        });
        self.logged.open = open;
        wrong.map_or(Ok(()), Err)
    }
}
