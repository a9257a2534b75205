//! Connections: made, ended by whatever hand.

use super::command::{Command, Replies, Who};
use super::replies::Reply;
use super::world::{Fact, Turn, World};

#[derive(Clone)]
pub struct Connection {
    /// Connections are numbered as they are made.
    pub number: u64,
    pub db: usize,
    pub resp3: bool,
    /// What it wants to hear of the answers to its commands.
    pub replies: Replies,
    pub subscribed: bool,
    /// The transaction that is being queued; each command with the number that the next connection
    /// had then (`CLIENT KILL` says an id).
    pub(super) queue: Option<Vec<(Command, u64)>>,
    /// One of them was refused.
    pub(super) queued_in_vain: bool,
}

impl Connection {
    pub fn in_multi(&self) -> bool {
        self.queue.is_some()
    }

    /// The commands of the transaction that is being queued.
    pub fn queued(&self) -> impl Iterator<Item = &Command> {
        self.queue.iter().flatten().map(|(command, _)| command)
    }

    /// The last command of the transaction that is being queued.
    pub fn queued_last(&self) -> Option<&Command> {
        let last = self.queue.as_ref()?.last();
        last.map(|(command, _)| command)
    }
}

impl World {
    pub fn client(&self, who: Who) -> Option<&Connection> {
        self.clients[who].as_ref()
    }

    pub(super) fn client_mut(&mut self, who: Who) -> &mut Connection {
        self.clients[who]
            .as_mut()
            .expect("only allowed steps are taken")
    }

    pub fn db_of(&self, who: Who) -> usize {
        self.client(who).map_or(0, |client| client.db)
    }

    pub(super) fn connect(&mut self, who: Who, resp3: bool) {
        self.clients[who] = Some(Connection {
            number: self.made,
            db: 0,
            resp3,
            replies: Replies::All,
            subscribed: false,
            queue: None,
            queued_in_vain: false,
        });
        self.made += 1;
    }

    pub(super) fn end(&mut self, who: Who) {
        self.clients[who] = None;
        self.heard[who].clear();
        self.pending[who].clear();
        self.watches.retain(|watch| watch.who != who);
        self.prefixes.retain(|watch| watch.who != who);
        let lost = |waiter: &&super::queues::Waiter| waiter.who == who && waiter.push;
        self.totals.pushes_given_up += self.waiters.iter().filter(lost).count() as u64;
        self.waiters.retain(|waiter| waiter.who != who);
        while let Some(at) = self.grants.iter().position(|grant| grant.who == who) {
            self.totals.pushes_given_up += u64::from(self.grants[at].push);
            self.take_back_grant(at);
        }
        self.facts.push(Fact::Ended { who });
        self.detach(who);
        self.leave_behind(who);
    }

    /// `CLIENT KILL ID`: how many it killed.
    pub(super) fn kill(&mut self, turn: &Turn, who: Who) -> Reply {
        let target = self.client(who);
        if target.is_none_or(|target| target.number >= turn.sent_before) {
            return Reply::Int(0);
        }
        self.end(who);
        Reply::Int(1)
    }

    pub(super) fn unblock_command(&mut self, who: Who, error: bool) -> Reply {
        let reply = self.unblock(who, error);
        if reply == Reply::Int(1) {
            self.facts.push(Fact::Unblocked { who, error });
        }
        reply
    }
}
