//! Blocked clients, their answers, and the server's handles.

use crate::engine::{ClientId, Reply, Token};
use hashbrown::HashMap;

/// Invariant: a client is `Waiting` here from the beginning of its block until its handle is released (the server requires
/// that once per block, also if the client is gone), then `Answered` until the server has written the answer, one turn of
/// its loop later. If the client is answered at once, only its handle is kept, in `spent`, until it is released.
pub struct Blocked<H> {
    all: HashMap<ClientId, Block<H>>,
    /// Answered clients to unblock at the end of the current command.
    deferred: Vec<(ClientId, H)>,
    spent: Vec<H>,
}

pub enum Block<H> {
    Waiting(H),
    Answered(Answer),
}

/// The answer to a blocked client.
pub struct Answer {
    pub reply: Reply,
    /// The token granted with it.
    pub granted: Option<Token>,
}

/// When to release spent handles.
#[derive(Debug, PartialEq, Eq)]
pub enum ReleaseHandles {
    Now,
    InMs(u64),
    /// Already scheduled.
    Later,
}

impl<H> Default for Blocked<H> {
    fn default() -> Self {
        Blocked {
            all: HashMap::new(),
            deferred: Vec::new(),
            spent: Vec::new(),
        }
    }
}

impl<H> Blocked<H> {
    /// Adds a blocked client. Returns its previous block, if any.
    pub fn begin(&mut self, client: ClientId, handle: H) -> Option<Block<H>> {
        self.all.insert(client, Block::Waiting(handle))
    }

    /// Answers a client; the first answer stands. Returns the handle to unblock it with, if this is the first.
    pub fn answer(&mut self, client: ClientId, answer: Answer) -> Option<H> {
        let block = self.all.get_mut(&client)?;
        match std::mem::replace(block, Block::Answered(answer)) {
            Block::Waiting(handle) => Some(handle),
            answered => {
                *block = answered;
                None
            }
        }
    }

    /// Removes a client that is no longer blocked, or whose answer is being written.
    pub fn take(&mut self, client: ClientId) -> Option<Block<H>> {
        self.all.remove(&client)
    }

    /// Unblocks an answered client at the end of the current command.
    pub fn defer_unblock(&mut self, client: ClientId, handle: H) {
        self.deferred.push((client, handle));
    }

    /// Takes the last of these clients; true if its answer is still to be written.
    pub fn next_deferred(&mut self) -> Option<(ClientId, H, bool)> {
        let (client, handle) = self.deferred.pop()?;
        let is_answered = matches!(self.all.get(&client), Some(Block::Answered(_)));
        Some((client, handle, is_answered))
    }

    /// Keeps the handle of an ended block for release.
    pub fn add_spent(&mut self, handle: H) -> ReleaseHandles {
        const SPENT_MAX: usize = 16;
        /// Each handle holds server memory, so release them within a second.
        const RELEASE_AFTER_MS: u64 = 1000;
        self.spent.push(handle);
        match self.spent.len() {
            1 => ReleaseHandles::InMs(RELEASE_AFTER_MS),
            SPENT_MAX.. => ReleaseHandles::Now,
            _ => ReleaseHandles::Later,
        }
    }

    /// Takes the handles to release.
    pub fn take_spent(&mut self) -> Vec<H> {
        std::mem::take(&mut self.spent)
    }

    /// Reuses the empty vector of [`take_spent`](Self::take_spent).
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
        assert!(blocked.begin(CLIENT, "handle").is_none());
        assert_eq!(blocked.answer(CLIENT, answer(1)), Some("handle"));
        assert_eq!(blocked.answer(CLIENT, answer(2)), None);
        let answered = blocked.take(CLIENT);
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
            blocked.begin(client, handle);
            let handle = blocked.answer(client, answer(1)).expect("it waits");
            blocked.defer_unblock(client, handle);
        }
        blocked.take(ClientId(1));
        assert_eq!(blocked.next_deferred(), Some((ClientId(2), "second", true)));
        assert_eq!(blocked.next_deferred(), Some((ClientId(1), "first", false)));
        assert_eq!(blocked.next_deferred(), None);
    }

    #[test]
    fn spent_handles_are_given_back_some_at_a_time() {
        let mut blocked = Blocked::default();
        let when: Vec<_> = (0..16).map(|handle| blocked.add_spent(handle)).collect();
        assert_eq!(when[0], ReleaseHandles::InMs(1000));
        assert!(
            when[1..15]
                .iter()
                .all(|when| *when == ReleaseHandles::Later)
        );
        assert_eq!(when[15], ReleaseHandles::Now);
        let spent = blocked.take_spent();
        assert_eq!(spent.len(), 16);
        blocked.reuse(Vec::new());
        assert_eq!(blocked.add_spent(0), ReleaseHandles::InMs(1000));
    }
}
