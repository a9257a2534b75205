//! How long others wait while a connection dies that owns a million keys, or ten thousand that own one each.
//!
//! On a machine where other processes run, a PING also waits for a processor. So each is measured twice:
//! by the clock, and by the processor time that the server used between question and answer, which
//! is what it would have taken on a processor of the server's own.

use super::Bench;
use super::crowd::most_sockets;
use super::measure::Spread;
use super::server::{Loaded, Server};
use super::table::{Row, Table, Target};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tether_testing::process::end_with_us;
use tether_testing::resp::{Connection, encode};

const KEYS: usize = 1_000_000;
const OWNERS: usize = 10_000;
const DEATHS: usize = 5;
/// Of the program itself, as [`Owners`].
const OWN: &str = "--own";

pub fn run(bench: &Bench, table: &mut Table) {
    let server = bench.start(Loaded::Module);
    let keys = bench.scaled(KEYS);
    let one = deaths(bench, &server, "DBSIZE", || drop(owner_of(&server, keys)));
    let target = Some(Target::AtMost(20.0));
    let what = format!("longest PING while the owner of {keys} keys dies");
    add(table, what, &one, target, String::new());

    let owners = OWNERS.min(most_sockets().saturating_sub(200));
    let many = deaths(bench, &server, "DBSIZE", || {
        drop(Owners::start(&server, owners, "SETTP"));
    });
    // A server without the module has to close as many.
    let plain = bench.start(Loaded::Nothing);
    let floor = deaths(bench, &plain, "INFO clients", || {
        drop(Owners::start(&plain, owners, "SETNX"));
    });
    let against = Spread::of(floor.iter().map(|death| ms(death.longest.cpu))).median;
    let against = format!("; {against:.1} ms where they own nothing, without the module");
    let what = format!("longest PING while {owners} owners of one key each die at once");
    add(table, what, &many, None, against);
}

struct Death {
    longest: Ping,
    lasted_ms: f64,
}

fn deaths(bench: &Bench, server: &Server, look: &str, live_and_die: impl Fn()) -> Vec<Death> {
    let die = |_| {
        live_and_die();
        let begin = Instant::now();
        Death {
            longest: longest_ping(server, look),
            lasted_ms: ms(begin.elapsed()),
        }
    };
    (0..bench.scaled(DEATHS)).map(die).collect()
}

fn add(table: &mut Table, what: String, deaths: &[Death], target: Option<Target>, more: String) {
    let spread = |part: fn(&Death) -> f64| Spread::of(deaths.iter().map(part));
    table.add(Row {
        what,
        figure: "ms of server CPU",
        value: spread(|death| ms(death.longest.cpu)),
        target,
        detail: format!(
            "{:.1} ms by the clock; all gone after {:.0} ms{more}",
            spread(|death| ms(death.longest.clock)).median,
            spread(|death| death.lasted_ms).median
        ),
    });
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub fn owner_of(server: &Server, keys: usize) -> Connection {
    const AT_ONCE: usize = 1000;
    let mut owner = server.connect();
    for first in (0..keys).step_by(AT_ONCE) {
        let last = keys.min(first + AT_ONCE);
        let commands: Vec<_> = (first..last)
            .flat_map(|n| encode(&format!("SETTP key:{n:016} value")))
            .collect();
        owner.run_all(&commands, last - first);
    }
    owner
}

/// A process with many connections. Killing it ends all of them at once.
struct Owners(Child);

impl Owners {
    fn start(server: &Server, count: usize, verb: &str) -> Owners {
        let mut command = Command::new(std::env::current_exe().expect("this program's path"));
        command
            .args([OWN, &server.port().to_string(), &count.to_string(), verb])
            .stdout(Stdio::piped());
        end_with_us(&mut command);
        let mut owners = Owners(command.spawn().expect("this program runs"));
        let output = owners.0.stdout.take().expect("its output");
        let mut said = String::new();
        let read = BufReader::new(output).read_line(&mut said);
        assert!(read.is_ok() && said == "own\n", "the owners say {said:?}");
        owners
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What such a process does, until it is killed. Nothing if this program is not one.
pub fn own(words: &[String]) -> Option<()> {
    let [option, port, count, verb] = words else {
        return None;
    };
    let port = port.parse().ok().filter(|_| option == OWN)?;
    let count: usize = count.parse().ok()?;
    most_sockets();
    let own_one = |number| {
        let mut owner = Connection::open(port).expect("the server takes connections");
        owner.run(&format!("{verb} key:{number} value"));
        owner
    };
    let _owners: Vec<_> = (0..count).map(own_one).collect();
    println!("own");
    loop {
        std::thread::park();
    }
}

/// From question to answer.
#[derive(Default)]
pub struct Ping {
    pub cpu: Duration,
    pub clock: Duration,
}

impl Ping {
    /// One that took so long by the clock, between two looks at what all threads of the server had used. A client waits for the
    /// main thread, which has not used more than the clock shows, whatever others (of FLUSHALL ASYNC) used beside it.
    pub fn between(before: Option<Duration>, after: Option<Duration>, clock: Duration) -> Self {
        let used = after.zip(before).map(|(after, before)| after - before);
        Ping {
            cpu: used.unwrap_or(clock).min(clock),
            clock,
        }
    }

    /// The longer by each measure.
    pub fn max(self, other: Self) -> Self {
        Ping {
            cpu: self.cpu.max(other.cpu),
            clock: self.clock.max(other.clock),
        }
    }
}

/// Pings until all have gone, as `look` tells; the longest by either measure.
pub fn longest_ping(server: &Server, look: &str) -> Ping {
    let mut bystander = server.connect();
    let (ping, size) = (encode("PING"), encode(look));
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut longest = Ping::default();
    for number in 1.. {
        let is_look = number % 20 == 0;
        let cpu_before = server.cpu();
        let begin = Instant::now();
        bystander.send(if is_look { &size } else { &ping });
        let reply = bystander.reply();
        // Nobody but the bystander is connected, or there is no key.
        let alone = |reply: &[u8]| String::from_utf8_lossy(reply).contains("connected_clients:1\r");
        let empty = reply == b":0\r\n" || (is_look && alone(reply));
        let clock = begin.elapsed();
        longest = longest.max(Ping::between(cpu_before, server.cpu(), clock));
        if empty {
            break;
        }
        assert!(begin < deadline, "the dead owner's keys do not go");
    }
    longest
}
