//! A server without a network: an engine, one key, connections and files.

use super::{KEY, Wire};
use crate::core::Reply;
use std::collections::HashMap;
use std::time::Duration;
use tether::engine::{
    Acquire, Attributes, ClientId, Db, Digest, Effect, Engine, Event, Form, Key, KeySnapshot,
    KeyState, Loss, Mode, Moment, News, Push, Raise, Refusal, Reply as Answer, SessionRecord,
    Start, Terms, Token, Wait,
};

/// The time since 1970 at which worlds begin: a moment in 2026.
const BEGINS: Duration = Duration::from_secs(1_780_000_000);

/// What a client sends.
pub enum Request {
    /// What it says first on a connection: to go on with its former session, or to end what is left of it and to have this one.
    Hello {
        /// The secret, and the server's start at which it was begun.
        former: Option<(u64, u64)>,
        resumes: bool,
        secret: u64,
        grace_ms: u64,
    },
    Command(Vec<Vec<u8>>),
}

/// What a server sends.
#[derive(Clone, Debug)]
pub enum Frame {
    /// To the first message, with the number of the server's start.
    Began {
        start: u64,
        is_resumed: bool,
    },
    Reply(Reply),
    Push(Vec<u8>),
    /// The connection's end.
    Broken,
}

/// What a restarted server finds.
#[derive(Clone, Default)]
struct Files {
    records: Vec<SessionRecord>,
    last_token: Option<Token>,
}

pub struct Machine {
    engine: Option<Engine>,
    has_lock: bool,
    quarantine_ms: u64,
    /// How often it was started.
    pub starts: u64,
    /// How far its clock is ahead of the right time.
    pub ahead_ms: u64,
    /// Connections that it has.
    open: HashMap<u64, ()>,
    said: Vec<(u64, Frame)>,
    /// As they were when it crashed, and at an earlier moment.
    files: Files,
    older: Files,
}

fn key() -> Key<'static> {
    let (db, name) = (Db(0), KEY);
    Key { db, name }
}

fn digest(secret: u64) -> Digest {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&secret.to_le_bytes());
    Digest(digest)
}

impl Machine {
    pub fn new(quarantine_ms: u64) -> Machine {
        Machine {
            engine: None,
            has_lock: false,
            quarantine_ms,
            starts: 0,
            ahead_ms: 0,
            open: HashMap::new(),
            said: Vec::new(),
            files: Files::default(),
            older: Files::default(),
        }
    }

    /// For whoever looks at a failure.
    pub fn describe(&self) -> String {
        let engine = self.engine.as_ref();
        let gauges = engine.map(|engine| (engine.gauges(), engine.deadline()));
        format!("{} {gauges:?}", self.has_lock)
    }

    pub fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    fn wall_clock(&self, now: u64) -> Duration {
        BEGINS + Duration::from_micros(now) + Duration::from_millis(self.ahead_ms)
    }

    /// With its files as they were, with older ones, or without.
    pub fn start(&mut self, now: u64, files: Option<bool>) {
        let files = match files {
            Some(true) => self.files.clone(),
            Some(false) => self.older.clone(),
            None => Files::default(),
        };
        self.starts += 1;
        self.engine = Some(Engine::default());
        self.tell(now, Event::LoadBegins);
        for record in &files.records {
            self.tell(now, Event::SessionRecord(record));
        }
        if let (Some(engine), Some(token)) = (&mut self.engine, files.last_token) {
            engine.apply_token(token);
        }
        let is_held = |record: &SessionRecord| matches!(record, SessionRecord::Held(_));
        self.has_lock = files.records.iter().any(is_held);
        self.tell(now, Event::LoadEnded);
        if self.has_lock {
            let seen = self.look();
            let gone = Loss::Deleted;
            self.tell(now, Event::Found { seen, gone });
        }
        let wall_clock = self.wall_clock(now);
        if let Some(engine) = &mut self.engine {
            engine.begin_epoch(wall_clock);
        }
        let ms = self.quarantine_ms;
        self.tell(now, Event::Quarantine { ms });
        self.work(now);
    }

