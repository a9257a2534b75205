//! What a watch has to say and nobody has read yet.

use super::words::{KeyChange, WatchEvent};
use std::collections::{HashMap, VecDeque};

/// So many events wait for a reader. Beyond that each key has one more at most.
const ROOM: usize = 1024;

/// The events of one watch in their order. A reader who falls behind misses changes that cancel each other out, and never the
/// last state of a key: so what waits is bounded, whatever happens to the keys.
///
/// Invariant: `waiting` counts the events in `queue` of each key that has any; only such a key has an event in `late`.
#[derive(Default)]
pub struct Backlog {
    queue: VecDeque<WatchEvent>,
    waiting: HashMap<Vec<u8>, Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: usize,
    /// What the last one in the queue says.
    is_there: bool,
    /// What is to be said after it, unless it is undone before.
    late: Option<KeyChange>,
}

impl Backlog {
    /// O(1).
    pub fn push(&mut self, key: &[u8], change: KeyChange) {
        if self.queue.len() >= ROOM
            && let Some(waiting) = self.waiting.get_mut(key)
        {
            let is_news = waiting.is_there != change.is_there();
            waiting.late = is_news.then_some(change);
            return;
        }
        let waiting = self.waiting.entry(key.to_vec()).or_default();
        waiting.events += 1;
        waiting.is_there = change.is_there();
        // It says the last state itself.
        waiting.late = None;
        let key = key.to_vec();
        self.queue.push_back(WatchEvent { key, change });
    }

    /// O(1).
    pub fn pop(&mut self) -> Option<WatchEvent> {
        let event = self.queue.pop_front()?;
        let waiting = self.waiting.get_mut(&event.key)?;
        waiting.events -= 1;
        if waiting.events == 0 {
            let late = waiting.late;
            self.waiting.remove(&event.key);
            if let Some(change) = late {
                self.push(&event.key, change);
            }
        }
        Some(event)
    }

    /// No more of this key than is said already.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use KeyChange::{Added, Deleted, Missing};

    fn drain(backlog: &mut Backlog) -> Vec<WatchEvent> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    #[test]
    fn who_keeps_up_misses_nothing() {
        let mut backlog = Backlog::default();
        backlog.push(b"k", Missing);
        for _ in 0..10_000 {
            backlog.push(b"k", Added);
            backlog.push(b"k", Deleted);
            let changes = drain(&mut backlog).into_iter().map(|event| event.change);
            assert!(
                changes
                    .skip_while(|change| *change == Missing)
                    .eq([Added, Deleted])
            );
        }
        assert!(backlog.waiting.is_empty());
    }

    #[test]
    fn who_falls_behind_reads_changes_in_turn_and_the_last_state() {
        for changes in [50_000, 50_001] {
            let mut backlog = Backlog::default();
            backlog.push(b"other", Missing);
            backlog.push(b"k", Missing);
            for number in 0..changes {
                backlog.push(b"k", if number % 2 == 0 { Added } else { Deleted });
            }
            backlog.push(b"other", Added);
            backlog.push(b"new", Missing);
            assert!(backlog.len() <= ROOM + 3);
            let events = drain(&mut backlog);
            let states = |key: &[u8]| {
                let of_key = events.iter().filter(|event| event.key == key);
                of_key
                    .map(|event| event.change.is_there())
                    .collect::<Vec<_>>()
            };
            let states_of_k = states(b"k");
            assert!(states_of_k.windows(2).all(|pair| pair[0] != pair[1]));
            assert_eq!(states_of_k.last(), Some(&(changes % 2 == 1)));
            assert_eq!(states(b"other"), [false, true]);
            assert_eq!(states(b"new"), [false]);
            assert!(backlog.waiting.is_empty());
        }
    }
}
