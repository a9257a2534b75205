//! From ten to 60,000: what is said to cost the same however many there are, at each size.

use super::ground::Ground;
use super::{Bench, MANY};
use crate::measure::{Spread, cost};
use crate::server::Loaded;
use crate::table::{Grid, Table, short};
use tether_testing::resp::encode;

const SIZES: &[usize] = &[10, 100, 1_000, 10_000, MANY];
const PROBES: usize = 500;
const ROUNDS: usize = 5;

struct Kind {
    of: &'static str,
    probe: &'static str,
    /// Tells who sends what is measured.
    build: fn(&mut Ground<'_>) -> usize,
    /// Leaves all as it was.
    commands: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        of: "waits of one owner",
        probe: "a request for one more, and DELTP of it",
        build: |ground| {
            ground.connect_and("SETTP x v");
            waits(ground)
        },
        commands: &["SETTP x v WAIT 0 PUSH", "DELTP x"],
    },
    Kind {
        of: "waits of one owner",
        probe: "DELTP of a key that it does not wait for",
        build: waits,
        commands: &["DELTP x"],
    },
    Kind {
        of: "holds of one owner, the last of them waited for",
        probe: "a request that waits, and DELTP of it",
        build: |ground| {
            ground.connect_and("SETTP x v");
            let by = ground.connect();
            let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n}"));
            ground.run_each(by, held);
            let last = ground.many - 1;
            ground.connect_and(&format!("LOCK.ACQUIRE {last} WAIT 0 PUSH"));
            by
        },
        commands: &["SETTP x v WAIT 0 PUSH", "DELTP x"],
    },
    Kind {
        of: "tasks in line behind one connection",
        probe: "a request of one more of them, and LOCK.CANCEL of it",
        build: |ground| {
            let holder = ground.connect_and("LOCK.ACQUIRE l OWNER holder");
            let waits = (0..ground.many).map(|n| format!("LOCK.ACQUIRE l OWNER {n} WAIT 0 PUSH"));
            ground.run_each(holder, waits);
            holder
        },
        commands: &[
            "LOCK.ACQUIRE l OWNER more WAIT 0 PUSH",
            "LOCK.CANCEL l OWNER more",
        ],
    },
    Kind {
        of: "readers of a lock",
        probe: "a queue that comes and goes there",
        build: |ground| {
            super::attacks::readers(ground);
            ground.connect()
        },
        commands: &["SETTP b v WAIT 0 PUSH", "DELTP b"],
    },
];

/// A connection that waits for so many keys of another one.
fn waits(ground: &mut Ground<'_>) -> usize {
    super::attacks::much_waited_for(ground, false)
}

pub fn run(bench: &Bench, table: &mut Table) {
    let mut rows = Vec::new();
    for kind in KINDS {
        let each = SIZES
            .iter()
            .map(|size| short(measure(bench, kind, *size).median));
        let mut row = vec![kind.of.to_owned(), kind.probe.to_owned()];
        row.extend(each);
        rows.push(row);
    }
    let keys = SIZES
        .iter()
        .map(|size| short(own_keys(bench, *size).median));
    let mut row = vec![
        "keys of one owner".to_owned(),
        "one DEL of all of them, for each".to_owned(),
    ];
    row.extend(keys);
    rows.push(row);
    table.grid(Grid {
        title: "us of server CPU for each command, from 10 to 60,000".to_owned(),
        header: vec!["how many", "what", "10", "100", "1,000", "10,000", "60,000"],
        rows,
    });
}

fn measure(bench: &Bench, kind: &Kind, size: usize) -> Spread {
    let server = bench.start(Loaded::Module);
    let mut observer = server.connect();
    let mut ground = Ground::new(&server, size);
    let by = (kind.build)(&mut ground);
    let probes = bench.scaled(PROBES);
    let mut round = || {
        let commands = kind.commands.iter().cycle().map(|word| (*word).to_owned());
        let commands = commands.take(probes * kind.commands.len());
        let cost = cost(&mut observer, probes * kind.commands.len(), || {
            ground.run_each(by, commands);
        });
        cost.cpu_ns_each() / 1e3
    };
    Spread::of((0..ROUNDS).map(|_| round()))
}

fn own_keys(bench: &Bench, size: usize) -> Spread {
    let server = bench.start(Loaded::Module);
    let mut observer = server.connect();
    let mut ground = Ground::new(&server, size);
    let by = ground.connect();
    let names: Vec<_> = (0..size).map(|n| n.to_string()).collect();
    let del = encode(&format!("DEL {}", names.join(" ")));
    let mut round = || {
        // As many keys in all, whatever their number in each.
        let times = (1_000 / size).max(1);
        let mut all = 0.0;
        for _ in 0..times {
            ground.run_each(by, names.iter().map(|name| format!("SETTP {name} v")));
            let cost = cost(&mut observer, size, || {
                ground.connections[by].run_all(&del, 1);
            });
            all += cost.cpu_ns_each() / 1e3;
        }
        all / times as f64
    };
    Spread::of((0..3).map(|_| round()))
}
