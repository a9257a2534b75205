//! Temporary keys, watches and elections on a real server.

use crate::*;
use KeyChange::{Added, Deleted, Exists, Missing};
use futures_util::StreamExt;
use tether_client::{KeyChange, MemberChange, Presence, Watch, WatchEvent};

async fn next(watch: &mut Watch) -> (String, KeyChange) {
    let WatchEvent { key, change } = soon(watch.next()).await.unwrap();
    (String::from_utf8(key).unwrap(), change)
}

fn of(key: &str, change: KeyChange) -> (String, KeyChange) {
    (key.to_owned(), change)
}

fn watches(server: &Server) -> i64 {
    server.gauge("tether", "tether_watches")
}

fn temporary_keys(server: &Server) -> i64 {
    server.gauge("tether", "tether_temporary_keys")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_key_is_there_while_its_guard_is() {
    let server = Server::start();
    let (ann, bob) = (connect(&server).await, connect(&server).await);
    let key = soon(ann.temporary_key("job", "by ann").acquire())
        .await
        .unwrap();
    let mut admin = server.resp2();
    assert_eq!(admin.run("GET job").text(), "by ann");
    let taken = soon(bob.temporary_key("job", "x").no_wait().acquire()).await;
    assert_eq!(taken.err(), Some(Error::Taken));
    let in_vain = bob.temporary_key("job", "x").wait(A_MOMENT).acquire();
    assert_eq!(soon(in_vain).await.err(), Some(Error::Taken));
    let waits = tokio::spawn(bob.temporary_key("job", "by bob").acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    let token = key.token();
    assert_eq!(soon(key.release()).await, Ok(()));
    let next = soon(waits).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(admin.run("GET job").text(), "by bob");
    // The owner is the connection, whatever the task.
    let again = tokio::spawn(bob.temporary_key("job", "x").acquire());
    let again = soon(again).await.unwrap();
    assert!(matches!(again.err(), Some(Error::Deadlock(_))));
    admin.run("DEL job");
    assert_eq!(soon(next.lost()).await, Loss::Told("deleted".into()));
    // A wait that is given up leaves no place, and the key that is made meanwhile does not stay.
    let key = soon(ann.temporary_key("job", "x").acquire()).await.unwrap();
    let waits = tokio::spawn(bob.temporary_key("job", "x").acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    waits.abort();
    drop(key);
    eventually_equal("keys", 0, || temporary_keys(&server));
    eventually_equal("waiters", 0, || waiters(&server));
    eventually_equal("unanswered requests", true, || bob.is_idle());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_keys_of_a_session_survive_a_broken_connection() {
    let server = Server::start();
    let locks = with_session(&server).await;
    let kept = soon(locks.temporary_key("kept", "x").acquire()).await;
    let lost = soon(locks.temporary_key("lost", "x").acquire()).await;
    let (kept, lost) = (kept.unwrap(), lost.unwrap());
    server
        .resp2()
        .run_all(&["MULTI", "CLIENT KILL TYPE normal", "DEL lost", "EXEC"]);
    assert_eq!(soon(lost.lost()).await, Loss::Connection);
    assert_eq!(kept.check(), Ok(()));
    assert_eq!(soon(kept.release()).await, Ok(()));
    assert_eq!(server.resp2().run("EXISTS kept").number(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_states_and_then_every_change() {
    let server = Server::start();
    let locks = connect(&server).await;
    let mut admin = server.resp2();
    admin.run("SET there x");
    let mut watch = locks.watch(["there", "new"]);
    let mut states = [next(&mut watch).await, next(&mut watch).await];
    states.sort_by_key(|(key, _)| key.clone());
    assert_eq!(states, [of("new", Missing), of("there", Exists)]);
    // A second one of the same key, which knows its state at once.
    let mut other = locks.watch(["there"]);
    assert_eq!(next(&mut other).await, of("there", Exists));
    assert_eq!(watches(&server), 2);
    let key = soon(locks.temporary_key("new", "x").acquire())
        .await
        .unwrap();
    assert_eq!(next(&mut watch).await, of("new", Added));
    drop(key);
    assert_eq!(next(&mut watch).await, of("new", Deleted));
    drop(watch);
    eventually_equal("watches", 1, || watches(&server));
    admin.run("DEL there");
    assert_eq!(next(&mut other).await, of("there", Deleted));
    drop(other);
    eventually_equal("watches", 0, || watches(&server));
    let mut again = locks.watch(["there"]);
    assert_eq!(next(&mut again).await, of("there", Missing));
}

/// Many changes, and watches that come and go meanwhile: for each, states and changes take turns, and the last one is so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_come_and_go_miss_nothing() {
    let server = Server::start();
    let locks = connect(&server).await;
    let tasks = (1..=8).map(|task| tokio::spawn(watch_again_and_again(locks.clone(), task)));
    let tasks: Vec<_> = tasks.collect();
    let toggles = tokio::task::spawn_blocking({
        let mut admin = server.resp2();
        move || {
            for _ in 0..1000 {
                admin.run_all(&["SET k x", "DEL k"]);
            }
            admin.run("SET end x");
        }
    });
    soon(toggles).await.unwrap();
    for task in tasks {
        assert!(soon(task).await.unwrap() > 0);
    }
    eventually_equal("watches", 0, || watches(&server));
}

/// Until the key `end` is there. How many changes of the key `k` it was told.
async fn watch_again_and_again(locks: Locks, task: usize) -> usize {
    let mut heard = 0;
    for round in 1.. {
        let mut watch = locks.watch(["k", "end"]);
        let (mut before, mut is_end) = (None, false);
        for _ in 0..round * task {
            let (key, change) = next(&mut watch).await;
            if key == "end" {
                is_end = change.is_there();
            } else {
                let turns = match before {
                    None => [Exists, Missing],
                    Some(Exists | Added) => [Deleted; 2],
                    Some(Missing | Deleted) => [Added; 2],
                };
                assert!(turns.contains(&change), "{change:?} after {before:?}");
                before = Some(change);
                heard += 1;
            }
            if is_end && before.is_some() {
                assert_eq!(before.map(KeyChange::is_there), Some(false));
                return heard;
            }
        }
    }
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_outlives_its_connection_and_tells_the_difference() {
    let server = Server::start();
    for locks in [connect(&server).await, with_session(&server).await] {
        let mut watch = locks.watch(["k"]);
        assert_eq!(next(&mut watch).await, of("k", Missing));
        server
            .resp2()
            .run_all(&["MULTI", "CLIENT KILL TYPE normal", "SET k x", "EXEC"]);
        assert_eq!(next(&mut watch).await, of("k", Added));
        server.resp2().run("DEL k");
        assert_eq!(next(&mut watch).await, of("k", Deleted));
        // With all that could connect, it ends.
        soon(locks.close()).await;
        let rest: Vec<_> = soon(watch.collect()).await;
        assert_eq!(rest, [Err(Error::Closed)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_the_server_refuses_says_why() {
    let server = Server::start();
    let mut admin = server.resp2();
    admin.run("CONFIG SET tether.max-watches-per-client 1");
    let locks = connect(&server).await;
    let mut first = locks.watch(["a"]);
    assert_eq!(next(&mut first).await, of("a", Missing));
    let mut second = locks.watch(["b"]);
    let refused = soon(second.next()).await;
    let is_told =
        matches!(&refused, Err(Error::Refused(text)) if text.contains("too many watches"));
    assert!(is_told, "{refused:?}");
    assert!(soon(second.next()).await.is_err());
    // The connection goes on.
    admin.run("SET a x");
    assert_eq!(next(&mut first).await, of("a", Added));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_candidate_leads_at_a_time() {
    let server = Server::start();
    let clients = [connect(&server).await, connect(&server).await];
    let [ann, bob] = &clients;
    let (mut first, mut second) = (ann.elect("lead", "ann"), bob.elect("lead", "bob"));
    let term = soon(first.term()).await.unwrap();
    assert_eq!(term.check(), Ok(()));
    assert_eq!(server.resp2().run("GET lead").text(), "ann");
    // A client has one candidate for a name.
    let other = soon(ann.elect("lead", "another").term()).await;
    assert!(matches!(other.err(), Some(Error::Deadlock(_))));
    let token = term.token();
    {
        let waits = second.term();
        tokio::pin!(waits);
        assert!(timeout(A_MOMENT, &mut waits).await.is_err());
        assert_eq!(soon(term.lead(async { 7 })).await, Ok(7));
        let term = soon(waits).await.unwrap();
        assert!(term.token() > token);
        // Who has resigned stands again, at the end of the queue.
        eventually_equal("waiters", 1, || waiters(&server));
        assert_eq!(soon(term.resign()).await, Ok(()));
    }
    // Who lost the lead is told, and its work goes no further.
    let term = soon(first.term()).await.unwrap();
    drop(second);
    eventually_equal("waiters", 0, || waiters(&server));
    let deposed = term.lead(async {
        server.resp2().run("DEL lead");
        std::future::pending::<()>().await;
    });
    let deposed = soon(deposed).await;
    assert_eq!(deposed, Err(Loss::Told("deleted".into())));
    let term = soon(first.term()).await.unwrap();
    hang_up(&server);
    assert_eq!(soon(term.lost()).await, Loss::Connection);
    drop(term);
    // The next term is on a new connection.
    let term = soon(first.term()).await.unwrap();
    assert_eq!(temporary_keys(&server), 1);
    assert_eq!(term.check(), Ok(()));
    // Without election and term nobody stands.
    drop((first, term));
    eventually_equal("keys", 0, || temporary_keys(&server));
}

/// Not again while it goes on, nor before the server has heard that it was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_is_given_once() {
    let server = Server::start();
    let (ann, bob) = (connect(&server).await, connect(&server).await);
    let (mut first, mut second) = (ann.elect("lead", "ann"), bob.elect("lead", "bob"));
    let term = soon(first.term()).await.unwrap();
    let token = term.token();
    let again = timeout(A_MOMENT, first.term()).await;
    assert!(again.is_err(), "{again:?} while it goes on");
    let next = tokio::spawn(async move { second.term().await.map(|term| (second, term)) });
    eventually_equal("waiters", 1, || waiters(&server));
    Server::signal(server.pid(), libc::SIGSTOP);
    let cancelled = timeout(A_MOMENT, term.lead(std::future::pending::<()>())).await;
    assert!(cancelled.is_err());
    let again = timeout(A_MOMENT, first.term()).await;
    assert!(again.is_err(), "{again:?} was given up");
    Server::signal(server.pid(), libc::SIGCONT);
    let (second, term) = soon(next).await.unwrap().unwrap();
    assert!(term.token() > token);
    let token = term.token();
    drop((second, term));
    assert!(soon(first.term()).await.unwrap().token() > token);
}

async fn next_member(presence: &mut Presence) -> (String, MemberChange) {
    let event = soon(presence.next()).await.unwrap();
    (String::from_utf8(event.key).unwrap(), event.change)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn presence_and_observers_see_who_is_there() {
    let server = Server::start();
    let (ann, bob) = (connect(&server).await, connect(&server).await);
    let mut leaders = bob.observe("service:lead");
    if let Err(Error::Refused(error)) = soon(leaders.next()).await {
        assert!(error.contains("unknown command"), "{error}");
        return;
    }
    let mut presence = bob.presence("service:");
    let first = soon(ann.temporary_key("service:1", "here").acquire())
        .await
        .unwrap();
    let (key, change) = next_member(&mut presence).await;
    let MemberChange::Added(member) = change else {
        panic!("{change:?}");
    };
    assert_eq!((key.as_str(), member.token), ("service:1", first.token()));
    assert_eq!(member.value.as_deref(), Some(&b"here"[..]));
    let mut election = ann.elect("service:lead", "ann");
    let term = soon(election.term()).await.unwrap();
    let leader = soon(leaders.next()).await.unwrap().unwrap();
    assert_eq!(
        (leader.token, leader.value.as_deref()),
        (term.token(), Some(&b"ann"[..]))
    );
    drop((election, term));
    assert_eq!(soon(leaders.next()).await, Ok(None));
    assert_eq!(next_member(&mut presence).await.0, "service:lead");
    assert!(matches!(
        next_member(&mut presence).await.1,
        MemberChange::Gone(_)
    ));
}
