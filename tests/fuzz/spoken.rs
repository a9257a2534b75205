//! What is said on one connection in one piece, and what must come back.

use crate::harness::encode;

pub type Words = Vec<Vec<u8>>;

/// Commands that belong together.
#[derive(Default)]
pub struct Unit {
    pub bytes: Vec<u8>,
    /// How many replies there are.
    pub least: usize,
    pub most: usize,
    /// It may end this connection.
    pub ends: bool,
    /// It may end those with these ids.
    pub kills: Vec<i64>,
    subscribes: Option<bool>,
    text: Vec<String>,
}

impl Unit {
    /// One command, which is answered.
    pub fn of(words: &Words) -> Unit {
        Unit::default().then(words, 1, 1)
    }

    /// And then this command, with so many replies.
    pub fn then(mut self, words: &Words, least: usize, most: usize) -> Unit {
        self.bytes.extend(encode(words.clone()));
        self.least += least;
        self.most += most;
        let shown = words.iter().map(|word| {
            let clipped = &word[..word.len().min(60)];
            clipped.escape_ascii().to_string()
        });
        self.text.push(shown.collect::<Vec<_>>().join(" "));
        self.note(words);
        self
    }

    /// What it may do to connections.
    fn note(&mut self, words: &Words) {
        let word = |at: usize| {
            let word = words.get(at).map_or(&b""[..], Vec::as_slice);
            String::from_utf8_lossy(word).to_ascii_uppercase()
        };
        match (word(0).as_str(), word(1).as_str()) {
            ("QUIT", _) => self.ends = true,
            ("CLIENT", "KILL") => self.kills.extend(word(3).parse::<i64>()),
            ("RESET", _) => self.subscribes = Some(false),
            ("SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE", _) => self.subscribes = Some(true),
            _ => {}
        }
    }

    pub fn subscribed_after(&self, before: bool) -> bool {
        self.subscribes.unwrap_or(before)
    }

    pub fn spelled(&self) -> String {
        self.text.join("; ")
    }
}
