//! The server's own commands, as far as tests of clients need them, and what the engine hears of their changes.

use crate::connections::{Connection, USER};
use crate::machine::{Machine, Refuses, Thing, cause};
use crate::own::{self, wrong_arity};
use crate::resp::Writer;
use std::time::Duration;
use tether::command::{TABLE, matches};
use tether::engine::{Cause, ClientId, Db, Event, Key, KeyBuf, KeySnapshot, KeyState, Loss};
use tether::policy::slots::slot_of;

/// What a command did to a key; the engine hears of it once the command has its reply.
pub enum Change {
    Made(KeyBuf),
    /// Written to, and it stays.
    Written(KeyBuf),
    /// What stood there is something else now.
    Overwritten(KeyBuf),
    Gone(KeyBuf),
    Moved(KeyBuf, KeyBuf),
    Timed(KeyBuf),
    Flushed(Option<Db>),
}

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const NO_SUCH_KEY: &str = "ERR no such key";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Taken whatever the server refuses.
const ALWAYS: [&str; 6] = ["auth", "hello", "client", "config", "role", "info"];
const WRITES: [&str; 11] = [
    "set", "getset", "del", "unlink", "incr", "expire", "pexpire", "persist", "rename", "flushall",
    "flushdb",
];

/// All of them, so that one with too many or too few words is told from one that is unknown.
const KNOWN: [&str; 31] = [
    "ping",
    "echo",
    "get",
    "set",
    "getset",
    "incr",
    "del",
    "unlink",
    "exists",
    "type",
    "keys",
    "dbsize",
    "expire",
    "pexpire",
    "ttl",
    "pttl",
    "persist",
    "rename",
    "flushall",
    "flushdb",
    "wait",
    "hello",
    "auth",
    "select",
    "client",
    "config",
    "command",
    "role",
    "replicaof",
    "info",
    "quit",
];

/// Whether a connection may say this before it has given the password.
pub fn may_come_first(name: &[u8]) -> bool {
    let first: [&[u8]; 3] = [b"auth", b"hello", b"quit"];
    first.iter().any(|each| name.eq_ignore_ascii_case(each))
}

/// A command of one client.
struct Caller<'m, 'a> {
    machine: &'m mut Machine,
    client: ClientId,
    db: Db,
    words: &'a [&'a [u8]],
    writer: Writer,
    changes: Vec<Change>,
}

impl Machine {
    /// Executes one of the server's commands. The engine is not told of its changes yet: see `tell_changes`.
    pub fn run_plain(
        &mut self,
        client: ClientId,
        words: &[&[u8]],
        mut writer: Writer,
    ) -> (Writer, Vec<Change>) {
        let name = String::from_utf8_lossy(words[0]).to_ascii_lowercase();
        if let Some(refuses) = &self.refuses
            && !ALWAYS.contains(&&*name)
            && (refuses.everything || WRITES.contains(&&*name))
        {
            writer.error(&refuses.error);
            return (writer, Vec::new());
        }
        if self.engine.is_replica() && WRITES.contains(&&*name) {
            writer.error("READONLY You can't write against a read only replica.");
            return (writer, Vec::new());
        }
        let db = self.connections.get(client).map_or(Db(0), |it| it.db);
        let mut caller = Caller {
            machine: self,
            client,
            db,
            words,
            writer,
            changes: Vec::new(),
        };
        if !caller.answer(&name) {
            caller.writer.error(&wrong_arity(&name));
        }
        (caller.writer, caller.changes)
    }

    /// Tells the engine, in the order and the words in which a server tells the module.
    pub fn tell_changes(&mut self, by: ClientId, changes: &[Change]) {
        let by = Some(by);
        for change in changes {
            match change {
                Change::Made(key) => self.made(key.as_key()),
                Change::Written(key) => {
                    if self.engine.knows(key.as_key()) {
                        self.handle(Event::Changed { key: key.as_key() });
                    }
                }
                Change::Overwritten(key) => {
                    let key = key.as_key();
                    let state = KeyState::Other;
                    let seen = KeySnapshot { key, state };
                    let gone = Loss::Deleted;
                    self.handle(Event::Found { seen, gone });
                }
                Change::Gone(key) => {
                    let key = key.as_key();
                    if let Some(holder) = self.engine.look_up(key) {
                        let (by, why) = (cause(by, holder), Loss::Deleted);
                        self.handle(Event::Gone { key, by, why });
                    }
                }
                Change::Moved(from, to) => self.moved(by, from.as_key(), to.as_key()),
                Change::Timed(key) => self.handle(Event::Timed { key: key.as_key() }),
                Change::Flushed(db) => {
                    let by = by.map_or(Cause::Server, Cause::Client);
                    self.handle(Event::Flushed { db: *db, by });
                }
            }
        }
    }

