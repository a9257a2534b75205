//! What a connection is called, where it finds its server, and how long it looks for one.

use crate::*;

/// What the server says of the holder.
fn holder(server: &Server, key: &str) -> String {
    format!("{:?}", server.resp3().run(["LOCK.INFO", key]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_called_by_host_process_and_program() {
    let server = Server::start();
    let _first = soon(connect(&server).await.lock("a").acquire())
        .await
        .unwrap();
    let info = holder(&server, "a");
    let own = format!(":{}:client-", std::process::id());
    assert!(info.contains("tether:") && info.contains(&own), "{info}");
    let named = Locks::builder(&url(&server)).name("night job\u{e9}");
    let named = soon(named.grace(Duration::from_secs(20)).connect())
        .await
        .unwrap();
    let held = soon(named.lock("b").acquire()).await.unwrap();
    assert!(holder(&server, "b").contains("night_job_"));
    // So is the one that follows.
    hang_up(&server);
    drop(soon(named.lock("c").acquire()).await.unwrap());
    assert!(holder(&server, "b").contains("night_job_"));
    drop(held);
}

/// Who may give itself no name, or not ask for a role, has its locks all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_and_a_role_are_not_needed() {
    let server = Server::with(&["user some on nopass ~* &* +@all -client -role"]);
    let url = format!("redis://some:any@127.0.0.1:{}", server.port());
    let locks = soon(Locks::connect(&url)).await.unwrap();
    let held = soon(locks.lock("a").acquire()).await.unwrap();
    assert_eq!(held.check(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_at_first_is_waited_for_as_long_as_is_wanted() {
    let mut server = Server::start();
    server.kill();
    let locks = Locks::builder(&url(&server)).build().unwrap();
    let away = soon(locks.open()).await.err();
    let at = format!("127.0.0.1:{}: Connection refused", server.port());
    let names_it =
        |error: &Option<Error>| matches!(error, Some(Error::Unreachable(why)) if why.contains(&at));
    assert!(names_it(&away), "{away:?}");
    let in_vain = soon(locks.lock("report").wait(A_MOMENT * 4).acquire())
        .await
        .err();
    assert!(names_it(&in_vain), "{in_vain:?}");
    let waits = tokio::spawn(locks.lock("report").acquire());
    tokio::time::sleep(A_MOMENT * 4).await;
    assert!(!waits.is_finished());
    server.restart_without_files();
    drop(soon(waits).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_leads_to_its_master() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let locks = connect(&replica).await;
    let _held = soon(locks.lock("report").acquire()).await.unwrap();
    assert_eq!(holds(&master), 1);
}

/// No Sentinel, and nobody left to say where the master is: one of the addresses that were given is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_at_another_of_its_addresses() {
    let mut master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let builder = Locks::builder(&url(&master)).or_at([url(&replica)]);
    let locks = soon(builder.grace(Duration::from_secs(20)).connect())
        .await
        .unwrap();
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    replica.catch_up(&master);
    master.kill();
    replica.resp2().run("REPLICAOF NO ONE");
    let next = soon(locks.lock("next").acquire()).await.unwrap();
    assert!(next.token() > held.token());
    assert_eq!(held.check(), Ok(()));
    assert_eq!(holds(&replica), 2);
}
