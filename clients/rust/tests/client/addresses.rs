//! Servers that are reached by TLS, as a user, in another database, by Sentinels; and one that has no locks.

use crate::*;
use tether_client::Builder;
use tether_testing::harness::sentinel::{LONG, Sentinel};
use tether_testing::harness::{Certificates, WITHOUT_MODULE, eventually_within};

async fn error(builder: Builder) -> Error {
    soon(builder.connect()).await.expect_err("an error")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_held_over_tls() {
    let certificates = Certificates::new();
    let Some((server, port)) = certificates.serve("no") else {
        return;
    };
    let url = format!("rediss://127.0.0.1:{port}");
    let builder = || Locks::builder(&url).authority(certificates.read("ca.pem"));
    let (ann, bob) = (
        soon(builder().connect()).await,
        soon(builder().connect()).await,
    );
    let (ann, bob) = (ann.unwrap(), bob.unwrap());
    let held = soon(ann.lock("report").acquire()).await.unwrap();
    let waits = tokio::spawn(bob.lock("report").acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    drop(held);
    let held = soon(waits).await.unwrap().unwrap();
    hang_up(&server);
    assert_eq!(soon(held.lost()).await, Loss::Connection);
    // A session goes on on a new connection, by TLS again.
    let locks = soon(builder().grace(Duration::from_secs(20)).connect()).await;
    let locks = locks.unwrap();
    let held = soon(locks.lock("session").acquire()).await.unwrap();
    hang_up(&server);
    let next = soon(locks.lock("next").acquire()).await.unwrap();
    assert!(next.token() > held.token());
    assert_eq!(soon(held.release()).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_asked_for_and_shown() {
    let (certificates, other) = (Certificates::new(), Certificates::new());
    let Some((_server, port)) = certificates.serve("yes") else {
        return;
    };
    let builder = || Locks::builder(&format!("rediss://127.0.0.1:{port}"));
    let own = |of: &Certificates| (of.read("client.pem"), of.read("client.key"));
    let trusting = |of: &Certificates| builder().authority(of.read("ca.pem"));
    let (chain, key) = own(&certificates);
    let known = trusting(&certificates).client_certificate(chain, key.clone());
    let locks = soon(known.connect()).await.unwrap();
    drop(soon(locks.lock("report").acquire()).await.unwrap());
    let (chain, strange) = own(&other);
    for builder in [
        trusting(&certificates),
        trusting(&certificates).client_certificate(chain.clone(), strange),
    ] {
        let error = error(builder).await;
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    }
    // A server that nobody vouches for, as far as this client knows.
    for builder in [trusting(&other), builder()] {
        let error = error(builder).await;
        assert_eq!((error.name(), error.code()), ("refused", "TLS"), "{error}");
    }
    // A server that speaks no TLS, and TLS with a client that speaks none.
    let plain = Server::start();
    let url = format!("rediss://127.0.0.1:{}", plain.port());
    let spoken = [
        Locks::builder(&url),
        Locks::builder(&format!("redis://127.0.0.1:{port}")),
    ];
    for builder in spoken {
        let error = error(builder).await;
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    }
    let broken = builder().client_certificate(chain, "no key");
    let error = error(broken).await;
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert!(!format!("{:?}", builder().authority(key)).contains("PRIVATE"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_password_and_database_are_those_of_the_url() {
    let server = Server::start();
    server
        .resp2()
        .run("ACL SETUSER ann on >secret ~app:* +@all");
    let at = |user: &str| format!("redis://{user}@127.0.0.1:{}/3", server.port());
    let locks = soon(Locks::connect(&at("ann:secret"))).await.unwrap();
    let _held = soon(locks.lock("app:report").acquire()).await.unwrap();
    let mut admin = server.resp2();
    admin.run("SELECT 3");
    assert_eq!(admin.run("EXISTS app:report").number(), 1);
    let refused = soon(locks.lock("report").acquire()).await.err();
    let is_told = matches!(&refused, Some(Error::Refused(text)) if text.starts_with("NOPERM"));
    assert!(is_told, "{refused:?}");
    let wrong = soon(Locks::connect(&at("ann:guess"))).await.err();
    let is_told = matches!(&wrong, Some(Error::Refused(text) | Error::Unreachable(text)) if text.contains("WRONGPASS") || text.contains("uthentication"));
    assert!(is_told, "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_module_is_said_to_be_one() {
    let server = Server::with(&[WITHOUT_MODULE]);
    for builder in [
        Locks::builder(&url(&server)),
        Locks::builder(&url(&server)).grace(Duration::from_secs(10)),
    ] {
        assert_eq!(error(builder).await, Error::NoModule);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sentinels_say_wrongly_or_not_at_all_is_an_error() {
    let nobody = Locks::builder("redis://tether").sentinels(["redis://127.0.0.1:1"]);
    let unreachable = error(nobody).await;
    let says_who = matches!(&unreachable, Error::Unreachable(text) if text.contains("127.0.0.1:1"));
    assert!(says_who, "{unreachable:?}");
    // A server that is no Sentinel.
    let server = Server::start();
    let no_sentinel = error(Locks::builder("redis://tether").sentinels([url(&server)])).await;
    assert!(
        matches!(no_sentinel, Error::Unreachable(_)),
        "{no_sentinel:?}"
    );
}

/// The master of three Sentinels is killed while a session holds a lock: it goes on at the replica that they promote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_at_the_master_that_sentinels_name() {
    let mut master = Server::start();
    let replicas = [(); 2].map(|()| Server::replica_of(&master, &[]));
    let sentinels = [(); 3].map(|()| Sentinel::watching(&master));
    sentinels.iter().for_each(|it| it.wait_until_it_knows(2));
    let urls = || {
        sentinels
            .iter()
            .map(|it| format!("redis://127.0.0.1:{}", it.port()))
    };
    let unknown = error(Locks::builder("redis://other").sentinels(urls())).await;
    assert!(
        unknown.to_string().contains("knows no master 'other'"),
        "{unknown}"
    );
    let builder = Locks::builder("redis://tether/2").sentinels(urls());
    let locks = soon(builder.grace(LONG).connect()).await.unwrap();
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    let waits = tokio::spawn(locks.lock("report").owner("next").acquire());
    eventually_equal("waiters", 1, || waiters(&master));
    for replica in &replicas {
        replica.catch_up(&master);
    }
    master.kill();
    let promoted = eventually_within(LONG, "the failover", || {
        let seen: Vec<_> = sentinels.iter().map(Sentinel::master_port).collect();
        let one = replicas.iter().find(|it| seen[0] == Some(it.port()));
        one.filter(|_| seen.iter().all(|port| *port == seen[0]))
            .ok_or(format!("{seen:?}"))
    });
    eventually_equal("holds at the new master", 1, || holds(promoted));
    assert_eq!(held.check(), Ok(()));
    eventually_equal("waiters at the new master", 1, || waiters(promoted));
    let token = held.token();
    assert_eq!(soon(held.release()).await, Ok(()));
    let next = soon(waits).await.unwrap().unwrap();
    assert!(next.token() > token);
}
