//! How many instructions a server executes for one operation: callgrind counts them, so they do not depend on
//! the machine's mood, and a change of a few hundredths shows.
//!
//! Each operation is done a few times by one server and many times by another; the difference is the operations
//! alone. The counts depend on the server's build and on the compiler, so those that are kept in
//! `benches/instructions.txt` stand under both names; without kept ones of the same kind, nothing is compared.

use super::Bench;
use super::crowd::Crowd;
use super::handoff;
use super::measure::Spread;
use super::server::{Loaded, Server};
use super::table::{Row, Table, Target};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tether_testing::project;
use tether_testing::resp::{Connection, encode};

const FEW: usize = 2_000;
const MANY: usize = 10_000;
/// Chance adds instructions: each start of a server puts its commands' names elsewhere in its own table of them, and each
/// name that a command shares its place with costs it some hundred.
const MORE_TRIES: usize = 2;
const AT_ONCE: usize = 50;
/// A count may be above the kept one by this part.
const MAY_GROW: f64 = 0.05;
const STARTS: usize = 6;
const WATCHERS: usize = 100;
const CONTENDERS: usize = 8;

struct Operation {
    name: &'static str,
    loaded: Loaded,
    /// Does it so often, after all preparations.
    run: fn(&Server, usize),
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "SETTP",
        loaded: Loaded::Module,
        run: |server, count| run_each(&mut server.connect(), "SETTP KEY value", count),
    },
    Operation {
        name: "DELTP",
        loaded: Loaded::Module,
        run: delete,
    },
    Operation {
        name: "a handoff",
        loaded: Loaded::Module,
        run: |server, count| handoff::hand_around(server, CONTENDERS, count),
    },
    Operation {
        name: "a push",
        loaded: Loaded::Module,
        run: push,
    },
    // The module is not to be called for it.
    Operation {
        name: "a foreign SET of a new key, one held",
        loaded: Loaded::Module,
        run: |server, count| {
            let mut owner = server.connect();
            owner.run_all(&encode("SETTP held value"), 1);
            run_each(&mut server.connect(), "SET KEY value", count);
        },
    },
    Operation {
        name: "a foreign SET, nobody watching",
        loaded: Loaded::Module,
        run: set,
    },
];

/// The module at work, but nobody watches: what the watches are held against.
const HELD: Operation = Operation {
    name: "a foreign SET, one key held",
    loaded: Loaded::Module,
    run: |server, count| {
        let mut owner = server.connect();
        owner.run_all(&encode("SETTP held value"), 1);
        set(server, count);
    },
};

const WATCHED: [Operation; 2] = [
    Operation {
        name: "a foreign SET, a prefix watched in its database, keys only",
        loaded: Loaded::Module,
        run: |server, count| set_watched(server, count, "WATCHTP key: KEYSONLY"),
    },
    Operation {
        name: "a foreign SET, a prefix watched in its database, with values",
        loaded: Loaded::Module,
        run: |server, count| set_watched(server, count, "WATCHTP key:"),
    },
];

/// What the foreign SET is held against.
const UNLOADED: Operation = Operation {
    name: "SET without the module",
    loaded: Loaded::Nothing,
    run: set,
};

pub fn run(bench: &Bench, table: &mut Table) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return table.skip(
            "instructions",
            "there is no valgrind (scripts/need.sh valgrind)",
        );
    }
    let mut kept = Kept::read(bench);
    for operation in OPERATIONS {
        let known = kept.count_of(operation.name);
        let most = known.map(|count| count * (1.0 + MAY_GROW));
        let mut count = operation.count(bench);
        for _ in 0..MORE_TRIES {
            if most.is_some_and(|most| count > most) {
                count = count.min(operation.count(bench));
            }
        }
        table.add(Row {
            what: operation.name.to_owned(),
            figure: "instructions",
            value: Spread::of([count]),
            target: most.map(|most| Target::AtMost(most.round())),
            detail: known.map_or(
                "none kept for this server and compiler".to_owned(),
                |known| {
                    format!(
                        "{:+.1} % of the {known:.0} kept",
                        (count / known - 1.0) * 100.0
                    )
                },
            ),
        });
        kept.put(operation.name, count);
    }
    if bench.keep {
        kept.write();
        table.note("these counts are kept now");
    } else if !bench.check {
        foreign(bench, table);
    }
}

