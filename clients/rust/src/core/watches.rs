//! The keys that are watched on the connection, and by whom.
//!
//! - The server knows one watch of a key for each connection. Here any number of watches may share it, each with its own backlog;
//!   the last to go ends it.
//! - Of one key either WATCHEX or UNWATCHEX at most is unanswered. So what a push is about is clear: one that comes while
//!   WATCHEX is unanswered follows its reply, since the server sends none before, and says by itself what that reply was.
//! - On a new connection of the session everything is watched anew, and each watch is told each key's state again.

use super::Core;
use super::backlog::Backlog;
use super::want::Command;
use super::words::{Id, KeyChange, Reply, Tag, WatchEvent};
use crate::clock::BootTime;
use crate::error::{Error, Loss};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Invariant: each key of a watch has that watch among its watchers, and each watcher of a key has it among its keys.
#[derive(Default)]
pub struct Watches {
    keys: HashMap<Vec<u8>, Watched>,
    watches: BTreeMap<Id, Watch>,
    /// Those with news since this was last asked.
    woken: BTreeSet<Id>,
}

struct Watched {
    watchers: BTreeSet<Id>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// WATCHEX is on its way.
    Asked,
    /// It is watched, and exists or not.
    Known(bool),
    /// UNWATCHEX is on its way.
    Leaving,
}

#[derive(Default)]
struct Watch {
    keys: BTreeSet<Vec<u8>>,
    backlog: Backlog,
    /// Why nothing will come any more.
    end: Option<Error>,
}

impl Watch {
    fn say(&mut self, key: &[u8], change: KeyChange) {
        if self.end.is_none() {
            self.backlog.push(key, change);
        }
    }
}

impl Core {
    /// Watches these keys until [`Core::unwatch`]. O(keys).
    pub fn watch(&mut self, now: BootTime, keys: BTreeSet<Vec<u8>>) -> Id {
        self.tick(now);
        let id = self.next;
        self.next += 1;
        let end = match &self.ended {
            Some(why) => Some(Error::Unreachable(why.to_string())),
            None if keys.is_empty() => Some(Error::Refused("no key is named".to_owned())),
            None => None,
        };
        let is_over = end.is_some();
        let watch = Watch {
            keys: keys.clone(),
            end,
            ..Watch::default()
        };
        self.watches.watches.insert(id, watch);
        for key in keys {
            if !is_over {
                self.begin_watch(id, key);
            }
        }
        id
    }

    /// The end of a watch, and of those of its keys that nobody else watches. O(its keys).
    pub fn unwatch(&mut self, id: Id) {
        if let Some(watch) = self.watches.watches.remove(&id) {
            for key in &watch.keys {
                self.leave(id, key);
            }
        }
    }

    /// What a watch says next; an error once it has nothing more to say. O(1).
    pub fn next_event(&mut self, id: Id) -> Option<Result<WatchEvent, Error>> {
        let watch = self.watches.watches.get_mut(&id)?;
        match watch.backlog.pop() {
            Some(event) => Some(Ok(event)),
            None => watch.end.clone().map(Err),
        }
    }

    /// The watches with news since this was last asked.
    pub fn woken(&mut self) -> BTreeSet<Id> {
        std::mem::take(&mut self.watches.woken)
    }

    fn begin_watch(&mut self, id: Id, key: Vec<u8>) {
        let watched = self.watches.keys.get_mut(&key);
        let Some(watched) = watched else {
            let watched = Watched {
                watchers: BTreeSet::from([id]),
                phase: Phase::Asked,
            };
            self.watches.keys.insert(key.clone(), watched);
            self.send_watch(key);
            return;
        };
        watched.watchers.insert(id);
        if let Phase::Known(is_there) = watched.phase {
            self.watches.say(id, &key, state(is_there));
        }
    }

    fn leave(&mut self, id: Id, key: &[u8]) {
        let Some(watched) = self.watches.keys.get_mut(key) else {
            return;
        };
        watched.watchers.remove(&id);
        if watched.watchers.is_empty() && matches!(watched.phase, Phase::Known(_)) {
            watched.phase = Phase::Leaving;
            self.send_unwatch(key);
        }
    }

    pub(super) fn send_watch(&mut self, key: Vec<u8>) {
        let command = Command::new("WATCHEX").with(&key);
        self.send(Tag::Watched(key), command);
    }