    pub fn crash(&mut self, now: u64) {
        if self.is_up() {
            self.files = self.written(now);
            self.engine = None;
            self.open.clear();
            self.said.clear();
        }
    }

    /// What older files will have.
    pub fn save(&mut self, now: u64) {
        if self.is_up() {
            self.older = self.written(now);
        }
    }

    fn written(&self, now: u64) -> Files {
        let engine = self.engine.as_ref();
        Files {
            records: engine.map_or(Vec::new(), |engine| {
                engine.session_records(Moment(now)).collect()
            }),
            last_token: engine.map(Engine::last_token),
        }
    }

    pub fn is_gone(&self, wire: &Wire) -> bool {
        wire.start != self.starts || !self.is_up()
    }

    /// What it has sent since this was last asked.
    pub fn said(&mut self) -> Vec<(u64, Frame)> {
        std::mem::take(&mut self.said)
    }

    /// The connection is no more.
    pub fn close(&mut self, now: u64, wire: Option<&Wire>) {
        if let Some(wire) = wire
            && !self.is_gone(wire)
            && self.open.remove(&wire.number).is_some()
        {
            let client = ClientId(wire.number);
            self.tell(now, Event::Ended { client });
            self.tell(now, Event::Reap { steps: 1000 });
            self.work(now);
        }
    }

    pub fn tick(&mut self, now: u64) {
        let Some(engine) = &self.engine else {
            return;
        };
        if engine.deadline().is_some_and(|at| at <= Moment(now)) {
            self.tell(now, Event::Tick);
        }
        self.work(now);
    }

