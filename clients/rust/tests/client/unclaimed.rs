//! Holds that the server still has and the client has given back: its files, or the replica, did not get the release.

use crate::*;
use tether_testing::resp::int;

/// RDB only: after a crash it is what it was at the last SAVE.
fn server_that_forgets() -> Server {
    Server::with(&["appendonly no"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_back_before_a_crash_that_forgot_it_is_given_back_again() {
    let mut server = server_that_forgets();
    let locks = with_session(&server).await;
    let kept = soon(locks.lock("kept").acquire()).await.unwrap();
    let mut released = Vec::new();
    for request in [
        locks.lock("exclusive"),
        locks.lock("shared").shared().owner("one reader"),
        locks.lock("shared").shared().owner(""),
        locks.lock("permits").permits(2, 3),
        locks.all(["one", "two"]),
    ] {
        released.push(soon(request.acquire()).await.unwrap());
    }
    let temporary = locks.temporary_key("temporary", "value");
    released.push(soon(temporary.acquire()).await.unwrap());
    let shared = locks.lock("shared").shared().owner("another reader");
    let reader = soon(shared.acquire()).await.unwrap();
    server.resp2().run("SAVE");
    for guard in released {
        assert_eq!(soon(guard.release()).await, Ok(()));
    }
    assert_eq!(holds(&server), 2);
    server.crash_and_restart();
    eventually_equal("holds", 2, || holds(&server));
    assert_eq!(server.resp2().run("EXISTS temporary"), int(0));
    assert_eq!(soon(kept.release()).await, Ok(()));
    assert_eq!(soon(reader.release()).await, Ok(()));
    // The owner itself may ask for it, too.
    drop(soon(locks.lock("exclusive").acquire()).await.unwrap());
}

/// Who may not look does not know what is still held: all of it is lost, and the session is ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_look_loses_its_locks() {
    for (rights, is_kept) in [
        ("-lock.mine", false),
        ("-lock.list -lock.info -client", true),
    ] {
        let user = format!("user some on nopass ~* &* +@all {rights}");
        let mut server = Server::with(&["appendonly no", &user]);
        let url = format!("redis://some:any@127.0.0.1:{}", server.port());
        let builder = Locks::builder(&url).grace(Duration::from_secs(20));
        let locks = soon(builder.connect()).await.unwrap();
        let kept = soon(locks.lock("kept").acquire()).await.unwrap();
        let released = soon(locks.lock("report").acquire()).await.unwrap();
        server.resp2().run("SAVE");
        assert_eq!(soon(released.release()).await, Ok(()));
        server.crash_and_restart();
        drop(soon(locks.lock("next").acquire()).await.unwrap());
        eventually_equal(rights, i64::from(is_kept), || holds(&server));
        let lost = Err(Error::Lost(Loss::Connection));
        assert_eq!(
            soon(kept.release()).await,
            if is_kept { Ok(()) } else { lost }
        );
    }
}
