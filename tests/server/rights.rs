//! Rights: key patterns and categories, as the server's ACL words its refusals.

use crate::harness::*;
use std::collections::BTreeSet;
use tether::command::TABLE;

/// A connection of a user with these rights.
fn user(server: &Server, rules: &str) -> Client {
    server
        .resp2()
        .run(&format!("ACL SETUSER u reset on >pw {rules}"));
    let mut client = server.resp3();
    client.run("AUTH u pw");
    client
}

/// Whether a module's commands have ACL categories at all.
fn knows_categories(server: &Server) -> bool {
    server.is_at_least((7, 2), (7, 2))
}

fn assert_noperm(client: &mut Client, command: &str) {
    let message = client.refused(command);
    assert!(message.starts_with("NOPERM "), "{command}: {message}");
}

#[test]
fn a_key_pattern_bounds_what_can_be_taken_and_watched() {
    let server = Server::start();
    let mut client = user(&server, "+@all ~app:*");
    assert_eq!(client.call("SETTP app:k v"), int(1));
    assert_eq!(
        client.call("WATCHEX app:k app:l"),
        array([bulk("EXIST"), bulk("NOEXIST")])
    );
    for command in [
        "SETTP k v",
        "DELTP k",
        "WATCHEX k",
        "WATCHEX app:k k",
        "WATCHEX k app:k",
    ] {
        assert_noperm(&mut client, command);
    }
    assert_eq!(server.resp2().call("EXISTS k"), int(0));
    assert_eq!(client.call("UNWATCHEX"), int(2));
}

/// However their number is written: what the server does not read as one has no keys for it.
#[test]
fn each_key_of_several_that_are_taken_in_one_step_needs_its_right() {
    let server = Server::start();
    let mut client = user(&server, "+@all ~app:* %R~r");
    assert!(client.call("LOCK.MACQUIRE 2 app:a app:b").number() > 0);
    for command in [
        "LOCK.MACQUIRE 1 k",
        "LOCK.MACQUIRE 2 k app:c",
        "LOCK.MACQUIRE 2 app:c k",
        "LOCK.MACQUIRE 2 app:c r",
        "LOCK.MACQUIRE 3 app:c app:d k WAIT 0 PUSH",
        "LOCK.MACQUIRE 2 app:c k OWNER one LEASE 10",
    ] {
        assert_noperm(&mut client, command);
        let dry = server.resp2().run(&format!("ACL DRYRUN u {command}"));
        assert!(dry.text().contains("no permissions"), "{command}: {dry:?}");
    }
    for number in [
        "01",
        "002",
        "+2",
        " 2",
        "2 ",
        "2.0",
        "-1",
        "0",
        "00",
        "2x",
        "0x2",
        "",
        "00000000000000000000000002",
        "18446744073709551618",
        "9",
    ] {
        for keys in [["k", "app:c"], ["app:c", "k"]] {
            let words = ["LOCK.MACQUIRE", number, keys[0], keys[1]];
            let message = client.refused(words);
            assert!(!message.is_empty(), "{number}");
        }
    }
    assert_eq!(lock_list(&mut server.resp2(), "").len(), 2);
    assert_eq!(server.resp2().call("DBSIZE"), int(2));
    // What stands behind the keys is none.
    assert!(client.call("LOCK.MACQUIRE 1 app:c OWNER k").number() > 0);
}

#[test]
fn watching_needs_the_right_to_read_and_taking_the_right_to_write() {
    let server = Server::start();
    let mut reader = user(&server, "+@all %R~k");
    assert_eq!(reader.call("WATCHEX k"), bulk("NOEXIST"));
    assert_eq!(reader.call("UNWATCHEX k"), int(1));
    assert_noperm(&mut reader, "SETTP k v");
    assert_noperm(&mut reader, "DELTP k");
    assert_noperm(&mut reader, "LOCK.CANCEL k");
    let mut writer = user(&server, "+@all %W~k");
    assert_eq!(writer.call("SETTP k v"), int(1));
    assert_noperm(&mut writer, "WATCHEX k");
    assert!(writer.call("LOCK.CANCEL k").number() > 1);
    assert_eq!(writer.call("DELTP k"), int(1));
}

