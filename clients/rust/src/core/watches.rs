//! Watches of keys: the server's are shared, and each watcher is told the state first and then its changes.

use super::*;

/// So many watched keys are asked for again at a time (P-CLUSTER-7).
const MOST_AGAIN: usize = 64;

/// All watches of a client.
#[derive(Debug, Default)]
pub struct Watches {
    watches: HashMap<Id, Watch>,
    keys: HashMap<Bytes, Watched>,
    last_serial: u64,
    /// The last one that was asked for again.
    again: u64,
}

#[derive(Debug)]
struct Watch {
    keys: Vec<Bytes>,
    /// Whether each key is there, as far as the watcher was told.
    told: HashMap<Bytes, bool>,
}

/// A key that is watched.
#[derive(Debug)]
struct Watched {
    by: Vec<Id>,
    state: State,
    /// A command of it is not answered; a push is no answer (P-WATCH-1).
    is_open: bool,
    /// What it was when it was asked for again.
    was_there: Option<bool>,
    /// Its place among all that are watched.
    serial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Known(bool),
    Leaving,
}

impl Watches {
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// A key that is watched.
    pub fn first(&self) -> Option<&Bytes> {
        self.keys.keys().next()
    }

    /// Those of several slots.
    pub fn crossing(&self) -> Vec<Id> {
        let crosses = |watch: &Watch| !cluster::are_of_one_slot(&watch.keys);
        let watches = self.watches.iter();
        let mut ids: Vec<_> = watches
            .filter(|(_, it)| crosses(it))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Ends all of them.
    pub fn clear(&mut self) -> Vec<Id> {
        self.keys.clear();
        let mut ids: Vec<_> = self.watches.drain().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }
}

impl Core {
    /// Begins to watch these keys, of which this was told already.
    pub fn watch(&mut self, id: Id, mut keys: Vec<Bytes>, told: Told) {
        let mut seen = BTreeSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        if self.is_closed {
            return self.refuse_watch(id, Error::Closed);
        }
        if keys.is_empty() {
            return self.refuse_watch(id, Error::Refused("KEYS no key is named".to_owned()));
        }
        if self.config.is_cluster && !cluster::are_of_one_slot(&keys) {
            return self.refuse_watch(id, Error::CrossSlot);
        }
        let watch = Watch {
            keys: keys.clone(),
            told: told.keys,
        };
        self.watches.watches.insert(id, watch);
        self.need_connection();
        for key in keys {
            match self.watches.keys.get_mut(&key) {
                Some(watched) => {
                    watched.by.push(id);
                    if let State::Known(is_there) = watched.state {
                        self.tell_state(id, &key, is_there);
                    }
                }
                None => {
                    self.watches.last_serial += 1;
                    let watched = Watched {
                        by: vec![id],
                        state: State::Asked,
                        is_open: false,
                        was_there: None,
                        serial: self.watches.last_serial,
                    };
                    self.watches.keys.insert(key.clone(), watched);
                    self.send_watch(&key);
                }
            }
        }
    }

    /// P-CLUSTER-7: the slots of some watched keys may have moved, and nobody was told.
    pub(super) fn watch_again(&mut self) {
        let last = self.watches.again;
        let mut keys = Vec::new();
        for (key, watched) in &self.watches.keys {
            if let (State::Known(_), false) = (watched.state, watched.is_open) {
                keys.push((watched.serial <= last, watched.serial, key.clone()));
            }
        }
        if keys.len() > MOST_AGAIN {
            keys.select_nth_unstable(MOST_AGAIN);
            keys.truncate(MOST_AGAIN);
        }
        keys.sort_unstable();
        for (_, serial, key) in keys {
            self.watches.again = serial;
            if let Some(watched) = self.watches.keys.get_mut(&key)
                && let State::Known(is_there) = watched.state
            {
                watched.was_there = Some(is_there);
                watched.state = State::Asked;
                self.send_watch(&key);
            }
        }
    }

    /// A watch or presence ends before anything was sent.
    pub(super) fn refuse_watch(&mut self, id: Id, error: Error) {
        let told = Told::default();
        self.tell(Event::Ended { id, error, told });
    }

    pub(super) fn send_watch(&mut self, key: &Bytes) {
        let is_up = self.is_up();
        let watched = self.watches.keys.get_mut(key).filter(|_| is_up);
        if let Some(watched) = watched.filter(|it| it.state == State::Asked && !it.is_open) {
            watched.is_open = true;
            self.send(words!["WATCHEX", key], Expect::Watch(key.clone()));
        }
    }

    /// The watcher goes.
    pub fn unwatch(&mut self, id: Id) {
        let watch = self.watches.watches.remove(&id);
        for key in watch.into_iter().flat_map(|watch| watch.keys) {
            self.leave_watch(id, &key);
        }
    }

