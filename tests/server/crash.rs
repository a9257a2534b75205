//! When a server crashes it asks modules what to report, in whatever thread that was: the report is whole, and there is no second
//! crash in it.

use crate::harness::*;

/// A server that is in use, without the test of its memory, which takes long.
fn in_use() -> (Server, Vec<Client>) {
    let server = Server::with(&["crash-memcheck-enabled no"]);
    let (mut owner, mut waiter, mut watcher) = (server.resp3(), server.resp3(), server.resp3());
    owner.run_all(&["SETTP k v NOTIFY", "LOCK.ACQUIRE l"]);
    assert_eq!(waiter.call("LOCK.ACQUIRE l WAIT 0 PUSH"), null());
    watcher.run("WATCHEX k l");
    (server, vec![owner, waiter, watcher])
}

/// What the server reports of its crash.
fn report(server: &Server) -> String {
    let log = eventually("the end of the server's report", || {
        let log = server.log();
        match log.contains("BUG REPORT END") {
            true => Ok(log),
            false => Err("it is not there".to_owned()),
        }
    });
    let (_, report) = log.split_once("BUG REPORT START").expect("its beginning");
    for (what, count) in [
        ("crashed by signal", 1),
        ("MODULES INFO OUTPUT", 1),
        ("BUG REPORT", 1),
        // So does one that crashes in the midst of reporting.
        ("recursive", 0),
        ("panicked", 0),
        ("fault, commands are refused", 0),
    ] {
        assert_eq!(report.matches(what).count(), count, "{what} in\n{report}");
    }
    report.to_owned()
}

#[test]
fn a_crash_in_the_main_thread_is_reported_with_what_there_was() {
    let (server, mut clients) = in_use();
    clients[0].send("DEBUG SEGFAULT");
    let report = report(&server);
    for field in ["temporary_keys:1", "holds:1", "waiters:1", "watches:2"] {
        assert!(report.contains(&format!("\ntether_{field}")), "{report}");
    }
}

/// The server's state is its main thread's. Whoever else crashes may do so in the middle of a change of it.
#[cfg(target_os = "linux")]
#[test]
fn a_crash_in_another_thread_is_reported_without_a_look_at_what_there_was() {
    let (server, _clients) = in_use();
    let (process, thread) = (server.pid(), background_thread(server.pid()));
    // SAFETY: sends a signal to a thread of a child of this test.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGSEGV) };
    let report = report(&server);
    assert!(!report.contains("tether_"), "{report}");
}

/// A thread begins under its program's name, and gives itself another.
#[cfg(target_os = "linux")]
fn background_thread(process: libc::pid_t) -> libc::pid_t {
    eventually("a thread for slow work", || {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
        let names = threads.flatten().filter_map(|thread| {
            let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
            let number = thread.file_name().to_str()?.parse().ok()?;
            Some((name, number))
        });
        let names: Vec<(String, _)> = names.collect();
        let background = names.iter().find(|(name, _)| name.starts_with("bio_"));
        background
            .map(|(_, number)| *number)
            .ok_or_else(|| format!("{names:?}"))
    })
}
