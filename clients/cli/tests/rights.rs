//! The rights of docs/operations.md, "Access rights": each line of its list is enough for the client that it is for.

#![cfg(unix)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tether_client::Locks;
use tether_testing::harness::{Client, Server, eventually, int, null};

/// The rights that the list gives whom.
fn line_for(whom: &str) -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let begin = format!("- {whom}: `");
    let line = page.lines().find_map(|line| line.strip_prefix(&begin));
    let line = line.unwrap_or_else(|| panic!("no line for {whom}"));
    line.strip_suffix('`').unwrap().to_owned()
}

/// A server that has a user with just these rights, and the user's URL.
fn server_for(whom: &str) -> (Server, String) {
    let server = Server::start();
    let line = line_for(whom);
    let user = format!("ACL SETUSER worker reset on >secret resetchannels {line}");
    server.resp2().run(user.as_str());
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    (server, url)
}

fn tether(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    command.args(arguments).env("TETHER_URL", url);
    command.stdin(Stdio::null()).output().unwrap()
}

fn succeed(url: &str, arguments: &[&str]) -> String {
    let output = tether(url, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(client: &mut Client, command: &str) {
    let reply = format!("{:?}", client.call(command));
    assert!(reply.contains("NOPERM"), "{command}: {reply}");
}

#[test]
fn a_stock_client_has_the_locks_and_nothing_else() {
    let (server, _) = server_for("any Redis client");
    let (mut one, mut other) = (server.resp3(), server.resp3());
    for client in [&mut one, &mut other] {
        client.run("AUTH worker secret");
        client.run("PING");
    }
    one.run("LOCK.ACQUIRE lock:a LEASE 60000 NOTIFY");
    assert_eq!(one.run("LOCK.EXTEND lock:a 60000"), int(1));
    other.run("LOCK.ACQUIRE lock:a WAIT 0 PUSH");
    other.run("LOCK.CANCEL lock:a");
    one.run("LOCK.RELEASE lock:a");
    one.run("LOCK.MACQUIRE 2 lock:a lock:b");
    one.run("SETTP lock:c x");
    assert_eq!(one.run("DELTP lock:c"), int(1));
    one.run("WATCHEX lock:c");
    one.run("UNWATCHEX lock:c");
    for command in [
        "DEL lock:a",
        "SET lock:a x",
        "LOCK.ACQUIRE other",
        "FLUSHALL",
        "SESSION.LIST",
        "CLIENT LIST",
    ] {
        refused(&mut one, command);
    }
}

#[test]
fn tether_run_has_what_it_needs() {
    let (server, url) = server_for("`tether run`, the Rust client");
    let script = "echo $$ > \"$0\"; while [ ! -e \"$0.enough\" ]; do sleep 0.02; done; exit 3";
    let began = server.folder().join("began");
    let mut run = Command::new(env!("CARGO_BIN_EXE_tether"));
    run.args(["run", "lock:report", "--", "sh", "-c", script]);
    let run = run.arg(&began).env("TETHER_URL", &url).spawn().unwrap();
    let attached = || match server.gauge("tether", "tether_sessions_attached") {
        1 => Ok(()),
        other => Err(other.to_string()),
    };
    eventually("it works", || {
        std::fs::read(&began)
            .map(drop)
            .map_err(|why| why.to_string())
    });
    let second = tether(&url, &["run", "--nowait", "lock:report", "--", "true"]);
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    // It goes on with its session.
    let mut admin = server.resp3();
    admin.run("CLIENT KILL SKIPME yes TYPE normal");
    eventually("its session", attached);
    std::fs::write(server.folder().join("began.enough"), "").unwrap();
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(3));
    assert_ne!(admin.run("LOCK.ACQUIRE lock:report"), null());
}

#[test]
fn the_rust_client_has_what_it_needs() {
    let (_server, url) = server_for("`tether run`, the Rust client");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let grace = Duration::from_secs(10);
        let locks = Locks::builder(&url).grace(grace).connect().await.unwrap();
        let several = locks.all(["lock:{x}a", "lock:{x}b"]);
        let several = several.acquire().await.unwrap();
        let shared = locks.lock("lock:c").shared().acquire().await.unwrap();
        let permits = locks.lock("lock:d").permits(1, 2).acquire().await.unwrap();
        let temporary = locks.temporary_key("lock:e", "x").acquire().await.unwrap();
        let mut watch = locks.watch(["lock:e"]);
        watch.next().await.unwrap();
        let late = locks.lock("lock:c").owner("late");
        let late = late.wait(Duration::from_millis(10)).acquire().await;
        assert!(late.is_err());
        for guard in [several, shared, permits, temporary] {
            guard.release().await.unwrap();
        }
        drop(watch);
        locks.close().await;
    });
}

#[test]
fn metrics_need_no_key() {
    let (_server, url) = server_for("`tether metrics`");
    assert!(succeed(&url, &["metrics"]).contains("\ntether_up 1\n"));
}

/// redis_exporter runs it with EVAL; what it asks for besides is its own.
#[test]
fn the_exporters_script_runs() {
    let (server, _) = server_for("redis_exporter, besides what it needs itself");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read(script.join("../../packaging/monitoring/tether.lua")).unwrap();
    let mut client = server.resp3();
    client.run("AUTH worker secret");
    client.run([b"EVAL".as_slice(), &script, b"0"]);
}

#[test]
fn operators_have_what_they_need() {
    let (server, url) =
        server_for("operators (`tether ls`, `who`, `kick`, `doctor` and the others)");
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE report");
    other.run("SESSION.START GRACE 60000");
    other.run_all(&["LOCK.ACQUIRE disk", "SETTP worker:1 here"]);
    one.run("LOCK.ACQUIRE disk WAIT 0 PUSH");
    for (arguments, said) in [
        (&["ls"][..], "report"),
        (&["who", "report"], "exclusive"),
        (&["why", "report"], "report"),
        (&["sessions"], "127.0.0.1"),
        (&["top", "--once"], "report"),
        (&["presence", "worker:", "--once"], "worker:1"),
        (&["metrics"], "tether_holds 2"),
        (&["kick", "report"], "report: client "),
        (&["log"], "deleted"),
        (&["kick", "--connection", "disk"], "disk: ended session "),
        (
            &["kick", "--connection", "disk"],
            "disk: closed the connection of ",
        ),
        (&["doctor"], "the module is loaded"),
    ] {
        let output = succeed(&url, arguments);
        assert!(output.contains(said), "{arguments:?}: {output}");
        assert!(!output.contains("cannot be read"), "{output}");
    }
    one.expect_closed();
}
