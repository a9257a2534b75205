//! Who holds, who stands in line: what these tests see of it, and how they get someone into line.

use crate::harness::*;

/// One number of INFO tether.
pub fn tether(server: &Server, name: &str) -> i64 {
    server.gauge("tether", &format!("tether_{name}"))
}

/// Sends a request that must wait, and returns once it stands in line.
pub fn queue(server: &Server, client: &mut Client, request: &str) {
    let before = tether(server, "waiters");
    client.send(request);
    eventually_equal(request, before + 1, || tether(server, "waiters"));
}

/// Sends a request that must wait, and says whether it stands in line. It does not where it was answered at once, since a
/// time is over that this machine was too slow for (see [`in_time`]).
pub fn stands_in_line(server: &Server, client: &mut Client, request: &str) -> bool {
    let list = format!("CLIENT LIST ID {}", client.id());
    let mut looker = server.resp2();
    client.send(request);
    eventually(request, || {
        let line = looker.run(list.as_str()).text();
        let is_blocked = line.split(" flags=").nth(1).is_some_and(|flags| {
            let flags = flags.split(' ').next();
            flags.is_some_and(|flags| flags.contains('b'))
        });
        match (is_blocked, client.has_reply()) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(line),
        }
    })
}

/// Sends a request with PUSH that must wait.
pub fn queue_push(client: &mut Client, request: &str) {
    let expected = if request.starts_with("SETTP") {
        int(0)
    } else {
        null()
    };
    assert_eq!(client.call(request), expected, "{request}");
}

/// A field of a map, on RESP2 or RESP3.
pub fn field(map: &Frame, name: &str) -> Frame {
    let items = map.items();
    let found = items.chunks(2).find(|pair| pair[0] == bulk(name));
    let [_, value] = found.unwrap_or_else(|| panic!("no {name} in {map:?}")) else {
        panic!("a name without a value in {map:?}")
    };
    value.clone()
}

/// The ids of those who hold a key or wait for it, in order.
fn ids(server: &Server, db: u32, key: &str, role: &str) -> Vec<i64> {
    let mut client = server.resp3();
    client.run(["SELECT", &db.to_string()]);
    let info = client.run(["LOCK.INFO", key, "COUNT", "1000"]);
    if info == null() {
        return Vec::new();
    }
    let them = field(&info, role).items();
    let count = field(&info, &format!("{}-count", role.trim_end_matches('s')));
    assert!(count.number() <= 1000, "LOCK.INFO tells of no more");
    them.iter()
        .map(|one| field(one, "client").number())
        .collect()
}

pub fn holders(server: &Server, key: &str) -> Vec<i64> {
    ids(server, 0, key, "holders")
}

pub fn holders_in(server: &Server, db: u32, key: &str) -> Vec<i64> {
    ids(server, db, key, "holders")
}

pub fn waiters(server: &Server, key: &str) -> Vec<i64> {
    ids(server, 0, key, "waiters")
}

/// The token of a key's first holder.
pub fn token_of(server: &Server, key: &str) -> i64 {
    let info = server.resp3().run(["LOCK.INFO", key, "COUNT", "1000"]);
    let holders = field(&info, "holders").items();
    let first = holders.first().expect("a holder");
    field(first, "token").number()
}

/// Waits until nobody holds anything or waits for anything.
pub fn eventually_nothing_is_left(server: &Server) {
    let left = || ["temporary_keys", "holds", "waiters"].map(|name| tether(server, name));
    eventually_equal("keys, holds and waiters", [0, 0, 0], left);
}

/// Ends a connection and returns once the server knows.
pub fn quit(server: &Server, mut client: Client) {
    client.run("QUIT");
    client.expect_closed();
    server.settle();
}

/// What a refusal says of clients and keys: its words without quotes, commas and the like.
pub fn words_of(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != ':')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}
