//! The search for holds that no want claims, against a server that a test plays.

use super::tests::World;
use super::*;

fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

fn map<const N: usize>(pairs: [(&str, Reply); N]) -> Reply {
    let words = pairs.into_iter().flat_map(|(name, it)| [text(name), it]);
    Reply::Many(words.collect())
}

fn run_id(id: &str) -> Reply {
    map([("run-id", text(id))])
}

/// The reply of LOCK.LIST to connection 3.
fn page(cursor: &str, keys: &[(&str, u64)]) -> Reply {
    let line = |(key, client): &(&str, u64)| {
        let holders = Reply::Many(vec![Reply::Number(*client)]);
        map([("key", text(key)), ("holders", holders)])
    };
    let lines = keys.iter().map(line).collect();
    Reply::Many(vec![text(cursor), Reply::Many(lines)])
}

fn holders(kind: &str, holders: &[(u64, &str, u64)]) -> Reply {
    let line = |(client, label, token): &(u64, &str, u64)| {
        let (client, token) = (Reply::Number(*client), Reply::Number(*token));
        map([("client", client), ("label", text(label)), ("token", token)])
    };
    let lines = holders.iter().map(line).collect();
    map([("kind", text(kind)), ("holders", Reply::Many(lines))])
}

fn error(text: &str) -> Reply {
    Reply::Error(text.into())
}

/// On another server, with nothing in doubt; LOCK.LIST was sent.
fn searching() -> World {
    let mut world = World::new(true);
    world.core.began_on(b"one".to_vec());
    find_another_server(&mut world);
    world
}

fn find_another_server(world: &mut World) {
    world.hang_up();
    world.core.resumed(world.now, world.now);
    world.reply(run_id("two"));
    assert_eq!(world.said(), ["CLIENT ID"]);
    world.reply(Reply::Number(3));
    assert_eq!(world.said(), ["LOCK.LIST 0 CLIENT 3 COUNT 100"]);
}

/// Whether the next connection to the same server looks again.
fn is_clean(world: &mut World) -> bool {
    world.hang_up();
    world.core.resumed(world.now, world.now);
    world.said();
    world.reply(run_id("two"));
    world.said().is_empty()
}

#[test]
fn nothing_is_looked_for_on_the_same_server() {
    let mut world = World::new(true);
    world.core.began_on(b"one".to_vec());
    world.hang_up();
    world.core.resumed(world.now, world.now);
    assert_eq!(world.said(), ["LOCK.SERVER"]);
    world.reply(run_id("one"));
    assert!(world.said().is_empty());
}

#[test]
fn what_no_want_claims_is_released_page_by_page() {
    let mut world = searching();
    world.reply(page("9", &[("k", 3), ("another's", 4), ("t", 3)]));
    assert_eq!(
        world.said(),
        ["LOCK.INFO k COUNT 1000", "LOCK.INFO t COUNT 1000"]
    );
    world.reply(holders("shared", &[(3, "a b", 7), (4, "x", 8), (3, "", 9)]));
    let said = ["LOCK.RELEASE k OWNER a b ALL", "LOCK.RELEASE k OWNER  ALL"];
    assert_eq!(world.said(), said);
    world.reply(holders("temporary-key", &[(3, "", 10)]));
    assert_eq!(world.said(), ["DELTP t"]);
    world.reply(Reply::Number(0));
    world.reply(error("NOTHELD this owner does not hold the lock"));
    assert!(world.said().is_empty());
    world.reply(Reply::Number(1));
    assert_eq!(world.said(), ["LOCK.LIST 9 CLIENT 3 COUNT 100"]);
    world.reply(page("0", &[]));
    assert!(world.core.is_idle() && world.core.ended().is_none());
    assert!(is_clean(&mut world));
}

#[test]
fn what_is_held_is_claimed_by_its_token() {
    let mut world = World::new(true);
    world.core.began_on(b"one".to_vec());
    let id = world.ask("k", "x");
    world.reply(Reply::Number(7));
    world.hang_up();
    world.core.resumed(world.now, world.now);
    world.reply(Reply::Number(7));
    world.reply(run_id("two"));
    world.reply(Reply::Number(3));
    world.reply(page("0", &[("k", 3)]));
    world.said();
    world.reply(holders("shared", &[(3, "x", 7), (3, "y", 6)]));
    assert_eq!(world.said(), ["LOCK.RELEASE k OWNER y ALL"]);
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), [(id, Change::Granted(7))]);
    assert!(is_clean(&mut world));
}

#[test]
fn a_request_on_the_wire_is_in_nobodys_way_and_the_search_begins_again() {
    let mut world = searching();
    world.reply(page("0", &[("k", 3)]));
    world.said();
    let id = world.ask("k", "x");
    assert_eq!(world.said(), ["LOCK.ACQUIRE k OWNER x NOTIFY WAIT 0 PUSH"]);
    world.reply(holders("exclusive", &[(3, "x", 7)]));
    assert!(world.said().is_empty());
    world.reply(error("DEADLOCK"));
    assert!(matches!(world.changes()[..], [(is, Change::Refused(_))] if is == id));
    world.later(1000);
    assert_eq!(world.said(), ["PING"]);
    world.reply(Reply::Other);
    assert_eq!(world.said(), ["LOCK.LIST 0 CLIENT 3 COUNT 100"]);
    world.reply(page("0", &[("k", 3)]));
    world.reply(holders("exclusive", &[(3, "x", 7)]));
    assert_eq!(world.said().last().unwrap(), "LOCK.RELEASE k OWNER x ALL");
    world.reply(Reply::Number(0));
    assert!(is_clean(&mut world));
}

#[test]
fn what_is_being_released_is_left_to_that() {
    let mut world = searching();
    world.reply(page("0", &[("k", 3)]));
    let id = world.ask("k", "x");
    world.core.give_up(world.now, id);
    world.said();
    world.reply(holders("exclusive", &[(3, "x", 7)]));
    assert!(world.said().is_empty());
    assert!(world.core.ended().is_none());
}

#[test]
fn a_break_or_an_error_begins_it_anew_on_the_next_connection() {
    let mut world = searching();
    find_another_server(&mut world);
    world.reply(page("0", &[("k", 3)]));
    find_another_server(&mut world);
    world.reply(error("NOPERM no right to LOCK.LIST"));
    find_another_server(&mut world);
    world.reply(page("0", &[("k", 3)]));
    world.reply(error("NOPERM no right to LOCK.INFO"));
    world.later(1000);
    assert_eq!(world.said(), ["PING"]);
    world.reply(Reply::Other);
    assert!(world.said().is_empty());
    find_another_server(&mut world);
    world.reply(page("0", &[("k", 3)]));
    world.reply(holders("exclusive", &[(3, "x", 7)]));
    world.said();
    // A master without replicas takes it later; nothing is lost by that.
    world.reply(error("NOREPLICAS Not enough good replicas to write."));
    assert!(world.core.ended().is_none());
    world.later(1000);
    world.reply(Reply::Other);
    assert_eq!(world.said(), ["LOCK.LIST 0 CLIENT 3 COUNT 100"]);
    world.reply(page("0", &[]));
    assert!(is_clean(&mut world));
}
