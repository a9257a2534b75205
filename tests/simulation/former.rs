//! What a server makes of what another one told, when it gets a master or loses it, and while data are loaded: whose
//! grace runs, what stays and what goes. (The model knows one server only, which has no master.)

use std::num::NonZeroU32;
use std::time::Duration;
use tether::engine::{
    Acquire, AskedAcks, Attributes, Cause, ClientId, Db, Digest, Effect, Engine, Event, Form, Held,
    Key, KeySnapshot, KeyState, Kind, LOSSES_LOGGED_APART, Limits, Loss, Mode, Moment, NameFrom,
    News, Origin, Raise, Refusal, Reply, SessionId, SessionRecord, Start, Terms, Token, Wait,
};

pub const GRACE_MS: u64 = 1000;
const LONG_MS: u64 = 100 * GRACE_MS;
pub const LOCK: Mode = Mode::Exclusive;

#[derive(Default)]
pub struct Server {
    pub engine: Engine,
    pub now: Moment,
    /// What it ordered since this was last looked at.
    pub orders: Vec<Effect>,
}

/// One replica is to acknowledge a grant, within a second.
const ONE_REPLICA: AskedAcks = AskedAcks {
    replicas: NonZeroU32::MIN,
    timeout_ms: 1000,
};

pub fn key(name: &'static str) -> Key<'static> {
    let (db, name) = (Db(0), name.as_bytes());
    Key { db, name }
}

pub fn client(number: u64) -> ClientId {
    ClientId(number)
}

fn digest(session: u8) -> Digest {
    Digest([session; 32])
}

pub fn session(number: u8) -> SessionRecord {
    SessionRecord::Session {
        id: SessionId(number.into()),
        digest: digest(number),
        grace_ms: GRACE_MS,
    }
}

/// That this session holds a key.
pub fn held(number: u8, name: &'static str, mode: Mode) -> SessionRecord {
    SessionRecord::Held(Held {
        session: SessionId(number.into()),
        key: key(name).to_owned(),
        terms: Terms::of(mode),
        depth: 1,
        shared_below: 0,
        token: Token(1 << 30),
        timed: false,
    })
}

impl Server {
    /// With a master that tells it this.
    pub fn replica(told: &[SessionRecord]) -> Server {
        let mut server = Server::default();
        server.tell(Event::Demoted { redirect: false });
        server.hear(told);
        server
    }

    pub fn tell(&mut self, event: Event<'_>) {
        self.engine.handle(self.now, event, &mut self.orders);
        self.engine.check_invariants();
    }

    pub fn hear(&mut self, told: &[SessionRecord]) {
        told.iter()
            .for_each(|told| self.tell(Event::SessionRecord(told)));
    }

    pub fn inherit(&mut self, name: &'static str, mode: Mode) {
        let (key, token) = (key(name), None);
        self.tell(Event::Inherited { key, mode, token });
    }

    pub fn pass(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.tell(Event::Tick);
    }

    pub fn work(&mut self) {
        self.tell(Event::Work { steps: usize::MAX });
    }

    pub fn reply(&mut self, event: Event<'_>) -> Reply {
        self.orders.clear();
        self.tell(event);
        let reply = self.orders.iter().rev().find_map(|order| match order {
            Effect::Reply(reply) => Some(reply.clone()),
            Effect::Block => Some(Reply::Null),
            _ => None,
        });
        reply.expect("an answer")
    }

    pub fn start(&mut self, number: u64, session: u8) {
        let start = Start {
            client: client(number),
            secret: b"",
            digest: digest(session),
            grace_ms: GRACE_MS,
            user: b"",
        };
        let reply = self.reply(Event::Start(start));
        assert!(matches!(reply, Reply::Secret(_)), "{reply:?}");
    }

    pub fn resume(&mut self, number: u64, session: u8) -> Reply {
        let (client, digest) = (client(number), digest(session));
        let notify = false;
        self.reply(Event::Resume {
            client,
            digest,
            notify,
        })
    }

    /// As the keyspace would have it, as far as the engine knows; who cannot have it waits.
    pub fn acquire(&mut self, number: u64, name: &'static str, mode: Mode) -> Reply {
        let key = key(name);
        let state = match self.engine.look_up(key) {
            Some(_) => self.engine.key_state(key),
            None => KeyState::Absent,
        };
        let (limit_ms, push) = (None, false);
        self.reply(Event::Acquire(Acquire {
            client: client(number),
            seen: &[KeySnapshot { key, state }],
            terms: Terms {
                attributes: Attributes {
                    notify: true,
                    ..Attributes::default()
                },
                ..Terms::of(mode)
            },
            value: b"",
            wait: Some(Wait { limit_ms, push }),
            form: Form::Lock,
            in_command: true,
        }))
    }

    /// Waits for the locks `a` and `b`, which others hold.
    fn await_both(&mut self, number: u64) {
        let seen = ["a", "b"].map(|name| KeySnapshot {
            key: key(name),
            state: KeyState::Lock,
        });
        self.queue(number, &seen, Terms::of(LOCK), None);
    }

    /// Asks for keys in these states, and waits for so long, with a push.
    fn queue(
        &mut self,
        number: u64,
        seen: &[KeySnapshot<'_>],
        terms: Terms<&[u8]>,
        limit_ms: Option<u64>,
    ) {
        self.tell(Event::Acquire(Acquire {
            client: client(number),
            seen,
            terms,
            value: b"",
            wait: Some(Wait {
                limit_ms,
                push: true,
            }),
            form: Form::Lock,
            in_command: true,
        }));
    }

    /// Asks for a key in this state, and does not wait.
    pub fn ask(
        &mut self,
        number: u64,
        name: &'static str,
        state: KeyState,
        terms: Terms<&[u8]>,
    ) -> Reply {
        let key = key(name);
        self.reply(Event::Acquire(Acquire {
            client: client(number),
            seen: &[KeySnapshot { key, state }],
            terms,
            value: b"",
            wait: None,
            form: Form::Lock,
            in_command: true,
        }))
    }

    /// Asks for twenty keys: `held`, which somebody holds, and free ones whose names begin so.
    fn queue_for_many(&mut self, number: u64, prefix: &str, terms: Terms<&[u8]>) {
        let names: Vec<_> = (0..MANY - 1)
            .map(|number| format!("{prefix}{number}"))
            .collect();
        let mut seen = free(&names);
        seen.push(KeySnapshot {
            key: key("held"),
            state: KeyState::Lock,
        });
        self.queue(number, &seen, terms, None);
    }

    /// Client 1 starts session 1, which is granted a lock that a replica is to acknowledge.
    fn acquire_acked(&mut self) {
        self.start(1, 1);
        self.tell(Event::Replicas { count: 1 });
        self.acquire_pending(1, key("a"), None);
        assert_eq!(self.engine.gauges().grants_pending, 1);
    }

    /// Client 1 starts session 1, which is granted so many locks that a replica is to acknowledge, each with a push; what follows is
    /// done in so many steps at once.
    fn with_pending(many: usize, steps_per_event: usize) -> Server {
        let mut server = Server::default();
        server.engine.set_limits(Limits {
            steps_per_event,
            ..Limits::default()
        });
        server.tell(Event::Replicas { count: 1 });
        server.start(1, 1);
        for number in 0..many {
            let (db, name) = (Db(0), number.to_string());
            let name = name.as_bytes();
            let (limit_ms, push) = (None, true);
            server.acquire_pending(1, Key { db, name }, Some(Wait { limit_ms, push }));
        }
        server
    }

    /// Is granted a lock that a replica is to acknowledge.
    fn acquire_pending(&mut self, number: u64, key: Key<'_>, wait: Option<Wait>) {
        let state = KeyState::Absent;
        self.tell(Event::Acquire(Acquire {
            client: client(number),
            seen: &[KeySnapshot { key, state }],
            terms: Terms {
                acks: Some(ONE_REPLICA),
                ..Terms::of(LOCK)
            },
            value: b"",
            wait,
            form: Form::Lock,
            in_command: true,
        }));
    }

    /// What a file says of sessions that is saved now.
    pub fn saved(&self) -> Vec<SessionRecord> {
        self.engine.session_records(self.now).collect()
    }

    /// What was told to this one that it lost.
    pub fn lost(&self, number: u64) -> Vec<Loss> {
        let lost = self.orders.iter().filter_map(|order| match order {
            Effect::Push { to, push } if *to == [client(number)] => match push.news() {
                News::Lost(_, why, _) => Some(*why),
                _ => None,
            },
            _ => None,
        });
        lost.collect()
    }

    /// What there is to hold, temporary keys and locks.
    pub fn holds(&self) -> (usize, usize) {
        let gauges = self.engine.gauges();
        (gauges.temporary_keys, gauges.holds)
    }
}

pub const NO_SESSION: Reply = Reply::Refused(Refusal::NoSession);

#[test]
fn a_grace_does_not_run_while_there_is_a_master_and_runs_whole_afterwards() {
    let mut server = Server::default();
    server.start(1, 1);
    server.acquire(1, "a", Mode::Temporary);
    server.orders.clear();
    server.tell(Event::Demoted { redirect: false });
    let lost = |order: &Effect| {
        matches!(order, Effect::Push { to, push }
            if *to == [client(1)] && *push.news() == News::Lost(Kind::Temporary, Loss::Demoted, NameFrom::Request))
    };
    assert!(server.orders.iter().any(lost), "{:?}", server.orders);
    let gauges = server.engine.gauges();
    assert_eq!((gauges.sessions_attached, gauges.sessions_detached), (0, 1));
    assert_eq!(server.engine.deadline(), None);
    server.pass(LONG_MS);
    server.tell(Event::Promoted);
    assert_eq!(
        server.engine.deadline(),
        Some(server.now.after_ms(GRACE_MS))
    );
    server.pass(GRACE_MS - 1);
    server.work();
    assert_eq!(server.resume(2, 1), Reply::Integer(1));
    let client = client(2);
    server.tell(Event::Ended { client });
    server.pass(GRACE_MS);
    server.work();
    assert_eq!(server.resume(3, 1), NO_SESSION);
    assert_eq!(server.holds(), (0, 0));
}

/// What another server's connections held ends with that server: one entry of the log says how much it was.
#[test]
fn a_promotion_ends_what_the_masters_connections_held() {
    let mut server = Server::replica(&[session(1), held(1, "c", LOCK)]);
    server.engine.set_logs_losses(true);
    server.inherit("a", Mode::Temporary);
    server.inherit("b", LOCK);
    assert_eq!(server.engine.foreign_holds(), 2);
    server.orders.clear();
    server.tell(Event::Promoted);
    server.work();
    let logged = server.orders.iter().filter_map(|order| match order {
        Effect::Lost(lost) => Some((lost.why, lost.count)),
        _ => None,
    });
    assert_eq!(logged.collect::<Vec<_>>(), [(Loss::Promoted, 2)]);
    let lost = server.engine.totals().lost_by[Loss::Promoted as usize];
    assert_eq!((lost, server.engine.foreign_holds()), (2, 0));
    for name in ["a", "b"] {
        let removed = Effect::Remove(key(name).to_owned());
        assert!(server.orders.contains(&removed), "{name}");
    }
    assert_eq!(server.holds(), (0, 1));
}

/// Its value is the other client's: nobody removes it.
#[test]
fn an_orphaned_key_that_another_client_writes_to_stays() {
    let mut server = Server::default();
    for name in ["a", "b"] {
        server.acquire(1, name, Mode::Temporary);
    }
    let (client, key) = (client(1), key("a"));
    server.tell(Event::Ended { client });
    assert!(server.engine.is_orphaned(key));
    let by = Cause::Server;
    server.tell(Event::Replaced { key, by });
    server.orders.clear();
    server.work();
    let removed = server.orders.iter().filter_map(|order| match order {
        Effect::Remove(key) => Some(key.name.escape_ascii().to_string()),
        _ => None,
    });
    assert_eq!(removed.collect::<Vec<_>>(), ["b"]);
    let totals = server.engine.totals();
    let counted = (
        totals.removed_by_disconnect(),
        totals.lost_by_living_owners(),
    );
    assert_eq!((server.holds(), counted), ((0, 0), (2, 0)));
}

/// Where it is from and that it was killed is told just before it ends.
#[test]
fn the_log_has_where_a_connection_was_from() {
    for is_killed in [false, true] {
        let mut server = Server::default();
        server.engine.set_logs_losses(true);
        server.acquire(1, "a", LOCK);
        let origin = Origin::new("host:1", "program", "user");
        server
            .engine
            .note_origin(client(1), origin.clone(), is_killed);
        let client = client(1);
        server.tell(Event::Ended { client });
        server.work();
        let lost = server.orders.iter().find_map(|order| match order {
            Effect::Lost(lost) => Some(lost),
            _ => None,
        });
        let lost = lost.expect("an entry of the log");
        let why = if is_killed { Loss::Killed } else { Loss::Died };
        assert_eq!((lost.why, lost.origin.as_deref()), (why, Some(&origin)));
    }
}

/// Who resumes a session without NOTIFY hears of no loss, but of those that it takes again with NOTIFY.
#[test]
fn who_takes_a_lock_again_hears_of_its_loss() {
    for again in [false, true] {
        let mut server = Server::default();
        server.start(1, 1);
        let attributes = Attributes {
            reentrant: true,
            notify: true,
        };
        let terms = || Terms {
            attributes,
            ..Terms::of(LOCK)
        };
        server.ask(1, "a", KeyState::Absent, terms());
        server.resume(2, 1);
        if again {
            server.ask(2, "a", KeyState::Lock, terms());
        }
        server.orders.clear();
        let (session, later) = (SessionId(1), false);
        server.tell(Event::KillSession { session, later });
        let expected = if again { &[Loss::Ended][..] } else { &[] };
        assert_eq!(server.lost(2), expected);
    }
}

/// Each is lost once, by what came first, however late it is swept.
#[test]
fn what_a_flush_took_is_not_lost_by_the_end_that_follows() {
    let lost = |flush_first: bool| {
        let mut server = Server::default();
        server.engine.set_limits(Limits {
            steps_per_event: 1,
            ..Limits::default()
        });
        let names = ["a", "b", "c", "d"];
        for name in names {
            server.acquire(1, name, LOCK);
        }
        let (client, db, by) = (client(1), None, Cause::Server);
        let mut events = [Event::Flushed { db, by }, Event::Ended { client }];
        if !flush_first {
            events.reverse();
        }
        events.into_iter().for_each(|event| server.tell(event));
        // As the shell counts what is held meanwhile.
        let held = server.engine.gauges().held_keys;
        server.work();
        let by = |why| server.engine.totals().lost_by[why as usize];
        (by(Loss::Flushed), by(Loss::Died), held)
    };
    assert_eq!(lost(true), (4, 0, 0));
    assert_eq!(lost(false), (0, 4, 0));
}

/// Who hears of a loss is told the key's name as of then, and whether that is the one it asked for.
#[test]
fn a_loss_says_whether_the_key_was_renamed() {
    for is_renamed in [false, true] {
        let mut server = Server::default();
        server.acquire(1, "a", Mode::Temporary);
        let by = Cause::Client(client(9));
        let mut lost = key("a");
        if is_renamed {
            server.tell(Event::MovedFrom { key: lost });
            lost = key("b");
            server.tell(Event::MovedTo { key: lost, by });
        }
        server.orders.clear();
        let why = Loss::Deleted;
        server.tell(Event::Gone { key: lost, by, why });
        let news = server.orders.iter().find_map(|order| match order {
            Effect::Push { push, .. } => Some((push.key.as_key() == lost, push.news().clone())),
            _ => None,
        });
        let name = match is_renamed {
            true => NameFrom::Rename,
            false => NameFrom::Request,
        };
        let expected = News::Lost(Kind::Temporary, Loss::Deleted, name);
        assert_eq!(news, Some((true, expected)));
    }
}

/// What the server counts as its memory grows with what is held, and is told from samples.
#[test]
fn the_memory_of_a_key_is_that_of_its_holds_and_waits() {
    let mut server = Server::default();
    let bytes = |server: &Server, samples| server.engine.bytes_of(key("a"), samples);
    let mut sizes = vec![bytes(&server, 5)];
    for number in 1..=3 {
        server.acquire(number, "a", Mode::Shared);
        sizes.push(bytes(&server, 5));
        assert_eq!(bytes(&server, 1), bytes(&server, 5));
    }
    let each = sizes[2] - sizes[1];
    assert!(sizes[0] == 0 && each > 8 && sizes[1] > each);
    assert_eq!(sizes[3] - sizes[2], each);
    server.acquire(4, "a", LOCK);
    let waits = bytes(&server, 5) - sizes[3];
    server.acquire(5, "a", LOCK);
    assert!(bytes(&server, 5) > sizes[3] + waits);
    // A label takes its own bytes, and those of the record that has it.
    let mut labelled = |name: &'static str, label: &[u8]| {
        let terms = Terms {
            label,
            ..Terms::of(LOCK)
        };
        server.ask(9, name, KeyState::Absent, terms);
        server.engine.bytes_of(key(name), 5)
    };
    let without = labelled("b", b"");
    let long = [("c", 100), ("d", 300)].map(|(name, bytes)| labelled(name, &vec![b'x'; bytes]));
    assert!(long[0] > without + 100);
    assert_eq!(long[1] - long[0], 200);
}

/// A session's grace is told in full while it does not run.
#[test]
fn the_list_of_sessions_says_how_much_grace_is_left() {
    let mut server = Server::default();
    server.start(1, 1);
    let left_ms = |server: &Server| {
        let lines = server.engine.sessions(server.now);
        lines.first().map(|line| line.grace_ms)
    };
    server.pass(LONG_MS);
    assert_eq!(left_ms(&server), Some(GRACE_MS));
    let client = client(1);
    server.tell(Event::Ended { client });
    server.pass(GRACE_MS / 4);
    assert_eq!(left_ms(&server), Some(GRACE_MS * 3 / 4));
    server.pass(GRACE_MS);
    assert_eq!(left_ms(&server), None);
}

/// A replica knows the tokens of temporary keys and of sessions' locks, not of connections' locks.
#[test]
fn a_raised_token_is_replicated_where_replicas_know_it() {
    let told = |mode: Mode, in_session: bool| {
        let mut server = Server::default();
        if in_session {
            server.start(1, 1);
        }
        server.acquire(1, "a", mode);
        let token = Token(server.engine.last_token().0 + 5);
        server.reply(Event::Raise(Raise {
            client: client(1),
            key: key("a"),
            label: b"",
            token,
            most: token,
        }));
        let told = server.orders.iter().find_map(|order| match order {
            Effect::Replicate(record) => match &**record {
                SessionRecord::Held(held) => Some((held.session == SessionId(1), held.token)),
                _ => None,
            },
            _ => None,
        });
        told.map(|(is_session, of)| (is_session, of == token))
    };
    assert_eq!(told(Mode::Temporary, false), Some((false, true)));
    assert_eq!(told(LOCK, false), None);
    assert_eq!(told(LOCK, true), Some((true, true)));
}

/// Whoever is to succeed this server goes on above its tokens: the first one of an epoch is told.
#[test]
fn the_first_token_of_an_epoch_is_replicated() {
    let mut server = Server::default();
    let clock = Duration::from_secs(1_800_000_000);
    server.engine.begin_epoch(clock);
    let told = |server: &mut Server, name| {
        server.orders.clear();
        server.acquire(1, name, LOCK);
        let is_it = |order: &Effect| matches!(order, Effect::ReplicateToken(_));
        server.orders.iter().filter(|order| is_it(order)).count()
    };
    assert_eq!([told(&mut server, "a"), told(&mut server, "b")], [1, 0]);
    server.engine.begin_epoch(clock);
    assert_eq!([told(&mut server, "c"), told(&mut server, "d")], [1, 0]);
    server.engine.invalidate_epoch_sync();
    assert_eq!([told(&mut server, "e"), told(&mut server, "f")], [1, 0]);
}

#[test]
fn on_a_replica_nobody_loses_what_the_masters_stream_ends() {
    let mut server = Server::replica(&[session(1), held(1, "a", Mode::Temporary)]);
    let (by, why) = (Cause::Server, Loss::Deleted);
    let key = key("a");
    server.tell(Event::Gone { key, by, why });
    assert_eq!(
        (
            server.engine.totals().lost_by_living_owners(),
            server.holds()
        ),
        (0, (0, 0))
    );
}

#[test]
fn a_grace_does_not_run_while_the_data_are_not_there() {
    let mut server = Server::default();
    server.start(1, 1);
    server.acquire(1, "a", Mode::Temporary);
    let told = server.saved();
    server.tell(Event::LoadBegins);
    let client = client(1);
    server.tell(Event::Ended { client });
    server.hear(&told);
    server.pass(LONG_MS);
    server.tell(Event::LoadEnded);
    server.work();
    assert_eq!(server.resume(2, 1), Reply::Integer(1));
}

#[test]
fn sessions_of_a_file_have_their_grace_from_its_end_on_and_on_a_replica_none() {
    for is_replica in [false, true] {
        let mut server = Server::default();
        if is_replica {
            server.tell(Event::Demoted { redirect: false });
        }
        server.tell(Event::LoadBegins);
        server.hear(&[session(1), held(1, "a", LOCK)]);
        server.pass(LONG_MS);
        server.tell(Event::LoadEnded);
        let end = server.now.after_ms(GRACE_MS);
        let expected = (!is_replica).then_some(end);
        assert_eq!(server.engine.deadline(), expected);
    }
}

#[test]
fn what_connections_hold_is_lost_by_a_load_and_goes_after_it() {
    let mut server = Server::default();
    server.acquire(1, "a", Mode::Temporary);
    server.acquire(1, "b", Mode::Shared);
    server.acquire(2, "b", Mode::Shared);
    server.acquire(3, "b", LOCK);
    server.orders.clear();
    server.tell(Event::LoadBegins);
    assert_eq!(server.lost(1), [Loss::Flushed; 2]);
    assert_eq!(server.lost(2), [Loss::Flushed]);
    assert_eq!(
        (
            server.engine.totals().lost_by_living_owners(),
            server.holds()
        ),
        (3, (0, 0))
    );
    server.inherit("a", Mode::Temporary);
    server.inherit("b", LOCK);
    server.tell(Event::LoadEnded);
    server.orders.clear();
    server.work();
    // Whoever waited for it is the next.
    assert!(server.orders.contains(&Effect::Remove(key("a").to_owned())));
    assert_eq!(
        (server.holds(), server.engine.gauges().waiters),
        ((0, 1), 0)
    );
}

/// What a file tells of was lost once: nobody hears of that, and it is not counted.
#[test]
fn a_connection_goes_on_with_its_session_which_has_what_the_file_says() {
    for notify in [false, true] {
        let mut server = Server::default();
        server.start(1, 1);
        server.acquire(1, "a", LOCK);
        server.acquire(1, "gone", LOCK);
        if !notify {
            server.resume(2, 1);
        }
        let now = if notify { 1 } else { 2 };
        let told = server.saved();
        server.orders.clear();
        server.tell(Event::LoadBegins);
        let expected = if notify { &[Loss::Flushed; 2][..] } else { &[] };
        assert_eq!(server.lost(now), expected);
        assert_eq!(server.engine.totals().lost_by_living_owners(), 2);
        server.hear(&told);
        let (by, why, gone) = (Cause::Server, Loss::Deleted, key("gone"));
        server.tell(Event::Gone { key: gone, by, why });
        server.tell(Event::LoadEnded);
        server.work();
        let gauges = server.engine.gauges();
        assert_eq!((gauges.sessions_attached, gauges.sessions_detached), (1, 0));
        assert_eq!(
            (
                server.engine.totals().lost_by_living_owners(),
                server.holds()
            ),
            (2, (0, 1))
        );
        assert_eq!(server.resume(now, 1), Reply::Integer(1));
        // As if it had resumed it.
        let (key, by, why) = (key("a"), Cause::Server, Loss::Deleted);
        server.orders.clear();
        server.tell(Event::Gone { key, by, why });
        assert_eq!(server.lost(now).len(), usize::from(notify));
    }
}

#[test]
fn a_session_that_the_file_does_not_tell_of_or_ends_is_over() {
    for ends in [false, true] {
        let mut server = Server::default();
        server.start(1, 1);
        server.acquire(1, "a", LOCK);
        let mut told = server.saved();
        let SessionRecord::Session { id, .. } = told[0] else {
            panic!("sessions come before what they hold: {told:?}");
        };
        told.push(SessionRecord::SessionEnded(id));
        server.tell(Event::LoadBegins);
        server.hear(if ends { &told[..] } else { &[] });
        server.tell(Event::LoadEnded);
        server.work();
        let later = false;
        let client = client(1);
        assert_eq!(
            server.reply(Event::EndSession { client, later }),
            NO_SESSION
        );
        assert_eq!((server.holds(), server.resume(2, 1)), ((0, 0), NO_SESSION));
        // What it is granted now is its own.
        server.acquire(1, "a", LOCK);
        server.tell(Event::Ended { client });
        server.work();
        assert_eq!(server.holds(), (0, 0));
    }
}

#[test]
fn nobody_goes_on_with_a_session_on_a_server_that_has_got_a_master_meanwhile() {
    let mut server = Server::default();
    server.start(1, 1);
    server.acquire(1, "a", LOCK);
    let told = server.saved();
    server.tell(Event::LoadBegins);
    server.tell(Event::Demoted { redirect: false });
    server.hear(&told);
    server.tell(Event::LoadEnded);
    let gauges = server.engine.gauges();
    assert_eq!((gauges.sessions_attached, gauges.sessions_detached), (0, 1));
    server.tell(Event::Promoted);
    assert_eq!(server.resume(2, 1), Reply::Integer(1));
}

/// It finds out when it resumes the session.
#[test]
fn a_grant_that_was_not_acknowledged_is_withdrawn_by_a_load_though_the_file_has_it() {
    let mut server = Server::default();
    server.acquire_acked();
    let told = server.saved();
    server.orders.clear();
    server.tell(Event::LoadBegins);
    let refusal = Refusal::NoAcks { got: 0, wanted: 1 };
    let answer = Effect::Answer {
        client: client(1),
        reply: Reply::Refused(refusal),
        granted: None,
    };
    assert_eq!(server.orders, [answer]);
    server.hear(&told);
    server.tell(Event::LoadEnded);
    assert_eq!(server.engine.gauges().grants_pending, 0);
    assert_eq!(server.resume(1, 1), Reply::Integer(1));
}

/// The server that becomes master may have taken it for the session's.
#[test]
fn a_withdrawn_hold_goes_back_to_its_session_when_a_master_comes() {
    for released in [false, true] {
        let mut server = Server::default();
        server.acquire_acked();
        server.tell(Event::Replicas { count: 0 });
        assert_eq!(server.engine.gauges().grants_pending, 0);
        if released {
            server.work();
        }
        server.orders.clear();
        server.tell(Event::Demoted { redirect: false });
        assert_eq!(server.orders, []);
        server.tell(Event::Promoted);
        let held = i64::from(!released);
        assert_eq!(server.resume(2, 1), Reply::Integer(held));
    }
}

#[test]
fn the_end_of_an_earlier_hold_does_not_end_a_later_one_of_the_same_session() {
    let freed = |token| SessionRecord::Freed {
        session: SessionId(1),
        key: key("a").to_owned(),
        label: b"".as_slice().into(),
        token,
    };
    let its = Token(1 << 30);
    for (token, stays) in [(Some(Token(7)), 1), (Some(its), 0), (None, 0)] {
        let mut server = Server::replica(&[session(1), held(1, "a", LOCK)]);
        server.hear(&[freed(token)]);
        server.tell(Event::Promoted);
        assert_eq!(server.resume(1, 1), Reply::Integer(stays));
    }
}

#[test]
fn a_session_that_nobody_was_attached_to_has_what_a_file_tells() {
    let mut server = Server::replica(&[]);
    server.tell(Event::LoadBegins);
    server.hear(&[session(1)]);
    server.tell(Event::Promoted);
    server.hear(&[held(1, "a", LOCK)]);
    server.tell(Event::LoadEnded);
    server.work();
    assert_eq!(server.holds(), (0, 1));
    assert_eq!(server.resume(2, 1), Reply::Integer(1));
}

#[test]
fn what_a_data_set_does_not_tell_of_is_forgotten() {
    let mut server = Server::replica(&[session(1), held(1, "a", LOCK), session(2)]);
    server.tell(Event::LoadBegins);
    assert_eq!(server.holds(), (0, 0));
    server.hear(&[session(2)]);
    server.tell(Event::LoadEnded);
    server.tell(Event::Promoted);
    assert_eq!(server.resume(1, 1), NO_SESSION);
    assert_eq!(server.resume(1, 2), Reply::Integer(0));
}

#[test]
fn what_a_session_left_behind_is_forgotten_when_data_are_loaded() {
    let mut server = Server::default();
    server.start(1, 1);
    server.acquire(1, "a", Mode::Temporary);
    server.acquire(1, "b", Mode::Temporary);
    let client = client(1);
    server.tell(Event::Ended { client });
    server.pass(GRACE_MS);
    // The grace, and one of the two.
    server.tell(Event::Work { steps: 2 });
    assert_eq!(server.holds(), (1, 0));
    server.tell(Event::LoadBegins);
    assert_eq!(server.holds(), (0, 0));
}

/// As with a lock that somebody restored.
#[test]
fn a_master_leaves_alone_what_somebody_holds_unless_it_loads_it() {
    let mut server = Server::default();
    server.start(1, 1);
    server.acquire(1, "a", LOCK);
    server.acquire(2, "b", LOCK);
    for name in ["a", "b", "c"] {
        server.inherit(name, LOCK);
    }
    server.orders.clear();
    server.work();
    assert_eq!(server.orders, [Effect::Remove(key("c").to_owned())]);
    let told = server.saved();
    server.tell(Event::LoadBegins);
    server.hear(&told);
    for name in ["a", "b"] {
        server.inherit(name, Mode::Temporary);
    }
    server.tell(Event::LoadEnded);
    assert_eq!(server.holds(), (2, 0));
}

#[test]
fn a_key_is_kept_for_former_owners_or_for_sessions_and_never_for_both() {
    let shared = Mode::Shared;
    let mut server = Server::replica(&[session(1), session(2), held(1, "a", shared)]);
    // Another connection of the master took it, too.
    server.inherit("a", LOCK);
    let inspection = server.engine.inspect(server.now, key("a"), 100).unwrap();
    let sessions: Vec<_> = inspection
        .holders
        .iter()
        .map(|holder| holder.session)
        .collect();
    assert_eq!(sessions, [Some(false)]);
    server.hear(&[
        SessionRecord::SessionEnded(SessionId(1)),
        held(2, "a", shared),
    ]);
    assert_eq!(server.holds(), (0, 1));
    server.tell(Event::Promoted);
    assert_eq!(server.resume(1, 2), Reply::Integer(1));
    server.orders.clear();
    server.work();
    assert_eq!(server.orders, []);
}

#[test]
fn what_is_made_of_another_type_is_of_that_type() {
    let mut server = Server::replica(&[]);
    server.inherit("a", Mode::Temporary);
    server.inherit("a", LOCK);
    assert_eq!(
        (server.holds(), server.engine.key_state(key("a"))),
        ((0, 1), KeyState::Lock)
    );
}

#[test]
fn tokens_rise_above_those_of_the_sessions_that_were_told_of() {
    let mut server = Server::replica(&[session(1), held(1, "a", LOCK)]);
    server.tell(Event::Promoted);
    let Reply::Integer(token) = server.acquire(1, "b", LOCK) else {
        panic!("it is free");
    };
    assert!(token > 1 << 30, "{token}");
}

#[test]
fn a_lock_that_was_told_of_is_handed_over_without_a_time_to_live() {
    let mut server = Server::replica(&[session(1), held(1, "a", LOCK)]);
    server.tell(Event::Promoted);
    assert_eq!(server.resume(1, 1), Reply::Integer(1));
    server.acquire(2, "a", LOCK);
    let later = false;
    let client = client(1);
    assert_eq!(
        server.reply(Event::EndSession { client, later }),
        Reply::Integer(1)
    );
    let key = key("a").to_owned();
    let made = |order: &Effect| matches!(order, Effect::MakeLock { key: made, .. } if *made == key);
    assert!(server.orders.iter().any(made));
}

#[test]
fn a_promoted_server_renews_what_no_user_limited() {
    for timed in [false, true] {
        let its = match held(1, "a", Mode::Temporary) {
            SessionRecord::Held(held) => SessionRecord::Held(Held { timed, ..held }),
            other => other,
        };
        let mut server = Server::replica(&[session(1), its]);
        server.engine.set_backstop(60_000);
        server.tell(Event::Promoted);
        server.orders.clear();
        server.tell(Event::RenewAll);
        server.work();
        let [Effect::Renew { least_ms, .. }] = server.orders[..] else {
            panic!("{:?}", server.orders);
        };
        // 0: only where it has no time at all.
        assert_eq!(least_ms == 0, timed);
    }
}

#[test]
fn what_a_session_was_granted_and_never_heard_of_ends() {
    let mut server = Server::default();
    server.acquire(1, "a", LOCK);
    server.start(2, 1);
    server.acquire(2, "a", LOCK);
    let client = client(2);
    server.tell(Event::Ended {
        client: ClientId(1),
    });
    server.orders.clear();
    server.work();
    let granted = server.orders.iter().find_map(|order| match order {
        Effect::Answer { granted, .. } => *granted,
        _ => None,
    });
    assert!(granted.is_some(), "{:?}", server.orders);
    server.tell(Event::Abandoned { client, granted });
    server.work();
    assert_eq!(server.holds(), (0, 0));
}

/// As in a transaction of a cluster.
#[test]
fn what_goes_later_is_nobodys_at_once() {
    let mut server = Server::default();
    server.start(1, 1);
    server.acquire(1, "a", LOCK);
    server.acquire(1, "b", LOCK);
    let (client, later) = (client(1), true);
    assert_eq!(
        server.reply(Event::EndSession { client, later }),
        Reply::Integer(2)
    );
    assert_eq!((server.holds(), server.resume(2, 1)), ((0, 2), NO_SESSION));
    assert!(matches!(server.acquire(2, "a", LOCK), Reply::Integer(_)));
    server.start(1, 2);
    server.work();
    assert_eq!(server.holds(), (0, 1));
}

/// Of holds that began elsewhere nobody knows how long they have lasted.
#[test]
fn the_times_of_holds_are_those_that_began_here() {
    let mut server = Server::default();
    server.acquire(1, "a", LOCK);
    server.pass(40);
    server.inherit("b", Mode::Temporary);
    server.pass(30);
    let (one, other) = (client(1), key("b"));
    server.tell(Event::Ended { client: one });
    server.tell(Event::Gone {
        key: other,
        why: Loss::Deleted,
        by: Cause::Server,
    });
    server.work();
    assert_eq!(server.holds(), (0, 0));
    let times = server.engine.hold_times();
    assert_eq!((times.count(), times.sum_us()), (1, 70_000));
}

/// A key that is elsewhere is not what its requester knows: its grant is withdrawn, of very many not all in one step.
#[test]
fn of_very_many_pending_grants_an_exchange_of_databases_withdraws_few_at_once() {
    const MANY: u8 = 100;
    const STEPS: usize = 40;
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: STEPS,
        ..Limits::default()
    });
    server.tell(Event::Replicas { count: 1 });
    let names: Vec<String> = (0..MANY).map(|number| number.to_string()).collect();
    for (number, name) in (1..).zip(&names) {
        let name = name.as_bytes();
        server.start(number.into(), number);
        server.acquire_pending(number.into(), Key { db: Db(0), name }, None);
    }
    let pending = |server: &Server| server.engine.gauges().grants_pending;
    assert_eq!(pending(&server), usize::from(MANY));
    let (one, other) = (Db(1), Db(2));
    server.tell(Event::Swapped { one, other });
    assert_eq!(pending(&server), usize::from(MANY), "they are in neither");
    let one = Db(0);
    server.tell(Event::Swapped { one, other });
    let withdrawn = usize::from(MANY) - pending(&server);
    assert!((1..=STEPS).contains(&withdrawn), "{withdrawn}");
    server.pass(LONG_MS);
    while pending(&server) > 0 {
        let before = pending(&server);
        server.pass(0);
        assert!((1..=STEPS).contains(&(before - pending(&server))));
    }
    server.engine.check_invariants();
}

