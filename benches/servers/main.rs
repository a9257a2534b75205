//! Benchmarks against real servers: `cargo bench`, or `make bench`, which fetches the servers first.
//!
//!     cargo bench --bench servers                    everything; writes docs/benchmarks.md
//!     cargo bench --bench servers -- fanout memory   some parts
//!     cargo bench --bench servers -- --short         a quick run that shows that all of it works
//!     cargo bench --bench servers -- acks --merge    some parts, whose sections and targets are renewed in docs/benchmarks.md
//!     cargo bench --bench servers -- --prose         measures nothing, and puts the prose of report.md into docs/benchmarks.md
//!     cargo bench --bench servers -- instructions --check   fails if an operation needs more instructions than it did
//!     cargo bench --bench servers -- instructions --keep    from now on, it may need as many as it does now
//!     TETHER_SERVERS="redis-7.0 valkey-9.1"          on these servers of .servers/
//!
//! Each part is a file or folder with one function `run`; see [`PARTS`]. A ratio's two sides take turns within one
//! run (see `measure.rs`), so nothing else on the machine favours one of them, though it may widen
//! the spread. A part that fails or takes too long is told, and what there is is written all the same.

mod bare;
mod crowd;
mod death;
mod fanout;
mod foreign;
mod guarded;
mod handoff;
mod hostile;
mod instructions;
mod loading;
mod measure;
mod memory;
mod merge;
mod pairs;
mod parts;
mod peers;
mod place;
mod plot;
mod presence;
mod prose;
mod replicated;
mod report;
mod scale;
mod server;
mod summary;
mod table;
mod waiters;

use parts::{PARTS, Part};
use report::Report;
use server::{Loaded, Program, Server};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
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

/// No part takes as long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// One run of this program.
struct Run {
    benches: Vec<Bench>,
    /// Of each of their servers.
    versions: Vec<String>,
    wanted: Vec<String>,
    table: Table,
    report: Report,
    watchdog: Sender<()>,
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    // The program is also its own children.
    let child = peers::hold(&words).or_else(|| death::own(&words));
    if child.or_else(|| presence::join(&words)).is_some() {
        return;
    }
    let (options, wanted): (Vec<_>, Vec<_>) =
        words.into_iter().partition(|word| word.starts_with('-'));
    for name in &wanted {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        assert!(known.contains(&name.as_str()), "the parts are {known:?}");
    }
    // The last is Cargo's own word.
    const OPTIONS: [&str; 6] = [
        "--short", "--merge", "--prose", "--keep", "--check", "--bench",
    ];
    for option in &options {
        assert!(
            OPTIONS.contains(&option.as_str()),
            "the options are {OPTIONS:?}"
        );
    }
    let has = |wanted: &str| options.iter().any(|option| option == wanted);
    if has("--prose") {
        merge::prose_into_docs().expect("docs/benchmarks.md takes the prose");
        return;
    }
    crowd::most_sockets();
    let (short, keep, check) = (has("--short"), has("--keep"), has("--check"));
    let bench = |program| Bench {
        program,
        short,
        keep,
        check,
    };
    let benches: Vec<_> = Program::chosen().into_iter().map(bench).collect();
    let versions = benches
        .iter()
        .map(|bench| bench.start(Loaded::Module).version());
    let versions: Vec<_> = versions.collect();
    let report = Report::new(wanted.is_empty() && !short && !check, short, &versions);
    let mut run = Run {
        benches,
        versions,
        wanted,
        table: Table::default(),
        report,
        watchdog: watchdog(),
    };
    let failed = run.all();
    run.table.end();
    println!("written to {}", run.report.path().display());
    if has("--merge") && !short {
        let merged = merge::into_docs(&run.report.path());
        merged.expect("docs/benchmarks.md takes the new sections");
        println!("its sections are merged into docs/benchmarks.md");
    }
    let missed = check && run.table.missed() > 0;
    std::process::exit(i32::from(failed || missed));
}

impl Run {
    /// Every part on every server, and then those that are for one of them. Whether any failed.
    fn all(&mut self) -> bool {
        let mut failed = false;
        for at in 0..self.benches.len() {
            let (name, version) = (&self.benches[at].program.name, self.versions[at].clone());
            let short = if self.benches[at].short {
                " (a short run)"
            } else {
                ""
            };
            let title = format!("{name}: {version}{short}");
            self.table.heading(&version, &title);
            for part in PARTS.iter().filter(|part| !part.once) {
                failed |= self.one(part, at);
            }
        }
        let title = format!("once, on {}", self.versions[0]);
        self.table.heading(&self.versions[0].clone(), &title);
        for part in PARTS.iter().filter(|part| part.once) {
            failed |= self.one(part, 0);
        }
        failed
    }

    /// Whether it failed.
    fn one(&mut self, part: &Part, at: usize) -> bool {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == part.name) {
            return false;
        }
        let begin = Instant::now();
        let Run { table, benches, .. } = self;
        table.begin_part(part.name);
        let run = AssertUnwindSafe(|| (part.run)(&benches[at], table));
        let failed = catch_unwind(run).is_err();
        if failed {
            table.skip(part.name, "it failed (see the run's output)");
        }
        println!(
            "({} took {:.0} s)",
            part.name,
            begin.elapsed().as_secs_f64()
        );
        if let Err(error) = self.report.write(&self.table) {
            println!("SKIPPED the report: {error}");
        }
        // The watchdog never ends before this program does.
        let _ = self.watchdog.send(());
        failed
    }
}

/// Ends the program when nothing is sent to it for too long: every wait has its own limit, but who knows.
fn watchdog() -> Sender<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    println!(
                        "STOPPED: a part takes over {} s; the report has those before it",
                        PATIENCE.as_secs()
                    );
                    std::process::exit(3);
                }
            }
        }
    });
    sender
}
