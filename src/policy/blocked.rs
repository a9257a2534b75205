//! What became of each blocked client.

use crate::engine::{ClientId, Reply, Token};
use hashbrown::HashMap;

/// Invariant: a client is here as waiting from its block's beginning until its handle is given back, which the server wants
/// once for each, also when the client is gone; then as answered until the server has written the answer, a turn of its loop
/// later. Or it is answered at once, and only its handle is kept in `spent`, until that is given back.
pub struct Blocked<H> {
    all: HashMap<ClientId, Block<H>>,
    /// Answered, and to be ended at the end of the current command.
    ending: Vec<(ClientId, H)>,
    spent: Vec<H>,
}

pub enum Block<H> {
    Waits(H),
    Answered(Answer),
}

/// What a blocked client is told.
pub struct Answer {
    pub reply: Reply,
    /// What it is granted by that.
    pub granted: Option<Token>,
}

/// When handles that are spent are to be given back.
#[derive(Debug, PartialEq, Eq)]
pub enum GiveBack {
    Now,
    InMs(u64),
    /// That was said before.
    Later,
}

impl<H> Default for Blocked<H> {
    fn default() -> Self {
        Blocked {
            all: HashMap::new(),
            ending: Vec::new(),
            spent: Vec::new(),
        }
    }
}

impl<H> Blocked<H> {
    /// A client is blocked from now on. What it had before is given back.
    pub fn begins(&mut self, client: ClientId, handle: H) -> Option<Block<H>> {
        self.all.insert(client, Block::Waits(handle))
    }

    /// A client is answered, unless it is already: the first answer stands. Gives the handle by which its block is to be ended.
    pub fn answer(&mut self, client: ClientId, answer: Answer) -> Option<H> {
        let block = self.all.get_mut(&client)?;
        match std::mem::replace(block, Block::Answered(answer)) {
            Block::Waits(handle) => Some(handle),
            former => {
                *block = former;
                None
            }
        }
    }

    /// A client is no longer blocked, or has its answer.
    pub fn forget(&mut self, client: ClientId) -> Option<Block<H>> {
        self.all.remove(&client)
    }

    /// The block of an answered client is to be ended at the end of the current command.
    pub fn end_later(&mut self, client: ClientId, handle: H) {
        self.ending.push((client, handle));
    }

    /// The last of those, and whether its answer is still to be written.
    pub fn next_to_end(&mut self) -> Option<(ClientId, H, bool)> {
        let (client, handle) = self.ending.pop()?;
        let is_answered = matches!(self.all.get(&client), Some(Block::Answered(_)));
        Some((client, handle, is_answered))
    }

    /// Keeps the handle of a block that is over.
    pub fn keep_spent(&mut self, handle: H) -> GiveBack {
        const MANY: usize = 16;
        /// The server keeps some memory for each.
        const LONG_MS: u64 = 1000;
        self.spent.push(handle);
        match self.spent.len() {
            1 => GiveBack::InMs(LONG_MS),
            MANY.. => GiveBack::Now,
            _ => GiveBack::Later,
        }
    }

    /// The handles that are to be given back.
    pub fn take_spent(&mut self) -> Vec<H> {
        std::mem::take(&mut self.spent)
    }

    /// The memory of [`take_spent`](Self::take_spent), empty, is of use again.
    pub fn reuse(&mut self, spent: Vec<H>) {
        if self.spent.is_empty() {
            self.spent = spent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(7);

    fn answer(number: i64) -> Answer {
        let (reply, granted) = (Reply::Integer(number), None);
        Answer { reply, granted }
    }

    #[test]
    fn the_first_answer_stands() {
        let mut blocked = Blocked::default();
        assert!(blocked.begins(CLIENT, "handle").is_none());
        assert_eq!(blocked.answer(CLIENT, answer(1)), Some("handle"));
        assert_eq!(blocked.answer(CLIENT, answer(2)), None);
        let answered = blocked.forget(CLIENT);
        assert!(matches!(
            answered,
            Some(Block::Answered(Answer {
                reply: Reply::Integer(1),
                ..
            }))
        ));
        assert_eq!(blocked.answer(CLIENT, answer(3)), None, "nobody is blocked");
    }

    #[test]
    fn blocks_end_from_the_last_on_and_only_those_whose_answer_is_not_written_yet() {
        let mut blocked = Blocked::default();
        for (id, handle) in [(1, "first"), (2, "second")] {
            let client = ClientId(id);
            blocked.begins(client, handle);
            let handle = blocked.answer(client, answer(1)).expect("it waits");
            blocked.end_later(client, handle);
        }
        blocked.forget(ClientId(1));
        assert_eq!(blocked.next_to_end(), Some((ClientId(2), "second", true)));
        assert_eq!(blocked.next_to_end(), Some((ClientId(1), "first", false)));
        assert_eq!(blocked.next_to_end(), None);
    }

    #[test]
    fn spent_handles_are_given_back_some_at_a_time() {
        let mut blocked = Blocked::default();
        let told: Vec<_> = (0..16).map(|handle| blocked.keep_spent(handle)).collect();
        assert_eq!(told[0], GiveBack::InMs(1000));
        assert!(told[1..15].iter().all(|told| *told == GiveBack::Later));
        assert_eq!(told[15], GiveBack::Now);
        let spent = blocked.take_spent();
        assert_eq!(spent.len(), 16);
        blocked.reuse(Vec::new());
        assert_eq!(blocked.keep_spent(0), GiveBack::InMs(1000));
    }
}