/// Its own stream, as a slot brings it from another server, says nothing new of keys whose holders it knows.
#[test]
fn a_master_that_hears_who_holds_its_keys_knows_better() {
    let mut server = Server::default();
    server.acquire(1, "a", Mode::Temporary);
    server.inherit("a", Mode::Temporary);
    server.inherit("b", Mode::Temporary);
    let holders = |server: &Server, name| server.engine.holders(key(name)).to_vec();
    assert_eq!(holders(&server, "a"), [client(1)]);
    assert_ne!(holders(&server, "b"), [client(1)]);
    server.tell(Event::Ended { client: client(1) });
    server.work();
    assert_eq!(
        server.orders.last(),
        Some(&Effect::Remove(key("a").to_owned()))
    );
}

/// The key of a grant may have another name by the time that the grant's push is looked at.
#[test]
fn a_grant_is_its_owners_under_whatever_name() {
    let mut server = Server::default();
    let Reply::Integer(token) = server.acquire(1, "a", LOCK) else {
        panic!("it is free");
    };
    let has = |server: &Server, number, token| {
        let granted = server.engine.granted(client(number));
        granted.contains(&Token(token))
    };
    let has_as = |server: &Server, name, label, token| {
        let (key, token) = (key(name), Token(token));
        server.engine.holds_as(client(1), key, label, token)
    };
    let token = token as u64;
    assert!(has(&server, 1, token) && has_as(&server, "a", b"", token));
    assert!(!has(&server, 1, token - 1) && !has_as(&server, "a", b"", token - 1));
    assert!(!has(&server, 2, token) && !has_as(&server, "a", b"label", token));
    server.tell(Event::MovedFrom { key: key("a") });
    let by = Cause::Client(client(2));
    server.tell(Event::MovedTo { key: key("b"), by });
    assert!(has(&server, 1, token) && has_as(&server, "b", b"", token));
    assert!(!has_as(&server, "a", b"", token));
    let (key, all, label) = (key("b"), true, b"".as_slice());
    let client = client(1);
    server.tell(Event::Release {
        client,
        key,
        label,
        all,
    });
    assert!(!has(&server, 1, token));
}

