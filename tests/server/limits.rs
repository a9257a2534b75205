//! Limits, settings and bad input: what is refused changes nothing, and says what is wrong.

use crate::harness::*;

const SETTINGS: &[(&str, &str)] = &[
    ("tether.resp2-push", "yes"),
    ("tether.max-watches-per-client", "65536"),
    ("tether.max-watch-bytes-per-client", "8388608"),
    ("tether.max-watch-bytes", "67108864"),
    ("tether.max-keys-per-client", "65536"),
    ("tether.max-sessions", "65536"),
    ("tether.max-sessions-per-user", "32768"),
    ("tether.max-grace", "86400000"),
    ("tether.peer-timeout", "10000"),
    ("tether.quarantine", "0"),
    ("tether.cluster-backstop", "60000"),
    ("tether.log-max-len", "1024"),
    ("tether.private-functions", "known"),
    ("tether.qualified", "none"),
];

fn get(client: &mut Client, name: &str) -> String {
    let items = client.run(["CONFIG", "GET", name]).items();
    assert_eq!(items[0], bulk(name), "CONFIG GET {name}");
    items[1].text()
}

#[test]
fn every_setting_has_its_default() {
    let server = Server::start();
    let mut client = server.resp2();
    for (name, default) in SETTINGS {
        assert_eq!(get(&mut client, name), *default, "{name}");
    }
    assert_eq!(
        client.run("CONFIG GET tether.*").items().len(),
        2 * SETTINGS.len()
    );
}

