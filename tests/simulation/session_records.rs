//! What is made of what another server told, where it does not fit what is known here; and who hears of it. (More in
//! `former.rs`.)

use crate::former::{GRACE_MS, LOCK, NO_SESSION, Server, client, held, key, session};
use tether::engine::{
    Attributes, Cause, Effect, Event, KeySnapshot, KeyState, Limits, Loss, Mode, News, Refusal,
    Reply, SessionId, SessionRecord, Terms, Token,
};

/// Watches keys that are not there.
fn watch(server: &mut Server, number: u64, names: &[&'static str]) {
    let state = KeyState::Absent;
    let absent = |name: &&'static str| KeySnapshot {
        key: key(name),
        state,
    };
    let seen: Vec<_> = names.iter().map(absent).collect();
    let (client, seen) = (client(number), &*seen);
    server.tell(Event::Watch { client, seen });
    server.orders.clear();
}

/// The names of the keys of which a watcher was told that they are there.
fn added(server: &Server) -> Vec<String> {
    let added = server.orders.iter().filter_map(|order| match order {
        Effect::Push { push, .. } if matches!(push.news(), News::Added) => {
            Some(push.key.name.escape_ascii().to_string())
        }
        _ => None,
    });
    added.collect()
}

/// Who was granted what it stood still for.
fn answered(server: &Server) -> Vec<u64> {
    let answered = server.orders.iter().filter_map(|order| match order {
        Effect::Answer {
            client,
            granted: Some(_),
            ..
        } => Some(client.0),
        _ => None,
    });
    let mut answered: Vec<_> = answered.collect();
    answered.sort_unstable();
    answered
}

/// It removes `a` and `b`, and orders nothing else.
fn removes_both(server: &mut Server) {
    server.work();
    let gone = ["a", "b"].map(|name| Effect::Remove(key(name).to_owned()));
    assert_eq!(server.orders.len(), 2, "{:?}", server.orders);
    assert!(gone.iter().all(|one| server.orders.contains(one)));
}

#[test]
fn a_replicas_watchers_hear_of_what_its_master_binds() {
    let mut server = Server::replica(&[session(1)]);
    watch(&mut server, 9, &["a", "b", "c"]);
    server.inherit("a", Mode::Temporary);
    server.hear(&[held(1, "b", LOCK), held(2, "c", LOCK)]);
    assert_eq!(added(&server), ["a", "b", "c"]);
}

#[test]
fn a_replica_that_changes_its_master_knows_what_sessions_hold() {
    let told = [
        session(1),
        held(1, "a", Mode::Temporary),
        held(1, "b", LOCK),
    ];
    let mut server = Server::replica(&told);
    server.inherit("c", Mode::Temporary);
    server.tell(Event::Demoted { redirect: false });
    server.tell(Event::Promoted);
    assert_eq!(server.resume(1, 1), Reply::Integer(2));
    server.orders.clear();
    server.work();
    assert_eq!(server.orders, [Effect::Remove(key("c").to_owned())]);
}

/// How often it was taken, and how often in another mode, survive the server.
#[test]
fn what_a_session_holds_is_told_with_its_depths() {
    let mut server = Server::default();
    server.start(1, 1);
    let attributes = Attributes {
        reentrant: true,
        ..Attributes::default()
    };
    for (mode, state) in [
        (LOCK, KeyState::Absent),
        (LOCK, KeyState::Lock),
        (Mode::Shared, KeyState::Lock),
        (LOCK, KeyState::Lock),
    ] {
        let terms = Terms {
            attributes,
            ..Terms::of(mode)
        };
        let asked = server.ask(1, "a", state, terms);
        assert!(matches!(asked, Reply::Integer(_)), "{asked:?}");
    }
    let depths = |server: &Server| {
        let saved = server.saved();
        saved.iter().find_map(|record| match record {
            SessionRecord::Held(held) => Some((held.depth, held.shared_below)),
            _ => None,
        })
    };
    assert_eq!(depths(&server), Some((3, 1)));
    assert_eq!(depths(&Server::replica(&server.saved())), Some((3, 1)));
}

