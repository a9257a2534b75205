//! A server without a network: an engine, one key, connections and files.

use super::{KEY, Wire};
use crate::core::Command;
use crate::resp::Frame;
use std::collections::HashSet;
use std::time::Duration;
use tether::engine::{
    Acquire, Attributes, ClientId, Db, Digest, Effect, Engine, Event, Form, Key, KeySnapshot,
    KeyState, Loss, Mode, Moment, News, Own, Push, Raise, Refusal, Reply as Answer, SessionRecord,
    Start, Terms, Token, Wait,
};

/// The time since 1970 at which worlds begin: a moment in 2026.
const BEGINS: Duration = Duration::from_secs(1_780_000_000);

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
    /// Of its sessions, whatever the clients ask for.
    grace_ms: u64,
    /// How often it was started.
    pub starts: u64,
    /// How far its clock is ahead of the right time.
    pub ahead_ms: u64,
    /// Connections that it has.
    open: HashSet<u64>,
    /// What it sends on which of them.
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
    pub fn new(quarantine_ms: u64, grace_ms: u64) -> Machine {
        Machine {
            engine: None,
            has_lock: false,
            quarantine_ms,
            grace_ms,
            starts: 0,
            ahead_ms: 0,
            open: HashSet::new(),
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
            && self.open.remove(&wire.number)
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

    /// A new connection.
    pub fn accept(&mut self, number: u64) {
        self.open.insert(number);
    }

    /// A command of a client.
    pub fn take(&mut self, now: u64, wire: &Wire, command: &Command) {
        if self.is_gone(wire) || !self.open.contains(&wire.number) {
            return;
        }
        let reply = self.command(now, wire.number, command);
        self.said.push((wire.number, reply));
        self.work(now);
    }

    fn session(&mut self, now: u64, number: u64, words: &[Vec<u8>]) -> Frame {
        let client = ClientId(number);
        match &words[0][..] {
            b"SESSION.START" => {
                let start = Start {
                    client,
                    secret: b"",
                    digest: digest(number),
                    grace_ms: self.grace_ms,
                    user: b"",
                };
                let started = self.ask(now, Event::Start(start));
                assert_eq!(started, Frame::Null, "a session starts");
                text(&number.to_string())
            }
            b"SESSION.RESUME" => {
                let secret = std::str::from_utf8(&words[1]).ok();
                let secret = secret.and_then(|secret| secret.parse().ok());
                let resume = Event::Resume {
                    client,
                    digest: digest(secret.expect("a secret")),
                    notify: true,
                };
                self.ask(now, resume)
            }
            _ => {
                let later = false;
                self.ask(now, Event::EndSession { client, later })
            }
        }
    }

    fn mine(&self, now: u64, client: ClientId) -> Frame {
        let engine = self.engine.as_ref().expect("it is up");
        let (_, all) = engine.mine(Moment(now), client, 0, usize::MAX);
        let entry = |own: Own| {
            let token = own
                .token
                .map_or(Frame::Null, |token| Frame::Int(token.0 as i64));
            let state = match own.token {
                Some(_) => "held",
                None => "waiting",
            };
            map([
                ("key", Frame::Bytes(own.key.name.to_vec())),
                ("kind", text("lock")),
                ("label", Frame::Bytes(own.terms.label.to_vec())),
                ("token", token),
                ("state", text(state)),
            ])
        };
        Frame::Array(vec![
            text("0"),
            Frame::Array(all.into_iter().map(entry).collect()),
        ])
    }

    fn command(&mut self, now: u64, number: u64, words: &[Vec<u8>]) -> Frame {
        let client = ClientId(number);
        let word = |at: usize| words.get(at).map_or(&b""[..], Vec::as_slice);
        let owner = words.iter().position(|word| word == b"OWNER");
        let label = owner.map_or(&b""[..], |at| word(at + 1));
        let key = key();
        match word(0) {
            b"PING" => text("PONG"),
            b"LOCK.SERVER" => map([("role", text("master")), ("pushes", Frame::Int(1))]),
            b"SESSION.START" | b"SESSION.RESUME" | b"SESSION.END" => {
                self.session(now, number, words)
            }
            b"LOCK.MINE" => self.mine(now, client),
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
            b"LOCK.RELEASE" => {
                let all = words.iter().any(|word| word == b"ALL");
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
    fn ask(&mut self, now: u64, event: Event<'_>) -> Frame {
        let answer = self.tell(now, event);
        match answer.expect("a command is answered") {
            Answer::Integer(number) => Frame::Int(number),
            Answer::Refused(refusal) => Frame::Error(match refusal {
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
            Answer::Null
            | Answer::Secret(_)
            | Answer::States(_)
            | Answer::Made { .. }
            | Answer::Page(_) => Frame::Null,
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
            if self.open.contains(&client.0) {
                let [kind, key] = [&b"lock"[..], KEY].map(|word| Frame::Bytes(word.to_vec()));
                let push = vec![kind, key, Frame::Bytes(text.clone())];
                self.said.push((client.0, Frame::Push(push)));
            }
        }
    }
}

fn text(text: &str) -> Frame {
    Frame::Bytes(text.into())
}

fn map<const N: usize>(pairs: [(&str, Frame); N]) -> Frame {
    Frame::Map(pairs.map(|(name, value)| (text(name), value)).into())
}