    fn made(&mut self, key: Key<'_>) {
        if self.engine.knows(key) {
            self.handle(Event::Made { key });
        }
    }

    fn moved(&mut self, by: Option<ClientId>, from: Key<'_>, to: Key<'_>) {
        self.made(to);
        if self.engine.knows(from) {
            self.handle(Event::MovedFrom { key: from });
        }
        let known = self.engine.look_up(to);
        if known.is_some() || self.engine.has_key_in_transit() {
            let by = cause(by, known.flatten());
            self.handle(Event::MovedTo { key: to, by });
        }
    }
}

impl Caller<'_, '_> {
    /// False if the number of words is wrong.
    fn answer(&mut self, name: &str) -> bool {
        let words = self.words;
        match (name, &words[1..]) {
            ("ping", []) => self.writer.simple("PONG"),
            ("ping" | "echo", [text]) => self.writer.bulk(text),
            ("get", [key]) => self.get(key),
            ("set", [key, value, options @ ..]) => self.set(key, value, options),
            ("getset", [key, value]) => self.getset(key, value),
            ("incr", [key]) => self.incr(key),
            ("del" | "unlink", [_, ..]) => self.del(),
            ("exists", keys) if !keys.is_empty() => {
                let is_there = |key: &&&[u8]| self.machine.look(self.db, key).is_some();
                let count = keys.iter().filter(is_there).count();
                self.writer.integer(count as i64);
            }
            ("type", [key]) => {
                let kind = match self.machine.look(self.db, key).map(|thing| thing.state()) {
                    None | Some(KeyState::Absent) => "none",
                    Some(KeyState::Lock) => "tetherloc",
                    Some(KeyState::Other) => "string",
                };
                self.writer.simple(kind);
            }
            ("keys", [pattern]) => self.keys(pattern),
            ("dbsize", []) => {
                let count = self
                    .machine
                    .keys
                    .keys()
                    .filter(|key| key.db == self.db)
                    .count();
                self.writer.integer(count as i64);
            }
            ("expire", [key, seconds]) => self.expire(key, seconds, 1000),
            ("pexpire", [key, ms]) => self.expire(key, ms, 1),
            ("ttl", [key]) => self.ttl(key, 1000),
            ("pttl", [key]) => self.ttl(key, 1),
            ("persist", [key]) => self.persist(key),
            ("rename", [from, to]) => self.rename(from, to),
            ("flushall", _) => self.flush(None),
            ("flushdb", _) => self.flush(Some(self.db)),
            ("wait", [_, _]) => self.writer.integer(0),
            (name, arguments) => return self.answer_about_server(name, arguments),
        }
        true
    }

    fn answer_about_server(&mut self, name: &str, arguments: &[&[u8]]) -> bool {
        match (name, arguments) {
            ("hello", options) => self.hello(options),
            ("auth", [password]) => self.auth(USER.as_bytes(), password),
            ("auth", [user, password]) => self.auth(user, password),
            ("select", [db]) => self.select(db),
            ("client", [what, options @ ..]) => self.client(what, options),
            ("config", [what, options @ ..]) => self.config(what, options),
            ("command", options) => self.command(options),
            ("role", []) => self.role(),
            ("replicaof", [host, port]) => self.replicaof(host, port),
            ("info", _) => {
                let role = if self.machine.engine.is_replica() {
                    "slave"
                } else {
                    "master"
                };
                let text = format!(
                    "# Server\r\nredis_version:7.0.0\r\nrun_id:{}\r\nloading:0\r\nrole:{role}\r\nconnected_slaves:0\r\n",
                    self.machine.run_id
                );
                self.writer.bulk(text.as_bytes());
            }
            ("cluster", [what, key]) if what.eq_ignore_ascii_case(b"keyslot") => {
                self.writer.integer(slot_of(key) as i64);
            }
            ("quit", []) => {
                self.writer.simple("OK");
                self.connection(|connection| connection.wire.close());
            }
            (name, _) => {
                if KNOWN.contains(&name) {
                    return false;
                }
                self.writer.error(&format!(
                    "ERR unknown command '{name}': this is `tether devserver`"
                ));
            }
        }
        true
    }

    fn connection<T>(&mut self, act: impl FnOnce(&mut Connection) -> T) -> T {
        let connection = self.machine.connections.get_mut(self.client);
        act(connection.expect("it executes a command"))
    }

