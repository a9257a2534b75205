//! Causes that touch more than one key or database: renames, moves, swaps, flushes, reloads, transactions.

use crate::harness::*;

/// A server with a watcher of `a` and `b` in databases 0 and 5, and somebody else, in database 0.
///
/// Pushes do not name the database, so `a` and `b` are watched by one connection for each.
struct Scene {
    server: Server,
    zeroth: Client,
    fifth: Client,
    other: Client,
}

impl Scene {
    fn new(setup: &[&str]) -> Scene {
        let server = Server::start();
        let (mut zeroth, mut fifth, mut other) = (server.resp3(), server.resp3(), server.resp2());
        other.run_all(setup);
        other.run("SELECT 0");
        zeroth.run("WATCHEX a b");
        fifth.run_all(&["SELECT 5", "WATCHEX a b"]);
        Scene {
            server,
            zeroth,
            fifth,
            other,
        }
    }

    /// What the two watchers heard, each in its order, as `a ADD`.
    fn heard(&mut self) -> (Vec<String>, Vec<String>) {
        self.server.settle();
        let short = |pushes: Vec<String>| {
            pushes
                .iter()
                .map(|push| push.replace("watchex ", ""))
                .collect()
        };
        (short(self.zeroth.pushes()), short(self.fifth.pushes()))
    }

