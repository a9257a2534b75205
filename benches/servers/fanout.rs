//! One key with thousands of watchers, against a channel with as many subscribers.
//!
//! The same connections watch and subscribe, frames are equally long, and both kinds take turns.

use super::Bench;
use super::crowd::{Crowd, most_sockets};
use super::measure::{Side, Turns, cost};
use super::server::Loaded;
use super::table::{Table, Target};
use tether_testing::resp::encode;

const WATCHERS: usize = 10_000;
const ROUNDS: usize = 30;
const TARGET: Target = Target::AtLeast(1.0);

pub fn run(bench: &Bench, table: &mut Table) {
    let server = bench.start(Loaded::Module);
    let size = WATCHERS.min(most_sockets().saturating_sub(200));
    let join = [encode("WATCHEX the-key"), encode("SUBSCRIBE channel")].concat();
    let mut crowd = Crowd::gather(&server, size, &join, 1, 1);
    let mut writer = server.connect();
    let mut observer = server.connect();
    for at_once in [2, 16] {
        let toggles = [encode("SET the-key x"), encode("DEL the-key")]
            .concat()
            .repeat(at_once / 2);
        let publications = encode("PUBLISH channel ADD").repeat(at_once);
        let toggled = [push("watchex the-key ADD"), push("watchex the-key DEL")].concat();
        let toggled = toggled.repeat(at_once / 2);
        let published = push("message channel ADD").repeat(at_once);
        let mut turns = Turns::new();
        turns.take(bench.scaled(ROUNDS), |side| {
            let (commands, frames) = match side {
                Side::Ours => (&toggles, &toggled),
                Side::Floor => (&publications, &published),
            };
            cost(&mut observer, at_once * size, || {
                writer.run_all(commands, at_once);
                crowd.expect(frames);
            })
        });
        let what = format!("a push to {size} watchers against PUBLISH, {at_once} at once");
        table.add_speed(&what, &turns, TARGET);
    }
}

/// A push frame of these words.
pub fn push(words: &str) -> Vec<u8> {
    let mut frame = encode(words);
    frame[0] = b'>';
    frame
}