    fn key(&self, name: &[u8]) -> KeyBuf {
        let db = self.db;
        Key { db, name }.to_owned()
    }

    // ---- keys ----

    fn get(&mut self, name: &[u8]) {
        match self.machine.look(self.db, name) {
            None => self.writer.null(),
            Some(Thing {
                value: Some(value), ..
            }) => self.writer.bulk(value),
            Some(_) => self.writer.error(WRONG_TYPE),
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8], options: &[&[u8]]) {
        let (mut end, mut only_if) = (None, None);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let unit_ms = match option.to_ascii_uppercase().as_slice() {
                b"NX" => {
                    only_if = Some(false);
                    continue;
                }
                b"XX" => {
                    only_if = Some(true);
                    continue;
                }
                b"EX" => 1000,
                b"PX" => 1,
                _ => return self.writer.error("ERR syntax error"),
            };
            let Some(time) = options
                .next()
                .and_then(|word| number(word))
                .filter(|time| *time > 0)
            else {
                return self
                    .writer
                    .error("ERR invalid expire time in 'set' command");
            };
            end = Some(self.machine.now().after_ms(time as u64 * unit_ms));
        }
        let key = self.key(name);
        let is_there = self.machine.keys.contains_key(&key);
        if only_if.is_some_and(|wanted| wanted != is_there) {
            return self.writer.null();
        }
        self.write(key, value.to_vec(), end);
        self.writer.simple("OK");
    }

    fn getset(&mut self, name: &[u8], value: &[u8]) {
        let thing = self.machine.look(self.db, name);
        let is_lock = thing.is_some_and(|thing| thing.state() == KeyState::Lock);
        self.get(name);
        if !is_lock {
            self.write(self.key(name), value.to_vec(), None);
        }
    }

    fn write(&mut self, key: KeyBuf, value: Vec<u8>, end: Option<tether::engine::Moment>) {
        let value = Some(value);
        let former = self.machine.keys.insert(key.clone(), Thing { value, end });
        self.changes.push(match former.map(|thing| thing.state()) {
            None | Some(KeyState::Absent) => Change::Made(key.clone()),
            Some(KeyState::Lock) => Change::Overwritten(key.clone()),
            Some(KeyState::Other) => Change::Written(key.clone()),
        });
        if end.is_some() {
            self.changes.push(Change::Timed(key));
        }
    }

    fn incr(&mut self, name: &[u8]) {
        let key = self.key(name);
        let (value, end) = match self.machine.keys.get(&key) {
            None => (Some(0), None),
            Some(Thing {
                value: Some(value),
                end,
            }) => (number(value), *end),
            Some(_) => return self.writer.error(WRONG_TYPE),
        };
        let Some(value) = value.and_then(|value| value.checked_add(1)) else {
            return self.writer.error(NOT_AN_INTEGER);
        };
        self.write(key, value.to_string().into_bytes(), end);
        self.writer.integer(value);
    }

    fn del(&mut self) {
        let mut count = 0;
        for name in &self.words[1..] {
            let key = self.key(name);
            if self.machine.keys.remove(&key).is_some() {
                count += 1;
                self.changes.push(Change::Gone(key));
            }
        }
        self.writer.integer(count);
    }

    fn keys(&mut self, pattern: &[u8]) {
        let keys = self.machine.keys.keys();
        let meant = keys.filter(|key| key.db == self.db && matches(pattern, &key.name));
        let names: Vec<_> = meant.map(|key| key.name.to_vec()).collect();
        self.writer.array(names.len());
        for name in names {
            self.writer.bulk(&name);
        }
    }

    fn expire(&mut self, name: &[u8], time: &[u8], unit_ms: i64) {
        let Some(ms) = number(time).and_then(|time| time.checked_mul(unit_ms)) else {
            return self.writer.error(NOT_AN_INTEGER);
        };
        let (key, now) = (self.key(name), self.machine.now());
        let Some(thing) = self.machine.keys.get_mut(&key) else {
            return self.writer.integer(0);
        };
        thing.end = Some(now.after_ms(ms.max(0) as u64));
        self.changes.push(Change::Timed(key));
        self.writer.integer(1);
    }

    fn persist(&mut self, name: &[u8]) {
        let key = self.key(name);
        let thing = self.machine.keys.get_mut(&key);
        let former = thing.and_then(|thing| thing.end.take());
        self.writer.integer(former.is_some().into());
    }

    fn ttl(&mut self, name: &[u8], unit_ms: u64) {
        let now = self.machine.now();
        self.writer.integer(match self.machine.look(self.db, name) {
            None => -2,
            Some(Thing { end: None, .. }) => -1,
            Some(Thing { end: Some(end), .. }) => end.ms_since(now).div_ceil(unit_ms) as i64,
        });
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        let (from, to) = (self.key(from), self.key(to));
        let Some(thing) = self.machine.keys.remove(&from) else {
            return self.writer.error(NO_SUCH_KEY);
        };
        self.machine.keys.insert(to.clone(), thing);
        if from != to {
            self.changes.push(Change::Moved(from, to));
        }
        self.writer.simple("OK");
    }

    fn flush(&mut self, db: Option<Db>) {
        self.machine
            .keys
            .retain(|key, _| db.is_some_and(|db| db != key.db));
        self.changes.push(Change::Flushed(db));
        self.writer.simple("OK");
    }

    // ---- the connection ----

    fn hello(&mut self, options: &[&[u8]]) {
        let mut options = options.iter();
        let version = match options.next() {
            None => None,
            Some(word) if *word == b"2" || *word == b"3" => Some(*word == b"3"),
            Some(_) => return self.writer.error("NOPROTO unsupported protocol version"),
        };
        while let Some(option) = options.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"AUTH" => {
                    let (user, password) = (options.next(), options.next());
                    let (Some(user), Some(password)) = (user, password) else {
                        return self.writer.error("ERR Syntax error in HELLO option 'auth'");
                    };
                    if !self.is_right(user, password) {
                        return self.writer.error(WRONG_PASS);
                    }
                    self.connection(|connection| connection.may_speak = true);
                }
                b"SETNAME" => {
                    let name = options.next().copied().unwrap_or_default();
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.connection(|connection| connection.name = name);
                }
                _ => return self.writer.error("ERR Syntax error in HELLO"),
            }
        }
        if !self.connection(|connection| connection.may_speak) {
            return self.writer.error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            );
        }
        if let Some(resp3) = version {
            self.connection(|connection| connection.resp3 = resp3);
            self.writer.resp3 = resp3;
        }
        let (proto, id) = (2 + i64::from(self.writer.resp3), self.client.0 as i64);
        let writer = &mut self.writer;
        writer.map(7);
        for (name, value) in [
            ("server", "redis"),
            ("version", "7.0.0"),
            ("mode", "standalone"),
            ("role", "master"),
        ] {
            writer.bulk(name.as_bytes());
            writer.bulk(value.as_bytes());
        }
        writer.bulk(b"proto");
        writer.integer(proto);
        writer.bulk(b"id");
        writer.integer(id);
        writer.bulk(b"modules");
        writer.array(0);
    }

    fn is_right(&self, user: &[u8], password: &[u8]) -> bool {
        let wanted = self.machine.options.password.as_deref();
        user == USER.as_bytes() && wanted.is_none_or(|wanted| wanted.as_bytes() == password)
    }

    fn auth(&mut self, user: &[u8], password: &[u8]) {
        if self.is_right(user, password) {
            self.connection(|connection| connection.may_speak = true);
            self.writer.simple("OK");
        } else {
            self.writer.error(WRONG_PASS);
        }
    }

    fn select(&mut self, db: &[u8]) {
        match number(db) {
            Some(db @ 0..16) => {
                self.connection(|connection| connection.db = Db(db as u32));
                self.writer.simple("OK");
            }
            _ => self.writer.error("ERR DB index is out of range"),
        }
    }

    fn client(&mut self, what: &[u8], options: &[&[u8]]) {
        match (what.to_ascii_uppercase().as_slice(), options) {
            (b"SETNAME", [name]) => {
                let name = String::from_utf8_lossy(name).into_owned();
                self.connection(|connection| connection.name = name);
                self.writer.simple("OK");
            }
            (b"GETNAME", []) => {
                let name = self.connection(|connection| connection.name.clone());
                self.writer.bulk(name.as_bytes());
            }
            (b"ID", []) => self.writer.integer(self.client.0 as i64),
            (b"LIST", _) => {
                let lines = self.machine.connections.iter().map(|(ClientId(id), it)| {
                    let resp = 2 + u8::from(it.resp3);
                    let Connection { addr, name, db, .. } = it;
                    format!(
                        "id={id} addr={addr} name={name} db={} resp={resp} user={USER}\n",
                        db.0
                    )
                });
                let lines: String = lines.collect();
                self.writer.bulk(lines.as_bytes());
            }
            (b"KILL", options) => self.kill(options),
            (b"UNBLOCK", [id, ..]) => {
                let id = ClientId(number(id).unwrap_or(0) as u64);
                let connection = self.machine.connections.get(id);
                let is_blocked = connection.is_some_and(|it| it.wire.is_blocked.get());
                if is_blocked {
                    self.machine.unblock(id);
                }
                self.writer.integer(is_blocked.into());
            }
            (b"PAUSE", [ms, ..]) => {
                let ms = number(ms).unwrap_or(0).max(0);
                self.machine.silence = Some(Duration::from_millis(ms as u64));
                self.writer.simple("OK");
            }
            _ => self.writer.simple("OK"), // SETINFO and the like.
        }
    }

    fn kill(&mut self, options: &[&[u8]]) {
        let upper = |word: &&[u8]| word.to_ascii_uppercase();
        let value = |name: &[u8]| {
            let pair = options.chunks(2).find(|pair| upper(&pair[0]) == name);
            pair.and_then(|pair| pair.get(1)).copied()
        };
        let id = value(b"ID").map(|id| ClientId(number(id).unwrap_or(0) as u64));
        let address = (options.len() == 1).then(|| options[0]).or(value(b"ADDR"));
        let skips_me = value(b"SKIPME").is_none_or(|word| word.eq_ignore_ascii_case(b"yes"));
        let all = self.machine.connections.iter();
        let meant = all.filter(|(client, connection)| {
            id.is_none_or(|id| id == *client)
                && address.is_none_or(|address| connection.addr.as_bytes() == address)
                && !(skips_me && *client == self.client)
        });
        let meant: Vec<_> = meant.map(|(client, _)| client).collect();
        for client in &meant {
            if let Some(connection) = self.machine.connections.get(*client) {
                connection.wire.close();
            }
            self.machine.disconnect(*client);
        }
        match options.len() {
            1 if meant.is_empty() => self.writer.error("ERR No such client"),
            1 => self.writer.simple("OK"),
            _ => self.writer.integer(meant.len() as i64),
        }
    }

    // ---- the server ----

    fn config(&mut self, what: &[u8], options: &[&[u8]]) {
        match (what.to_ascii_uppercase().as_slice(), options) {
            (b"GET", _) => self.writer.map(0),
            (b"SET", [name, value]) => {
                let is_on = number(value).is_some_and(|value| value > 0);
                let error = match name.to_ascii_lowercase().as_slice() {
                    b"min-replicas-to-write" => "NOREPLICAS Not enough good replicas to write.",
                    b"maxmemory" => "OOM command not allowed when used memory > 'maxmemory'.",
                    _ => {
                        return self
                            .writer
                            .error("ERR Unknown option or number of arguments for CONFIG SET");
                    }
                };
                let everything = false;
                let error = error.to_owned();
                self.machine.refuses = is_on.then_some(Refuses { error, everything });
                self.writer.simple("OK");
            }
            _ => self.writer.error("ERR CONFIG knows GET and SET"),
        }
    }

    /// COMMAND INFO, of the module's commands; of others the reply is null.
    fn command(&mut self, options: &[&[u8]]) {
        let names: Vec<&[u8]> = match options {
            [info, names @ ..] if info.eq_ignore_ascii_case(b"info") => names.to_vec(),
            _ => TABLE.iter().map(|spec| spec.name.as_bytes()).collect(),
        };
        self.writer.array(names.len());
        for name in names {
            match own::find(name).filter(|_| self.machine.options.has_module) {
                Some(spec) => {
                    self.writer.array(2);
                    self.writer.bulk(spec.name.as_bytes());
                    self.writer.integer(spec.arity().into());
                }
                None => self.writer.null(),
            }
        }
    }

    fn role(&mut self) {
        let writer = &mut self.writer;
        if !self.machine.engine.is_replica() {
            writer.array(3);
            writer.bulk(b"master");
            writer.integer(0);
            return writer.array(0);
        }
        let (host, port) = self.machine.master.clone().unwrap_or_default();
        writer.array(5);
        writer.bulk(b"slave");
        writer.bulk(host.as_bytes());
        writer.integer(port.into());
        writer.bulk(b"connected");
        writer.integer(0);
    }

    /// Without a link: this server knows then where the master is, and no more.
    fn replicaof(&mut self, host: &[u8], port: &[u8]) {
        if host.eq_ignore_ascii_case(b"no") {
            self.machine.promote();
        } else {
            let port = number(port).and_then(|port| u16::try_from(port).ok());
            let host = String::from_utf8_lossy(host).into_owned();
            self.machine.demote((host, port.unwrap_or(0)));
        }
        self.writer.simple("OK");
    }
}

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