#[test]
fn every_setting_can_be_set_and_given_in_the_file() {
    let values = [
        ("resp2-push", "no"),
        ("max-watches-per-client", "7"),
        ("max-watch-bytes-per-client", "9"),
        ("max-watch-bytes", "4294967295"),
        ("max-keys-per-client", "1000000"),
        ("max-sessions", "0"),
        ("max-sessions-per-user", "1"),
        ("max-grace", "10000"),
        ("peer-timeout", "0"),
        ("quarantine", "1"),
        ("cluster-backstop", "0"),
        ("log-max-len", "0"),
        ("private-functions", "never"),
        ("qualified", "0123456789abcdef fedcba98"),
    ];
    let lines: Vec<_> = values
        .iter()
        .map(|(name, value)| format!("tether.{name} {value}"))
        .collect();
    let from_file = Server::with(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let at_run_time = Server::start();
    for (name, value) in values {
        let name = format!("tether.{name}");
        assert_eq!(
            get(&mut from_file.resp2(), &name),
            value,
            "{name} from the file"
        );
        let mut client = at_run_time.resp2();
        assert_eq!(client.run(["CONFIG", "SET", &name, value]), ok());
        assert_eq!(get(&mut client, &name), value, "{name} at run time");
    }
}

#[test]
fn settings_survive_config_rewrite() {
    let server = Server::start();
    let mut client = server.resp2();
    client.run_all(&[
        "CONFIG SET tether.max-keys-per-client 9 tether.resp2-push no",
        "CONFIG REWRITE",
    ]);
    let file = std::fs::read_to_string(server.folder().join("redis.conf")).unwrap();
    for line in ["tether.max-keys-per-client 9", "tether.resp2-push no"] {
        assert_eq!(
            file.lines().filter(|written| *written == line).count(),
            1,
            "{line} in the rewritten file"
        );
    }
}

#[test]
fn a_server_that_refused_a_setting_at_load_goes_on_without_the_module() {
    let server = Server::with(&[WITHOUT_MODULE, "enable-module-command yes"]);
    let mut client = server.resp2();
    let library = module().display().to_string();
    let load = [
        "MODULE",
        "LOADEX",
        &library,
        "CONFIG",
        "tether.peer-timeout",
    ];
    client.refused([&load[..], &["soon"]].concat());
    // A load of data and a change of role are told to whoever listens.
    client.run_all(&[
        "SET k v",
        "DEBUG RELOAD",
        "REPLICAOF 127.0.0.1 1",
        "REPLICAOF NO ONE",
    ]);
    client.refused("SETTP k v");
    client.run([&load[..], &["5000"]].concat());
    assert_eq!(get(&mut client, "tether.peer-timeout"), "5000");
    client.run_all(&["SESSION.START", "SETTP mine v", "DEBUG RELOAD"]);
    assert_eq!(client.call("DELTP mine k"), int(1));
}

/// Servers end when a module with a data type leaves one, so it leaves none.
#[test]
fn a_setting_that_does_not_exist_is_ignored_by_loadex_and_ends_no_server() {
    let server = Server::with(&[WITHOUT_MODULE, "enable-module-command yes"]);
    if server.is_at_least((8, 0), (u32::MAX, 0)) {
        return say(
            "a_setting_that_does_not_exist_...: Redis 8 ends all the same, see docs/tasks.md",
        );
    }
    let mut client = server.resp2();
    client.run("SET k v");
    // No number that an operator resets tells a start from later.
    client.run("CONFIG RESETSTAT");
    let library = module().display().to_string();
    client.run([
        "MODULE",
        "LOADEX",
        &library,
        "CONFIG",
        "tether.peer-timeuot",
        "1",
        "CONFIG",
        "tether.peer-timeout",
        "5000",
        "CONFIG",
        "tether.resp2-push",
        "no",
        "CONFIG",
        "tether.private-functions",
        "never",
    ]);
    for (name, default) in SETTINGS {
        let expected = match *name {
            "tether.peer-timeout" => "5000",
            "tether.resp2-push" => "no",
            "tether.private-functions" => "never",
            _ => default,
        };
        assert_eq!(get(&mut client, name), expected, "{name}");
    }
    client.run("CONFIG SET tether.peer-timeout 6000");
    assert_eq!(client.call("SETTP mine v"), int(1));
    assert_eq!(client.call("GET k"), bulk("v"));
}

#[test]
fn a_bad_value_is_refused_and_the_old_one_stays() {
    let server = Server::start();
    let mut client = server.resp2();
    for (name, default) in SETTINGS {
        let bad: &[&str] = if default.parse::<i64>().is_err() {
            &["maybe", "2", ""]
        } else {
            &["-1", "many", "1.5", "", "99999999999999999999"]
        };
        for value in bad {
            client.refused(["CONFIG", "SET", name, value]);
            assert_eq!(get(&mut client, name), *default, "{name} after {value:?}");
        }
    }
    client.refused("CONFIG SET tether.no-such-thing 1");
}

#[test]
fn too_many_watches_are_refused_and_none_of_the_command_is_added() {
    let server = Server::with(&["tether.max-watches-per-client 4"]);
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX a b");
    watcher.refused("WATCHEX c d e");
    other.run("MSET a v c v d v e v");
    assert_eq!(server.settled(&mut watcher), ["watchex a ADD"]);
    assert_eq!(watcher.call("UNWATCHEX c d e"), int(0));
    watcher.run("WATCHEX a b c d");
    watcher.run("WATCHEX d c b a");
    watcher.refused("WATCHEX e");
    watcher.run("SELECT 3");
    watcher.refused("WATCHEX a");
    watcher.run_all(&["SELECT 0", "UNWATCHEX a"]);
    watcher.run("WATCHEX e e e");
    server.resp3().run("WATCHEX a b c d"); // each connection has its own
    assert_eq!(watcher.call("UNWATCHEX"), int(4));
}

#[test]
fn names_that_are_too_long_together_are_refused_to_one_and_to_all() {
    let server = Server::with(&[
        "tether.max-watch-bytes-per-client 10",
        "tether.max-watch-bytes 15",
    ]);
    let (mut one, mut two, mut three) = (server.resp3(), server.resp3(), server.resp3());
    let of_one = "ERR the names watched by one connection are too long together (tether.max-watch-bytes-per-client is 10)";
    let of_all = "ERR the names watched by all connections are too long together (tether.max-watch-bytes is 15)";
    assert_eq!(one.refused("WATCHEX 12345678901"), of_one);
    one.run("WATCHEX 12345 1234 1234");
    one.run("WATCHEX 12345 1234");
    assert_eq!(one.refused("WATCHEX 1234 ab"), of_one);
    // Names that are watched already count once among all.
    two.run("WATCHEX 12345 1234");
    assert_eq!(two.refused("WATCHEX ab"), of_one);
    assert_eq!(three.refused("WATCHEX abcdefg"), of_all);
    assert_eq!(three.call("UNWATCHEX"), int(0));
    three.run("WATCHEX abcdef 1234");
    one.run("UNWATCHEX 12345");
    assert_eq!(one.refused("WATCHEX x"), of_all);
    two.run("UNWATCHEX 12345");
    one.run("WATCHEX x");
    drop(three);
    eventually("room for what another watched", || {
        match two.call("WATCHEX yyyyyy") {
            Frame::Error(refusal) => Err(String::from_utf8_lossy(&refusal).into_owned()),
            _ => Ok(()),
        }
    });
}

/// Names are in no limit of the server's: they must not push out what others have stored.
#[test]
fn a_strangers_watches_evict_nothing() {
    let server = Server::with(&["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);
    let (mut owner, mut stranger) = (server.resp2(), server.resp3());
    for n in 0..40 {
        owner.run(["SET", &format!("data{n}"), &"d".repeat(1 << 20)]);
    }
    let mut refused = 0;
    for n in 0..400 {
        let name = format!("{n}{}", "n".repeat(1 << 20));
        refused += u32::from(matches!(stranger.call(["WATCHEX", &name]), Frame::Error(_)));
    }
    assert!(refused > 390, "{refused}");
    assert_eq!(owner.call("DBSIZE"), int(40));
    owner.run("CONFIG SET maxmemory-policy noeviction maxmemory 1");
    let refusal = stranger.refused("WATCHEX short");
    assert!(refusal.starts_with("OOM"), "{refusal}");
}

#[test]
fn the_default_limits_are_exact() {
    let server = Server::start();
    let mut client = server.resp3();
    let watch = |range: std::ops::Range<u32>| {
        let names = range.map(|n| format!("key:{n}"));
        ["WATCHEX".to_owned()]
            .into_iter()
            .chain(names)
            .collect::<Vec<_>>()
    };
    client.refused(watch(0..65_537));
    assert_eq!(client.call("UNWATCHEX"), int(0));
    assert_eq!(client.run(watch(0..65_536)).items().len(), 65_536);
    client.refused("WATCHEX one-more");
    assert_eq!(client.call("UNWATCHEX"), int(65_536));

    let take: Vec<u8> = (0..65_537)
        .flat_map(|n| encode(["SETTP", &format!("key:{n}"), "v"]))
        .collect();
    client.send_bytes(&take);
    assert!(
        client
            .read_replies(65_536)
            .iter()
            .all(|reply| *reply == int(1))
    );
    assert!(matches!(client.read_reply(), Frame::Error(_)));
    drop(client);
    eventually_equal("the number of keys", int(0), || {
        server.resp2().run("DBSIZE")
    });
}

#[test]
fn the_limit_of_watches_is_read_anew_for_each_command() {
    let server = Server::start();
    let mut watcher = server.resp3();
    watcher.run_all(&[
        "WATCHEX a b c",
        "CONFIG SET tether.max-watches-per-client 2",
    ]);
    watcher.refused("WATCHEX d");
    watcher.run("WATCHEX a b c");
    assert_eq!(watcher.call("UNWATCHEX a b"), int(2));
    watcher.run("WATCHEX d");
    watcher.run("CONFIG SET tether.max-watches-per-client 3");
    watcher.run("WATCHEX e");
}

#[test]
fn too_many_keys_are_refused() {
    let server = Server::with(&["tether.max-keys-per-client 3"]);
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    owner.run_all(&["SETTP a v", "SELECT 3", "SETTP b v", "SETTP c v"]);
    owner.refused("SETTP d v");
    assert_eq!(owner.call("EXISTS d"), int(0));
    other.run_all(&["SELECT 3", "SETTP e v", "SETTP f v", "SETTP g v"]); // each connection has its own
    owner.run("DEL b");
    assert_eq!(owner.call("SETTP d v"), int(1));
    owner.refused("SETTP h v");
    other.run("DEL c");
    assert_eq!(
        owner.call("SETTP h v"),
        int(1),
        "a lost key no longer counts"
    );
    drop(owner);
    eventually_equal("what is left", int(3), || other.call("DBSIZE"));
}

#[test]
fn a_wrong_number_of_arguments_is_refused() {
    let server = Server::start();
    let mut client = server.resp3();
    for command in ["SETTP", "SETTP k", "DELTP", "WATCHEX"] {
        let message = client.refused(command);
        assert!(
            message.contains("wrong number of arguments"),
            "{command}: {message}"
        );
    }
    assert_eq!(client.call("DBSIZE"), int(0));
    assert_eq!(client.call("UNWATCHEX"), int(0));
}

#[test]
fn an_unknown_option_is_refused_by_name() {
    let server = Server::start();
    let mut client = server.resp3();
    for option in ["NX", "EX", "FOO", "TOKENS"] {
        let message = client.refused(["SETTP", "k", "v", option]);
        assert!(
            message.starts_with("ERR ") && message.contains(option),
            "{option}: {message}"
        );
    }
    client.refused("SETTP k v FOO BAR");
    assert_eq!(client.call("EXISTS k"), int(0));
    client.run_all(&["MULTI", "SETTP k v FOO", "SETTP l v"]);
    let replies = client.run("EXEC").items();
    assert!(matches!(replies[0], Frame::Error(_)), "{replies:?}");
    assert_eq!(replies[1], int(1));
    assert_eq!(client.call("EXISTS k"), int(0));
}

#[test]
fn without_memory_settp_is_refused_and_the_owners_end_still_works() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp3());
    owner.run("SETTP k v");
    assert_eq!(other.call("WATCHEX k"), bulk("EXIST"));
    other.run("CONFIG SET maxmemory 1");
    let message = owner.refused("SETTP l v");
    assert!(message.starts_with("OOM "), "{message}");
    assert_eq!(other.call("EXISTS l"), int(0));
    drop(owner);
    assert_eq!(other.next_push(), "watchex k DEL");
    assert_eq!(other.call("UNWATCHEX"), int(1));
}

#[test]
fn on_a_replica_settp_is_refused_and_watchex_works() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut client = replica.resp3();
    for command in ["SETTP k v", "DELTP k"] {
        let message = client.refused(command);
        assert!(message.starts_with("READONLY "), "{command}: {message}");
    }
    assert_eq!(client.call("WATCHEX k"), bulk("NOEXIST"));
    assert_eq!(client.call("UNWATCHEX k"), int(1));
    assert_eq!(master.resp2().call("EXISTS k"), int(0));
}

