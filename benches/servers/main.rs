//! Benchmarks against real servers: `cargo bench`, or `make bench`, which fetches the servers first.
//!
//!     cargo bench --bench servers                    everything, on Redis 7.0
//!     cargo bench --bench servers -- fanout memory   some parts
//!     cargo bench --bench servers -- --short         a quick run that shows that all of it works
//!     cargo bench --bench servers -- instructions --check   fails if an operation needs more instructions than it did
//!     cargo bench --bench servers -- instructions --keep    from now on, it may need as many as it does now
//!     TETHER_SERVERS="redis-7.0 valkey-9.1"          on these servers of .servers/
//!
//! Each part is a file with one function `run`; see [`PARTS`]. A ratio's two sides take turns within one
//! run (see `measure.rs`), so nothing else on the machine favours one of them, though it may widen
//! the spread.

mod crowd;
mod death;
mod fanout;
mod foreign;
mod handoff;
mod instructions;
mod loading;
mod measure;
mod memory;
mod pairs;
mod replicated;
mod server;
mod table;
mod waiters;
mod wire;

use server::{Loaded, Program, Server};
use table::Table;

/// What a part gets.
pub struct Bench {
    program: Program,
    short: bool,
    /// The counts of instructions are to be kept.
    keep: bool,
    /// A missed target is a failure.
    check: bool,
}

impl Bench {
    /// A server with this loaded.
    fn start(&self, loaded: Loaded) -> Server {
        Server::start(&self.program, loaded)
    }

    /// The same with these lines after those of redis.conf.
    fn start_with(&self, loaded: Loaded, settings: &str) -> Server {
        Server::start_with(&self.program, loaded, settings)
    }

    /// How often to do something: a tenth, when the run is to be short.
    fn scaled(&self, count: usize) -> usize {
        if self.short {
            count.div_ceil(10)
        } else {
            count
        }
    }
}

type Part = (&'static str, fn(&Bench, &mut Table));

const PARTS: &[Part] = &[
    ("foreign", foreign::run),
    ("pairs", pairs::run),
    ("fanout", fanout::run),
    ("memory", memory::run),
    ("death", death::run),
    ("loading", loading::run),
    ("replicated", replicated::run),
    ("handoff", handoff::run),
    ("waiters", waiters::run),
    ("instructions", instructions::run),
];

fn main() {
    let (options, names): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with('-'));
    for name in &names {
        let known: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        assert!(known.contains(&name.as_str()), "the parts are {known:?}");
    }
    let has = |wanted: &str| options.iter().any(|option| option == wanted);
    let (short, keep, check) = (has("--short"), has("--keep"), has("--check"));
    let mut table = Table::default();
    for program in Program::chosen() {
        let bench = Bench {
            program,
            short,
            keep,
            check,
        };
        let version = bench.start(Loaded::Module).version();
        let rounds = if short { " (a short run)" } else { "" };
        table.heading(&format!("{}: {version}{rounds}", bench.program.name));
        for (name, run) in PARTS {
            if names.is_empty() || names.iter().any(|wanted| wanted == name) {
                run(&bench, &mut table);
            }
        }
    }
    table.end();
    std::process::exit(i32::from(check && table.missed() > 0));
}
