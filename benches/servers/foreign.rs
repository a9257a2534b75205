//! What the module costs those who do not use it: SET, GET and DEL of keys that nobody cares for, on a server
//! with the module and on one without.

use super::Bench;
use super::death::owner_of;
use super::loading::plain_keys;
use super::measure::{Cost, Side, Turns, cost};
use super::place::OnOne;
use super::server::{Loaded, Server};
use super::table::{Table, Target};
use tether_testing::resp::{Connection, encode};

const WATCHES: usize = 100_000;
const HOLDS: usize = 1_000_000;
const CONNECTIONS: usize = 8;
/// Commands in one round.
const COMMANDS: usize = 48_000;
/// How often both servers are started anew: where a process happens to lie in memory makes a
/// difference of some hundredths, which no number of rounds evens out.
const STARTS: usize = 12;
const ROUNDS: usize = 6;
/// Fewer starts, since a million keys take their time.
const STARTS_WITH_HOLDS: usize = 4;

/// What the others send.
#[derive(Clone, Copy)]
pub(super) struct Commands {
    names: &'static [&'static str],
    /// How many are sent together.
    depth: usize,
}

pub(super) const MIXED: Commands = Commands {
    names: &["SET", "GET", "DEL"],
    depth: 16,
};

pub fn run(bench: &Bench, table: &mut Table) {
    let _place = OnOne::new(false);
    for (setting, what) in [
        (Setting::Watches, "SET/GET/DEL, 100,000 unrelated watches"),
        (Setting::Hold, "SET/GET/DEL, one unrelated temporary key"),
    ] {
        let sides = against_none(Loaded::Module, setting);
        let turns = measure(bench, sides, MIXED, STARTS);
        table.add_speed(what, &turns, Target::AtLeast(0.97));
    }
    let holds = bench.scaled(HOLDS);
    let sides = [
        (Loaded::Module, Setting::Holds(holds)),
        (Loaded::Nothing, Setting::PlainKeys(holds)),
    ];
    let turns = measure(bench, sides, MIXED, STARTS_WITH_HOLDS);
    let what = format!("SET/GET/DEL, {holds} unrelated temporary keys and a watch");
    table.add_speed(&what, &turns, Target::AtLeast(0.95));
    let names = &["SET"];
    for (watch, what) in [
        (Setting::Prefix("WATCHTP key: KEYSONLY"), "keys only"),
        (Setting::Prefix("WATCHTP key:"), "with values"),
    ] {
        let sides = [watch, Setting::Hold].map(|setting| (Loaded::Module, setting));
        for depth in [1, MIXED.depth] {
            let turns = measure(bench, sides, Commands { names, depth }, STARTS);
            let what =
                format!("SET, {depth} at once, a prefix watched {what}, against a hold alone");
            table.add_speed(&what, &turns, Target::AtLeast(0.98));
        }
    }
}

/// What is loaded, in this setting, against a server without any module.
pub(super) fn against_none(loaded: Loaded, setting: Setting) -> [(Loaded, Setting); 2] {
    [(loaded, setting), (Loaded::Nothing, Setting::Nothing)]
}

/// What these commands cost on one side against the other.
pub(super) fn measure(
    bench: &Bench,
    [ours, floor]: [(Loaded, Setting); 2],
    commands: Commands,
    starts: usize,
) -> Turns {
    let mut turns = Turns::new();
    for _ in 0..bench.scaled(starts) {
        let [mut ours, mut floor] =
            [ours, floor].map(|(loaded, setting)| Load::on(bench.start(loaded), setting, commands));
        turns.take(bench.scaled(ROUNDS), |side| match side {
            Side::Ours => ours.round(),
            Side::Floor => floor.round(),
        });
    }
    turns
}

/// What others use of the module meanwhile.
#[derive(Clone, Copy)]
pub(super) enum Setting {
    Nothing,
    Watches,
    /// As [`Hold`](Self::Hold), and this command watches a prefix that some of the keys have, but nobody holds them.
    Prefix(&'static str),
    /// From the first hold on, the module also looks at who executes commands.
    Hold,
    /// So many, and a watch: from the first one on, the module also hears of keys that come into being.
    Holds(usize),
    /// As many keys without the module.
    PlainKeys(usize),
}

impl Setting {
    /// Who uses the module.
    fn make(self, server: &Server) -> Connection {
        const AT_ONCE: usize = 1_000;
        let mut owner = match self {
            Setting::Holds(count) => owner_of(server, count),
            Setting::PlainKeys(count) => plain_keys(server, count),
            _ => server.connect_resp3(),
        };
        match self {
            Setting::Nothing | Setting::PlainKeys(_) => {}
            Setting::Holds(_) => owner.run_all(&encode("WATCHEX watched"), 1),
            Setting::Watches => {
                for first in (0..WATCHES).step_by(AT_ONCE) {
                    let names = (first..first + AT_ONCE).map(|n| format!("watched:{n:012}"));
                    let words: Vec<_> =
                        std::iter::once("WATCHEX".to_owned()).chain(names).collect();
                    owner.run_all(&encode(words), 1);
                }
            }
            Setting::Prefix(watch) => {
                owner.run_all(&encode(watch), 1);
                owner.run_all(&encode("SETTP held value"), 1);
            }
            Setting::Hold => owner.run_all(&encode("SETTP held value"), 1),
        }
        owner
    }
}

struct Load {
    connections: Vec<Connection>,
    observer: Connection,
    batches: Vec<Vec<u8>>,
    depth: usize,
    _owner: Connection,
    _server: Server,
}

impl Load {
    fn on(server: Server, setting: Setting, commands: Commands) -> Load {
        let owner = setting.make(&server);
        Load {
            connections: (0..CONNECTIONS).map(|_| server.connect()).collect(),
            observer: server.connect(),
            batches: batches(commands),
            depth: commands.depth,
            _owner: owner,
            _server: server,
        }
    }

    /// All commands, handed to the connections in turn.
    fn round(&mut self) -> Cost {
        let Load {
            connections,
            observer,
            batches,
            depth,
            ..
        } = self;
        cost(observer, COMMANDS, || {
            for batches in batches.chunks(CONNECTIONS) {
                for (connection, batch) in connections.iter_mut().zip(batches) {
                    connection.send(batch);
                }
                for connection in &mut connections[..batches.len()] {
                    connection.skip_replies(*depth);
                }
            }
        })
    }
}

/// The same commands for every server, in turn, of keys that come in no order.
fn batches(Commands { names, depth }: Commands) -> Vec<Vec<u8>> {
    const KEYS: u64 = 100_000;
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut any_key = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % KEYS
    };
    let mut one = |number: usize| {
        let key = format!("key:{:012}", any_key());
        match names[number % names.len()] {
            "SET" => encode(&format!("SET {key} xxx")),
            name => encode(&format!("{name} {key}")),
        }
    };
    (0..COMMANDS / depth)
        .map(|batch| {
            (0..depth)
                .flat_map(|place| one(batch * depth + place))
                .collect()
        })
        .collect()
}