#[test]
fn when_a_master_with_owners_becomes_a_replica_their_end_writes_nothing() {
    let master = Server::start();
    let other = Server::start();
    let mut owner = other.resp2();
    owner.run("SETTP k v");
    master.resp2().run("SET k theirs");
    other.follow(&master); // `k` is now what the master says
    drop(owner);
    other.settle();
    assert_eq!(other.resp2().call("GET k"), bulk("theirs"));
    assert_eq!(master.resp2().call("GET k"), bulk("theirs"));
}

/// A cluster of one server that has all the slots.
pub fn cluster() -> Server {
    let server = Server::with(&[
        "cluster-enabled yes",
        &format!("cluster-port {}", free_port()),
    ]);
    let mut client = server.resp2();
    client.run("CLUSTER ADDSLOTSRANGE 0 16383");
    eventually("the cluster", || {
        let info = client.run("CLUSTER INFO").text();
        if info.contains("cluster_state:ok") {
            Ok(())
        } else {
            Err(info)
        }
    });
    server
}

#[test]
fn in_a_cluster_keys_of_two_slots_are_refused() {
    let server = cluster();
    let mut client = server.resp3();
    for command in ["WATCHEX a b", "UNWATCHEX a b", "DELTP a b"] {
        let message = client.refused(command);
        assert!(message.starts_with("CROSSSLOT "), "{command}: {message}");
    }
    assert_eq!(
        client.call("WATCHEX {t}a {t}b"),
        array([bulk("NOEXIST"), bulk("NOEXIST")])
    );
    assert_eq!(client.call("WATCHEX a"), bulk("NOEXIST"));
    assert_eq!(client.call("UNWATCHEX {t}a {t}b"), int(2));
    assert_eq!(client.call("UNWATCHEX"), int(1));
}

#[test]
fn in_a_cluster_keys_come_and_go_with_their_owner() {
    let server = cluster();
    let (mut owner, mut watcher) = (server.resp2(), server.resp3());
    watcher.run("WATCHEX k");
    assert_eq!(owner.call("SETTP k v NOTIFY"), int(1));
    assert_eq!(watcher.next_push(), "watchex k ADD");
    drop(owner);
    assert_eq!(watcher.next_push(), "watchex k DEL");
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn the_server_knows_which_words_are_keys() {
    let server = Server::start();
    let mut client = server.resp2();
    for (command, keys) in [
        ("WATCHEX a b", vec!["a", "b"]),
        ("UNWATCHEX a b c", vec!["a", "b", "c"]),
        ("SETTP k v", vec!["k"]),
        ("DELTP a b", vec!["a", "b"]),
    ] {
        let expected = array(keys.iter().map(bulk));
        assert_eq!(
            client.run(&format!("COMMAND GETKEYS {command}")),
            expected,
            "{command}"
        );
    }
}