/// What a flush took they have no longer, though the engine has not looked at each of it.
#[test]
fn a_session_is_counted_without_what_a_flush_took() {
    let counted = |ask: &dyn Fn(&mut Server) -> Reply| {
        let mut server = Server::default();
        server.start(1, 1);
        server.engine.set_limits(Limits {
            steps_per_event: 1,
            ..Limits::default()
        });
        for name in ["a", "b"] {
            server.acquire(1, name, LOCK);
        }
        let (db, by) = (None, Cause::Server);
        server.acquire(2, "c", LOCK);
        server.tell(Event::Flushed { db, by });
        assert!(server.engine.is_flushing());
        ask(&mut server)
    };
    let (client, session, later) = (client(1), SessionId(1), false);
    let none = Reply::Integer(0);
    let end = Event::EndSession { client, later };
    assert_eq!(counted(&|server| server.reply(end)), none);
    let kill = Event::KillSession { session, later };
    assert_eq!(counted(&|server| server.reply(kill)), none);
    assert_eq!(counted(&|server| server.resume(2, 1)), none);
}

/// Who is told of its end hears for what reason: a flush, and not its session's end.
#[test]
fn a_killed_session_is_told_of_each_loss_once() {
    let mut server = Server::default();
    server.start(1, 1);
    server.engine.set_limits(Limits {
        steps_per_event: 1,
        ..Limits::default()
    });
    for name in ["a", "b", "c"] {
        server.acquire(1, name, LOCK);
    }
    let (db, by) = (None, Cause::Server);
    server.tell(Event::Flushed { db, by });
    let mut lost = server.lost(1);
    server.acquire(1, "d", LOCK);
    let (session, later) = (SessionId(1), false);
    server.tell(Event::KillSession { session, later });
    while server.engine.is_flushing() {
        server.tell(Event::Reap { steps: 1 });
    }
    lost.extend(server.lost(1));
    lost.sort_by_key(|why| *why as usize);
    let mut expected = [Loss::Flushed, Loss::Flushed, Loss::Flushed, Loss::Ended];
    expected.sort_by_key(|why| *why as usize);
    assert_eq!(lost, expected);
}

/// A lock that a session holds has its grant's token; an orphan has that of the file.
#[test]
fn only_of_an_orphan_the_token_is_what_another_server_tells() {
    let saved = |server: &Server| {
        let saved = server.saved();
        saved.iter().find_map(|record| match record {
            SessionRecord::Held(held) => Some(held.token),
            _ => None,
        })
    };
    let told = Token(1 << 40);
    let inherit = |server: &mut Server, mode| {
        let (key, token) = (key("a"), Some(told));
        server.tell(Event::Inherited { key, mode, token });
    };
    let mut server = Server::replica(&[session(1), held(1, "a", LOCK)]);
    let its = saved(&server);
    inherit(&mut server, LOCK);
    assert!(its.is_some() && saved(&server) == its);
    let mut server = Server::default();
    server.acquire(1, "a", Mode::Temporary);
    let client = client(1);
    server.tell(Event::Ended { client });
    server.tell(Event::Demoted { redirect: false });
    inherit(&mut server, Mode::Temporary);
    assert_eq!(
        server
            .engine
            .temporary_keys()
            .next()
            .map(|(_, token)| token),
        Some(told)
    );
}

/// A master's connection holds it now, which cannot be unless the session has lost it.
#[test]
fn a_temporary_key_that_was_created_anew_is_no_sessions() {
    let its = [session(1), held(1, "a", Mode::Temporary)];
    let mut server = Server::replica(&its);
    server.inherit("a", Mode::Temporary);
    assert_eq!(server.holds(), (1, 0));
    let is_held = |record: &SessionRecord| matches!(record, SessionRecord::Held(_));
    assert!(!server.saved().iter().any(is_held));
}

#[test]
fn what_a_session_holds_that_nobody_knows_is_left_behind() {
    let mut server = Server::replica(&[held(1, "a", LOCK), held(1, "b", Mode::Temporary)]);
    assert_eq!(server.holds(), (1, 1));
    server.tell(Event::Promoted);
    removes_both(&mut server);
}

#[test]
fn of_two_sessions_that_cannot_both_hold_a_key_the_last_one_has_it() {
    let told = [
        session(1),
        session(2),
        held(1, "a", LOCK),
        held(2, "a", LOCK),
    ];
    let mut server = Server::replica(&told);
    assert_eq!(server.holds(), (0, 1));
    server.tell(Event::Promoted);
    assert_eq!(server.resume(1, 1), Reply::Integer(0));
    assert_eq!(server.resume(2, 2), Reply::Integer(1));
}