#[test]
fn categories_bound_the_commands() {
    let server = Server::start();
    let mut client = user(&server, "+watchex ~*");
    assert_eq!(client.call("WATCHEX k"), bulk("NOEXIST"));
    assert_noperm(&mut client, "UNWATCHEX");
    if !knows_categories(&server) {
        return say(
            "categories_bound_the_commands: Redis 7.0 puts the commands of modules into none",
        );
    }
    let mut client = user(&server, "+@all -@write ~*");
    assert_noperm(&mut client, "SETTP k v");
    assert_eq!(client.call("WATCHEX absent"), bulk("NOEXIST"));
    let mut client = user(&server, "+@all -@read ~*");
    assert_noperm(&mut client, "WATCHEX absent");
    assert_eq!(client.call("SETTP k v"), int(1));
    let mut client = user(&server, "+@read ~*");
    assert_eq!(client.call("WATCHEX absent"), bulk("NOEXIST"));
    assert_noperm(&mut client, "SETTP k v");
}

#[test]
fn the_commands_are_in_their_categories() {
    let server = Server::start();
    if !knows_categories(&server) {
        return say(
            "the_commands_are_in_their_categories: Redis 7.0 puts the commands of modules into none",
        );
    }
    for (name, categories) in [
        ("settp", &["@keyspace", "@write", "@fast"][..]),
        ("deltp", &["@keyspace", "@write"]),
        ("watchex", &["@keyspace", "@read"]),
        ("unwatchex", &["@keyspace", "@read"]),
    ] {
        let info = server.resp2().run(["COMMAND", "INFO", name]).items()[0].items();
        let told: Vec<_> = info[6].items().iter().map(Frame::text).collect();
        for category in categories {
            assert!(
                told.iter().any(|told| told == category),
                "{name} is not in {category}: {told:?}"
            );
        }
    }
}

#[test]
fn one_category_has_all_commands() {
    let server = Server::start();
    if !server.has_own_category() {
        server.resp2().refused("ACL SETUSER u +@lock");
        return say("one_category_has_all_commands: this server's modules add no categories");
    }
    // Redis 7.4 leaves the commands of modules out of ACL CAT.
    let list = "COMMAND LIST FILTERBY ACLCAT lock";
    let named = server.resp2().run(list).items();
    let named: BTreeSet<_> = named.iter().map(Frame::text).collect();
    let all = TABLE.iter().map(|spec| spec.name.to_owned());
    assert_eq!(named, all.collect());
    let mut client = user(&server, "+@lock ~app:*");
    assert!(client.call("LOCK.ACQUIRE app:k").number() > 0);
    assert_eq!(client.call("SETTP app:t v"), int(1));
    assert_eq!(client.call("SESSION.LIST"), array([]));
    for command in ["GET app:k", "DEL app:k", "PING", "LOCK.ACQUIRE k"] {
        assert_noperm(&mut client, command);
    }
    let mut client = user(&server, "+@lock -@admin ~app:*");
    assert_eq!(client.call("SETTP app:u v"), int(1));
    assert_noperm(&mut client, "SESSION.LIST");
    let mut client = user(&server, "+@all -@lock ~*");
    assert_eq!(client.call("SET k v"), ok());
    for command in ["LOCK.ACQUIRE app:k", "SETTP k v", "LOCK.SERVER"] {
        assert_noperm(&mut client, command);
    }
}

/// The server reads users before or after it loads modules, wherever their lines stand.
#[test]
fn a_configuration_may_name_the_category() {
    if !Server::start().has_own_category() {
        return say("a_configuration_may_name_the_category: this server's modules add none");
    }
    let mut server = Server::with(&["user u on >pw ~app:* +@lock"]);
    let mut client = server.resp2();
    client.run("AUTH u pw");
    assert!(client.call("LOCK.ACQUIRE app:k").number() > 0);
    assert_noperm(&mut client, "GET app:k");
    server.resp2().run("CONFIG REWRITE");
    server.kill();
    server.restart_as_it_was();
    let mut client = server.resp2();
    client.run("AUTH u pw");
    assert!(client.call("LOCK.ACQUIRE app:k").number() > 0);
}