/// Nothing is left of a wait, and a lock whose lease is over is nobody's, though it has not ended yet.
#[test]
fn who_no_longer_waits_is_told_of_its_lock_while_it_has_it() {
    const LEASE_MS: u64 = 10;
    let mut server = Server::default();
    let Reply::Integer(token) = server.acquire(1, "a", LOCK) else {
        panic!("it is free");
    };
    let (client, key, label) = (client(1), key("a"), b"".as_slice());
    let lease_ms = LEASE_MS;
    server.tell(Event::Extend {
        client,
        key,
        label,
        lease_ms,
    });
    let cancel = |server: &mut Server| server.reply(Event::Cancel { client, key, label });
    assert_eq!(cancel(&mut server), Reply::Integer(token));
    server.pass(LEASE_MS);
    assert_eq!(cancel(&mut server), Reply::Integer(0));
}

#[test]
fn the_end_of_a_session_withdraws_few_of_very_many_pending_grants_at_once() {
    const MANY: usize = 100;
    const STEPS: usize = 40;
    let mut server = Server::with_pending(MANY, STEPS);
    server.tell(Event::EndSession {
        client: client(1),
        later: false,
    });
    let left = server.engine.gauges().grants_pending;
    assert!((MANY - STEPS / 2..MANY).contains(&left), "{left}");
    server.work();
    assert_eq!(
        (server.engine.gauges().grants_pending, server.holds()),
        (0, (0, 0))
    );
}

