//! LOCK.LIST, and how much it and LOCK.INFO tell at a time.

use crate::harness::*;
use crate::inspect::names;
use crate::line::*;
use tether_testing::random::{Random, seed};

/// LOCK.LIST as (key, holders, waiters), sorted by key.
fn list(client: &mut Client, options: &str) -> Vec<(String, Vec<i64>, i64)> {
    let lines = lock_list(client, options);
    let mut seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let names = names(line);
            assert_eq!(names, ["key", "holders", "waiters", "oldest-hold-ms"]);
            let holders = field(line, "holders").items();
            let holders: Vec<_> = holders.iter().map(Frame::number).collect();
            let oldest = field(line, "oldest-hold-ms");
            assert_eq!(oldest == null(), holders.is_empty(), "{line:?}");
            let waiters = field(line, "waiters").number();
            (field(line, "key").text(), holders, waiters)
        })
        .collect();
    seen.sort();
    seen
}

#[test]
fn lock_list_shows_the_held_and_waited_for_keys_of_this_database() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let (mut operator, mut old) = (server.resp3(), server.resp2());
    let (a, b) = (one.id(), two.id());
    assert_eq!(list(&mut operator, ""), []);
    one.run_all(&[
        "LOCK.ACQUIRE l SHARED",
        "SETTP t v",
        "SET plain v",
        "WATCHEX watched",
    ]);
    two.run_all(&[
        "LOCK.ACQUIRE l SHARED",
        "SELECT 3",
        "LOCK.ACQUIRE third",
        "SELECT 0",
    ]);
    queue_push(&mut two, "SETTP t v WAIT 0 PUSH");
    let mut third = server.resp3();
    queue_push(&mut third, "SETTP t v WAIT 0 PUSH");
    queue_push(&mut two, "SETTP plain v WAIT 0 PUSH");
    let l = ("l".to_owned(), vec![a, b], 0);
    let t = ("t".to_owned(), vec![a], 2);
    let plain = ("plain".to_owned(), vec![], 1);
    assert_eq!(
        list(&mut operator, ""),
        [l.clone(), plain.clone(), t.clone()]
    );
    assert_eq!(list(&mut old, ""), [l.clone(), plain.clone(), t.clone()]);
    for (options, expected) in [
        (format!("CLIENT {a}"), vec![l.clone(), t.clone()]),
        (format!("CLIENT {b} MATCH [a-m]*"), vec![l.clone()]),
        (
            format!("CLIENT {b}"),
            vec![l.clone(), plain.clone(), t.clone()],
        ),
        ("CLIENT 999999".into(), vec![]),
        ("MATCH pl*".into(), vec![plain.clone()]),
        ("COUNT 10 MATCH ?".into(), vec![l.clone(), t.clone()]),
        ("MATCH nothing".into(), vec![]),
    ] {
        assert_eq!(list(&mut operator, &options), expected, "{options}");
    }
    for count in [1, 2, 3, 100] {
        let seen = list(&mut operator, &format!("COUNT {count}")).len();
        assert_eq!(seen, 3, "{count}");
    }
    operator.run("SELECT 3");
    assert_eq!(list(&mut operator, ""), [("third".to_owned(), vec![b], 0)]);
    for options in [
        "",
        "x",
        "-1",
        "0 COUNT 0",
        "0 COUNT x",
        "0 CLIENT x",
        "0 MATCH",
        "0 NOW",
        "0 COUNT 1 COUNT 1",
    ] {
        let message = operator.refused(&format!("LOCK.LIST {options}"));
        assert!(message.starts_with("ERR "), "{options}: {message}");
    }
    assert_eq!(
        operator.call("LOCK.LIST 18446744073709551615"),
        array([bulk("0"), array([])])
    );
}

#[test]
fn a_user_sees_the_keys_that_it_may_read_and_no_others() {
    let server = Server::start();
    let mut holder = server.resp3();
    for key in ["read:1", "write:1", "both:1", "secret:1"] {
        holder.run(["LOCK.ACQUIRE", key]);
        holder.run(["SETTP", &key.replace('1', "2"), "v"]);
    }
    server
        .resp2()
        .run("ACL SETUSER u on nopass +@all %R~read:* %W~write:* ~both:*");
    let mut user = server.resp3();
    user.run("AUTH u x");
    let seen: Vec<_> = list(&mut user, "")
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    assert_eq!(seen, ["both:1", "both:2", "read:1", "read:2"]);
    assert_eq!(list(&mut user, "MATCH secret:*"), []);
    assert_eq!(list(&mut user, "COUNT 3").len(), 4);
    for key in ["read:1", "read:2", "both:1"] {
        assert_eq!(field(&user.run(["LOCK.INFO", key]), "waiters"), array([]));
    }
    for key in ["write:1", "secret:2"] {
        let message = user.refused(["LOCK.INFO", key]);
        assert!(message.starts_with("NOPERM"), "{message}");
    }
    for request in [
        "LOCK.ACQUIRE read:9",
        "LOCK.MACQUIRE 2 write:9 secret:9",
        "SETTP read:9 v",
    ] {
        assert!(user.refused(request).starts_with("NOPERM"), "{request}");
    }
    user.run("LOCK.MACQUIRE 2 write:9 both:9").number();
}

