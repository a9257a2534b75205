//! The module's commands.

use super::command::{Command, Name, Spot, Who};
use super::told::{News, Reply};
use super::world::{Owner, Turn, Value, Watch, World};

impl World {
    pub(super) fn run_ours(&mut self, turn: &mut Turn, command: &Command) -> Reply {
        match command {
            Command::Settp { key, value } => self.settp(turn, *key, *value),
            Command::Deltp { keys } => self.deltp(turn, keys),
            Command::Watchex { keys } => self.watchex(turn, keys),
            Command::Unwatchex { keys } => self.unwatchex(turn, keys),
            other => unreachable!("{other:?} is the server's"),
        }
    }

    fn settp(&mut self, turn: &Turn, key: Name, value: u32) -> Reply {
        let spot = turn.spot(key);
        let owner = self.entry(spot).and_then(|entry| entry.owner);
        let is_left = owner.is_some_and(Owner::is_gone);
        if self.exists(spot) && !is_left {
            return Reply::Int(0);
        }
        if is_left {
            self.remove_left_behind(spot);
        }
        if self.owned_by(turn.who).len() >= self.limits.keys {
            return Reply::refused("ERR too many");
        }
        self.appear(spot, Value::Text(value.to_string()));
        let made = self.entry_mut(spot).expect("it was just made");
        made.owner = Some(Owner::Connection(turn.who));
        Reply::Int(1)
    }

    fn deltp(&mut self, turn: &Turn, keys: &[Name]) -> Reply {
        let mut deleted = 0;
        for spot in turn.spots(keys) {
            if self.owned_by(turn.who).contains(&spot) {
                self.remove_own(turn.who, spot);
                deleted += 1;
            }
        }
        Reply::Int(deleted)
    }

    fn watchex(&mut self, turn: &mut Turn, keys: &[Name]) -> Reply {
        let spots = turn.spots(keys);
        let mut all = self.watched_by(turn.who);
        all.extend(&spots);
        all.sort_unstable();
        all.dedup();
        if all.len() > self.limits.watches && all.len() > self.watched_by(turn.who).len() {
            return Reply::refused("ERR too many watches");
        }
        for spot in &spots {
            let watch = Watch {
                who: turn.who,
                spot: *spot,
            };
            if !self.watches.contains(&watch) {
                self.watches.push(watch);
            }
        }
        let state = |spot| {
            Reply::text(if self.exists(spot) {
                "EXIST"
            } else {
                "NOEXIST"
            })
        };
        let mut states: Vec<Reply> = spots.iter().map(|spot| state(*spot)).collect();
        if !turn.in_exec {
            turn.settles = spots;
        }
        match states.len() {
            1 => states.remove(0),
            _ => Reply::Array(states),
        }
    }

    fn unwatchex(&mut self, turn: &mut Turn, keys: &[Name]) -> Reply {
        let spots = match keys {
            [] => self.watched_by(turn.who),
            keys => turn.spots(keys),
        };
        let before = self.watches.len();
        let who = turn.who;
        self.watches
            .retain(|watch| watch.who != who || !spots.contains(&watch.spot));
        if turn.in_exec {
            // What this transaction caused before would be heard after its reply.
            for group in &mut self.pending[who] {
                group.retain(|push| push.news == News::Lost || !spots.contains(&push.spot));
            }
            self.pending[who].retain(|group| !group.is_empty());
        } else {
            turn.settles = spots;
        }
        Reply::Int((before - self.watches.len()) as i64)
    }

    pub fn owned_by(&self, who: Who) -> Vec<Spot> {
        let is_own = |spot: &Spot| {
            let entry = self.entry(*spot);
            entry.is_some_and(|entry| entry.owner == Some(Owner::Connection(who)))
        };
        self.spots().into_iter().filter(is_own).collect()
    }

    pub fn watched_by(&self, who: Who) -> Vec<Spot> {
        let watches = self.watches.iter().filter(|watch| watch.who == who);
        watches.map(|watch| watch.spot).collect()
    }
}

impl Turn {
    pub fn spot(&self, name: Name) -> Spot {
        Spot { db: self.db, name }
    }

    pub fn spots(&self, names: &[Name]) -> Vec<Spot> {
        names.iter().map(|name| self.spot(*name)).collect()
    }
}
