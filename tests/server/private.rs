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
        let expected =
            "ERR pushes are off: tether.private-functions is never (see docs/servers.md)";
        assert_eq!(message, expected);
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
    assert_eq!(server.gauge("tether", "tether_pushes_sent_total"), 0);
    // Another module's calls and scripts find a server that goes on.
    waiter.run_all(&["SESSION.START", "SETTP t v", "DEBUG RELOAD"]);
    assert_eq!(waiter.call("DELTP t"), int(1));
}

/// A server that poses as one that nobody has tried; none if the tested one cannot behave as its next series does.
fn unknown_server() -> Option<Posing> {
    let tested = Server::start();
    if tested.strays_after_copies()
        || tested.is_at_least((u32::MAX, 0), (8, 0)) && !tested.is_at_least((u32::MAX, 0), (9, 0))
    {
        say("Valkey 8 cannot pose as another series");
        return None;
    }
    Some(Posing::as_unknown())
}

#[test]
fn an_unknown_server_is_refused_by_its_name_until_it_has_qualified() {
    let Some(unknown) = unknown_server() else {
        return;
    };
    let mut server = Server::of_program(&unknown.program, &[]);
    let mut client = server.resp3();
    let version = &unknown.version;
    let why = format!("{version} has not been tried with tether; run tether qualify");
    let is_off = |server: &Server, client: &mut Client, state: &str| {
        assert_eq!(private_functions(server), state);
        let refused = client.refused("WATCHEX k");
        assert!(
            refused.starts_with("ERR pushes are off: ") && refused.contains(&why),
            "{refused}"
        );
        client.run("SESSION.START");
        let refused = client.refused("LOCK.ACQUIRE k ACKS 1");
        assert!(
            refused.starts_with("ERR ACKS is off: ") && refused.contains(&why),
            "{refused}"
        );
        client.run("SESSION.END");
    };
    is_off(&server, &mut client, "unknown");
    let log = server.log();
    assert!(
        log.contains("WATCHEX, PUSH and NOTIFY are refused") && log.contains(&why),
        "{log}"
    );
    client.run("CONFIG SET tether.private-functions tested");
    assert!(
        client
            .refused("WATCHEX k")
            .contains("tether.private-functions is tested")
    );
    client.run("CONFIG SET tether.private-functions always");
    assert_eq!(private_functions(&server), "tried");
    assert_eq!(client.run("WATCHEX k"), bulk("NOEXIST"));
    client.run_all(&["UNWATCHEX k", "CONFIG SET tether.private-functions known"]);
    // Another program has qualified.
    assert!(!server.info("tether").contains("tether_server_build_id"));
    client.run("CONFIG SET tether.qualified 00112233");
    is_off(&server, &mut client, "unknown");
    let id = server_build_id(&server);
    client.run([
        "CONFIG",
        "SET",
        "tether.qualified",
        &format!("00112233 {id}"),
    ]);
    assert_eq!(private_functions(&server), "qualified");
    assert_eq!(client.run("WATCHEX k"), bulk("NOEXIST"));
    for wanted in ["tested", "never"] {
        client.run(["CONFIG", "SET", "tether.private-functions", wanted]);
        assert!(!client.refused("WATCHEX k").is_empty());
    }
    drop(server);
    server = Server::of_program(
        &unknown.program,
        &[&format!("tether.qualified {id} 00112233")],
    );
    assert_eq!(private_functions(&server), "qualified");
    assert!(
        server.log().contains("it has qualified"),
        "{}",
        server.log()
    );
    assert_eq!(server.resp3().run("WATCHEX k"), bulk("NOEXIST"));
}

fn server_build_id(server: &Server) -> String {
    let info = server.info("tether");
    let field = "tether_server_build_id:";
    let line = info.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_else(|| panic!("{info}")).to_owned()
}

#[test]
fn another_patch_release_of_a_known_series_counts_with_a_warning() {
    // The last digits of 7.0.15 and of 8.0.6 become nines.
    let other =
        Posing::with(|[major, minor, patch]| [major, minor, if patch > 9 { 99 } else { 9 }]);
    let server = Server::of_program(&other.program, &[]);
    assert_eq!(private_functions(&server), "known");
    let said = format!(
        "{}, which tether was not tested on: pushes are on",
        other.version
    );
    assert!(server.log().contains(&said), "{}", server.log());
    assert_eq!(server.resp3().run("WATCHEX k"), bulk("NOEXIST"));
    let strict = Server::of_program(&other.program, &["tether.private-functions tested"]);
    assert_eq!(private_functions(&strict), "unknown");
    let refused = strict.resp3().refused("WATCHEX k");
    let why = format!("{}, and tether.private-functions is tested", other.version);
    assert!(refused.contains(&why), "{refused}");
    let tested = Server::with(&["tether.private-functions tested"]);
    assert_eq!(private_functions(&tested), "known");
}

#[test]
fn a_version_that_is_known_to_fail_is_never_called() {
    if Server::start().is_at_least((7, 2), (7, 2)) {
        return say("only Redis 7.0 can pose as 7.0.0");
    }
    let bad = Posing::with(|[major, minor, _]| [major, minor, 0]);
    for lines in [&[][..], &["tether.private-functions always"]] {
        let server = Server::of_program(&bad.program, lines);
        assert_eq!(private_functions(&server), "bad");
        let refused = server.resp3().refused("WATCHEX k");
        assert!(
            refused.contains("Redis 7.0.0 is known to fail with tether: "),
            "{refused}"
        );
    }
}

/// `tether qualify` loads the module so. Whatever the calls pass in unused registers, a known server does not read it.
#[test]
fn a_trial_calls_them_with_anything_in_unused_registers() {
    for unused in ["0", "a5a5a5a5a5a5a5a5"] {
        let module = format!("{} trial {unused}", module().display());
        let server = Server::with_module(module.as_ref(), &["tether.private-functions never"]);
        assert_eq!(private_functions(&server), "trial");
        assert!(server_build_id(&server).len() >= 32);
        let (mut holder, mut other) = (server.resp3(), server.resp2());
        holder.run_all(&["WATCHEX k", "LOCK.ACQUIRE l NOTIFY"]);
        other.send("LOCK.ACQUIRE l WAIT 0");
        eventually_equal("waiters", 1, || server.gauge("tether", "tether_waiters"));
        server.resp2().run_all(&["SET k v", "DEL k l"]);
        assert_eq!(
            holder.next_pushes(3),
            ["watchex k ADD", "watchex k DEL", "lock l LOST deleted"]
        );
        assert!(other.read_reply().number() > 0);
    }
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