/// Ten readers wait for each of its locks, and go together.
#[test]
fn the_end_of_a_session_grants_few_of_very_many_requests_at_once() {
    const LOCKS: usize = 20;
    const READERS: usize = 10;
    const STEPS: usize = 40;
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: STEPS,
        ..Limits::default()
    });
    server.start(1, 1);
    let names: Vec<_> = (0..LOCKS).map(|number| number.to_string()).collect();
    for lock in free(&names) {
        server.queue(1, &[lock], Terms::of(LOCK), None);
        let state = KeyState::Lock;
        for reader in (2..).take(READERS) {
            let seen = [KeySnapshot { state, ..lock }];
            server.queue(reader, &seen, Terms::of(Mode::Shared), None);
        }
    }
    server.tell(Event::EndSession {
        client: client(1),
        later: false,
    });
    let waiting = |server: &Server| server.engine.gauges().waiters;
    let left = waiting(&server);
    let granted = LOCKS * READERS - left;
    assert!((STEPS / 2..=STEPS).contains(&granted), "{granted}");
    server.tell(Event::Work { steps: STEPS });
    let more = left - waiting(&server);
    assert!((STEPS / 2..=STEPS).contains(&more), "{more}");
    server.work();
    assert_eq!(
        (waiting(&server), server.holds()),
        (0, (0, LOCKS * READERS))
    );
    server.engine.check_invariants();
}