#[test]
fn who_waits_for_what_a_load_forgets_is_served() {
    let mut server = Server::default();
    server.start(1, 1);
    for (waiter, name) in [(2, "a"), (3, "b")] {
        server.acquire(1, name, LOCK);
        server.acquire(waiter, name, LOCK);
    }
    let client = client(1);
    server.tell(Event::Ended { client });
    server.pass(GRACE_MS);
    server.orders.clear();
    // The grace ends, one of the two is handed over, and the other one is left behind.
    server.tell(Event::Work { steps: 2 });
    assert_eq!(answered(&server).len(), 1);
    server.tell(Event::LoadBegins);
    server.tell(Event::LoadEnded);
    for name in ["a", "b"] {
        let seen = KeySnapshot {
            key: key(name),
            state: KeyState::Absent,
        };
        let gone = Loss::Deleted;
        server.tell(Event::Found { seen, gone });
    }
    server.work();
    assert_eq!(answered(&server), [2, 3]);
    assert_eq!(server.resume(4, 1), NO_SESSION);
}

#[test]
fn what_connections_held_before_there_was_a_master_goes_when_there_is_none() {
    let mut server = Server::default();
    server.acquire(1, "a", Mode::Temporary);
    server.acquire(1, "b", Mode::Shared);
    server.acquire(2, "b", Mode::Shared);
    server.tell(Event::Demoted { redirect: false });
    assert_eq!(server.holds(), (1, 1));
    server.tell(Event::Promoted);
    server.orders.clear();
    removes_both(&mut server);
}

/// Of its master's keys as of those that its own connections had until then: the stream may not tell of them again.
#[test]
fn who_gets_a_master_knows_the_tokens_of_temporary_keys() {
    let mut server = Server::default();
    server.acquire(1, "a", Mode::Temporary);
    server.acquire(2, "b", Mode::Temporary);
    server.acquire(3, "other", LOCK);
    let tokens = |server: &Server| {
        let all = server.engine.temporary_keys();
        all.map(|(_, token)| token).collect::<Vec<_>>()
    };
    let before = tokens(&server);
    assert_eq!(before.len(), 2);
    for _ in 0..2 {
        server.tell(Event::Demoted { redirect: false });
        assert_eq!(tokens(&server), before);
    }
}

#[test]
fn who_was_about_to_be_served_when_a_master_came_can_be_served_after_it() {
    let mut server = Server::default();
    let (by, why) = (Cause::Server, Loss::Deleted);
    for round in 0..2 {
        server.acquire(1, "a", LOCK);
        server.acquire(2, "a", LOCK);
        let gone = key("a");
        server.tell(Event::Gone { key: gone, by, why });
        if round == 0 {
            server.orders.clear();
            server.tell(Event::Demoted { redirect: false });
            let waiter = Effect::Answer {
                client: client(2),
                reply: Reply::Refused(Refusal::Unblocked),
                granted: None,
            };
            assert!(server.orders.contains(&waiter), "{:?}", server.orders);
            assert!(server.engine.look_up(key("a")).is_none());
            server.tell(Event::Promoted);
        }
    }
    server.orders.clear();
    server.work();
    assert_eq!(answered(&server), [2]);
}

/// Replicas know of a session's holds, and are told of no others' end.
#[test]
fn of_those_who_share_a_lock_replicas_are_told_when_a_session_gives_it_back() {
    let mut server = Server::replica(&[session(1), held(1, "a", Mode::Shared)]);
    server.tell(Event::Promoted);
    let reply = server.acquire(9, "a", Mode::Shared);
    assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
    let released = |server: &mut Server, number| {
        server.orders.clear();
        let released = server.reply(Event::Release {
            client: client(number),
            key: key("a"),
            label: b"",
            all: true,
        });
        assert_eq!(released, Reply::Integer(0));
        let is_replicated = |order: &Effect| matches!(order, Effect::Replicate(_));
        server.orders.iter().any(is_replicated)
    };
    assert!(!released(&mut server, 9));
    server.acquire(9, "a", Mode::Shared);
    server.resume(8, 1);
    assert!(released(&mut server, 8));
}
