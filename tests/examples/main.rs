//! The programs of examples/, run as a reader would run them, against a server of their own.
//!
//! The servers' tests say what the module does; these say that stock clients can tell a story with it. One is about
//! being told (redis-cli, redis-py and hiredis over RESP3, without a patch), and what it must say is in `assert_told`;
//! the other about waiting in line, with the client's ordinary blocking call (redis-py, ioredis, redis-rs), and is
//! in `assert_handed_over`. What comes of a pool is in `pools.rs`.

#![cfg(feature = "server")]

mod pools;
mod programs;

use programs::{
    Example, c_example, node_example, python_example, redis_cli_example, rust_example,
    shown_in_python,
};
use std::fs;
use std::thread::scope;
use tether_testing::harness::{Server, eventually_equal};
use tether_testing::project;

const WATCHERS: [&str; 3] = ["ann", "bob", "cy"];

// ---- the story of being told ----

#[test]
fn redis_cli_tells_the_story() {
    tells_the_story(&redis_cli_example());
}

#[test]
fn redis_cli_says_so_when_the_story_does_not_come_true() {
    says_so_when_the_lock_is_not_free(&redis_cli_example());
}

#[test]
fn redis_py_tells_the_story() {
    tells_the_story(&python_example("story.py"));
}

#[test]
fn redis_py_says_so_when_the_story_does_not_come_true() {
    says_so_when_the_lock_is_not_free(&python_example("story.py"));
}

#[test]
fn hiredis_tells_the_story() {
    tells_the_story(&c_example());
}

#[test]
fn hiredis_says_so_when_the_story_does_not_come_true() {
    says_so_when_the_lock_is_not_free(&c_example());
}

#[test]
fn the_readme_shows_the_story_and_how_to_run_it() {
    assert_told(&shown_in_the_readme(
        &[
            "examples/redis-cli/story.sh",
            "python3 examples/python/story.py",
            "make -C examples/c && examples/c/story",
        ],
        "holder: ",
    ));
}

fn tells_the_story(example: &Example) {
    let server = Server::start();
    // Twice: the first time must leave nothing behind that spoils the second.
    for _ in 0..2 {
        let (status, story) = example.run(server.port());
        assert!(status.success(), "{status}:\n{story}");
        assert_told(&story);
        for what in ["tether_temporary_keys", "tether_watches"] {
            eventually_equal(what, 0, || server.gauge("tether", what));
        }
    }
}

fn says_so_when_the_lock_is_not_free(example: &Example) {
    let server = Server::start();
    server.resp2().run("SET lock somebody");
    let (status, story) = example.run(server.port());
    assert_eq!(status.code(), Some(1), "{story}");
    assert!(story.contains("The story fails: "), "{story}");
}

/// Asserts that this is the story, whole, and nothing besides. The three watchers may speak in any order.
fn assert_told(story: &str) {
    let lines: Vec<&str> = story.lines().collect();
    let at = |line: &str| {
        let places: Vec<_> = (0..lines.len())
            .filter(|place| lines[*place] == line)
            .collect();
        assert_eq!(places.len(), 1, "`{line}` must be there once:\n{story}");
        places[0]
    };

    let killed = at("The holder is killed with SIGKILL.");
    let mut winners = Vec::new();
    for name in WATCHERS {
        let refused = at(&format!("{name}: SETTP lock {name} -> 0, somebody has it"));
        let watching = at(&format!("{name}: WATCHEX lock -> EXIST, I shall be told"));
        let heard = at(&format!("{name}: hears: watchex lock DEL"));
        let won = format!("{name}: tries SETTP lock {name} -> 1, it is mine");
        let tried = if lines.contains(&won.as_str()) {
            winners.push(name);
            at(&won)
        } else {
            at(&format!("{name}: tries SETTP lock {name} -> 0, too late"))
        };
        let order = [refused, watching, killed, heard, tried];
        assert!(
            order.is_sorted(),
            "{name}'s part is out of order ({order:?}):\n{story}"
        );
    }

    let [winner] = winners[..] else {
        panic!("the winners are {winners:?}:\n{story}")
    };
    assert_eq!(
        at("holder: SETTP lock holder -> 1, it is mine"),
        0,
        "{story}"
    );
    assert_eq!(
        at(&format!("Now the lock says: {winner}")),
        lines.len() - 2,
        "{story}"
    );
    assert_eq!(
        at("All have gone, and the lock with its last holder. The end."),
        lines.len() - 1,
        "{story}"
    );
    assert_eq!(lines.len(), 16, "{story}");
}

// ---- the story of waiting in line ----

#[test]
fn redis_py_hands_the_lock_over() {
    hands_the_lock_over(&python_example("lock.py"));
}

#[test]
fn redis_py_says_so_when_the_lock_is_not_handed_over() {
    says_so_when_the_lock_is_not_handed_over(&python_example("lock.py"));
}

#[test]
fn ioredis_hands_the_lock_over() {
    hands_the_lock_over(&node_example());
}

#[test]
fn ioredis_says_so_when_the_lock_is_not_handed_over() {
    says_so_when_the_lock_is_not_handed_over(&node_example());
}

#[test]
fn redis_rs_hands_the_lock_over() {
    hands_the_lock_over(&rust_example());
}

#[test]
fn redis_rs_says_so_when_the_lock_is_not_handed_over() {
    says_so_when_the_lock_is_not_handed_over(&rust_example());
}