/// The rest is withdrawn with its time, and told to nobody.
#[test]
fn who_is_gone_is_told_of_no_grant_that_is_withdrawn() {
    const MANY: usize = 100;
    let mut server = Server::with_pending(MANY, 10);
    let client = client(1);
    server.tell(Event::Ended { client });
    let left = server.engine.gauges().grants_pending;
    assert!((1..MANY).contains(&left), "{left}");
    server.orders.clear();
    while server.engine.gauges().grants_pending > 0 {
        server.pass(GRACE_MS);
    }
    let is_push = |order: &Effect| matches!(order, Effect::Push { .. } | Effect::Answer { .. });
    assert!(!server.orders.iter().any(is_push), "{:?}", server.orders);
}

/// However late they are: of what it would not be told, nobody is told that it has it.
#[test]
fn an_acknowledgement_after_another_connection_resumed_the_session_grants_nothing() {
    const MANY: usize = 100;
    let mut server = Server::with_pending(MANY, 10);
    server.resume(2, 1);
    server.orders.clear();
    let pending = server.engine.grants_due(Moment(u64::MAX), MANY);
    assert!((1..MANY).contains(&pending.len()), "{}", pending.len());
    for grant in pending {
        let (token, replicas) = (grant.token, 1);
        server.tell(Event::Acknowledged { token, replicas });
    }
    let is_granted = |order: &Effect| match order {
        Effect::Push { push, .. } => matches!(push.news(), News::Granted(..)),
        _ => false,
    };
    assert!(!server.orders.iter().any(is_granted), "{:?}", server.orders);
    assert_eq!(server.engine.gauges().grants_pending, 0);
    server.work();
    assert_eq!(server.holds(), (0, 0));
}

