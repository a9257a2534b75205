//! What a server tells a module of each change of the keyspace, in the order in which servers tell
//! it; what the shell filters out is filtered out here.

use crate::machine::{Machine, Thing};
use crate::model::changes::{Change, Loaded};
use crate::model::command::{DATABASES, NAMES, Spot, Who};
use crate::words::{key_of, spot_of};
use tether::engine::{Cause, ClientId, Db, Event, Key, KeyBuf, Loss, Mode};

impl Machine {
    pub(super) fn changed(&mut self, by: Option<Who>, change: &Change) {
        match change {
            Change::New(spot) => {
                self.put(*spot, false);
                self.made(*spot);
            }
            Change::Replaced(spot, expires) => {
                self.put(*spot, *expires);
                self.made(*spot);
                self.replaced(by, *spot);
            }
            Change::Overwritten(spot) => self.overwritten(*spot),
            Change::Written(spot) => self.written(*spot),
            Change::Timed(spot, expires) => {
                let thing = self.things.get_mut(spot).expect("a key that is there");
                thing.expires = *expires;
                if *expires {
                    let key = key_of(spot.db, spot.name);
                    self.tell(None, Event::Timed { key });
                }
            }
            Change::Deleted(spot) => {
                self.things.remove(spot);
                self.gone(by, *spot, Loss::Deleted);
            }
            Change::Lapsed(spot) => {
                self.things.remove(spot);
                self.gone(None, *spot, Loss::Expired);
            }
            Change::Evicted(spot) => {
                self.things.remove(spot);
                self.gone(None, *spot, Loss::Evicted);
            }
            Change::Carried { from, to } => self.carried(by, *from, *to),
            Change::Flushed(db) => {
                self.things
                    .retain(|spot, _| db.is_some_and(|db| db != spot.db));
                let hand = by.and_then(|who| self.id(who));
                let by = hand.map_or(Cause::Server, Cause::Client);
                let db = db.map(|db| Db(db as u32));
                self.tell(None, Event::Flushed { db, by });
            }
            Change::Swapped => {
                let swapped = self.things.iter().map(|(spot, thing)| {
                    let db = DATABASES - 1 - spot.db;
                    (Spot { db, ..*spot }, *thing)
                });
                self.things = swapped.collect();
                let (one, other) = (Db(0), Db(1));
                self.tell(None, Event::Swapped { one, other });
                while let Some(key) = self.engine.next_stale_name(usize::MAX) {
                    self.found(spot_of(&key));
                }
            }
            Change::LoadBegins => {
                self.saved = self.engine.session_records(self.now).collect();
                self.tell(None, Event::LoadBegins);
            }
            Change::Loaded { keys, own } => self.loaded(keys, *own),
        }
    }

    fn loaded(&mut self, loaded: &[Loaded], own: bool) {
        let things = loaded.iter().map(|loaded| {
            let (is_lock, expires) = (loaded.is_lock, loaded.expires);
            (loaded.spot, Thing { is_lock, expires })
        });
        self.things = things.collect();
        for Loaded { spot, is_lock, .. } in loaded.iter().filter(|loaded| loaded.held) {
            let key = key_of(spot.db, spot.name);
            let mode = match is_lock {
                true => Mode::Exclusive,
                false => Mode::Temporary,
            };
            let token = None;
            self.tell(None, Event::Inherited { key, mode, token });
        }
        for record in std::mem::take(&mut self.saved).iter().filter(|_| own) {
            self.tell(None, Event::SessionRecord(record));
        }
        self.tell(None, Event::LoadEnded);
        self.look_again(self.engine.keys_of_the_living());
    }

    fn put(&mut self, spot: Spot, expires: bool) {
        let is_lock = false;
        self.things.insert(spot, Thing { is_lock, expires });
    }

    fn overwritten(&mut self, spot: Spot) {
        let (is_lock, expires) = (false, false);
        let former = self.things.insert(spot, Thing { is_lock, expires });
        let key = key_of(spot.db, spot.name);
        if self.engine.is_orphaned(key) {
            let by = Cause::Server;
            return self.tell(None, Event::Replaced { key, by });
        }
        // Were it another module's doing, there would be a `new`.
        self.made(spot);
        // The shell hears of a lock's value that it left its key.
        if former.is_some_and(|thing| thing.is_lock) {
            self.found(spot);
        }
        self.written(spot);
    }

    /// Of each write, though the shell tells of several in one step once.
    fn written(&mut self, spot: Spot) {
        let key = key_of(spot.db, spot.name);
        if self.engine.is_value_watched(key) {
            self.tell(None, Event::Changed { key });
        }
    }

    fn made(&mut self, spot: Spot) {
        let key = key_of(spot.db, spot.name);
        if self.hears_of_new && self.engine.knows(key) {
            self.tell(None, Event::Made { key });
        }
    }

    fn replaced(&mut self, by: Option<Who>, spot: Spot) {
        let key = key_of(spot.db, spot.name);
        if let Some(holder) = self.engine.look_up(key) {
            let by = self.hand(by, holder);
            self.tell(None, Event::Replaced { key, by });
        }
    }

    fn carried(&mut self, by: Option<Who>, from: Spot, to: Spot) {
        let thing = self.things.remove(&from).expect("a key that is there");
        self.things.insert(to, thing);
        self.made(to);
        let key = key_of(from.db, from.name);
        if self.engine.knows(key) {
            self.tell(None, Event::MovedFrom { key });
        }
        self.tell_between(from, to);
        let key = key_of(to.db, to.name);
        let known = self.engine.look_up(key);
        if known.is_some() || self.engine.has_key_in_transit() {
            let by = self.hand(by, known.flatten());
            self.tell(None, Event::MovedTo { key, by });
        }
    }

    /// Between the two names of a key a server, or the shell, can tell facts about other keys. None of these is news.
    fn tell_between(&mut self, from: Spot, to: Spot) {
        let nobodys = Key {
            name: b"nobody's",
            ..key_of(from.db, from.name)
        };
        self.tell(None, Event::Elsewhere { key: nobodys });
        let names = 0..NAMES.len();
        let spots = names.flat_map(|name| (0..DATABASES).map(move |db| Spot { db, name }));
        for spot in spots.filter(|spot| *spot != to) {
            self.found(spot);
        }
    }

    fn gone(&mut self, by: Option<Who>, spot: Spot, why: Loss) {
        let key = key_of(spot.db, spot.name);
        if let Some(holder) = self.engine.look_up(key) {
            let by = self.hand(by, holder);
            self.tell(None, Event::Gone { key, by, why });
        }
    }

    /// The shell asks whose hand it was only where somebody holds the key.
    fn hand(&self, by: Option<Who>, holder: Option<ClientId>) -> Cause {
        match (by.and_then(|who| self.id(who)), holder) {
            (Some(client), Some(_)) => Cause::Client(client),
            _ => Cause::Server,
        }
    }

    fn look_again(&mut self, keys: Vec<KeyBuf>) {
        for key in keys {
            self.found(spot_of(&key));
        }
    }

    fn found(&mut self, spot: Spot) {
        let (seen, gone) = (self.look(spot), Loss::Deleted);
        self.tell(None, Event::Found { seen, gone });
    }
}
