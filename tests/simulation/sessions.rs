//! Sessions, and what a replica is told of them: after each step of a random history a second engine that only gets the
//! stream knows the same sessions with the same holds; promoted, it lets them all be resumed.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tether::engine::{
    Acquire, Attributes, Cause, ClientId, Db, Digest, Effect, Engine, Event, Form, Key,
    KeySnapshot, KeyState, Loss, Mode, Moment, Reply, SessionRecord, Start, Terms, Token, Wait,
};

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize, usize, Mode, usize, Option<u64>, [bool; 3]),
    Release(usize, usize, usize, bool),
    Drop(usize, usize),
    Start(usize),
    Resume(usize, usize),
    EndSession(usize),
    Detach(usize),
    KillSession(usize),
    /// The connection ends, and another takes its place.
    End(usize),
    Delete(usize),
    Rename(usize, usize),
    Flush,
    Pass(u64),
}

const CLIENTS: usize = 4;
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];
const LABELS: [&[u8]; 2] = [b"", b"x"];
const GRACE_MS: u64 = 40;

fn steps() -> impl Strategy<Value = Step> {
    let (client, key, label) = (|| 0..CLIENTS, || 0..NAMES.len(), || 0..LABELS.len());
    let mode = prop_oneof![
        3 => Just(Mode::Temporary),
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        1 => (1..3_u32).prop_map(|count| Mode::Permits { count, total: 3 }),
    ];
    let lease = prop_oneof![3 => Just(None), 1 => (1..30_u64).prop_map(Some)];
    prop_oneof![
        12 => (client(), key(), mode, label(), lease, any::<[bool; 3]>())
            .prop_map(|(who, key, mode, label, lease, how)| match mode {
                Mode::Temporary => Step::Acquire(who, key, mode, 0, None, how),
                _ => Step::Acquire(who, key, mode, label, lease, how),
            }),
        6 => (client(), key(), label(), any::<bool>()).prop_map(|(a, b, c, d)| Step::Release(a, b, c, d)),
        3 => (client(), key()).prop_map(|(a, b)| Step::Drop(a, b)),
        4 => client().prop_map(Step::Start),
        4 => (client(), 0..8_usize).prop_map(|(a, b)| Step::Resume(a, b)),
        1 => client().prop_map(Step::EndSession),
        1 => client().prop_map(Step::Detach),
        1 => (0..8_usize).prop_map(Step::KillSession),
        4 => client().prop_map(Step::End),
        1 => key().prop_map(Step::Delete),
        1 => (key(), key()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => Just(Step::Flush),
        2 => (1..30_u64).prop_map(Step::Pass),
    ]
}

/// A master, its replica, and the keyspace that they share.
struct Pair {
    master: Engine,
    replica: Engine,
    now: Moment,
    things: BTreeMap<usize, KeyState>,
    clients: Vec<ClientId>,
    next_id: u64,
    /// How many sessions were ever started; each digest says which.
    started: usize,
    reply: Option<Reply>,
}

fn key_of(name: usize) -> Key<'static> {
    let (db, name) = (Db(0), NAMES[name]);
    Key { db, name }
}

fn name_of(key: Key<'_>) -> usize {
    let place = NAMES.iter().position(|name| *name == key.name);
    place.expect("one of the names")
}

