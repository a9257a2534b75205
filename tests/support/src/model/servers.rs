//! The server's commands, as far as they make keys come and go.

use super::command::{Command, Kind, Name, Past, Spot};
use super::holds::Owner;
use super::replies::{Loss, Reply};
use super::world::{Change, Turn, Value, World};

const OVER_AT_ONCE: Loss = Loss::DeletedOrExpired;

impl World {
    pub(super) fn run_servers(&mut self, turn: &mut Turn, command: &Command) -> Reply {
        match command {
            Command::Set { key, value } => self.set(turn, *key, value.to_string()),
            Command::Setnx { key, value } => self.setnx(turn, *key, value.to_string()),
            Command::Append { key } => self.append(turn, *key),
            Command::Mset { keys } => self.mset(turn, keys),
            Command::Lpush { key } => self.lpush(turn, *key),
            Command::Restore { key, kind, replace } => self.restore(turn, *key, *kind, *replace),
            Command::Rename { from, to } => self.rename(turn, *from, *to, false),
            Command::Renamenx { from, to } => self.rename(turn, *from, *to, true),
            Command::Copy {
                from,
                to,
                db,
                replace,
            } => {
                let to = Spot { db: *db, name: *to };
                self.copy(turn, *from, to, *replace)
            }
            Command::Move { key, db } => self.move_to(turn, *key, *db),
            Command::Sort { from, to } => self.sort(turn, *from, *to),
            Command::Swapdb => {
                self.swap(turn.who);
                Reply::Ok
            }
            Command::Del { keys } | Command::Unlink { keys } => {
                let deleted = keys.iter().filter(|key| self.del(turn, **key)).count();
                Reply::Int(deleted as i64)
            }
            Command::Getdel { key } => self.get_and_delete(turn, *key, Loss::Deleted),
            Command::Lpop { key } => self.lpop(turn, *key),
            Command::Sunionstore { to } => {
                self.del(turn, *to);
                Reply::Int(0)
            }
            Command::Lapse { key, how } => match how {
                Past::Getex => self.get_and_delete(turn, *key, OVER_AT_ONCE),
                _ => Reply::Int(self.end_key(turn, *key, OVER_AT_ONCE).into()),
            },
            Command::RestoreLapsed { key } => {
                self.end_key(turn, *key, OVER_AT_ONCE);
                Reply::Ok
            }
            Command::Flushdb => {
                self.flush(turn.who, Some(turn.db));
                Reply::Ok
            }
            Command::Flushall => {
                self.flush(turn.who, None);
                Reply::Ok
            }
            Command::Expire { key } => self.set_expires(turn, *key, true),
            Command::Persist { key } => self.set_expires(turn, *key, false),
            Command::Exists { key } => Reply::Int(self.exists(turn.spot(*key)).into()),
            Command::Select { db } => {
                turn.db = *db;
                Reply::Ok
            }
            Command::Publish => self.publish(),
            Command::Kill { who } => self.kill(turn, *who),
            Command::Unblock { who, error } => self.unblock_command(*who, *error),
            other => unreachable!("{other:?} is the module's, or no command of its own"),
        }
    }

    /// Overwriting keeps what is bound bound; it ends a time to live.
    fn set(&mut self, turn: &Turn, key: Name, text: String) -> Reply {
        self.store(turn, key, Value::Text(text));
        Reply::Ok
    }

    fn setnx(&mut self, turn: &Turn, key: Name, text: String) -> Reply {
        let absent = !self.exists(turn.spot(key));
        if absent {
            self.set(turn, key, text);
        }
        Reply::Int(absent.into())
    }

    fn mset(&mut self, turn: &Turn, keys: &[Name]) -> Reply {
        for key in keys {
            self.set(turn, *key, "m".into());
        }
        Reply::Ok
    }

    fn store(&mut self, turn: &Turn, key: Name, value: Value) {
        let spot = turn.spot(key);
        match self.exists(spot) {
            true => self.overwrite(spot, value),
            false => self.make(turn.who, spot, value),
        }
    }

    fn append(&mut self, turn: &Turn, key: Name) -> Reply {
        let spot = turn.spot(key);
        match self.entry_mut(spot).map(|entry| &mut entry.value) {
            Some(Value::Text(text)) => {
                text.push('+');
                let length = text.len() as i64;
                self.changed(None, Change::Written(spot));
                Reply::Int(length)
            }
            Some(_) => Reply::refused("WRONGTYPE"),
            None => {
                self.make(turn.who, spot, Value::Text("+".into()));
                Reply::Int(1)
            }
        }
    }