#[test]
fn command_info_tells_flags_and_keys() {
    let server = Server::start();
    let mut client = server.resp2();
    for (name, arity, flags, first, last) in [
        (
            "settp",
            -3,
            &["write", "denyoom", "noscript", "fast"][..],
            1,
            1,
        ),
        ("deltp", -2, &["fast", "noscript"][..], 1, -1),
        ("watchex", -2, &["readonly", "noscript"][..], 1, -1),
        ("unwatchex", -1, &["noscript"][..], 1, -1),
    ] {
        let info = client.run(["COMMAND", "INFO", name]).items()[0].items();
        assert_eq!(info[1], int(arity), "{name}'s arity");
        let told: Vec<_> = info[2].items().iter().map(Frame::text).collect();
        for flag in flags {
            assert!(
                told.iter().any(|told| told == flag),
                "{name} is not {flag}: {told:?}"
            );
        }
        assert_eq!(
            (&info[3], &info[4]),
            (&int(first), &int(last)),
            "{name}'s keys"
        );
    }
}

#[test]
fn a_user_without_rights_to_del_still_frees_its_keys_by_ending() {
    let server = Server::start();
    let mut owner = user(&server, "+settp ~k");
    assert_eq!(owner.call("SETTP k v"), int(1));
    drop(owner);
    eventually_gone(&mut server.resp2(), "k");
}

#[test]
fn deleting_the_user_ends_its_connections_and_their_keys() {
    let server = Server::start();
    let mut owner = user(&server, "+@all ~*");
    assert_eq!(owner.call("SETTP k v"), int(1));
    let mut other = server.resp2();
    assert_eq!(other.call("ACL DELUSER u"), int(1));
    eventually_gone(&mut other, "k");
    owner.expect_closed();
}

#[test]
fn before_authentication_nothing_works() {
    let server = Server::start();
    server.resp2().run("CONFIG SET requirepass secret");
    let mut client = server.resp2();
    for command in ["SETTP k v", "DELTP k", "WATCHEX k", "UNWATCHEX"] {
        let message = client.refused(command);
        assert!(message.starts_with("NOAUTH "), "{command}: {message}");
    }
    client.run("AUTH secret");
    assert_eq!(client.call("SETTP k v"), int(1));
}

#[test]
fn a_circle_names_no_key_and_no_label_that_the_caller_may_not_read() {
    let server = Server::start();
    let (mut client, mut other) = (user(&server, "+@all ~app:* %W~secret"), server.resp3());
    other.run("LOCK.ACQUIRE secret OWNER hidden");
    let waits = [
        "LOCK.ACQUIRE",
        "app:n",
        "OWNER",
        "hidden",
        "WAIT",
        "0",
        "PUSH",
    ];
    client.run("LOCK.ACQUIRE app:n");
    assert_eq!(other.call(waits), null());
    let message = client.refused("LOCK.ACQUIRE secret WAIT 0");
    assert!(message.starts_with("DEADLOCK "), "{message}");
    for word in ["secret", "hidden'"] {
        assert!(!message.contains(word), "{message}");
    }
    assert!(message.contains("a key that you may not read"), "{message}");
    assert!(message.contains("'app:n'"), "{message}");
    // Who may read them is told both.
    let mut all = user(&server, "+@all ~*");
    all.run("LOCK.ACQUIRE app:o");
    let waits = [
        "LOCK.ACQUIRE",
        "app:o",
        "OWNER",
        "hidden",
        "WAIT",
        "0",
        "PUSH",
    ];
    assert_eq!(other.call(waits), null());
    let message = all.refused("LOCK.ACQUIRE secret WAIT 0");
    assert!(message.contains("'secret' of client"), "{message}");
    assert!(message.contains("(owner 'hidden')"), "{message}");
}

#[test]
fn of_long_names_and_labels_an_error_shows_a_part() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let (key, label) = ("k".repeat(9_999), "l".repeat(9_999));
    one.run(["LOCK.ACQUIRE", &key, "OWNER", &label]);
    two.run("LOCK.ACQUIRE short");
    let waits = [
        "LOCK.ACQUIRE",
        "short",
        "OWNER",
        &label,
        "WAIT",
        "0",
        "PUSH",
    ];
    assert_eq!(one.call(waits), null());
    let message = two.refused(["LOCK.ACQUIRE", &key, "WAIT", "0"]);
    assert!(message.starts_with("DEADLOCK "), "{message}");
    assert!(message.len() < 500, "{} bytes", message.len());
    assert!(message.contains(&"k".repeat(64)), "{message}");
}