#[test]
fn lock_info_and_lock_list_tell_no_more_than_they_are_asked_for() {
    let server = Server::start();
    let (mut operator, mut crowd, mut few) = (server.resp3(), server.resp3(), server.resp3());
    few.run("SETTP few v");
    for number in 0..150 {
        crowd.run(format!("LOCK.ACQUIRE k SHARED OWNER {number}").as_str());
        crowd.run(format!("SETTP t:{number} v").as_str());
    }
    for number in 0..120 {
        let request = format!("LOCK.ACQUIRE k OWNER w{number} WAIT 0 PUSH");
        queue_push(&mut operator, &request);
    }
    for (options, holders, waiters) in [
        ("", 100, 100),
        (" COUNT 1", 1, 1),
        (" count 130", 130, 120),
        (" COUNT 1000", 150, 120),
    ] {
        let info = operator.run(format!("LOCK.INFO k{options}").as_str());
        assert_eq!(field(&info, "holder-count"), int(150), "{options}");
        assert_eq!(field(&info, "waiter-count"), int(120), "{options}");
        assert_eq!(field(&info, "holders").items().len(), holders, "{options}");
        assert_eq!(field(&info, "waiters").items().len(), waiters, "{options}");
        let first = &field(&info, "waiters").items()[0];
        assert_eq!(field(first, "label"), bulk("w0"), "in order");
    }
    let [cursor, lines] = &operator.run("LOCK.LIST 0").items()[..] else {
        panic!("a cursor and keys");
    };
    assert!(cursor.text() != "0" && lines.items().len() <= 10);
    assert_eq!(list(&mut operator, "COUNT 7").len(), 152);
    assert_eq!(list(&mut operator, "MATCH t:1*").len(), 61);
    // Whoever has few keys is answered for at once, and whoever has many little by little.
    let mine = format!("LOCK.LIST 0 CLIENT {} COUNT 1", few.id());
    let at_once = operator.run(mine.as_str()).items();
    assert_eq!(
        (at_once[0].text(), at_once[1].items().len()),
        ("0".into(), 1)
    );
    let (id, many) = (
        crowd.id(),
        format!("LOCK.LIST 0 CLIENT {} COUNT 5", crowd.id()),
    );
    let little = operator.run(many.as_str()).items();
    assert!(little[0].text() != "0" && little[1].items().len() <= 5);
    assert_eq!(
        list(&mut operator, &format!("CLIENT {id} COUNT 5")).len(),
        151
    );
}

#[test]
fn match_means_what_it_means_to_keys() {
    const LETTERS: &[u8] = b"abc-][^\\*?\xff";
    let server = Server::start();
    let mut client = server.resp3();
    let mut random = Random::new(seed());
    let mut word = |most: usize| -> Vec<u8> {
        let length = random.below(most + 1);
        (0..length).map(|_| random.pick(LETTERS)).collect()
    };
    let mut names: Vec<_> = (0..400).map(|_| word(3)).collect();
    names.extend(LETTERS.iter().map(|letter| vec![*letter]));
    names.push(Vec::new());
    for name in &names {
        client.call([b"SETTP", &name[..], b"v"]);
    }
    // Half of them are classes: of all that a pattern can be, what is hardest to read.
    let random = (0..3_000).map(|_| match word(1).is_empty() {
        true => word(7),
        false => [b"[".to_vec(), word(6), b"]".to_vec(), word(1)].concat(),
    });
    let stars = ["", "*", "**", "*?", "*[^]"].map(Vec::from);
    let mut differ = Vec::new();
    for pattern in random.chain(stars) {
        let mut keys = client.run([b"KEYS", &pattern[..]]).items();
        let list: [&[u8]; 6] = [b"LOCK.LIST", b"0", b"MATCH", &pattern, b"COUNT", b"10000"];
        let page = client.run(list).items();
        assert_eq!(page[0].text(), "0");
        let lines = page[1].items();
        let mut listed: Vec<_> = lines.iter().map(|line| field(line, "key")).collect();
        keys.sort_by_key(|key| key.clone().bytes());
        listed.sort_by_key(|key| key.clone().bytes());
        if keys != listed {
            let pattern = pattern.escape_ascii();
            let missed: Vec<_> = keys.iter().filter(|key| !listed.contains(key)).collect();
            listed.retain(|key| !keys.contains(key));
            differ.push(format!("{pattern}: missed {missed:?}, in vain {listed:?}"));
        }
    }
    assert!(
        differ.is_empty(),
        "{}: {:#?}",
        differ.len(),
        &differ[..differ.len().min(20)]
    );
}
