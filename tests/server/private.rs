//! Functions of the server that the module API does not promise: where they are not called, all but pushes works.

use crate::harness::*;

fn private_functions(server: &Server) -> String {
    let info = server.info("tether");
    let field = "tether_private_functions:";
    let line = info.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_else(|| panic!("{info}")).to_owned()
}

#[test]
fn a_server_of_the_matrix_is_known() {
    let server = Server::start();
    assert_eq!(private_functions(&server), "known", "see docs/servers.md");
    assert!(!server.log().contains("tether.private-functions"));
    assert_eq!(server.resp3().run("WATCHEX k"), bulk("NOEXIST"));
    let tried = Server::with(&["tether.private-functions always"]);
    assert_eq!(private_functions(&tried), "known");
}

#[test]
fn without_private_functions_all_but_pushes_works() {
    let server = Server::with(&["tether.private-functions never"]);
    assert_eq!(private_functions(&server), "never");
    assert!(
        server
            .log()
            .contains("WATCHEX, PUSH and NOTIFY are refused")
    );
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    let mut other = server.resp2();
    for push in [
        "WATCHEX k",
        "LOCK.ACQUIRE k WAIT 0 PUSH",
        "SETTP k v WAIT 0 PUSH",
        "SETTP k v NOTIFY",
        "LOCK.ACQUIRE k NOTIFY",
        "SESSION.RESUME 00000000000000000000000000000000 NOTIFY",
    ] {
        let message = holder.refused(push);
        assert!(message.contains("docs/servers.md"), "{message}");
    }
    // Handed over, by a release and by the end of a connection.
    for _ in 0..3 {
        holder.run("LOCK.ACQUIRE k");
        wait_in_line(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
        assert_eq!(holder.call("LOCK.RELEASE k"), int(0));
        assert!(waiter.read_reply().number() > 0);
        waiter.run("LOCK.RELEASE k");
    }
    holder.run("SETTP t v");
    wait_in_line(&server, &mut waiter, "SETTP t w WAIT 0");
    drop(holder);
    assert_eq!(waiter.read_reply(), int(1));
    // Losses, of which nobody can be told, whoever's hand it was.
    waiter.run_all(&[
        "LOCK.ACQUIRE k",
        "LOCK.ACQUIRE l",
        "LOCK.ACQUIRE m LEASE 20",
    ]);
    other.run_all(&["DEL t", "SET l string"]);
    waiter.run("EVAL return(redis.call('DEL','k')) 0");
    eventually_equal("holds", 0, || server.gauge("tether", "tether_holds"));
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    for key in ["k", "l", "m"] {
        assert!(waiter.refused(["LOCK.RELEASE", key]).starts_with("NOTHELD"));
    }
    assert_eq!(waiter.call("DELTP t"), int(0));
    assert_eq!(server.gauge("tether", "tether_pushes_sent"), 0);
    // Another module's calls and scripts find a server that goes on.
    waiter.run_all(&["SESSION.START", "SETTP t v", "DEBUG RELOAD"]);
    assert_eq!(waiter.call("DELTP t"), int(1));
}

fn wait_in_line(server: &Server, client: &mut Client, request: &str) {
    client.send(request);
    eventually_equal(request, 1, || server.gauge("tether", "tether_waiters"));
}

#[test]
fn the_setting_can_be_changed_on_a_running_server() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    for _ in 0..2 {
        other.run_all(&[
            "CONFIG SET tether.private-functions never",
            "SET k v",
            "DEL k",
        ]);
        assert_eq!(private_functions(&server), "never");
        watcher.refused("WATCHEX l");
        assert_eq!(server.settled(&mut watcher), [""; 0]);
        other.run_all(&[
            "CONFIG SET tether.private-functions known",
            "SET k v",
            "DEL k",
        ]);
        assert_eq!(private_functions(&server), "known");
        assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    }
}

/// What nobody can give back is granted to nobody: a script and another module's call have a client without a connection.
#[test]
fn calls_without_a_connection_hold_nothing_with_or_without_private_functions() {
    let (_folder, library) = built(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/server/caller.c"
    ));
    for wanted in ["known", "never"] {
        let server = Server::with(&[
            &format!("loadmodule {library}"),
            &format!("tether.private-functions {wanted}"),
        ]);
        let mut client = server.resp3();
        // Whoever holds something himself asks through the module as well, and has it at the end of a connection noted.
        client.run("LOCK.ACQUIRE own");
        for ask in [
            "LOCK.ACQUIRE k",
            "LOCK.MACQUIRE 1 k",
            "SETTP k v",
            "LOCK.ACQUIRE k WAIT 0",
            "WATCHEX k",
            "SESSION.START",
            "LOCK.RELEASE own",
        ] {
            let refused = client.refused(format!("CALL {ask}").as_str());
            let expected = match ask {
                // Without these functions nobody watches.
                "WATCHEX k" => "ERR ",
                _ => "needs a connection of its own",
            };
            assert!(refused.contains(expected), "{wanted} {ask}: {refused}");
        }
        assert_eq!(client.call("EXISTS k"), int(0), "{wanted}");
        assert_eq!(server.gauge("tether", "tether_holds"), 1, "{wanted}");
        // A script's deletion is its caller's, who loses nothing by it.
        client.run("EVAL return(redis.call('DEL','own')) 1 own");
        eventually_equal("own", 0, || server.gauge("tether", "tether_holds"));
        // But Redis 7.0 does not say whose command it is.
        let is_unknown = wanted == "never" && !server.is_at_least((7, 2), (7, 2));
        let lost = server.gauge("tether", "tether_lost_total");
        assert_eq!(lost, i64::from(is_unknown), "{wanted}");
    }
}