/// Replicas know of it as the session's, and the key stays: they are told whose it is not.
#[test]
fn a_withdrawn_grant_is_freed_on_replicas() {
    let mut server = Server::default();
    server.start(1, 1);
    server.acquire(9, "a", Mode::Shared);
    server.tell(Event::Replicas { count: 1 });
    let terms = Terms {
        acks: Some(ONE_REPLICA),
        ..Terms::of(Mode::Shared)
    };
    let pending = server.ask(1, "a", KeyState::Lock, terms);
    assert_eq!(pending, Reply::Null);
    server.pass(1000);
    server.orders.clear();
    server.work();
    let freed = server.orders.iter().find_map(|order| match order {
        Effect::Replicate(record) => match &**record {
            SessionRecord::Freed { session, .. } => Some(*session),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(freed, Some(SessionId(1)), "{:?}", server.orders);
    assert_eq!(server.engine.holders(key("a")).to_vec(), [client(9)]);
}

/// It is the same key for the next holder, and not written anew.
#[test]
fn a_lock_that_passes_on_stays_as_it_is() {
    let mut server = Server::default();
    server.acquire(1, "a", LOCK);
    server.acquire(2, "a", LOCK);
    let released = server.reply(Event::Release {
        client: client(1),
        key: key("a"),
        label: b"",
        all: true,
    });
    assert_eq!(released, Reply::Integer(0));
    let is_write = |order: &Effect| {
        matches!(
            order,
            Effect::Make { .. } | Effect::MakeLock { .. } | Effect::Remove(_)
        )
    };
    assert!(!server.orders.iter().any(is_write), "{:?}", server.orders);
    assert_eq!(server.engine.holders(key("a")).to_vec(), [client(2)]);
}

/// Its owner hears of the loss before it hears that it has the key again.
#[test]
fn what_a_flush_took_is_lost_before_its_owner_takes_it_again() {
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: 1,
        ..Limits::default()
    });
    for name in ["a", "b", "c", "d"] {
        server.acquire(1, name, LOCK);
    }
    let (db, by) = (None, Cause::Server);
    server.tell(Event::Flushed { db, by });
    let reply = server.acquire(1, "d", LOCK);
    assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
    let lost = server.orders.iter().position(|order| match order {
        Effect::Push { push, .. } => push.key.as_key() == key("d"),
        _ => false,
    });
    let granted = server
        .orders
        .iter()
        .position(|order| matches!(order, Effect::CreateKey { .. }));
    assert!(lost.is_some() && lost < granted, "{:?}", server.orders);
}

/// Who has gone holds nobody up for longer than until it is reaped.
#[test]
fn who_waits_for_several_keys_behind_one_that_has_gone_is_served() {
    let mut server = Server::default();
    server.acquire(1, "a", LOCK);
    server.acquire(2, "b", LOCK);
    server.acquire(3, "b", LOCK);
    server.await_both(4);
    for number in [2, 3, 1] {
        let client = client(number);
        server.tell(Event::Ended { client });
    }
    server.tell(Event::Reap { steps: usize::MAX });
    server.work();
    for name in ["a", "b"] {
        assert_eq!(server.engine.holders(key(name)).to_vec(), [client(4)]);
    }
}

/// The last of its keys that is freed is handed over at once, though a wait that has gone and was not reaped is ahead for another one.
#[test]
fn who_waits_for_several_keys_is_served_over_waits_that_have_gone() {
    let mut server = Server::default();
    server.acquire(1, "a", LOCK);
    server.acquire(2, "b", LOCK);
    server.acquire(3, "b", LOCK);
    server.await_both(4);
    server.tell(Event::MovedFrom { key: key("b") });
    server.tell(Event::MovedTo {
        key: key("c"),
        by: Cause::Client(client(2)),
    });
    server.tell(Event::Ended { client: client(3) });
    server.reply(Event::Release {
        client: client(1),
        key: key("a"),
        label: b"",
        all: false,
    });
    for name in ["a", "b"] {
        assert_eq!(server.engine.holders(key(name)).to_vec(), [client(4)]);
    }
}

/// What it says of one key frees another one for who waited for both: it is not granted what it saw free before that.
#[test]
fn a_request_that_shows_that_a_key_is_gone_finds_the_others_as_they_are_then() {
    let mut server = Server::default();
    let ask = |server: &mut Server, number, b| {
        let seen = [("a", KeyState::Absent), ("b", b)].map(|(name, state)| KeySnapshot {
            key: key(name),
            state,
        });
        server.queue(number, &seen, Terms::of(LOCK), None);
    };
    server.acquire(1, "b", LOCK);
    ask(&mut server, 2, KeyState::Lock);
    ask(&mut server, 3, KeyState::Absent);
    server.work();
    for name in ["a", "b"] {
        assert_eq!(server.engine.holders(key(name)).to_vec(), [client(2)]);
    }
    assert_eq!(server.engine.gauges().waiters, 1);
}

/// Of several keys one was held and the others free: all are free after the flush, whatever it comes to first.
#[test]
fn who_waits_for_several_keys_is_served_after_a_flush_in_slices() {
    let names = ["a", "b", "c", "d", "e"];
    for held in names {
        let mut server = Server::default();
        server.engine.set_limits(Limits {
            steps_per_event: 1,
            ..Limits::default()
        });
        server.acquire(1, held, LOCK);
        let seen = names.map(|name| KeySnapshot {
            key: key(name),
            state: match name == held {
                true => KeyState::Lock,
                false => KeyState::Absent,
            },
        });
        let (limit_ms, push) = (None, true);
        server.tell(Event::Acquire(Acquire {
            client: client(2),
            seen: &seen,
            terms: Terms::of(LOCK),
            value: b"",
            wait: Some(Wait { limit_ms, push }),
            form: Form::Lock,
            in_command: true,
        }));
        let (db, by) = (None, Cause::Server);
        server.tell(Event::Flushed { db, by });
        while server.engine.is_flushing() || server.engine.has_work(server.now) {
            server.tell(Event::Reap { steps: 1 });
            server.work();
        }
        assert_eq!(server.holds(), (0, names.len()), "{held}");
    }
}

/// A flush of very much ends holds in slices, and what it has not come to yet is gone all the same.
#[test]
fn what_a_flush_has_deleted_is_not_granted_by_an_acknowledgement() {
    const OTHERS: usize = 100;
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: 10,
        ..Limits::default()
    });
    for number in 0..OTHERS {
        let name = number.to_string().leak();
        server.acquire(2, name, LOCK);
    }
    server.acquire_acked();
    let token = server.engine.last_token();
    server.orders.clear();
    let (db, by) = (None, Cause::Server);
    server.tell(Event::Flushed { db, by });
    let pending = server.engine.gauges().grants_pending;
    assert!(server.engine.is_flushing() && pending == 1, "{pending}");
    server.tell(Event::Acknowledged { token, replicas: 1 });
    server.work();
    assert_eq!(
        (server.engine.gauges().grants_pending, server.holds()),
        (0, (0, 0))
    );
    let is_grant = |order: &Effect| {
        matches!(
            order,
            Effect::Answer {
                granted: Some(_),
                ..
            }
        )
    };
    assert!(!server.orders.iter().any(is_grant), "{:?}", server.orders);
}

/// Losses of very many holds of one owner at once are logged as one.
#[test]
fn what_few_holds_lose_together_is_logged_apart() {
    for (holds, is_one_of_many) in [
        (LOSSES_LOGGED_APART, false),
        (LOSSES_LOGGED_APART + 1, true),
    ] {
        let mut server = Server::default();
        server.engine.set_logs_losses(true);
        for number in 0..holds {
            server.acquire(1, number.to_string().leak(), LOCK);
        }
        server.orders.clear();
        server.tell(Event::Ended { client: client(1) });
        server.work();
        let first = server.orders.iter().find_map(|order| match order {
            Effect::Lost(lost) => Some(lost.is_one_of_many),
            _ => None,
        });
        assert_eq!(first, Some(is_one_of_many), "{holds}");
    }
}