/// Chance only adds (see [`MORE_TRIES`]), so each is the least of several.
fn foreign(bench: &Bench, table: &mut Table) {
    let unwatched = OPERATIONS.last().expect("the foreign SET");
    let least = |operation: &Operation| {
        let counts = (0..bench.scaled(STARTS)).map(|_| operation.count(bench));
        counts.fold(f64::INFINITY, f64::min)
    };
    let [loaded, unloaded] = [unwatched, &UNLOADED].map(least);
    let mut add = |what, dear: f64, cheap: f64| {
        table.add(Row {
            what,
            figure: "instructions, ratio",
            value: Spread::of([dear / cheap]),
            target: Some(Target::AtMost(1.02)),
            detail: format!("{dear:.0} against {cheap:.0}"),
        });
    };
    let name = unwatched.name;
    add(
        format!("{name}, against without the module"),
        loaded,
        unloaded,
    );
    let held = least(&HELD);
    for watched in &WATCHED {
        let what = format!("{}, against {}", watched.name, HELD.name);
        add(what, least(watched), held);
    }
}

impl Operation {
    fn count(&self, bench: &Bench) -> f64 {
        let after = |times| {
            let server = Server::start_counting(&bench.program, self.loaded);
            (self.run)(&server, times);
            server.end_counting() as f64
        };
        (after(MANY) - after(FEW)) / (MANY - FEW) as f64
    }
}

// ---- the operations ----

/// The command once for each of so many keys.
fn run_each(connection: &mut Connection, words: &str, count: usize) {
    for first in (0..count).step_by(AT_ONCE) {
        let batch: Vec<_> = (first..first + AT_ONCE)
            .flat_map(|number| encode(&words.replace("KEY", &format!("key:{number:012}"))))
            .collect();
        connection.run_all(&batch, AT_ONCE);
    }
}

/// The keys that are set have the prefix, but are nobody's, so nobody is told of them.
fn set_watched(server: &Server, count: usize, watch: &str) {
    let mut watcher = server.connect_resp3();
    let page = watcher.run(watch);
    assert!(page.starts_with(b"*"), "{}", page.escape_ascii());
    let mut owner = server.connect();
    owner.run_all(&encode("SETTP held value"), 1);
    set(server, count);
}

fn delete(server: &Server, count: usize) {
    let mut owner = server.connect();
    run_each(&mut owner, "SETTP KEY value", MANY);
    run_each(&mut owner, "DELTP KEY", count);
}

/// Of few keys that are there already: how well the server's own table spreads many is a matter of chance.
fn set(server: &Server, count: usize) {
    const KEYS: usize = 1_000;
    let mut writer = server.connect();
    for _ in 0..=count / KEYS {
        run_each(&mut writer, "SET KEY value", KEYS);
    }
}

/// Each toggle of the key is as many pushes as there are watchers, so a push has its part of it in it.
fn push(server: &Server, count: usize) {
    let mut crowd = Crowd::gather(server, WATCHERS, &encode("WATCHEX the-key"), 1, 0);
    let mut writer = server.connect();
    for _ in 0..count / WATCHERS / 2 {
        for (words, event) in [("SET the-key x", "ADD"), ("DEL the-key", "DEL")] {
            writer.run_all(&encode(words), 1);
            crowd.expect(&super::fanout::push(&format!("watchex the-key {event}")));
        }
    }
}

// ---- what is kept ----

/// The file's lines: server, compiler, processor, operation, count, with tabs between; and what begins with `#`.
struct Kept {
    path: PathBuf,
    /// What the lines of this server and compiler begin with.
    kind: String,
    lines: Vec<String>,
}

impl Kept {
    fn read(bench: &Bench) -> Kept {
        let path = project().join("benches/instructions.txt");
        let server = bench.start(Loaded::Nothing).version();
        let compiler = std::env::var_os("RUSTC").unwrap_or("rustc".into());
        let compiler = Command::new(compiler).arg("--version").output();
        let compiler = compiler.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let compiler = compiler.unwrap_or_default();
        let compiler = compiler.split(" (").next().unwrap_or_default().trim();
        let lines = fs::read_to_string(&path).unwrap_or_default();
        Kept {
            path,
            kind: format!("{server}\t{compiler}\t{}\t", std::env::consts::ARCH),
            lines: lines.lines().map(str::to_owned).collect(),
        }
    }

    fn beginning(&self, operation: &str) -> String {
        format!("{}{operation}\t", self.kind)
    }

    fn count_of(&self, operation: &str) -> Option<f64> {
        let beginning = self.beginning(operation);
        let mut counts = self
            .lines
            .iter()
            .filter_map(|line| line.strip_prefix(&beginning));
        counts.next()?.parse().ok()
    }

    fn put(&mut self, operation: &str, count: f64) {
        let beginning = self.beginning(operation);
        self.lines.retain(|line| !line.starts_with(&beginning));
        self.lines.push(format!("{beginning}{count:.0}"));
    }

    fn write(&self) {
        let text = self.lines.join("\n") + "\n";
        fs::write(&self.path, text).expect("benches/instructions.txt can be written");
    }
}
