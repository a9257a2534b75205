//! The command line with a server that speaks TLS: `rediss://`.

#![cfg(target_os = "linux")]

use std::process::{Command, Output, Stdio};
use tether_testing::harness::{Certificates, Server, eventually_equal, null};
use tether_testing::process::ended;

struct World {
    certificates: Certificates,
    server: Server,
    url: String,
}

impl World {
    /// None where the server is built without TLS.
    fn new() -> Option<World> {
        let certificates = Certificates::new();
        let (server, port) = certificates.serve("no")?;
        let url = format!("rediss://127.0.0.1:{port}");
        Some(World {
            certificates,
            server,
            url,
        })
    }

    fn tether(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        command.args(arguments).env("TETHER_URL", &self.url);
        command.env("SSL_CERT_FILE", self.certificates.path("ca.pem"));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.tether(arguments).output().unwrap()
    }
}

#[test]
fn a_lock_is_held_over_tls_and_looked_at() {
    let Some(world) = World::new() else { return };
    let said = |arguments: &[&str]| {
        let output = world.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut runner = world.tether(&["run", "report", "--", "cat"]);
    let mut runner = runner.stdin(Stdio::piped()).spawn().unwrap();
    eventually_equal("a hold", 1, || world.server.gauge("tether", "tether_holds"));
    let mut client = world.server.resp3();
    assert_eq!(client.run("LOCK.ACQUIRE report"), null());
    assert!(said(&["ls"]).contains("report"));
    assert!(said(&["who", "report"]).contains("1 holder"));
    assert!(said(&["metrics"]).contains("tether_holds 1"));
    assert!(said(&["doctor"]).contains("the module is loaded"));
    // It goes on on another connection.
    client.run(["CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal"]);
    eventually_equal("its session", 1, || {
        world.server.gauge("tether", "tether_sessions_attached")
    });
    drop(runner.stdin.take());
    assert_eq!(ended(&mut runner).code(), Some(0));
    assert_ne!(client.run("LOCK.ACQUIRE report"), null());
}

#[test]
fn a_server_whose_authority_is_unknown_is_not_spoken_to() {
    let Some(world) = World::new() else { return };
    let strange = Certificates::new();
    for arguments in [
        &["run", "report", "--", "true"][..],
        &["ls"],
        &["watch", "report"],
        &["doctor"],
    ] {
        let mut command = world.tether(arguments);
        command.env("SSL_CERT_FILE", strange.path("ca.pem"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?}: {output:?}");
    }
}