/// What the shell saw free may be held, waited for, or there.
#[test]
fn a_sequence_makes_no_key_that_is_anothers() {
    let make = |server: &mut Server, state| {
        server.reply(Event::Acquire(Acquire {
            client: client(9),
            seen: &[KeySnapshot {
                key: key("n9007199254740000"),
                state,
            }],
            terms: Terms::of(Mode::Temporary),
            value: b"",
            wait: None,
            form: Form::Sequence,
            in_command: true,
        }))
    };
    let taken = Reply::Refused(Refusal::SequenceTaken);
    let mut server = Server::default();
    assert_eq!(make(&mut server, KeyState::Other), taken);
    let mut server = Server::default();
    server.acquire(1, "n9007199254740000", LOCK);
    assert_eq!(make(&mut server, KeyState::Lock), taken);
    let mut server = Server::default();
    assert!(matches!(
        make(&mut server, KeyState::Absent),
        Reply::Made { .. }
    ));
}

/// Of twenty who shared a lock ten are left, which have ended; then the lock is made anew, and taken away.
#[test]
fn a_token_that_is_replaced_is_found_no_more() {
    let shared = |number: u8| match held(number, "k", Mode::Shared) {
        SessionRecord::Held(held) => SessionRecord::Held(Held {
            token: Token(held.token.0 + u64::from(number)),
            ..held
        }),
        other => other,
    };
    let mut server = Server::replica(&[]);
    for number in 1..=20 {
        server.hear(&[session(number), shared(number)]);
    }
    for number in 1..=10_u64 {
        server.tell(Event::SessionRecord(&SessionRecord::Freed {
            session: SessionId(number),
            key: key("k").to_owned(),
            label: Box::default(),
            token: None,
        }));
    }
    for number in 11..=20_u64 {
        let ended = SessionRecord::SessionEnded(SessionId(number));
        server.tell(Event::SessionRecord(&ended));
    }
    server.tell(Event::Inherited {
        key: key("k"),
        mode: Mode::Shared,
        token: Some(Token(1 << 31)),
    });
    server.tell(Event::Gone {
        key: key("k"),
        by: Cause::Server,
        why: Loss::Deleted,
    });
}

/// What a million keys leave to be done in one database holds up nobody in another one.
#[test]
fn who_waits_is_served_though_a_flush_is_not_over() {
    const STEPS: usize = 64;
    let other = Key {
        db: Db(1),
        name: b"k",
    };
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: STEPS,
        ..Limits::default()
    });
    let ask = |server: &mut Server, number, key: Key<'_>, state| {
        server.queue(number, &[KeySnapshot { key, state }], Terms::of(LOCK), None);
    };
    for number in 0..10 * STEPS {
        let (db, name) = (Db(0), number.to_string());
        let name = name.as_bytes();
        ask(&mut server, 1, Key { db, name }, KeyState::Absent);
    }
    ask(&mut server, 2, other, KeyState::Absent);
    ask(&mut server, 3, other, KeyState::Lock);
    server.tell(Event::Flushed {
        db: Some(Db(0)),
        by: Cause::Server,
    });
    server.tell(Event::Ended { client: client(2) });
    server.tell(Event::Work { steps: STEPS });
    assert!(server.engine.is_flushing());
    assert_eq!(server.engine.holders(other).to_vec(), [client(3)]);
}

/// The waits that a connection leaves are many; the key that it held is handed over all the same.
#[test]
fn who_waits_is_served_though_many_waits_are_dead() {
    const STEPS: usize = 64;
    let mut server = Server::default();
    server.acquire(2, "k", LOCK);
    server.acquire(3, "k", LOCK);
    for number in 0..10 * STEPS {
        let (db, name) = (Db(0), format!("watched {number}"));
        let (key, state) = (
            Key {
                db,
                name: name.as_bytes(),
            },
            KeyState::Absent,
        );
        server.tell(Event::Watch {
            client: client(2),
            seen: &[KeySnapshot { key, state }],
        });
    }
    server.tell(Event::Ended { client: client(2) });
    server.tell(Event::Work { steps: STEPS });
    assert!(server.engine.dead_waits() > 0);
    assert_eq!(server.engine.holders(key("k")).to_vec(), [client(3)]);
}

/// The grace of a session is over, and a connection has ended: of both something is released by one work.
#[test]
fn what_a_work_hands_over_is_known_before() {
    let mut server = Server::default();
    server.start(1, 1);
    for (holder, waiter, name) in [(1, 3, "a"), (2, 4, "b")] {
        server.acquire(holder, name, LOCK);
        server.acquire(waiter, name, LOCK);
    }
    server.reply(Event::Detach { client: client(1) });
    server.tell(Event::Ended { client: client(2) });
    server.now = server.now.after_ms(GRACE_MS);
    let known = server.engine.keys_about_to_be_served(server.now, 1);
    server.tell(Event::Work { steps: 1 });
    let is_handed_over = |name: &&'static str| {
        let holders = server.engine.holders(key(name));
        holders.contains(&client(3)) || holders.contains(&client(4))
    };
    let handed_over: Vec<_> = ["a", "b"].into_iter().filter(is_handed_over).collect();
    assert!(!handed_over.is_empty());
    for name in handed_over {
        assert!(known.contains(&key(name).to_owned()), "{name}");
    }
}

/// The replica has gone that more grants want than were withdrawn at once.
#[test]
fn what_a_work_withdraws_the_next_one_hands_over() {
    let awaited = [(10, "0"), (11, "1"), (12, "2"), (13, "3")];
    let mut server = Server::with_pending(awaited.len(), 4);
    for (number, name) in awaited {
        server.acquire(number, name, LOCK);
    }
    server.tell(Event::Replicas { count: 0 });
    let is_handed_over = |server: &Server, number, name| {
        let holders = server.engine.holders(key(name));
        holders.contains(&client(number))
    };
    for _ in awaited {
        let known = server.engine.keys_about_to_be_served(server.now, 64);
        let before = awaited.map(|(number, name)| is_handed_over(&server, number, name));
        server.tell(Event::Work { steps: 64 });
        for ((number, name), before) in awaited.into_iter().zip(before) {
            let is_known = known.contains(&key(name).to_owned());
            assert!(
                before || is_known || !is_handed_over(&server, number, name),
                "{name}"
            );
        }
    }
    assert!(
        awaited
            .into_iter()
            .all(|(number, name)| is_handed_over(&server, number, name))
    );
}

/// Keys of these names, which nobody has.
fn free(names: &[String]) -> Vec<KeySnapshot<'_>> {
    let seen = names.iter().map(|name| KeySnapshot {
        key: Key {
            db: Db(0),
            name: name.as_bytes(),
        },
        state: KeyState::Absent,
    });
    seen.collect()
}

/// Client 1 takes more locks than a work has steps for, whose leases are over at once, before each of some works.
fn work_while_leases_end(server: &mut Server) {
    const STEPS: usize = 64;
    for round in 0..10 {
        for number in 0..2 * STEPS {
            let name = format!("{round}:{number}");
            let terms = Terms {
                lease_ms: Some(1),
                ..Terms::of(LOCK)
            };
            server.queue(1, &free(&[name]), terms, None);
        }
        server.pass(2);
        server.tell(Event::Work { steps: STEPS });
    }
}

/// A work that has one step left for what is ready grants a request for several keys, too.
#[test]
fn who_waits_for_several_keys_is_served_though_leases_end_all_the_time() {
    let mut server = Server::default();
    server.acquire(2, "k", LOCK);
    let names = ["k", "other"].map(str::to_owned);
    let mut seen = free(&names);
    seen[0].state = KeyState::Lock;
    server.queue(3, &seen, Terms::of(LOCK), None);
    server.tell(Event::Ended { client: client(2) });
    work_while_leases_end(&mut server);
    assert_eq!(server.engine.holders(key("k")).to_vec(), [client(3)]);
}

/// All of them are of one key, which is renamed.
#[test]
fn grants_of_a_renamed_key_are_withdrawn_in_slices() {
    const GRANTS: usize = 64;
    let mut server = Server::with_pending(0, 64);
    for grant in 0..GRANTS {
        let label = grant.to_string();
        let terms = Terms {
            label: label.as_bytes(),
            acks: Some(ONE_REPLICA),
            ..Terms::of(Mode::Shared)
        };
        let state = match grant {
            0 => KeyState::Absent,
            _ => KeyState::Lock,
        };
        let key = key("a");
        server.queue(1, &[KeySnapshot { key, state }], terms, None);
    }
    assert_eq!(server.engine.gauges().grants_pending, GRANTS);
    server.tell(Event::MovedFrom { key: key("a") });
    server.tell(Event::MovedTo {
        key: key("b"),
        by: Cause::Server,
    });
    assert_eq!(server.engine.gauges().grants_pending, GRANTS - 64 / 4);
    for _ in 0..4 {
        server.pass(1000);
    }
    server.work();
    assert_eq!(server.engine.gauges().grants_pending, 0);
    assert_eq!(server.holds(), (0, 0));
}