fn digest_of(session: usize) -> Digest {
    Digest([session as u8; 32])
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            master: Engine::default(),
            replica: Engine::default(),
            now: Moment(0),
            things: BTreeMap::new(),
            clients: (1..=CLIENTS as u64).map(ClientId).collect(),
            next_id: CLIENTS as u64 + 1,
            started: 0,
            reply: None,
        };
        pair.tell_replica(Event::Demoted { redirect: false });
        pair
    }

    fn tell_replica(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        self.replica.handle(self.now, event, &mut effects);
        assert_eq!(effects, [], "a replica orders nothing");
    }

    /// Tells the master, and the replica what follows.
    fn tell(&mut self, asked: Option<(usize, Mode)>, event: Event<'_>) {
        let mut effects = Vec::new();
        self.master.handle(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::CreateKey { mode, token } => {
                    let (name, asked) = asked.expect("a command that asks for a key");
                    assert_eq!(mode, asked);
                    self.make(name, mode, token);
                }
                Effect::Make { key, token, .. } => {
                    self.make(name_of(key.as_key()), Mode::Temporary, token);
                }
                Effect::MakeLock { key, mode, token } => {
                    assert!(mode.is_lock());
                    self.make(name_of(key.as_key()), mode, token);
                }
                Effect::Remove(key) => {
                    assert!(self.things.remove(&name_of(key.as_key())).is_some());
                    let (key, by, why) = (key.as_key(), Cause::Server, Loss::Deleted);
                    self.tell_replica(Event::Gone { key, by, why });
                }
                Effect::Replicate(told) => self.tell_replica(Event::SessionRecord(&told)),
                Effect::Reply(reply) => self.reply = Some(reply),
                Effect::Block => self.reply = Some(Reply::Null),
                _ => {}
            }
        }
    }

    fn make(&mut self, name: usize, mode: Mode, token: Token) {
        let state = if mode.is_lock() {
            KeyState::Lock
        } else {
            KeyState::Other
        };
        self.things.insert(name, state);
        let key = key_of(name);
        let token = Some(token);
        self.tell_replica(Event::Inherited { key, mode, token });
    }

    /// What happens to a key by somebody's command happens on both.
    fn happen(&mut self, event: Event<'_>) {
        self.tell(None, event);
        self.tell_replica(event);
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Acquire(..) => self.acquire(step),
            Step::Release(who, name, label, all) => {
                let (client, key, label) = (self.clients[who], key_of(name), LABELS[label]);
                let release = Event::Release {
                    client,
                    key,
                    label,
                    all,
                };
                self.tell(None, release);
            }
            Step::Drop(who, name) => {
                let (client, keys) = (self.clients[who], &[key_of(name)]);
                self.tell(None, Event::Drop { client, keys });
            }
            Step::Start(who) => {
                let start = Start {
                    client: self.clients[who],
                    secret: b"",
                    digest: digest_of(self.started),
                    grace_ms: GRACE_MS,
                    user: b"",
                };
                self.tell(None, Event::Start(start));
                self.started += usize::from(matches!(self.reply, Some(Reply::Secret(_))));
            }
            Step::Resume(who, session) => {
                let (client, digest) = (self.clients[who], digest_of(session));
                let resume = Event::Resume {
                    client,
                    digest,
                    notify: false,
                };
                self.tell(None, resume);
            }
            Step::EndSession(who) => {
                let (client, later) = (self.clients[who], false);
                self.tell(None, Event::EndSession { client, later });
            }
            Step::Detach(who) => {
                let client = self.clients[who];
                self.tell(None, Event::Detach { client });
            }
            Step::KillSession(session) => self.kill_session(session),
            Step::End(who) => {
                let new = ClientId(self.next_id);
                self.next_id += 1;
                let client = std::mem::replace(&mut self.clients[who], new);
                self.tell(None, Event::Ended { client });
            }
            Step::Delete(_) | Step::Rename(..) | Step::Flush => self.change(step),
            Step::Pass(ms) => self.now = self.now.after_ms(ms),
        }
        self.tell(None, Event::Tick);
        self.tell(None, Event::Work { steps: usize::MAX });
    }

    fn kill_session(&mut self, session: usize) {
        let digest = digest_of(session);
        let mut records = self.master.session_records(self.now);
        let id = records.find_map(|record| match record {
            SessionRecord::Session {
                id, digest: its, ..
            } if its == digest => Some(id),
            _ => None,
        });
        drop(records);
        if let Some(session) = id {
            let later = false;
            self.tell(None, Event::KillSession { session, later });
        }
    }

    fn acquire(&mut self, step: &Step) {
        let Step::Acquire(who, name, mode, label, lease_ms, how) = *step else {
            unreachable!("{step:?} asks for no key")
        };
        let state = self.things.get(&name).copied().unwrap_or(KeyState::Absent);
        let seen = [KeySnapshot {
            key: key_of(name),
            state,
        }];
        let [waits, reentrant, notify] = how;
        let push = true;
        let ask = Acquire {
            client: self.clients[who],
            seen: &seen,
            terms: Terms {
                attributes: Attributes {
                    reentrant: reentrant && mode.is_lock(),
                    notify: notify || waits,
                },
                label: LABELS[label],
                lease_ms,
                ..Terms::of(mode)
            },
            value: b"v",
            wait: waits.then_some(Wait {
                limit_ms: Some(50),
                push,
            }),
            form: if mode.is_lock() {
                Form::Lock
            } else {
                Form::Settp
            },
            in_command: true,
        };
        self.tell(Some((name, mode)), Event::Acquire(ask));
    }

    fn change(&mut self, step: &Step) {
        match *step {
            Step::Delete(name) => {
                if self.things.remove(&name).is_some() {
                    let (key, by, why) = (key_of(name), Cause::Server, Loss::Deleted);
                    self.happen(Event::Gone { key, by, why });
                }
            }
            Step::Rename(from, to) => {
                if from != to
                    && let Some(thing) = self.things.remove(&from)
                {
                    self.things.insert(to, thing);
                    let (key, by) = (key_of(to), Cause::Server);
                    self.happen(Event::MovedFrom { key: key_of(from) });
                    self.happen(Event::MovedTo { key, by });
                }
            }
            Step::Flush => {
                self.things.clear();
                let (db, by) = (None, Cause::Server);
                self.happen(Event::Flushed { db, by });
            }
            _ => unreachable!("{step:?} changes no key"),
        }
    }

    fn assert_alike(&self) {
        self.master.check_invariants();
        self.replica.check_invariants();
        assert_eq!(told(&self.master, self.now), told(&self.replica, self.now));
    }
}

fn told(engine: &Engine, now: Moment) -> Vec<SessionRecord> {
    let mut told: Vec<_> = engine.session_records(now).collect();
    told.sort_by_key(|told| format!("{told:?}"));
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_replica_knows_what_sessions_hold(steps in proptest::collection::vec(steps(), 1..60)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step);
            pair.assert_alike();
        }
        let held = told(&pair.replica, pair.now);
        let mut effects = Vec::new();
        let replica = &mut pair.replica;
        replica.handle(pair.now, Event::Promoted, &mut effects);
        replica.handle(pair.now, Event::Work { steps: usize::MAX }, &mut effects);
        replica.check_invariants();
        // Leases that were over go, and so does what connections held; all else stays.
        let lapsed = |told: &SessionRecord| matches!(told, SessionRecord::Held(held) if held.terms.lease_ms == Some(0));
        let stays: Vec<_> = held.iter().filter(|told| !lapsed(told)).cloned().collect();
        prop_assert_eq!(told(replica, pair.now), stays.clone());
        let mut count = 0;
        for session in 0..pair.started {
            let (client, digest) = (ClientId(1000 + session as u64), digest_of(session));
            effects.clear();
            let notify = true;
            let resume = Event::Resume { client, digest, notify };
            replica.handle(pair.now, resume, &mut effects);
            if let Some(Effect::Reply(Reply::Integer(kept))) = effects.last() {
                count += kept;
            }
        }
        let holds = stays.iter().filter(|told| matches!(told, SessionRecord::Held(_))).count();
        prop_assert_eq!(count, holds as i64);
    }
}
