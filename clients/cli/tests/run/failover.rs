//! A planned failover under `tether run`: the new master has the hold, and the command goes on.

use super::{World, text};
use std::fs;
use tether_testing::harness::{Server, eventually, eventually_equal, ok};

#[test]
fn a_planned_failover_costs_nothing_with_a_grace() {
    for by_failover in [true, false] {
        let world = World::new();
        let replica = Server::replica_of(&world.server, &[]);
        let mut running = world.start(
            &["--grace", "20s"],
            "while [ ! -e enough ]; do sleep 0.02; done; exit 5",
        );
        replica.catch_up(&world.server);
        if by_failover {
            eventually("the failover", || {
                let begun = world.server.resp2().call("FAILOVER TIMEOUT 10000");
                let is_begun = begun == ok();
                is_begun.then_some(()).ok_or(format!("{begun:?}"))
            });
        } else {
            replica.resp2().run("REPLICAOF NO ONE");
            let port = replica.port().to_string();
            world.server.resp2().run(["REPLICAOF", "127.0.0.1", &port]);
        }
        let attached = || replica.gauge("tether", "tether_sessions_attached");
        eventually_equal("its session at the new master", 1, attached);
        assert_eq!(replica.gauge("tether", "tether_holds"), 1);
        fs::write(world.file("enough"), "").unwrap();
        let (code, said) = running.end();
        assert_eq!(code, 5, "{said}");
        assert_eq!(replica.gauge("tether", "tether_holds"), 0);
    }
}

/// It grants nothing, but says which server is its master.
#[test]
fn a_replica_leads_to_its_master() {
    let mut world = World::new();
    let replica = Server::replica_of(&world.server, &[]);
    let port = replica.port().to_string();
    let url = format!("redis://127.0.0.1:{port}");
    let run = |world: &World| {
        let output = world.run(&["--url", &url, "--nowait", "report", "--", "true"]);
        (output.status.code(), text(&output.stderr).to_owned())
    };
    assert_eq!(run(&world), (Some(0), String::new()));
    assert_eq!(world.server.gauge("tether", "tether_grants_total"), 1);
    // The master may come back, so it is waited for where there is time.
    world.server.kill();
    let (code, said) = run(&world);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
    // One that is its own master leads nowhere.
    replica.resp2().run(["REPLICAOF", "127.0.0.1", &port]);
    let (code, said) = run(&world);
    assert_eq!(code, Some(78), "{said}");
    let why = format!("tether: no lock 'report': 127.0.0.1:{port}: REPLICA it is a replica, ");
    assert!(said.starts_with(&why), "{said}");
    assert!(said.contains("use the master's address"), "{said}");
}
