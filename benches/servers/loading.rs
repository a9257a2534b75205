//! How long a server takes to load an RDB file with a million keys whose owners are dead, against a server
//! without the module and the same keys as plain strings; and how long a PING takes from the first
//! answer on, while those keys are removed.

use super::Bench;
use super::death::{Ping, longest_ping, ms, owner_of};
use super::measure::Spread;
use super::server::{Loaded, Server};
use super::table::{Row, Table, Target};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tether_testing::resp::{Connection, encode};

const KEYS: usize = 1_000_000;
const ROUNDS: usize = 7;

pub fn run(bench: &Bench, table: &mut Table) {
    let keys = bench.scaled(KEYS);
    let (bound, plain) = (
        file(bench, Loaded::Module, keys),
        file(bench, Loaded::Nothing, keys),
    );
    let (mut ratios, mut ours_ms, mut floor_ms) = (Vec::new(), Vec::new(), Vec::new());
    let mut longest = Vec::new();
    // The first of each warms up and is not counted.
    for round in 0..=bench.scaled(ROUNDS) {
        let (ours, ping) = load(bench, Loaded::Module, &bound, keys);
        let (floor, _) = load(bench, Loaded::Nothing, &plain, keys);
        if round > 0 {
            ratios.push(ours / floor);
            ours_ms.push(ours);
            floor_ms.push(floor);
            longest.push(ping.expect("asked for"));
        }
    }
    table.add(Row {
        what: format!("loading {keys} bound keys against plain strings"),
        figure: "time, by its log",
        value: Spread::of(ratios),
        target: Some(Target::AtMost(1.5)),
        detail: format!(
            "{:.0} ms against {:.0} ms",
            Spread::of(ours_ms).median,
            Spread::of(floor_ms).median
        ),
    });
    let spread =
        |part: fn(&Ping) -> Duration| Spread::of(longest.iter().map(|ping| ms(part(ping))));
    table.add(Row {
        what: format!("longest PING after that, while the {keys} keys are removed"),
        figure: "ms of server CPU",
        value: spread(|ping| ping.cpu),
        target: Some(Target::AtMost(20.0)),
        detail: format!("{:.1} ms by the clock", spread(|ping| ping.clock).median),
    });
}

/// A folder with an RDB file of so many keys, bound where the module is loaded.
fn file(bench: &Bench, loaded: Loaded, keys: usize) -> TempDir {
    let server = bench.start(loaded);
    let owner = match loaded {
        Loaded::Module => owner_of(&server, keys),
        _ => plain_keys(&server, keys),
    };
    server.connect().run("SAVE");
    drop(owner);
    let folder = TempDir::with_prefix("tether-bench-").expect("a temporary folder");
    let (from, to) = (
        server.folder().join("dump.rdb"),
        folder.path().join("dump.rdb"),
    );
    fs::copy(from, to).expect("the file that was saved");
    folder
}

pub fn plain_keys(server: &Server, keys: usize) -> Connection {
    const AT_ONCE: usize = 1000;
    let mut client = server.connect();
    for first in (0..keys).step_by(AT_ONCE) {
        let last = keys.min(first + AT_ONCE);
        let commands: Vec<_> = (first..last)
            .flat_map(|n| encode(&format!("SET key:{n:016} value")))
            .collect();
        client.run_all(&commands, last - first);
    }
    client
}

/// What loading takes in milliseconds, as the server's log tells; and the longest PING after it, until
/// the bound keys have gone.
fn load(bench: &Bench, loaded: Loaded, data: &TempDir, keys: usize) -> (f64, Option<Ping>) {
    let server = bench.start_with(loaded, &format!("dir {}\n", data.path().display()));
    wait_for_service(&server);
    let ping = (loaded == Loaded::Module).then(|| longest_ping(&server, "DBSIZE"));
    if ping.is_none() {
        assert_eq!(
            server.connect().run("DBSIZE"),
            format!(":{keys}\r\n").as_bytes()
        );
    }
    let log = fs::read_to_string(server.folder().join("log")).expect("its log");
    let words = log
        .split_once("DB loaded from disk: ")
        .expect("it loaded")
        .1;
    let seconds = words
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    (seconds.expect("a number of seconds") * 1e3, ping)
}

/// Until the first PONG: while it loads the server says so instead.
fn wait_for_service(server: &Server) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    let mut reply = [0; 256];
    loop {
        stream
            .write_all(&encode("PING"))
            .expect("it takes commands");
        let length = stream.read(&mut reply).expect("it answers");
        if reply[..length].starts_with(b"+PONG") {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "the server does not finish loading"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
