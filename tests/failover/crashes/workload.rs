//! Random commands of a few connections, until the server is gone.
//!
//! The names `t:` are for temporary keys and locks, and at times for plain keys; `p:` for plain keys; `e:` for plain keys
//! with a short time to live, which are gone when somebody looks ([`Answers::wait_for_lapses`]).
//!
//! One command is under way at a time (but for waits, which touch no plain key), so the replies tell which plain keys
//! there are; of the last one, which the server's end cuts off, nobody knows whether it was done.

use super::Disk;
use super::answers::{Answers, State, one_of};
use crate::harness::*;
use crate::random::Random;
use std::time::Duration;

const NAMES: usize = 6;
const CLIENTS: usize = 5;

/// What a bound key's value can be, for who copies it.
const VALUES: [&str; 2] = ["bound", "overwritten"];

pub fn key_names() -> Vec<String> {
    let names = |kind: &'static str| (0..NAMES).map(move |n| format!("{kind}:{n}"));
    names("t").chain(names("p")).chain(names("e")).collect()
}

/// The server is gone.
struct Gone;

struct Taker {
    client: Client,
    /// Distinguishes this connection from all others.
    name: String,
    /// A request that waits, whose reply is still to be read.
    waits: Option<String>,
}

pub struct Workload<'a> {
    server: &'a Server,
    disk: Disk,
    dice: &'a mut Random,
    answers: &'a mut Answers,
    takers: Vec<Taker>,
    made: usize,
}

