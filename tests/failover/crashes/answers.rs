//! What clients were told: the plain keys as they must be, and the tokens.

use crate::harness::say;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

/// Plain keys with their values.
pub type State = BTreeMap<String, String>;

pub struct Answers {
    /// The plain keys as replies tell them; while a command is under way, as they may be.
    pub now: Vec<State>,
    /// The plain keys as RDB files may hold them.
    pub saved: Vec<State>,
    /// Each with the owner that it was given to.
    tokens: BTreeMap<i64, String>,
    /// All tokens from now on are greater.
    floor: i64,
    /// From then on all plain keys with a time to live are gone.
    lapsed: Instant,
    /// What was said and answered, for who must find out why a test fails.
    story: Vec<String>,
}

impl Drop for Answers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.story.len().saturating_sub(200);
            say(&self.story[from..].join("\n"));
        }
    }
}

impl Answers {
    pub fn nothing() -> Answers {
        Answers {
            now: vec![State::new()],
            saved: vec![State::new()],
            tokens: BTreeMap::new(),
            floor: 0,
            lapsed: Instant::now(),
            story: Vec::new(),
        }
    }

    pub fn note(&mut self, line: String) {
        self.story.push(line);
    }

    /// Everybody has heard of the server's end.
    pub fn server_ended(&mut self) {
        self.note("-- the server ends --".to_owned());
        self.floor = self.tokens.keys().last().copied().unwrap_or(0);
    }

    /// A plain key got so long a time to live, at the latest now.
    pub fn lapses_in(&mut self, time: Duration) {
        self.lapsed = self.lapsed.max(Instant::now() + time);
    }

    /// A server starts again sooner than some of these keys end, and refuses newcomers because of them with reason.
    pub fn wait_for_lapses(&self) {
        thread::sleep(self.lapsed.saturating_duration_since(Instant::now()));
    }

    /// What a reply tells of a grant. Who takes a lock again has the same token again; nobody else has.
    pub fn granted(&mut self, token: i64, owner: &str, what: &str) {
        assert!(token > self.floor, "{what}: {token} after {}", self.floor);
        let first = self.tokens.entry(token).or_insert_with(|| owner.to_owned());
        assert_eq!(first, owner, "{what}: the token {token} twice");
    }

    /// The states are down to what was found.
    pub fn found(&mut self, state: State) {
        self.now = vec![state.clone()];
        self.saved = vec![state];
    }
}

/// One of several states, each once.
pub fn one_of(states: impl IntoIterator<Item = State>) -> Vec<State> {
    states
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}
