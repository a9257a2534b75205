//! Each limit is reached exactly: what fits is granted, one more is refused, and what is there already counts once.

use tether::engine::{
    Acquire, Cause, ClientId, Db, Digest, Effect, Engine, Event, Form, Key, KeySnapshot, KeyState,
    Limits, Mode, Moment, Raise, Refusal, Reply, Start, Terms, Token, Wait, WatchPrefix,
};

const CLIENT: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);

fn key(name: &str) -> Key<'_> {
    let (db, name) = (Db(0), name.as_bytes());
    Key { db, name }
}

struct Server(Engine);

impl Server {
    fn with(limits: Limits) -> Server {
        let mut engine = Engine::default();
        engine.set_limits(limits);
        Server(engine)
    }

    fn tell(&mut self, event: Event<'_>) -> Option<Reply> {
        let mut effects = Vec::new();
        self.0.handle(Moment(1), event, &mut effects);
        self.0.check_invariants();
        let mut effects = effects.into_iter();
        effects.find_map(|effect| match effect {
            Effect::Reply(reply) => Some(reply),
            _ => None,
        })
    }

    /// The refusal, if it is one.
    fn refuses(&mut self, event: Event<'_>) -> Option<Refusal> {
        match self.tell(event) {
            Some(Reply::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }

    fn watch(&mut self, client: ClientId, names: &[&str]) -> Option<Refusal> {
        let seen = names.iter().map(|name| {
            let (key, state) = (key(name), KeyState::Absent);
            KeySnapshot { key, state }
        });
        let seen = &seen.collect::<Vec<_>>()[..];
        self.refuses(Event::Watch { client, seen })
    }

    fn watch_prefix(&mut self, client: ClientId, prefix: &str) -> Option<Refusal> {
        self.refuses(Event::WatchPrefix(WatchPrefix {
            client,
            prefix: key(prefix),
            goes_on: false,
            keys_only: false,
            sight: 7,
            at_most: usize::MAX,
        }))
    }

    fn acquire(&mut self, names: &[(&str, KeyState)], terms: Terms<&[u8]>, waits: bool) -> Reply {
        self.acquire_by(CLIENT, names, terms, waits)
    }

    fn acquire_by(
        &mut self,
        client: ClientId,
        names: &[(&str, KeyState)],
        terms: Terms<&[u8]>,
        waits: bool,
    ) -> Reply {
        let seen = names.iter().map(|(name, state)| {
            let (key, state) = (key(name), *state);
            KeySnapshot { key, state }
        });
        let reply = self.tell(Event::Acquire(Acquire {
            client,
            seen: &seen.collect::<Vec<_>>(),
            terms,
            value: b"",
            wait: waits.then_some(Wait {
                limit_ms: None,
                push: false,
            }),
            form: Form::Lock,
            in_command: true,
        }));
        reply.unwrap_or(Reply::Null)
    }
}

/// Those that it holds and those that it waits for, together.
#[test]
fn a_connection_has_so_many_keys() {
    let limit = 4;
    let mut server = Server::with(Limits {
        keys_per_client: limit,
        // So that a flush is not swept at once.
        steps_per_event: 1,
        ..Limits::default()
    });
    let terms = || Terms::of(Mode::Exclusive);
    let refused = Reply::Refused(Refusal::TooManyKeys { limit });
    server.acquire_by(OTHER, &[("its", KeyState::Absent)], terms(), false);
    for name in ["a", "b"] {
        let granted = server.acquire(&[(name, KeyState::Absent)], terms(), false);
        assert!(matches!(granted, Reply::Integer(token) if token > 0));
    }
    let waits = server.acquire(&[("its", KeyState::Lock)], terms(), true);
    assert_eq!(waits, Reply::Null);
    let two = ["c", "d"].map(|name| (name, KeyState::Absent));
    assert_eq!(server.acquire(&two, terms(), false), refused);
    let granted = server.acquire(&two[..1], terms(), false);
    assert!(matches!(granted, Reply::Integer(token) if token > 0));
    assert_eq!(server.acquire(&two[1..], terms(), false), refused);
    // What a flush took is held no longer.
    let (db, by) = (None, Cause::Server);
    server.tell(Event::Flushed { db, by });
    assert!(server.0.is_flushing());
    let granted = server.acquire(&two[1..], terms(), false);
    assert!(matches!(granted, Reply::Integer(token) if token > 0));
}

#[test]
fn users_have_so_many_sessions_and_all_together_so_many() {
    let mut server = Server::with(Limits {
        sessions: 3,
        sessions_per_user: 2,
        ..Limits::default()
    });
    let mut started = 0;
    let mut start = |user: &[u8]| {
        started += 1;
        server.refuses(Event::Start(Start {
            client: ClientId(started),
            secret: b"",
            digest: Digest([started as u8; 32]),
            grace_ms: 1000,
            user,
        }))
    };
    let refused = |limit, of_user| Some(Refusal::TooManySessions { limit, of_user });
    assert_eq!([start(b"a"), start(b"a")], [None, None]);
    assert_eq!(start(b"a"), refused(2, true));
    assert_eq!(start(b"b"), None);
    assert_eq!(
        [start(b"a"), start(b"b")],
        [refused(3, false), refused(3, false)]
    );
}

#[test]
fn a_database_has_watched_prefixes_of_so_many_lengths() {
    let limit = 32;
    let mut server = Server::with(Limits {
        prefixes_per_client: u32::MAX,
        ..Limits::default()
    });
    for length in 1..=limit {
        assert_eq!(server.watch_prefix(CLIENT, &"a".repeat(length)), None);
    }
    let refused = Some(Refusal::TooManyPrefixLengths { limit });
    assert_eq!(server.watch_prefix(CLIENT, &"a".repeat(limit + 1)), refused);
    assert_eq!(server.watch_prefix(CLIENT, "b"), None, "as long as another");
    let (client, prefix) = (CLIENT, Some(key("aa")));
    server.tell(Event::UnwatchPrefix { client, prefix });
    assert_eq!(server.watch_prefix(CLIENT, &"a".repeat(limit + 1)), None);
    assert_eq!(server.watch_prefix(CLIENT, "aa"), refused);
}

#[test]
fn a_connection_watches_so_many_keys_and_prefixes() {
    let limit = 3;
    let mut server = Server::with(Limits {
        watches_per_client: limit,
        ..Limits::default()
    });
    let refused = Some(Refusal::TooManyWatches { limit });
    assert_eq!(server.watch(CLIENT, &["a", "b", "a"]), None);
    assert_eq!(server.watch(CLIENT, &["c", "d"]), refused);
    assert_eq!(server.watch(CLIENT, &["a", "b", "c", "c"]), None);
    assert_eq!(server.watch(CLIENT, &["d"]), refused);
    assert_eq!(server.watch_prefix(CLIENT, "p"), refused);
    assert_eq!(server.watch(OTHER, &["a", "b"]), None);
    assert_eq!(server.watch_prefix(OTHER, "p"), None);
    assert_eq!(server.watch(OTHER, &["c"]), refused);
    assert_eq!(server.watch_prefix(OTHER, "p"), None, "it has that one");
}

#[test]
fn a_connection_watches_so_many_prefixes() {
    let limit = 2;
    let mut server = Server::with(Limits {
        prefixes_per_client: limit,
        ..Limits::default()
    });
    let refused = Some(Refusal::TooManyPrefixes { limit });
    let asked = ["a", "b", "a", "c"].map(|prefix| server.watch_prefix(CLIENT, prefix));
    assert_eq!(asked, [None, None, None, refused]);
    assert_eq!(server.watch_prefix(OTHER, "c"), None);
}

#[test]
fn the_names_that_a_connection_watches_have_so_many_bytes() {
    let limit = 10;
    let mut server = Server::with(Limits {
        watch_bytes_per_client: limit,
        ..Limits::default()
    });
    let of_client = true;
    let refused = Some(Refusal::TooManyWatchBytes { limit, of_client });
    assert_eq!(server.watch(CLIENT, &["abcd", "abcd"]), None);
    assert_eq!(server.watch_prefix(CLIENT, "abc"), None);
    assert_eq!(server.watch(CLIENT, &["xyz!"]), refused);
    assert_eq!(server.watch_prefix(CLIENT, "xyz!"), refused);
    assert_eq!(server.watch(CLIENT, &["abcd", "xyz"]), None);
    assert_eq!(server.watch(CLIENT, &["x"]), refused);
    assert_eq!(server.watch_prefix(CLIENT, "x"), refused);
    assert_eq!(server.watch_prefix(CLIENT, "abc"), None, "it has that one");
    assert_eq!(server.watch_prefix(OTHER, "0123456789"), None);
    assert_eq!(server.watch_prefix(OTHER, "x"), refused);
}

#[test]
fn all_watched_names_have_so_many_bytes() {
    let limit = 10;
    let limits = Limits {
        watch_bytes: limit,
        ..Limits::default()
    };
    let mut server = Server::with(limits);
    let of_client = false;
    let refused = Some(Refusal::TooManyWatchBytes { limit, of_client });
    assert_eq!(server.watch(CLIENT, &["abcd"]), None);
    assert_eq!(server.watch(OTHER, &["abcd"]), None, "it counts once");
    assert_eq!(server.watch_prefix(OTHER, "abc"), None);
    assert_eq!(server.watch_prefix(CLIENT, "abc"), None, "it counts once");
    assert_eq!(server.watch(OTHER, &["xyz!"]), refused);
    assert_eq!(server.watch_prefix(OTHER, "xyz!"), refused);
    assert_eq!(server.watch(OTHER, &["abcd", "xyz"]), None);
    assert_eq!(server.watch(CLIENT, &["x"]), refused);
    assert_eq!(server.watch_prefix(CLIENT, "x"), refused);
    assert_eq!(server.watch(CLIENT, &["abcd", "xyz"]), None);
    let mut server = Server::with(limits);
    assert_eq!(server.watch(CLIENT, &["abcd"]), None);
    assert_eq!(server.watch_prefix(CLIENT, "abc"), None);
    assert_eq!(server.watch_prefix(CLIENT, "xyz"), None);
    assert_eq!(server.watch_prefix(CLIENT, "x"), refused);
    assert_eq!(server.watch_prefix(OTHER, "abc"), None, "it counts once");
    // Once the limit is lower, what counts already is still watched.
    server.0.set_limits(Limits {
        watch_bytes: 1,
        ..limits
    });
    assert_eq!(server.watch_prefix(OTHER, "xyz"), None, "it counts once");
}

#[test]
fn a_token_is_raised_to_the_last_one_that_is_allowed() {
    let mut server = Server::with(Limits::default());
    let absent = [("a", KeyState::Absent)];
    let granted = server.acquire(&absent, Terms::of(Mode::Exclusive), false);
    assert!(matches!(granted, Reply::Integer(token) if token > 0));
    let last = server.0.last_token();
    let most = Token(last.0 + 10);
    let raise = |server: &mut Server, token| {
        server.tell(Event::Raise(Raise {
            client: CLIENT,
            key: key("a"),
            label: b"",
            token,
            most,
        }))
    };
    let ahead = Refusal::TokenAhead { most };
    let too_far = raise(&mut server, Token(most.0 + 1));
    assert_eq!(too_far, Some(Reply::Refused(ahead)));
    let raised = Some(Reply::Integer(most.0 as i64));
    assert_eq!(raise(&mut server, most), raised);
    assert_eq!(raise(&mut server, last), raised, "it is no lower");
    assert_eq!(raise(&mut server, most), raised);
}

/// A request that would wait for its own task's lock is refused for another reason than one that blocks its connection behind
/// another of its labels.
#[test]
fn who_would_wait_for_itself_is_told_whether_its_task_holds_the_lock_or_its_connection() {
    fn by<'a>(label: &'a str, task: Option<&'a str>) -> Terms<&'a [u8]> {
        Terms {
            label: label.as_bytes(),
            task: task.map(str::as_bytes),
            ..Terms::of(Mode::Exclusive)
        }
    }
    let refusal = |held: Terms<&[u8]>, asked: Terms<&[u8]>| {
        let mut server = Server::with(Limits::default());
        server.acquire(&[("a", KeyState::Absent)], held, false);
        match server.acquire(&[("a", KeyState::Lock)], asked, true) {
            Reply::Refused(Refusal::Deadlock { .. }) => "deadlock",
            Reply::Refused(Refusal::Standstill(_)) => "standstill",
            other => panic!("{other:?}"),
        }
    };
    let [t, u] = ["t", "u"].map(Some);
    assert_eq!(refusal(by("1", None), by("2", None)), "standstill");
    assert_eq!(refusal(by("1", t), by("2", t)), "deadlock");
    assert_eq!(refusal(by("1", t), by("2", u)), "standstill");
    // A task of that name on another connection is another task.
    let mut server = Server::with(Limits::default());
    server.acquire(&[("a", KeyState::Absent)], by("1", t), false);
    server.acquire_by(OTHER, &[("b", KeyState::Absent)], by("1", u), false);
    let both = ["a", "b"].map(|name| (name, KeyState::Lock));
    let refused = server.acquire(&both, by("2", u), true);
    let standstill = matches!(refused, Reply::Refused(Refusal::Standstill(_)));
    assert!(standstill, "{refused:?}");
}

/// Each waits for what the other one holds: that is no standstill of one connection.
#[test]
fn who_would_close_a_circle_of_two_is_told_of_both() {
    let mut server = Server::with(Limits::default());
    let locked = [("a", KeyState::Lock), ("b", KeyState::Lock)];
    let terms = || Terms::of(Mode::Exclusive);
    server.acquire_by(CLIENT, &[("a", KeyState::Absent)], terms(), false);
    server.acquire_by(OTHER, &[("b", KeyState::Absent)], terms(), false);
    let waits = server.acquire_by(CLIENT, &locked[1..], terms(), true);
    assert_eq!(waits, Reply::Null);
    match server.acquire_by(OTHER, &locked[..1], terms(), true) {
        Reply::Refused(Refusal::Deadlock { cycle }) => assert_eq!(cycle.len(), 2),
        other => panic!("{other:?}"),
    }
}

/// Of a lock that others hold too, any token up to the last one may be another's.
#[test]
fn a_token_is_raised_to_one_that_no_other_holder_had() {
    let raised = |mode: Mode| {
        let mut server = Server::with(Limits::default());
        let first = server.acquire(&[("a", KeyState::Absent)], Terms::of(mode), false);
        let Reply::Integer(first) = first else {
            panic!("{first:?}");
        };
        for name in ["b", "c", "d"] {
            let absent = [(name, KeyState::Absent)];
            server.acquire(&absent, Terms::of(Mode::Exclusive), false);
        }
        let (token, most) = (Token(first as u64 + 1), server.0.last_token());
        let reply = server.tell(Event::Raise(Raise {
            client: CLIENT,
            key: key("a"),
            label: b"",
            token,
            most,
        }));
        match reply {
            Some(Reply::Integer(token)) => token - first,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(raised(Mode::Exclusive), 1);
    assert_eq!(raised(Mode::Shared), 4);
}
