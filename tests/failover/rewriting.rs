//! Append-only files that are rewritten while keys are bound: what was bound is bound still, in either form of the file.

use crate::harness::*;
use crate::line::*;
use std::fs;

fn lines(preamble: &str) -> Vec<String> {
    vec![
        "appendonly yes".into(),
        "appendfsync always".into(),
        format!("aof-use-rdb-preamble {preamble}"),
    ]
}

fn start(preamble: &str) -> Server {
    let lines = lines(preamble);
    Server::with(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn rewrite(server: &Server) {
    let before = server.gauge("persistence", "aof_rewrites");
    server.resp2().run("BGREWRITEAOF");
    wait_for_rewriting(server, before + 1);
}

/// Waits until the file was rewritten so many times since the server's start.
pub fn wait_for_rewriting(server: &Server, times: i64) {
    eventually("the rewriting", || {
        let info = server.info("persistence");
        let words = ["rewrite_in_progress:0", "rewrite_scheduled:0", "enabled:1"];
        let done = words
            .iter()
            .all(|word| info.contains(&format!("aof_{word}\r\n")));
        let seen = server.gauge("persistence", "aof_rewrites");
        if done && seen >= times {
            Ok(())
        } else {
            Err(info)
        }
    });
    let info = server.info("persistence");
    assert!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
}

/// Makes what is bound, what is not, and what was bound once.
fn fill(one: &mut Client, other: &mut Client) {
    one.run_all(&["SETTP a v", "SETTP b v", "LOCK.ACQUIRE l", "SELECT 3"]);
    one.run_all(&["SETTP a v", "LOCK.ACQUIRE m SHARED", "SELECT 0"]);
    one.run_all(&["SETTP renamed v", "RENAME renamed r", "SETTP was v"]);
    other.run_all(&["SET plain v", "COPY a copy", "SET was stranger"]);
    one.run_all(&["DELTP was", "SETTP was v"]);
    other.run_all(&["DEL was", "SET was stranger"]);
}

/// After a restart the bound keys refuse nobody and go; the others stay.
fn assert_only_plain_keys_are_left(server: &Server) {
    let mut newcomer = server.resp2();
    assert_eq!(newcomer.run("SETTP a w"), int(1));
    assert!(newcomer.run("LOCK.ACQUIRE l").number() > 0);
    let mut left = Vec::new();
    eventually("the end of what was bound", || {
        let keys = newcomer.run("KEYS *").items();
        left = keys.iter().map(Frame::text).collect::<Vec<_>>();
        left.sort();
        match left == ["a", "copy", "l", "plain", "was"] {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    });
    assert_eq!(newcomer.run("GET was"), bulk("stranger"));
    newcomer.run("SELECT 3");
    assert_eq!(newcomer.run("DBSIZE"), int(0));
}

#[test]
fn bindings_outlive_a_rewriting_in_either_form() {
    for preamble in ["yes", "no"] {
        let mut server = start(preamble);
        let (mut one, mut other) = (server.resp3(), server.resp3());
        fill(&mut one, &mut other);
        rewrite(&server);
        server.crash_and_restart();
        drop((one, other));
        assert_only_plain_keys_are_left(&server);
        server.crash_and_restart();
        let mut newcomer = server.resp2();
        assert_eq!(newcomer.run("SETTP a w"), int(1), "{preamble}");
        assert!(newcomer.run("LOCK.ACQUIRE l").number() > 0, "{preamble}");
    }
}

#[test]
fn what_is_bound_and_freed_after_the_fork_is_told_in_order() {
    let mut server = start("no");
    let (mut one, mut other) = (server.resp3(), server.resp3());
    fill(&mut one, &mut other);
    one.run_all(&["SETTP gone v", "SETTP taken v", "SETTP moved v"]);
    one.run("BGREWRITEAOF");
    // The rewriting may be under way, or over.
    one.run_all(&["DELTP gone", "SETTP later v", "RENAME moved elsewhere"]);
    other.run_all(&["DEL taken", "SET taken stranger", "SET gone stranger"]);
    wait_for_rewriting(&server, 1);
    server.crash_and_restart();
    drop((one, other));
    let mut newcomer = server.resp2();
    for key in ["later", "moved", "elsewhere"] {
        assert_eq!(newcomer.run(["SETTP", key, "w"]), int(1), "{key}");
    }
    newcomer.run("DELTP later moved elsewhere");
    assert_eq!(
        newcomer.run("MGET gone taken"),
        array([bulk("stranger"), bulk("stranger")])
    );
    newcomer.run("DEL gone taken");
    drop(newcomer);
    eventually_nothing_is_left(&server);
    assert_only_plain_keys_are_left(&server);
}

#[test]
fn an_append_only_file_that_is_switched_on_knows_what_is_bound() {
    for preamble in ["yes", "no"] {
        let line = format!("aof-use-rdb-preamble {preamble}");
        let mut server = Server::with(&["appendfsync always", &line]);
        let (mut one, mut other) = (server.resp3(), server.resp3());
        fill(&mut one, &mut other);
        other.run("CONFIG SET appendonly yes");
        wait_for_rewriting(&server, 1);
        let lines = lines(preamble);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        server.restart(&lines);
        drop((one, other));
        assert_only_plain_keys_are_left(&server);
    }
}

#[test]
fn a_replicas_own_file_knows_what_is_bound() {
    let master = Server::start();
    let (mut one, mut other) = (master.resp3(), master.resp3());
    fill(&mut one, &mut other);
    let lines = lines("no");
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    // Its full resynchronisation ends with a rewriting.
    let mut replica = Server::replica_of(&master, &lines);
    wait_for_rewriting(&replica, 1);
    one.run("SETTP later v");
    replica.catch_up(&master);
    replica.restart(&lines);
    let mut newcomer = replica.resp2();
    assert_eq!(newcomer.run("SETTP later w"), int(1));
    newcomer.run("DELTP later");
    assert_only_plain_keys_are_left(&replica);
    drop((one, other));
}

/// While the server must not write, the telling waits too.
#[test]
fn a_rewriting_within_a_pause_is_told_after_it() {
    let mut server = start("no");
    let (mut one, mut other) = (server.resp3(), server.resp3());
    fill(&mut one, &mut other);
    other.run("CLIENT PAUSE 300 WRITE");
    rewrite(&server);
    // Held up until the pause is over.
    other.run("SET plain v");
    eventually("the telling", || {
        let all = server.append_only_text();
        if all.contains("TETHER.BOUND") {
            Ok(())
        } else {
            Err(format!("{} bytes without it", all.len()))
        }
    });
    server.crash_and_restart();
    drop((one, other));
    assert_only_plain_keys_are_left(&server);
}

#[test]
fn a_server_that_never_bound_anything_writes_a_file_for_any_server() {
    let server = start("no");
    let mut client = server.resp2();
    client.run_all(&["SET plain v", "WATCHEX plain"]);
    rewrite(&server);
    client.run("SET plain w");
    let all = server.append_only_text();
    assert!(all.contains("plain") && !all.contains("TETHER"), "{all}");
}

/// It has read of a token from the far future, has given none since, and nothing is held: its copies of the data say
/// nothing of tokens.
#[test]
fn a_server_passes_on_the_last_token_that_it_has_only_read_of() {
    const FAR: i64 = 4_000_000_000_000_000;
    for preamble in ["yes", "no"] {
        let mut server = Server::start();
        let file = server.folder().join("appendonly.aof");
        fs::write(file, encode(["TETHER.TOKEN", &FAR.to_string()])).expect("an append-only file");
        let lines = lines(preamble);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        server.restart(&lines);
        let replica = Server::replica_of(&server, &[]);
        eventually("what the replica knows", || {
            match tether(&replica, "last_token") {
                known if known >= FAR => Ok(()),
                known => Err(known.to_string()),
            }
        });
        rewrite(&server);
        server.crash_and_restart();
        let given = server.resp2().run("SETTP k v TOKEN").number();
        assert!(given > FAR, "{given}");
    }
}

#[test]
fn replicas_are_not_told_of_a_rewriting() {
    let master = start("no");
    let replica = Server::replica_of(&master, &[]);
    let mut one = master.resp3();
    one.run_all(&["SETTP a v", "LOCK.ACQUIRE l"]);
    rewrite(&master);
    one.run("SET plain v");
    assert!(master.append_only_text().contains("TETHER.BOUND"));
    replica.catch_up(&master);
    let calls = replica.info("commandstats").to_lowercase();
    assert!(calls.contains("cmdstat_tether.settp:calls=1,"), "{calls}");
    assert!(calls.contains("cmdstat_set:calls=1,"), "{calls}");
    assert!(!calls.contains("bound"), "{calls}");
}

#[test]
fn only_the_stream_may_say_what_is_bound() {
    let server = Server::start();
    let mut client = server.resp2();
    client.run("SET plain v");
    let refusal = client.refused("TETHER.BOUND plain");
    let expected = server.refusal_of_internal_commands();
    assert!(refusal.contains(expected), "{refusal}");
    assert_eq!(client.run("SETTP plain w"), int(0));
}