/// It is the server's answer that ends their waiting, not an impatience of the client library.
#[test]
fn each_waits_as_long_as_it_said_and_no_longer() {
    let server = Server::start();
    let mut holder = server.resp2();
    holder.run("LOCK.ACQUIRE lock");
    let examples = [python_example("lock.py"), node_example(), rust_example()];
    scope(|threads| {
        for example in &examples {
            threads.spawn(|| {
                let (status, story) = example.run(server.port());
                assert_eq!(status.code(), Some(1), "{story}");
                let said = "The story fails: lock was not free within 5000 ms";
                assert_eq!(story.trim_end(), said);
            });
        }
    });
    assert_eq!(server.gauge("tether", "tether_timeouts_total"), 3);
}

#[test]
fn the_readme_shows_the_lock_handed_over_and_how_to_run_it() {
    assert_handed_over(&shown_in_the_readme(
        &[
            "python3 examples/python/lock.py",
            "npm install --prefix examples/node && node examples/node/lock.mjs",
            "cargo run --example rust_lock",
        ],
        "ann: LOCK.ACQUIRE",
    ));
}

/// The example that README.md points to.
#[test]
fn the_first_program_that_a_reader_sees_takes_a_lock_and_gives_it_back() {
    let server = Server::start();
    let shown = first_program();
    let program = shown_in_python(&shown);
    let (status, said) = program.run(server.port());
    assert!(status.success(), "{status}:\n{said}");
    let token = server.gauge("tether", "tether_last_token");
    assert_eq!(said.trim_end(), format!("mine, with token {token}"));
    eventually_equal("holds", 0, || server.gauge("tether", "tether_holds"));

    // Somebody else has it. The program is told so when its time is over: here sooner than it shows.
    let mut holder = server.resp2();
    holder.run("LOCK.ACQUIRE report");
    let hasty = shown_in_python(&shown.replace("5000", "50"));
    let (status, said) = hasty.run(server.port());
    assert!(status.success(), "{status}:\n{said}");
    assert_eq!(said.trim_end(), "still taken after five seconds");
}

/// Its locks would not come back with a second connection.
#[test]
fn the_first_program_that_a_reader_sees_does_not_connect_a_second_time() {
    let server = Server::start();
    let program = first_program() + include_str!("killed.py");
    let (status, said) = shown_in_python(&program).run(server.port());
    assert!(status.success(), "{status}:\n{said}");
    let said: Vec<&str> = said.lines().skip(1).collect();
    assert_eq!(said, ["raises", "raises", "new connections: 0"]);
}

fn first_program() -> String {
    let file = project().join("examples/python/once.py");
    let shown = fs::read_to_string(file).expect("the example");
    assert!(shown.contains("5000"), "{shown}");
    shown
}

fn hands_the_lock_over(example: &Example) {
    let server = Server::start();
    for _ in 0..2 {
        let (status, story) = example.run(server.port());
        assert!(status.success(), "{status}:\n{story}");
        assert_handed_over(&story);
        for what in ["tether_holds", "tether_waiters"] {
            eventually_equal(what, 0, || server.gauge("tether", what));
        }
    }
}

fn says_so_when_the_lock_is_not_handed_over(example: &Example) {
    let server = Server::start();
    server.resp2().run("SET lock something-else");
    let (status, story) = example.run(server.port());
    assert_eq!(status.code(), Some(1), "{story}");
    assert!(story.contains("The story fails: "), "{story}");
    assert!(story.contains("WRONGTYPE"), "{story}");
}

/// Asserts that this is the story, word for word but for the tokens, which must rise.
fn assert_handed_over(story: &str) {
    let tokens: Vec<u64> = story
        .lines()
        .filter_map(|line| line.strip_suffix(", it is mine")?.rsplit(' ').next())
        .map(|token| token.parse().expect("a token"))
        .collect();
    let [first, second, third] = tokens[..] else {
        panic!("three grants were due, not {tokens:?}:\n{story}")
    };
    assert!(first < second && second < third, "{tokens:?}:\n{story}");
    let expected = format!(
        "ann: LOCK.ACQUIRE lock WAIT 5000 -> token {first}, it is mine\n\
         bob: LOCK.ACQUIRE lock WAIT 5000 -> must wait\n\
         ann: writes with token {first} -> accepted\n\
         ann: LOCK.RELEASE lock\n\
         bob: LOCK.ACQUIRE lock WAIT 5000 -> token {second}, it is mine\n\
         ann: LOCK.ACQUIRE lock WAIT 5000 -> must wait\n\
         Bob's connection is killed. He has not noticed.\n\
         ann: LOCK.ACQUIRE lock WAIT 5000 -> token {third}, it is mine\n\
         ann: writes with token {third} -> accepted\n\
         ann: LOCK.RELEASE lock\n\
         bob: writes with token {second} -> refused, {third} came after it\n\
         bob: LOCK.RELEASE lock\n\
         bob: the connection is gone, and the lock with it\n\
         Nobody holds the lock. The end."
    );
    assert_eq!(story.trim_end(), expected);
}

/// The block of examples/README.md that begins like this; the file must name these commands, too.
fn shown_in_the_readme(commands: &[&str], begin: &str) -> String {
    let readme =
        fs::read_to_string(project().join("examples/README.md")).expect("examples/README.md");
    for command in commands {
        assert!(
            readme.contains(&format!("`{command}`")),
            "examples/README.md does not name {command}"
        );
    }
    let mut blocks = readme.split("```").map(str::trim);
    let found = blocks.find(|block| block.starts_with(begin));
    found.expect("the story in examples/README.md").to_owned()
}