    fn leave_watch(&mut self, id: Id, key: &Bytes) {
        let is_up = self.is_up();
        let Some(watched) = self.watches.keys.get_mut(key) else {
            return;
        };
        watched.by.retain(|other| *other != id);
        if !watched.by.is_empty() {
            return;
        }
        if !is_up {
            self.watches.keys.remove(key);
        } else if let State::Known(_) = watched.state {
            self.send_unwatch(key);
        }
    }

    /// If nobody watches it; while a command is open, the answer to that leads here again.
    fn send_unwatch(&mut self, key: &Bytes) {
        let watched = self.watches.keys.get_mut(key);
        if let Some(watched) = watched.filter(|it| it.by.is_empty() && !it.is_open) {
            watched.state = State::Leaving;
            watched.is_open = true;
            self.send(words!["UNWATCHEX", key], Expect::Unwatch(key.clone()));
        }
    }

    pub(super) fn unwatch_answered(&mut self, key: &Bytes) {
        match self.watches.keys.get_mut(key) {
            Some(watched) if watched.by.is_empty() => _ = self.watches.keys.remove(key),
            Some(watched) => {
                watched.state = State::Asked;
                watched.is_open = false;
                self.send_watch(key);
            }
            None => {}
        }
    }

    pub(super) fn watch_answered(&mut self, key: &Bytes, reply: &Frame) {
        let Some(watched) = self.watches.keys.get_mut(key) else {
            return;
        };
        watched.is_open = false;
        if let State::Known(_) = watched.state {
            return self.send_unwatch(key); // A push said the state before.
        }
        let code = reply.error().map_or("", errors::code);
        match (reply.error(), watched.was_there) {
            (Some(_), Some(was_there)) if code != "MOVED" => self.state_known(key, was_there),
            (Some(error), _) if errors::is_momentary(error) || code == "ASK" => {
                self.try_again(Retry::Watch(key.clone()));
            }
            (Some(error), _) => self.watch_refused(key, error),
            (None, _) => self.state_known(key, reply.bytes() == Some(b"EXIST")),
        }
    }

    /// P-WATCH-4.
    fn watch_refused(&mut self, key: &Bytes, error: &str) {
        let Some(watched) = self.watches.keys.remove(key) else {
            return;
        };
        for id in watched.by {
            let error = Error::Refused(error.to_owned());
            let watch = self.watches.watches.get(&id);
            let told = Told {
                keys: watch.map(|watch| watch.told.clone()).unwrap_or_default(),
                members: None,
            };
            self.tell(Event::Ended { id, error, told });
            self.unwatch(id);
        }
    }

    fn state_known(&mut self, key: &Bytes, is_there: bool) {
        let Some(watched) = self.watches.keys.get_mut(key) else {
            return;
        };
        watched.state = State::Known(is_there);
        watched.was_there = None;
        for id in watched.by.clone() {
            self.tell_state(id, key, is_there);
        }
        self.send_unwatch(key);
    }

    /// P-WATCH-2, P-WATCH-3.
    fn tell_state(&mut self, id: Id, key: &Bytes, is_there: bool) {
        let Some(watch) = self.watches.watches.get_mut(&id) else {
            return;
        };
        let change = match (watch.told.insert(key.clone(), is_there), is_there) {
            (None, true) => KeyChange::Exists,
            (None, false) => KeyChange::Missing,
            (Some(false), true) => KeyChange::Added,
            (Some(true), false) => KeyChange::Deleted,
            _ => return,
        };
        let key = key.clone();
        let event = WatchEvent { key, change };
        self.tell(Event::Watch { id, event });
    }

    pub(super) fn key_changed(&mut self, key: &[u8], change: &[u8]) {
        let is_there = match change {
            b"ADD" => true,
            b"DEL" => false,
            _ => return,
        };
        let Some(watched) = self.watches.keys.get(key) else {
            return;
        };
        let (state, key) = (watched.state, key.to_vec());
        match state {
            // A push before the reply says what the reply will say.
            State::Asked => {
                self.state_known(&key, !is_there);
                self.key_changed(&key, change);
            }
            State::Known(was_there) if was_there != is_there => self.state_known(&key, is_there),
            State::Known(_) | State::Leaving => {}
        }
    }

    /// P-WATCH-3: on a new connection.
    pub(super) fn watch_anew(&mut self) {
        self.watches
            .keys
            .retain(|_, watched| !watched.by.is_empty());
        let keys = self.watches.keys.iter();
        let mut keys: Vec<_> = keys.map(|(key, it)| (it.serial, key.clone())).collect();
        keys.sort_unstable();
        for (_, key) in keys {
            if let Some(watched) = self.watches.keys.get_mut(&key) {
                watched.is_open = false;
                watched.state = State::Asked;
                watched.was_there = None;
            }
            self.send_watch(&key);
        }
        for prefix in self.presences.prefixes() {
            self.send_prefix(&prefix, None);
        }
    }
}
