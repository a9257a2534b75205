//! What a watcher of a prefix knows: a page of WATCHTP, and each push on top of it.

use super::client::Client;
use crate::resp::{Frame, bulk, null};
use std::collections::BTreeMap;

/// Temporary keys with tokens and values; none is told of a value that is long, or cannot be read.
pub type Members = BTreeMap<String, (i64, Option<String>)>;

/// All temporary keys with a prefix.
#[derive(Clone, Debug)]
pub struct View {
    prefix: String,
    pub members: Members,
}

impl View {
    pub fn take(client: &mut Client, prefix: &str) -> View {
        View::of(prefix, &client.run(["WATCHTP", prefix]))
    }

    /// The reply to a WATCHTP that has all keys.
    pub fn of(prefix: &str, reply: &Frame) -> View {
        let page = reply.items();
        assert_eq!(page[0], bulk(""), "a second page");
        let entries = page[1].items();
        let member = |entry: &Frame| {
            let parts = entry.items();
            let value = (parts[2] != null()).then(|| parts[2].text());
            (parts[0].text(), (parts[1].number(), value))
        };
        View {
            prefix: prefix.to_owned(),
            members: entries.iter().map(member).collect(),
        }
    }

    /// Puts a push on top. False if it does not fit: one is missing before it, or it came before.
    #[must_use]
    pub fn see(&mut self, push: &str) -> bool {
        let words: Vec<&str> = push.splitn(5, ' ').collect();
        let token = || words[3].parse::<i64>().expect("a token");
        let before = self.members.get(words[1]).map(|(token, _)| *token);
        let fits = match words[2] {
            "ADD" => before.is_none(),
            "SET" => before.is_some_and(|before| before <= token()),
            "DEL" => before == Some(token()),
            "FLUSHED" => words[1] == self.prefix,
            _ => false,
        };
        match words[2] {
            _ if !fits => {}
            "DEL" => drop(self.members.remove(words[1])),
            "FLUSHED" => self.members.clear(),
            _ => {
                let member = (token(), words.get(4).map(|value| (*value).to_owned()));
                self.members.insert(words[1].to_owned(), member);
            }
        }
        fits
    }
}