    fn expect(&mut self, zeroth: &[&str], fifth: &[&str]) {
        let own = |list: &[&str]| {
            list.iter()
                .map(|push| (*push).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(self.heard(), (own(zeroth), own(fifth)));
    }

    /// The same when nothing says in which order several keys of one step are told.
    fn expect_in_any_order(&mut self, zeroth: &[&str], fifth: &[&str]) {
        let (mut first, mut second) = self.heard();
        first.sort();
        second.sort();
        assert_eq!(
            (first, second),
            (
                zeroth.iter().map(|s| (*s).to_owned()).collect(),
                fifth.iter().map(|s| (*s).to_owned()).collect()
            )
        );
    }
}

#[test]
fn a_rename_is_an_end_and_a_beginning() {
    let mut scene = Scene::new(&["SET a v"]);
    scene.other.run("RENAME a b");
    scene.expect_in_any_order(&["a DEL", "b ADD"], &[]);
    scene.other.run("RENAMENX b a");
    scene.expect_in_any_order(&["a ADD", "b DEL"], &[]);
}

#[test]
fn a_rename_over_a_key_is_an_end_alone() {
    let mut scene = Scene::new(&["SET a v", "SET b v"]);
    scene.other.run("RENAME a b");
    scene.expect(&["a DEL"], &[]);
}

#[test]
fn a_copy_is_a_beginning_unless_it_replaces() {
    if Server::start().strays_after_copies() {
        return say(
            "a_copy_is_a_beginning_...: this server does not come back from another database",
        );
    }
    let mut scene = Scene::new(&["SET a v"]);
    scene.other.run("COPY a b");
    scene.expect(&["b ADD"], &[]);
    scene.other.run("COPY a b REPLACE");
    scene.expect(&[], &[]);
    scene.other.run("COPY a a DB 5");
    scene.expect(&[], &["a ADD"]);
    scene.other.run("COPY a a DB 5 REPLACE");
    scene.expect(&[], &[]);
}

#[test]
fn a_move_is_an_end_here_and_a_beginning_there() {
    let mut scene = Scene::new(&["SET a v", "SET b v", "SELECT 5", "SET b v"]);
    assert_eq!(scene.other.call("MOVE a 5"), int(1));
    scene.expect(&["a DEL"], &["a ADD"]);
    assert_eq!(scene.other.call("MOVE b 5"), int(0));
    scene.expect(&[], &[]);
    scene.other.run_all(&["SELECT 5", "MOVE a 0", "SELECT 0"]);
    scene.expect(&["a ADD"], &["a DEL"]);
}

#[test]
fn swapdb_tells_the_difference() {
    let mut scene = Scene::new(&["SET a v", "SELECT 5", "SET b v"]);
    scene.other.run("SWAPDB 0 5");
    scene.expect_in_any_order(&["a DEL", "b ADD"], &["a ADD", "b DEL"]);
    scene.other.run("SWAPDB 5 0");
    scene.expect_in_any_order(&["a ADD", "b DEL"], &["a DEL", "b ADD"]);
    scene.other.run("SET b v");
    scene.expect(&["b ADD"], &[]);
    scene.other.run("SWAPDB 0 5");
    scene.expect_in_any_order(&["a DEL"], &["a ADD"]);
    scene.other.run_all(&["SWAPDB 0 0", "SWAPDB 1 2"]);
    scene.expect(&[], &[]);
}

#[test]
fn swapdb_with_a_database_that_nobody_watches_tells_the_difference() {
    let mut scene = Scene::new(&["SET a v", "SELECT 7", "SET b v"]);
    scene.other.run("SWAPDB 0 7");
    scene.expect_in_any_order(&["a DEL", "b ADD"], &[]);
    scene.other.run("SWAPDB 7 5");
    scene.expect(&[], &["a ADD"]);
}

#[test]
fn swapdb_in_a_transaction_tells_the_difference_and_what_else_was_done() {
    let mut scene = Scene::new(&["SET a v"]);
    scene
        .other
        .run_all(&["MULTI", "DEL a", "SWAPDB 0 5", "SET a v", "EXEC"]);
    scene.expect(&["a DEL", "a ADD"], &[]);
    scene
        .other
        .run_all(&["MULTI", "SWAPDB 0 5", "DEL a", "SWAPDB 0 5", "EXEC"]);
    // In 5 at that moment there was nothing to delete: `a` went there and came back.
    scene.expect(&["a DEL", "a ADD"], &["a ADD", "a DEL"]);
}

#[test]
fn a_flush_tells_what_was_there() {
    for flush in ["FLUSHDB", "FLUSHDB ASYNC", "FLUSHDB SYNC"] {
        let mut scene = Scene::new(&["SET a v", "SELECT 5", "SET a v", "SET b v"]);
        scene.other.run(flush);
        scene.expect(&["a DEL"], &[]);
        scene.other.run_all(&[flush, "SELECT 5", flush, flush]);
        scene.expect_in_any_order(&[], &["a DEL", "b DEL"]);
    }
}

#[test]
fn a_flush_of_everything_tells_what_was_there() {
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC"] {
        let mut scene = Scene::new(&["SET a v", "SELECT 5", "SET a v", "SET b v"]);
        scene.other.run_all(&["SELECT 2", flush, flush]);
        scene.expect_in_any_order(&["a DEL"], &["a DEL", "b DEL"]);
    }
}

#[test]
fn a_flush_in_a_transaction_or_a_script_tells_what_follows_too() {
    let mut scene = Scene::new(&["SET a v"]);
    scene
        .other
        .run_all(&["MULTI", "SET b v", "FLUSHALL", "SET a w", "EXEC"]);
    let (told, _) = scene.heard();
    assert_eq!(told[0], "b ADD");
    assert_eq!(told[3], "a ADD");
    let mut gone = told[1..3].to_vec();
    gone.sort();
    assert_eq!(gone, ["a DEL", "b DEL"]);
    scene.other.run([
        "EVAL",
        "redis.call('FLUSHDB'); redis.call('SET', 'b', 'v')",
        "0",
    ]);
    scene.expect(&["a DEL", "b ADD"], &[]);
}

#[test]
fn a_transaction_tells_each_change_in_order() {
    let mut scene = Scene::new(&["SET a v"]);
    scene.other.run_all(&[
        "MULTI", "DEL a", "SET a w", "SET b v", "SELECT 5", "SET a v", "DEL a", "EXEC",
    ]);
    scene.expect(&["a DEL", "a ADD", "b ADD"], &["a ADD", "a DEL"]);
}

#[test]
fn a_script_tells_each_change_in_order() {
    let mut scene = Scene::new(&["SET a v"]);
    let script = "redis.call('DEL', 'a'); redis.call('SET', 'a', 'w'); redis.call('RENAME', 'a', 'b'); \
        redis.call('SELECT', 5); redis.call('SET', 'a', 'v')";
    scene.other.run(["EVAL", script, "2", "a", "b"]);
    let (zeroth, fifth) = scene.heard();
    assert_eq!(zeroth[..2], ["a DEL", "a ADD"]);
    let mut renamed = zeroth[2..].to_vec();
    renamed.sort();
    assert_eq!(renamed, ["a DEL", "b ADD"]);
    assert_eq!(fifth, ["a ADD"]);
}

#[test]
fn debug_reload_is_no_change() {
    let mut scene = Scene::new(&["SET a v", "SELECT 5", "SET b v"]);
    scene.other.run("DEBUG RELOAD");
    scene.expect(&[], &[]);
    scene.other.run_all(&["DEL a", "SET b v"]);
    scene.expect(&["a DEL", "b ADD"], &[]);
}

#[test]
fn debug_reload_without_saving_tells_the_difference() {
    let mut scene = Scene::new(&["SET a v"]);
    scene.other.run_all(&["SAVE", "DEL a", "SET b v"]);
    scene.expect(&["a DEL", "b ADD"], &[]);
    // Back to what was saved: `a` and no `b`.
    scene.other.run("DEBUG RELOAD NOSAVE");
    scene.expect_in_any_order(&["a ADD", "b DEL"], &[]);
}

#[test]
fn a_flush_takes_temporary_keys_and_their_owners_end_is_silent() {
    let mut scene = Scene::new(&[]);
    let mut owner = scene.server.resp2();
    owner.run("SETTP a v");
    scene.expect(&["a ADD"], &[]);
    scene.other.run("FLUSHALL");
    scene.expect(&["a DEL"], &[]);
    drop(owner);
    scene.expect(&[], &[]);
}

#[test]
fn a_moved_temporary_key_ends_where_it_is() {
    let mut scene = Scene::new(&[]);
    let mut owner = scene.server.resp2();
    owner.run("SETTP a v");
    scene.expect(&["a ADD"], &[]);
    scene.other.run("MOVE a 5");
    scene.expect(&["a DEL"], &["a ADD"]);
    drop(owner);
    assert_eq!(scene.fifth.next_push(), "watchex a DEL");
    scene.expect(&[], &[]);
}

#[test]
fn a_watcher_that_is_killed_while_pushes_wait_for_it_harms_nobody() {
    let server = Server::start();
    let (mut killed, mut alone, mut watcher) = (server.resp3(), server.resp3(), server.resp3());
    let mut other = server.resp2();
    for watcher in [&mut killed, &mut alone, &mut watcher] {
        watcher.run("WATCHEX a");
    }
    let kill = format!("CLIENT KILL ID {}", killed.id());
    other.run_all(&["MULTI", "SET a v", &kill, "DEL a", "EXEC"]);
    assert_eq!(
        server.settled(&mut watcher),
        ["watchex a ADD", "watchex a DEL"]
    );
    killed.expect_closed();
    assert_eq!(
        server.settled(&mut alone),
        ["watchex a ADD", "watchex a DEL"]
    );
    let kill = format!("CLIENT KILL ID {} SKIPME no", alone.id());
    alone.run_all(&["MULTI", "SET a v", &kill, "DEL a"]);
    alone.send("EXEC");
    alone.expect_closed();
    assert_eq!(
        server.settled(&mut watcher),
        ["watchex a ADD", "watchex a DEL"]
    );
    assert_eq!(server.gauge("tether", "tether_watches"), 1);
}

/// What goes to many connections may wait for more of the same; what goes to few must not overtake it.
#[test]
fn a_crowd_hears_all_in_order_however_much_comes_at_once() {
    const ROUNDS: usize = 100;
    let server = Server::start();
    let mut crowd: Vec<_> = (0..80).map(|_| server.resp3()).collect();
    for watcher in &mut crowd {
        watcher.run("WATCHEX crowded");
    }
    crowd[0].run("WATCHEX quiet");
    let mut other = server.resp2();
    let round = ["SET crowded v", "SET quiet v", "DEL quiet", "DEL crowded"];
    other.pipeline(&round.repeat(ROUNDS));
    other.read_replies(round.len() * ROUNDS);
    let told = [
        "watchex crowded ADD",
        "watchex quiet ADD",
        "watchex quiet DEL",
        "watchex crowded DEL",
    ];
    let all = told.repeat(ROUNDS);
    assert_eq!(crowd[0].next_pushes(all.len()), all);
    let crowded = [told[0], told[3]].repeat(ROUNDS);
    for watcher in &mut crowd[1..] {
        assert_eq!(watcher.next_pushes(crowded.len()), crowded);
    }
}
