//! What a connection wants to hear: `CLIENT REPLY`, and subscriptions.

use super::command::{Command, Replies, Spot, Who};
use super::replies::{Heard, News, Push, Reply};
use super::world::World;

/// It has the name of a key.
pub const CHANNEL: Spot = Spot { db: 0, name: 0 };

impl World {
    /// Whether a command is about that, and was carried out.
    pub(super) fn is_about_hearing(&mut self, who: Who, command: &Command) -> bool {
        match command {
            Command::Replies { how } => {
                self.client_mut(who).replies = *how;
                if *how == Replies::All {
                    self.answer(who, Reply::Ok, Vec::new());
                }
            }
            Command::Subscribe | Command::Unsubscribe => {
                let subscribed = *command == Command::Subscribe;
                self.client_mut(who).subscribed = subscribed;
                self.send_message(who, News::Subscribed(subscribed));
            }
            _ => return false,
        }
        true
    }

    /// To whoever is subscribed: how many that are.
    pub(super) fn publish(&mut self) -> Reply {
        let all = 0..self.clients.len();
        let to = all.filter(|who| self.is_subscribed(*who));
        let to: Vec<Who> = to.collect();
        to.iter()
            .for_each(|who| self.send_message(*who, News::Message));
        Reply::Int(to.len() as i64)
    }

    /// On RESP2 it looks like a reply.
    fn send_message(&mut self, who: Who, news: News) {
        let (spot, label) = (CHANNEL, 0);
        let push = Push {
            spot,
            news,
            label,
            unnamed: false,
        };
        if self.client(who).is_some_and(|client| client.resp3) {
            return self.tell(vec![(who, push)]);
        }
        let words = match news {
            News::Message => vec![Reply::text("message"), Reply::text("a"), Reply::text("hi")],
            News::Subscribed(true) => {
                vec![Reply::text("subscribe"), Reply::text("a"), Reply::Int(1)]
            }
            _ => vec![Reply::text("unsubscribe"), Reply::text("a"), Reply::Int(0)],
        };
        self.heard[who].push(Heard::Reply {
            reply: Reply::Array(words),
            settles: Vec::new(),
            late: true,
        });
    }

    pub fn is_subscribed(&self, who: Who) -> bool {
        self.client(who).is_some_and(|client| client.subscribed)
    }

    /// It speaks RESP2, and may say little else than that it wants to be told no more.
    pub fn is_told_only_messages(&self, who: Who) -> bool {
        let client = self.client(who);
        client.is_some_and(|client| client.subscribed && !client.resp3)
    }

    /// It is answered nothing, or not the next time.
    pub fn is_unanswered(&self, who: Who) -> bool {
        let client = self.client(who);
        client.is_some_and(|client| client.replies != Replies::All)
    }

    /// A reply is due: whether it is not wanted.
    pub(super) fn is_swallowed(&mut self, who: Who) -> bool {
        let client = self.client_mut(who);
        let swallowed = client.replies != Replies::All;
        if client.replies == Replies::NotNext {
            client.replies = Replies::All;
        }
        swallowed
    }
}
