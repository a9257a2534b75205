//! What happens to servers, clients and the cables between them.

use super::stage::Stage;
use super::{CLIENTS, SERVERS};
use std::fmt;
use tether_testing::harness::Server;
use tether_testing::harness::namespace::Side;
use tether_testing::random::Random;

pub enum Harm {
    Kill {
        servers: Vec<usize>,
        loses_files: bool,
    },
    StopServers(Vec<usize>),
    /// From all clients.
    CutServers(Vec<usize>, Sides),
    /// One client from some servers, which the others still reach.
    CutClient {
        client: usize,
        servers: Vec<usize>,
        sides: Sides,
    },
    StopClient(usize),
}

/// Those of a cable whose packets are dropped.
type Sides = &'static [Side];

const BOTH: Sides = &[Side::Server, Side::Client];

impl Harm {
    pub fn any(random: &mut Random) -> Harm {
        // Two at once leave no majority for a while.
        let two = 1 + usize::from(random.per_mille(250));
        // A cut that lets requests through, but no answers, or the other way round.
        let sides: Sides = random.pick(&[BOTH, BOTH, &[Side::Server], &[Side::Client]]);
        match random.below(10) {
            0..=2 => Harm::Kill {
                servers: some(two, random),
                loses_files: random.per_mille(500),
            },
            3 => Harm::StopServers(some(two, random)),
            4..=5 => Harm::CutServers(some(two, random), sides),
            6..=7 => Harm::CutClient {
                client: random.below(CLIENTS),
                servers: some(1 + random.below(SERVERS), random),
                sides,
            },
            _ => Harm::StopClient(random.below(CLIENTS)),
        }
    }

    /// The holder is away, for the first; for the second, a majority or all servers are killed.
    pub fn behind(holder: usize, random: &mut Random) -> (Harm, Harm) {
        let away = match random.per_mille(500) {
            true => Harm::StopClient(holder),
            false => Harm::CutClient {
                client: holder,
                servers: (0..SERVERS).collect(),
                sides: BOTH,
            },
        };
        let kill = Harm::Kill {
            servers: some(SERVERS - random.below(2), random),
            loses_files: random.per_mille(750),
        };
        (away, kill)
    }

    pub fn begin(&self, stage: &mut Stage) {
        match self {
            Harm::Kill { servers, .. } => servers.iter().for_each(|at| stage.servers[*at].kill()),
            Harm::StopServers(servers) => signal(servers, stage, libc::SIGSTOP),
            Harm::StopClient(at) => stage.clients[*at].signal(libc::SIGSTOP),
            _ => self.each_end(|cable, side| stage.mesh.silence(cable, side)),
        }
    }

    pub fn end(&self, stage: &mut Stage) {
        match self {
            Harm::Kill {
                servers,
                loses_files,
            } => {
                for at in servers {
                    let server = &mut stage.servers[*at];
                    stage.mesh.server(*at).enter(|| match loses_files {
                        _ if server.is_running() => {}
                        true => server.restart_without_files(),
                        false => server.restart_as_it_was(),
                    });
                }
            }
            Harm::StopServers(servers) => signal(servers, stage, libc::SIGCONT),
            Harm::StopClient(at) => stage.clients[*at].signal(libc::SIGCONT),
            _ => self.each_end(|cable, side| stage.mesh.clear(cable, side)),
        }
    }

    /// The ends of cables that are cut: of which server and client, and on which side.
    fn each_end(&self, set: impl Fn((usize, usize), Side)) {
        let (servers, clients, sides) = match self {
            Harm::CutServers(servers, sides) => (servers, 0..CLIENTS, sides),
            Harm::CutClient {
                client,
                servers,
                sides,
            } => (servers, *client..client + 1, sides),
            _ => return,
        };
        for server in servers {
            for client in clients.clone() {
                sides.iter().for_each(|side| set((*server, client), *side));
            }
        }
    }
}

/// So many different servers.
fn some(count: usize, random: &mut Random) -> Vec<usize> {
    let mut servers: Vec<_> = (0..SERVERS).collect();
    while servers.len() > count {
        servers.remove(random.below(servers.len()));
    }
    servers
}

/// One of two faults at a time may have killed a server.
fn signal(servers: &[usize], stage: &Stage, signal: libc::c_int) {
    let servers = servers.iter().map(|at| &stage.servers[*at]);
    for server in servers.filter(|server| server.is_running()) {
        Server::signal(server.pid(), signal);
    }
}

/// How many there were.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    kills: usize,
    lost_files: usize,
    server_stops: usize,
    server_cuts: usize,
    client_cuts: usize,
    client_stops: usize,
}

impl Counts {
    pub fn count(&mut self, harm: &Harm) {
        let count = match harm {
            Harm::Kill {
                loses_files: true, ..
            } => &mut self.lost_files,
            Harm::Kill { .. } => &mut self.kills,
            Harm::StopServers(_) => &mut self.server_stops,
            Harm::CutServers(..) => &mut self.server_cuts,
            Harm::CutClient { .. } => &mut self.client_cuts,
            Harm::StopClient(_) => &mut self.client_stops,
        };
        *count += 1;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            kills,
            lost_files,
            server_stops,
            server_cuts,
            client_cuts,
            client_stops,
        } = self;
        write!(
            f,
            "{kills} kills, {lost_files} with loss of files, {server_stops} stopped servers, "
        )?;
        write!(
            f,
            "{server_cuts} cut servers, {client_cuts} cut clients, {client_stops} stopped clients"
        )
    }
}