/// A flush took a key that very many share.
#[test]
fn those_who_shared_a_flushed_key_lose_it_in_slices() {
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: 8,
        ..Limits::default()
    });
    for name in ["a", "b", "c", "d"] {
        for number in 1..=8 {
            server.acquire(number, name, Mode::Shared);
        }
    }
    server.tell(Event::Flushed {
        db: None,
        by: Cause::Server,
    });
    assert_eq!(server.engine.gauges().holds, 4 * 8 - 8);
}

#[test]
fn who_waits_is_served_though_leases_end_all_the_time() {
    let mut server = Server::default();
    server.acquire(2, "k", LOCK);
    server.acquire(3, "k", LOCK);
    server.tell(Event::Ended { client: client(2) });
    work_while_leases_end(&mut server);
    assert_eq!(server.engine.holders(key("k")).to_vec(), [client(3)]);
}

#[test]
fn temporary_keys_are_renewed_though_leases_end_all_the_time() {
    let mut server = Server::default();
    server.engine.set_backstop(60_000);
    server.acquire(2, "k", Mode::Temporary);
    server.tell(Event::RenewAll);
    server.orders.clear();
    work_while_leases_end(&mut server);
    let is_renewal = |order: &Effect| matches!(order, Effect::Renew { .. });
    assert!(server.orders.iter().any(is_renewal));
}

#[test]
fn waits_end_in_time_though_very_many_grants_are_withdrawn() {
    let mut server = Server::with_pending(1000, 64);
    server.acquire(9, "k", LOCK);
    server.queue(2, &HELD, Terms::of(LOCK), Some(10));
    server.pass(1000);
    assert!(server.engine.gauges().grants_pending > 0);
    assert_eq!(server.engine.gauges().waiters, 0);
}

/// Another module may delete a key without an event: then whoever asks next shows that it is gone.
#[test]
fn who_waits_for_a_key_is_granted_it_when_somebody_sees_that_it_is_gone() {
    let seen = |state| {
        [KeySnapshot {
            key: key("k"),
            state,
        }]
    };
    let look: [fn(&mut Server); 2] = [
        |server| {
            server.ask(2, "k", KeyState::Absent, Terms::of(Mode::Temporary));
        },
        |server| {
            server.tell(Event::Watch {
                client: client(2),
                seen: &[KeySnapshot {
                    key: key("k"),
                    state: KeyState::Absent,
                }],
            });
        },
    ];
    for look in look {
        let mut server = Server::default();
        server.queue(1, &seen(KeyState::Other), Terms::of(Mode::Temporary), None);
        look(&mut server);
        server.work();
        assert_eq!(server.engine.holders(key("k")).to_vec(), [client(1)]);
    }
}

/// It takes its steps for each key.
#[test]
fn grants_of_many_keys_are_withdrawn_in_slices() {
    const GRANTS: usize = 16;
    let mut server = Server::with_pending(0, 64);
    for grant in 0..GRANTS {
        let names: Vec<_> = (0..MANY)
            .map(|number| format!("{grant}:{number}"))
            .collect();
        let label = grant.to_string();
        let terms = Terms {
            label: label.as_bytes(),
            acks: Some(ONE_REPLICA),
            ..Terms::of(LOCK)
        };
        server.queue(1, &free(&names), terms, None);
    }
    assert_eq!(server.engine.gauges().grants_pending, GRANTS);
    server.tell(Event::Detach { client: client(1) });
    assert_eq!(server.engine.gauges().grants_pending, GRANTS - 1);
}

/// Client 1 waits in its session by so many requests, each for twenty keys of which one is held.
fn waits_for_many_in_its_session(requests: usize) -> Server {
    let mut server = Server::default();
    server.acquire(9, "held", LOCK);
    server.start(1, 1);
    for request in 0..requests {
        let label = request.to_string();
        let terms = Terms {
            label: label.as_bytes(),
            ..Terms::of(LOCK)
        };
        server.queue_for_many(1, &format!("{request}:"), terms);
    }
    server
}

/// Each of them costs more than a work has steps.
#[test]
fn who_waits_is_served_though_many_queues_are_to_be_looked_at() {
    const STEPS: usize = 64;
    let mut server = waits_for_many_in_its_session(STEPS);
    server.acquire(2, "k", LOCK);
    server.acquire(3, "k", LOCK);
    server.tell(Event::Detach { client: client(1) });
    server.tell(Event::Ended { client: client(2) });
    server.tell(Event::Work { steps: STEPS });
    assert!(server.engine.has_ready());
    assert_eq!(server.engine.holders(key("k")).to_vec(), [client(3)]);
}

/// It can be served only where it is first everywhere.
#[test]
fn of_a_wait_that_is_another_owners_now_one_queue_is_looked_at() {
    let mut server = waits_for_many_in_its_session(3);
    server.tell(Event::Detach { client: client(1) });
    let looked_at = server
        .engine
        .keys_about_to_be_served(server.now, usize::MAX);
    assert_eq!(looked_at.len(), 3, "{looked_at:?}");
}

/// Twenty keys of which others are free, and one is held: whoever waits for all of them behind another such request.
fn two_wait_for_many() -> Server {
    let mut server = Server::default();
    server.acquire(1, "held", LOCK);
    for number in [2, 3] {
        server.queue_for_many(number, "", Terms::of(LOCK));
    }
    server
}

const MANY: usize = 20;

/// Nobody can be served for it, since another request is still first everywhere.
#[test]
fn who_leaves_a_queue_in_which_it_was_not_first_leaves_nothing_to_do() {
    let mut server = two_wait_for_many();
    server.tell(Event::Cancel {
        client: client(3),
        key: key("0"),
        label: b"",
    });
    assert_eq!(server.engine.gauges().waiters, 1);
    assert!(!server.engine.has_ready());
}

/// Whose turn comes in several of its queues at once.
#[test]
fn a_request_for_many_keys_that_cannot_be_granted_is_looked_at_once() {
    let mut server = two_wait_for_many();
    server.tell(Event::Cancel {
        client: client(2),
        key: key("0"),
        label: b"",
    });
    server.tell(Event::Work { steps: MANY });
    assert!(!server.engine.has_ready());
}

#[test]
fn requests_for_many_keys_that_cannot_be_granted_take_a_step_for_each_key() {
    const REQUESTS: usize = 8;
    let mut server = waits_for_many_in_its_session(REQUESTS);
    server.tell(Event::Detach { client: client(1) });
    for looked_at in 1..=REQUESTS {
        server.tell(Event::Work { steps: MANY });
        assert_eq!(
            server.engine.has_ready(),
            looked_at < REQUESTS,
            "{looked_at}"
        );
    }
}

/// `k` is a lock that somebody holds.
const HELD: [KeySnapshot<'static>; 1] = [KeySnapshot {
    key: Key {
        db: Db(0),
        name: b"k",
    },
    state: KeyState::Lock,
}];

/// Very many that are over at the same time.
#[test]
fn waits_end_in_slices() {
    const STEPS: usize = 64;
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: STEPS,
        ..Limits::default()
    });
    server.acquire(1, "k", LOCK);
    for number in 0..STEPS + 1 {
        let label = number.to_string();
        let terms = Terms {
            label: label.as_bytes(),
            ..Terms::of(LOCK)
        };
        server.queue(2, &HELD, terms, Some(10));
    }
    server.pass(10);
    assert_eq!(server.engine.gauges().waiters, 1);
    assert!(
        server
            .engine
            .deadline()
            .is_some_and(|end| end <= server.now)
    );
    server.pass(0);
    assert_eq!(server.engine.gauges().waiters, 0);
}

/// It waited for its own session's hold, which came there by a rename; then it is another one's.
#[test]
fn who_leaves_its_session_waits_for_it_no_more() {
    let leave: [fn(&mut Server); 2] = [
        |server| server.tell(Event::Detach { client: client(1) }),
        |server| assert_eq!(server.resume(3, 1), Reply::Integer(1)),
    ];
    for leave in leave {
        let mut server = Server::default();
        server.start(1, 1);
        server.acquire(1, "a", Mode::Shared);
        server.acquire(2, "k", LOCK);
        server.queue(1, &HELD, Terms::of(Mode::Shared), None);
        server.tell(Event::MovedFrom { key: key("a") });
        server.tell(Event::MovedTo {
            key: key("k"),
            by: Cause::Server,
        });
        server.work();
        assert_eq!(server.engine.gauges().waiters, 1);
        leave(&mut server);
        server.work();
        assert_eq!(server.engine.gauges().waiters, 0);
    }
}
