//! Which connections the server has, by `CLIENT LIST`.

use crate::harness::{Client, eventually};

/// The ids of those that the server does not mean to hang up on, once those that are `gone` have ended for it, too.
pub fn staying_without(gone: &[i64], control: &mut Client) -> Vec<i64> {
    eventually("the end of connections that went", || {
        let clients = control.run("CLIENT LIST").text();
        match clients.lines().find(|line| gone.contains(&id_in(line))) {
            Some(line) => Err(line.to_string()),
            None => {
                let staying = clients.lines().filter(|line| !is_ending(line));
                Ok(staying.map(id_in).collect())
            }
        }
    })
}

fn id_in(line: &str) -> i64 {
    let id = line.split_whitespace().next();
    let id = id.and_then(|word| word.strip_prefix("id="));
    id.and_then(|id| id.parse().ok()).expect("a client's id")
}

/// The server has decided to hang up, and will when it comes to it.
fn is_ending(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let flags = words.find_map(|word| word.strip_prefix("flags="));
    flags.expect("a client's flags").contains(['A', 'c'])
}