    fn send_unwatch(&mut self, key: &[u8]) {
        let command = Command::new("UNWATCHEX").with(key);
        self.send(Tag::Unwatched(key.to_vec()), command);
    }

    /// WATCHEX was answered.
    pub(super) fn watched(&mut self, key: &[u8], reply: Reply) {
        let Some(watched) = self.watches.keys.get_mut(key) else {
            return;
        };
        if watched.phase != Phase::Asked {
            return; // A push that follows this reply was faster.
        }
        let is_there = match reply {
            Reply::Text(text) if text == b"EXIST" => true,
            Reply::Text(text) if text == b"NOEXIST" => false,
            Reply::Error(error) => {
                let watchers = std::mem::take(&mut watched.watchers);
                self.watches.keys.remove(key);
                for id in watchers {
                    self.refuse_watch(id, Error::Refused(error.clone()));
                }
                return;
            }
            _ => return self.end(Loss::Connection),
        };
        self.found_key(key, is_there);
    }

    /// The state of a key when the server began to watch it.
    fn found_key(&mut self, key: &[u8], is_there: bool) {
        let Some(watched) = self.watches.keys.get_mut(key) else {
            return;
        };
        if watched.watchers.is_empty() {
            watched.phase = Phase::Leaving;
            self.send_unwatch(key);
        } else {
            watched.phase = Phase::Known(is_there);
            self.watches.say_to_all(key, state(is_there));
        }
    }

    /// One of its keys may not be watched, so the watch as a whole is over.
    fn refuse_watch(&mut self, id: Id, error: Error) {
        let Some(watch) = self.watches.watches.get_mut(&id) else {
            return;
        };
        watch.end.get_or_insert(error);
        let keys = std::mem::take(&mut watch.keys);
        self.watches.woken.insert(id);
        for key in &keys {
            self.leave(id, key);
        }
    }

    /// UNWATCHEX was answered. If it was refused, the server's pushes for the key mean nothing to anybody.
    pub(super) fn unwatched(&mut self, key: &[u8]) {
        let Some(watched) = self.watches.keys.get_mut(key) else {
            return;
        };
        if watched.watchers.is_empty() {
            self.watches.keys.remove(key);
        } else {
            watched.phase = Phase::Asked;
            self.send_watch(key.to_vec());
        }
    }

    /// A push `watchex key ADD` or `watchex key DEL` came.
    pub(super) fn key_changed(&mut self, key: &[u8], text: &[u8]) {
        let (change, was_there) = match text {
            b"ADD" => (KeyChange::Added, false),
            b"DEL" => (KeyChange::Deleted, true),
            _ => return,
        };
        if self.watches.phase(key) == Some(Phase::Asked) {
            self.found_key(key, was_there);
        }
        if let Some(watched) = self.watches.keys.get_mut(key)
            && let Phase::Known(is_there) = &mut watched.phase
        {
            *is_there = change.is_there();
            self.watches.say_to_all(key, change);
        }
    }

    /// The connection is a new one, which watches nothing yet.
    pub(super) fn watch_anew(&mut self) {
        let keys = &mut self.watches.keys;
        keys.retain(|_, watched| !watched.watchers.is_empty());
        for watched in keys.values_mut() {
            watched.phase = Phase::Asked;
        }
        for key in keys.keys().cloned().collect::<Vec<_>>() {
            self.send_watch(key);
        }
    }

    /// Nothing more will come.
    pub(super) fn end_watches(&mut self, why: &Loss) {
        self.watches.keys.clear();
        for (id, watch) in &mut self.watches.watches {
            let end = || Error::Unreachable(why.to_string());
            watch.end.get_or_insert_with(end);
            self.watches.woken.insert(*id);
        }
    }
}

impl Watches {
    fn phase(&self, key: &[u8]) -> Option<Phase> {
        Some(self.keys.get(key)?.phase)
    }

    fn say(&mut self, id: Id, key: &[u8], change: KeyChange) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.say(key, change);
            self.woken.insert(id);
        }
    }

    fn say_to_all(&mut self, key: &[u8], change: KeyChange) {
        let watched = self.keys.get(key).into_iter();
        for id in watched.flat_map(|watched| &watched.watchers) {
            if let Some(watch) = self.watches.get_mut(id) {
                watch.say(key, change);
                self.woken.insert(*id);
            }
        }
    }
}

fn state(is_there: bool) -> KeyChange {
    match is_there {
        true => KeyChange::Exists,
        false => KeyChange::Missing,
    }
}