    fn lpush(&mut self, turn: &Turn, key: Name) -> Reply {
        let spot = turn.spot(key);
        match self.entry_mut(spot).map(|entry| &mut entry.value) {
            Some(Value::List(length)) => {
                *length += 1;
                let length = *length;
                self.changed(None, Change::Written(spot));
                Reply::Int(length)
            }
            Some(_) => Reply::refused("WRONGTYPE"),
            None => {
                self.make(turn.who, spot, Value::List(1));
                Reply::Int(1)
            }
        }
    }

    fn lpop(&mut self, turn: &Turn, key: Name) -> Reply {
        let spot = turn.spot(key);
        match self.entry_mut(spot).map(|entry| &mut entry.value) {
            None => return Reply::Null,
            Some(Value::Text(_) | Value::Lock) => return Reply::refused("WRONGTYPE"),
            Some(Value::List(1)) => {
                self.del(turn, key);
            }
            Some(Value::List(length)) => {
                *length -= 1;
                self.changed(None, Change::Written(spot));
            }
        }
        Reply::text("1")
    }

    fn restore(&mut self, turn: &Turn, key: Name, kind: Kind, replace: bool) -> Reply {
        let spot = turn.spot(key);
        if self.exists(spot) && !replace {
            return Reply::refused("BUSYKEY");
        }
        let value = match kind {
            Kind::Text => Value::Text("restored".into()),
            Kind::List => Value::List(1),
            Kind::Lock => Value::Lock,
        };
        self.replace(turn.who, spot, value, false);
        if kind == Kind::Lock {
            let nobody = Owner::Gone(self.next_gone());
            self.inherit(spot, nobody);
        }
        Reply::Ok
    }

    fn rename(&mut self, turn: &Turn, from: Name, to: Name, only_new: bool) -> Reply {
        let (from, to) = (turn.spot(from), turn.spot(to));
        self.notice(from);
        if !self.exists(from) {
            return Reply::refused("ERR no such key");
        }
        self.notice(to);
        let happens = from != to && !(only_new && self.exists(to));
        if happens {
            self.carry(turn.who, from, to);
        }
        match only_new {
            true => Reply::Int(happens.into()),
            false => Reply::Ok,
        }
    }

    fn copy(&mut self, turn: &Turn, from: Name, to: Spot, replace: bool) -> Reply {
        let from = turn.spot(from);
        if from == to {
            return Reply::refused("ERR source and destination objects are the same");
        }
        let Some(source) = self.entry(from).cloned() else {
            return Reply::Int(0);
        };
        if self.exists(to) && !replace {
            return Reply::Int(0);
        }
        if source.value == Value::Lock {
            return Reply::refused("ERR");
        }
        self.replace(turn.who, to, source.value, source.expires);
        Reply::Int(1)
    }

    fn move_to(&mut self, turn: &Turn, key: Name, db: usize) -> Reply {
        let (from, to) = (turn.spot(key), Spot { db, name: key });
        if from == to {
            return Reply::refused("ERR source and destination objects are the same");
        }
        self.notice(from);
        if !self.exists(from) || self.exists(to) {
            return Reply::Int(0);
        }
        self.carry(turn.who, from, to);
        Reply::Int(1)
    }

    fn sort(&mut self, turn: &Turn, from: Name, to: Name) -> Reply {
        match self.entry(turn.spot(from)).map(|entry| entry.value.clone()) {
            Some(Value::Text(_) | Value::Lock) => Reply::refused("WRONGTYPE"),
            Some(Value::List(length)) => {
                self.store(turn, to, Value::List(length));
                Reply::Int(length)
            }
            None => {
                self.del(turn, to);
                Reply::Int(0)
            }
        }
    }

    fn get_and_delete(&mut self, turn: &Turn, key: Name, loss: Loss) -> Reply {
        match self.entry(turn.spot(key)).map(|entry| entry.value.clone()) {
            None => Reply::Null,
            Some(Value::List(_) | Value::Lock) => Reply::refused("WRONGTYPE"),
            Some(Value::Text(text)) => {
                self.end_key(turn, key, loss);
                Reply::text(&text)
            }
        }
    }

    /// Whether there was something to delete.
    fn del(&mut self, turn: &Turn, key: Name) -> bool {
        self.end_key(turn, key, Loss::Deleted)
    }

    fn end_key(&mut self, turn: &Turn, key: Name, loss: Loss) -> bool {
        let spot = turn.spot(key);
        let there = self.exists(spot);
        if there {
            self.delete(turn.who, spot, loss);
        }
        there
    }

    fn set_expires(&mut self, turn: &Turn, key: Name, expires: bool) -> Reply {
        let spot = turn.spot(key);
        let Some(entry) = self.entry_mut(spot) else {
            return Reply::Int(0);
        };
        let former = std::mem::replace(&mut entry.expires, expires);
        self.changed(Some(turn.who), Change::Timed(spot, expires));
        Reply::Int((expires || former).into())
    }
}