impl<'a> Workload<'a> {
    pub fn new(
        server: &'a Server,
        disk: Disk,
        dice: &'a mut Random,
        answers: &'a mut Answers,
    ) -> Workload<'a> {
        Workload {
            server,
            disk,
            dice,
            answers,
            takers: Vec::new(),
            made: 0,
        }
    }

    /// Until the server is gone.
    pub fn run(mut self) {
        while self.step().is_ok() {}
    }

    fn step(&mut self) -> Result<(), Gone> {
        while self.takers.len() < CLIENTS {
            let client = Client::connect(("127.0.0.1", self.server.port())).map_err(|_| Gone)?;
            self.made += 1;
            self.takers.push(Taker {
                client,
                name: format!("{} of {}", self.made, self.server.pid()),
                waits: None,
            });
        }
        let at = self.dice.below(CLIENTS);
        match self.dice.below(20) {
            0..9 => self.take_or_give(at),
            9 => {
                let gone = self.takers.swap_remove(at);
                self.answers.note(format!("{} leaves", gone.name));
                if self.dice.per_mille(500) {
                    gone.client.reset();
                }
                Ok(())
            }
            10..13 => self.change_plain(at),
            13..17 => self.change_across(at),
            17 => self.expire(at),
            _ => self.write_to_disk(at),
        }
    }

    fn name(&mut self, kind: &str) -> String {
        format!("{kind}:{}", self.dice.below(NAMES))
    }

    // ---- what is bound ----

    fn take_or_give(&mut self, at: usize) -> Result<(), Gone> {
        let (key, other) = (self.name("t"), self.name("t"));
        let wait = self.dice.pick(&["", "", "WAIT 20"]);
        let lease = self.dice.pick(&["", "", "LEASE 10", "LEASE 5000"]);
        let mode = self.dice.pick(&["", "SHARED", "PERMITS 1 OF 2"]);
        let request = match self.dice.below(12) {
            0..4 => format!("SETTP {key} bound TOKEN {wait}"),
            4..7 => format!("LOCK.ACQUIRE {key} {mode} {lease} {wait}"),
            7 if key != other => format!("LOCK.MACQUIRE 2 {key} {other} {lease} {wait}"),
            8 => format!("LOCK.RELEASE {key} ALL"),
            9 => return self.take_within_exec(at, &key, &other),
            _ => format!("DELTP {key} {other}"),
        };
        self.send(at, &request)?;
        if request.ends_with("WAIT 20") {
            self.takers[at].waits = Some(request);
            return Ok(());
        }
        let reply = self.read(at)?;
        self.note_grant(at, &request, &reply);
        Ok(())
    }

    fn take_within_exec(&mut self, at: usize, key: &str, other: &str) -> Result<(), Gone> {
        let requests = [
            format!("SETTP {key} bound TOKEN"),
            format!("LOCK.ACQUIRE {other} LEASE 20"),
            format!("DELTP {key}"),
            format!("SETTP {key} bound TOKEN"),
        ];
        let replies = self.exec(at, &requests)?;
        for (request, reply) in requests.iter().zip(&replies) {
            self.note_grant(at, request, reply);
        }
        Ok(())
    }

    fn note_grant(&mut self, at: usize, request: &str, reply: &Frame) {
        let takes = ["SETTP", "LOCK.ACQUIRE", "LOCK.MACQUIRE"];
        if let (true, Frame::Integer(token)) =
            (takes.iter().any(|word| request.starts_with(word)), reply)
            && *token > 0
        {
            let owner = &self.takers[at].name;
            self.answers.granted(*token, owner, request);
        }
    }

    // ---- plain keys ----

    fn change_plain(&mut self, at: usize) -> Result<(), Gone> {
        let (one, two) = (self.name("p"), self.name("p"));
        let value = self.dice.below(1000).to_string();
        let before = self.answers.now[0].clone();
        let mut after = before.clone();
        let request = match self.dice.below(8) {
            0 => {
                after.remove(&one);
                format!("DEL {one}")
            }
            1 if before.contains_key(&one) => {
                let moved = after.remove(&one).expect("it is there");
                after.insert(two.clone(), moved);
                format!("RENAME {one} {two}")
            }
            2 if self.dice.per_mille(100) => {
                after.clear();
                "FLUSHALL".to_owned()
            }
            3 | 4 => {
                after.insert(one.clone(), value.clone());
                after.insert(two.clone(), value.clone());
                self.may_become([before, after.clone()]);
                let requests = [format!("SET {one} {value}"), format!("SET {two} {value}")];
                self.exec(at, &requests)?;
                self.has_become(after);
                return Ok(());
            }
            _ => {
                after.insert(one.clone(), value.clone());
                format!("SET {one} {value}")
            }
        };
        self.may_become([before, after.clone()]);
        self.call(at, &request)?;
        self.has_become(after);
        Ok(())
    }

    /// Plain keys where keys are bound, and the other way round.
    fn change_across(&mut self, at: usize) -> Result<(), Gone> {
        let (key, other, plain) = (self.name("t"), self.name("t"), self.name("p"));
        let before = self.answers.now[0].clone();
        let mut without = before.clone();
        match self.dice.below(6) {
            0 => {
                without.remove(&key);
                self.may_become([before, without.clone()]);
                self.call(at, &format!("DEL {key}"))?;
                self.has_become(without);
            }
            1 if before.contains_key(&plain) => {
                let value = without.remove(&plain).expect("it is there");
                without.insert(key.clone(), value);
                self.may_become([before, without.clone()]);
                self.call(at, &format!("RENAME {plain} {key}"))?;
                self.has_become(without);
            }
            2 | 3 => self.overwrite(at, &key, before)?,
            4 => self.copy(at, &key, &plain, before)?,
            _ if key != other => self.rename(at, &key, &other, before)?,
            _ => {}
        }
        Ok(())
    }

    /// A temporary key stays one; a lock and what is not there become plain.
    fn overwrite(&mut self, at: usize, key: &str, before: State) -> Result<(), Gone> {
        let value = VALUES[1].to_owned();
        let mut after = before.clone();
        after.insert(key.to_owned(), value);
        self.may_become([before.clone(), after.clone()]);
        let requests = [format!("TYPE {key}"), format!("SET {key} {}", VALUES[1])];
        let replies = self.exec(at, &requests)?;
        let was_bound = replies[0] == simple("string") && !before.contains_key(key);
        self.has_become(if was_bound { before } else { after });
        Ok(())
    }

    /// A copy is plain, whatever it was made of. A lock cannot be copied.
    fn copy(&mut self, at: usize, key: &str, plain: &str, before: State) -> Result<(), Gone> {
        let values = VALUES.map(str::to_owned).into_iter();
        let values = values.chain(before.get(key).cloned());
        let copies = values.map(|value| {
            let mut after = before.clone();
            after.insert(plain.to_owned(), value);
            after
        });
        self.may_become(copies.chain([before.clone()]).collect::<Vec<_>>());
        let requests = [
            format!("GET {key}"),
            format!("COPY {key} {plain} REPLACE"),
            // A copy has the time to live, too.
            format!("PERSIST {plain}"),
        ];
        let replies = self.exec(at, &requests)?;
        let mut after = before;
        if let (Frame::Bulk(value), Frame::Integer(1)) = (&replies[0], &replies[1]) {
            let value = String::from_utf8(value.clone()).expect("text");
            after.insert(plain.to_owned(), value);
        }
        self.has_become(after);
        Ok(())
    }

    /// What is bound goes on being bound, under the other name.
    fn rename(&mut self, at: usize, key: &str, other: &str, before: State) -> Result<(), Gone> {
        let mut after = before.clone();
        after.remove(other);
        if let Some(value) = after.remove(key) {
            after.insert(other.to_owned(), value);
        }
        self.may_become([before.clone(), after.clone()]);
        let reply = self.call(at, &format!("RENAME {key} {other}"))?;
        self.has_become(if reply == ok() { after } else { before });
        Ok(())
    }

    fn expire(&mut self, at: usize) -> Result<(), Gone> {
        let (key, lapses) = (self.name("t"), self.name("e"));
        let (delay, value) = (self.dice.below(20) + 1, self.dice.below(1000));
        if self.dice.per_mille(500) && !self.answers.now[0].contains_key(&key) {
            self.call(at, &format!("PEXPIRE {key} {delay}"))?;
            return Ok(());
        }
        let done = self.call(at, &format!("SET {lapses} {value} PX {delay}"));
        self.answers.lapses_in(Duration::from_millis(delay as u64));
        done.map(drop)
    }

    fn write_to_disk(&mut self, at: usize) -> Result<(), Gone> {
        if self.disk != Disk::Rdb && self.dice.per_mille(500) {
            self.call(at, "BGREWRITEAOF")?;
        } else if self.disk != Disk::Aof {
            let now = self.answers.now[0].clone();
            self.answers.saved.push(now.clone());
            let request = self.dice.pick(&["SAVE", "BGSAVE"]);
            if self.call(at, request)? == ok() {
                self.answers.saved = vec![now];
            }
        }
        Ok(())
    }

    // ---- sending and hearing ----

    fn may_become(&mut self, states: impl IntoIterator<Item = State>) {
        self.answers.now = one_of(states);
    }

    fn has_become(&mut self, state: State) {
        self.answers.now = vec![state];
    }

    fn call(&mut self, at: usize, request: &str) -> Result<Frame, Gone> {
        self.send(at, request)?;
        self.read(at)
    }

    fn exec(&mut self, at: usize, requests: &[String]) -> Result<Vec<Frame>, Gone> {
        self.call(at, "MULTI")?;
        for request in requests {
            assert_eq!(self.call(at, request)?, simple("QUEUED"), "{request}");
        }
        let replies = self.call(at, "EXEC")?.items();
        assert_eq!(replies.len(), requests.len(), "{replies:?}");
        Ok(replies)
    }

    fn send(&mut self, at: usize, request: &str) -> Result<(), Gone> {
        if let Some(former) = self.takers[at].waits.take() {
            let reply = self.read(at)?;
            self.note_grant(at, &former, &reply);
        }
        self.answers
            .note(format!("{} says {request}", self.takers[at].name));
        let bytes = encode(request);
        match self.takers[at].client.try_send_bytes(&bytes) {
            true => Ok(()),
            false => Err(Gone),
        }
    }

    fn read(&mut self, at: usize) -> Result<Frame, Gone> {
        let reply = self.takers[at].client.try_read_reply();
        self.answers
            .note(format!("    {} hears {reply:?}", self.takers[at].name));
        reply.ok_or(Gone)
    }
}
