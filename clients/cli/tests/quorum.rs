//! `tether run --quorum` on three real servers.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tether_testing::harness::Server;
use tether_testing::process::ended;

const BOUND: Duration = Duration::from_secs(20);

fn three() -> [Server; 3] {
    [(); 3].map(|()| Server::with(&["tether.quarantine 2000"]))
}

fn tether(servers: &[Server], grace: &str, script: &str) -> Command {
    let url = |server: &Server| format!("redis://127.0.0.1:{}", server.port());
    let urls: Vec<_> = servers.iter().map(url).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    command.args(["run", "--grace", grace, "--kill-after", "200ms"]);
    command.args(["--quorum", &urls.join(","), "report", "--"]);
    command.args(["sh", "-c", script]).stdout(Stdio::piped());
    command
}

fn token(stdout: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(stdout);
    text.trim().parse().expect("a token")
}

#[test]
fn the_next_has_the_lock_after_a_holder_that_was_killed_and_without_one_of_the_servers() {
    let mut servers = three();
    let mut ann = tether(&servers, "2s", "echo $TETHER_TOKEN; exec sleep 60");
    let mut ann = ann.spawn().unwrap();
    let begun = Instant::now();
    let held = |servers: &[Server]| {
        let holds = |server: &Server| server.gauge("tether", "tether_holds") == 1;
        servers.iter().filter(|server| holds(server)).count()
    };
    while held(&servers) < 3 {
        assert!(begun.elapsed() < BOUND, "not held");
        std::thread::sleep(Duration::from_millis(20));
    }
    servers[1].kill();
    let bob = tether(&servers, "2s", "echo $TETHER_TOKEN")
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let is_held = ann.try_wait().unwrap().is_none();
    assert!(is_held, "one server less is no loss");
    ann.kill().unwrap();
    let first = token(&ann.wait_with_output().unwrap().stdout);
    let begun = Instant::now();
    let bob = bob.wait_with_output().unwrap();
    assert!(bob.status.success(), "{bob:?}");
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(token(&bob.stdout) > first);
}

#[test]
fn a_quarantine_that_is_too_short_is_named() {
    let servers = three();
    let mut run = tether(&servers, "3s", "exit 0");
    let run = run.stderr(Stdio::piped()).output().unwrap();
    assert!(!run.status.success());
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("tether.quarantine"), "{said}");
}

/// Also with a grace for which it would be relied on far longer.
#[test]
fn a_server_that_is_silent_at_the_end_is_not_waited_for() {
    let servers = three();
    for server in &servers {
        // LOCK.SERVER says it; it takes effect at the next start.
        let mut client = server.resp2();
        client.run("CONFIG SET tether.quarantine 3600000");
    }
    let stop = format!("kill -STOP {}", servers[2].pid());
    let mut run = tether(&servers, "1h", &stop).spawn().unwrap();
    assert_eq!(ended(&mut run).code(), Some(0));
}