    fn work(&mut self, now: u64) {
        while self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.has_work(Moment(now)))
        {
            self.tell(now, Event::Work { steps: 64 });
        }
    }

    /// A message of a client.
    pub fn take(&mut self, now: u64, wire: &Wire, message: &Request) {
        if self.is_gone(wire) {
            return;
        }
        let number = wire.number;
        match message {
            Request::Hello {
                former,
                resumes,
                secret,
                grace_ms,
            } => {
                self.open.insert(number, ());
                let is_resumed = self.begin(now, number, *former, *resumes, (*secret, *grace_ms));
                let start = self.starts;
                self.said.push((number, Frame::Began { start, is_resumed }));
            }
            Request::Command(words) if self.open.contains_key(&number) => {
                let reply = self.command(now, number, words);
                self.said.push((number, Frame::Reply(reply)));
            }
            Request::Command(_) => {}
        }
        self.work(now);
    }

    /// As `line.rs` and `link.rs` do in several commands: whether the former session goes on.
    fn begin(
        &mut self,
        now: u64,
        number: u64,
        former: Option<(u64, u64)>,
        resumes: bool,
        (secret, grace_ms): (u64, u64),
    ) -> bool {
        let client = ClientId(number);
        if let Some((secret, start)) = former {
            let resume = Event::Resume {
                client,
                digest: digest(secret),
                notify: true,
            };
            let is_there = matches!(self.ask(now, resume), Reply::Number(_));
            if resumes && is_there && start == self.starts {
                return true;
            }
            if is_there {
                let later = false;
                self.ask(now, Event::EndSession { client, later });
            }
        }
        if !resumes {
            let started = self.ask(
                now,
                Event::Start(Start {
                    client,
                    secret: b"",
                    digest: digest(secret),
                    grace_ms,
                    user: b"",
                }),
            );
            assert_eq!(started, Reply::Other, "a session starts");
        }
        false
    }

    fn command(&mut self, now: u64, number: u64, words: &[Vec<u8>]) -> Reply {
        let client = ClientId(number);
        let word = |at: usize| words.get(at).map_or(&b""[..], Vec::as_slice);
        let owner = words.iter().position(|word| word == b"OWNER");
        let label = owner.map_or(&b""[..], |at| word(at + 1));
        let key = key();
        match word(0) {
            b"PING" => Reply::Other,
            b"LOCK.ACQUIRE" => {
                let seen = [self.look()];
                self.ask(
                    now,
                    Event::Acquire(Acquire {
                        client,
                        seen: &seen,
                        terms: Terms {
                            attributes: Attributes {
                                reentrant: false,
                                notify: true,
                            },
                            label,
                            ..Terms::of(Mode::Exclusive)
                        },
                        value: b"",
                        wait: words.iter().any(|word| word == b"PUSH").then_some(Wait {
                            limit_ms: None,
                            push: true,
                        }),
                        form: Form::Lock,
                        in_command: false,
                    }),
                )
            }
            b"LOCK.CANCEL" => self.ask(now, Event::Cancel { client, key, label }),
            b"LOCK.RELEASE" => {
                let all = false;
                let release = Event::Release {
                    client,
                    key,
                    label,
                    all,
                };
                self.ask(now, release)
            }
            b"LOCK.RAISE" => {
                let token = std::str::from_utf8(word(2)).ok();
                let token = token.and_then(|token| token.parse().ok());
                let raise = Raise {
                    client,
                    key,
                    label,
                    token: Token(token.expect("a token")),
                    most: Engine::max_raise(self.wall_clock(now)),
                };
                self.ask(now, Event::Raise(raise))
            }
            other => panic!("{} is not known here", other.escape_ascii()),
        }
    }

    fn look(&self) -> KeySnapshot<'static> {
        KeySnapshot {
            key: key(),
            state: match self.has_lock {
                true => KeyState::Lock,
                false => KeyState::Absent,
            },
        }
    }

    /// A command's event; its reply follows what it pushes.
    fn ask(&mut self, now: u64, event: Event<'_>) -> Reply {
        let answer = self.tell(now, event);
        match answer.expect("a command is answered") {
            Answer::Integer(number) => Reply::Number(u64::try_from(number).unwrap_or(0)),
            Answer::Null => Reply::Null,
            Answer::Refused(refusal) => Reply::Error(match refusal {
                Refusal::NotHeld => "NOTHELD".to_owned(),
                Refusal::NoSession => "NOSESSION".to_owned(),
                Refusal::Deadlock { .. }
                | Refusal::Reentry
                | Refusal::WaitsForIt
                | Refusal::Standstill(_) => {
                    format!("DEADLOCK {refusal:?}")
                }
                other => format!("ERR {other:?}"),
            }),
            Answer::Secret(_) | Answer::States(_) | Answer::Made { .. } | Answer::Page(_) => {
                Reply::Other
            }
        }
    }

    fn tell(&mut self, now: u64, event: Event<'_>) -> Option<Answer> {
        let mut effects = Vec::new();
        let engine = self.engine.as_mut()?;
        engine.handle(Moment(now), event, &mut effects);
        let mut answer = None;
        for effect in effects {
            match effect {
                Effect::Reply(reply) => answer = Some(reply),
                Effect::MakeLock { .. } => self.has_lock = true,
                Effect::Remove(_) => self.has_lock = false,
                Effect::Push { to, push } => self.push(&to, &push),
                Effect::ReplicateToken(_)
                | Effect::Replicate(_)
                | Effect::EnablePush(_)
                | Effect::TrackDisconnect(_) => {}
                other => panic!("{other:?} is not expected here"),
            }
        }
        answer
    }

    fn push(&mut self, to: &[ClientId], push: &Push) {
        let mut text = match push.news() {
            News::Granted(_, token) => token.0.to_string(),
            News::Lost(_, why, _) => format!("LOST {}", why.name()),
            other => panic!("{other:?} is not expected here"),
        }
        .into_bytes();
        text.push(b' ');
        text.extend_from_slice(push.label());
        for client in to {
            if self.open.contains_key(&client.0) {
                self.said.push((client.0, Frame::Push(text.clone())));
            }
        }
    }
}
