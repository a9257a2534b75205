//! What can happen to a holder, and how.

use crate::lane::{Holder, Lane, Work};
use rustix::process::Signal;
use std::time::Duration;
use tether_testing::harness::namespace::Side;
use tether_testing::random::Random;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    PartitionBothWays,
    PartitionToServer,
    PartitionToClient,
    /// The server hangs up in the middle of a partition, so that its grace begins at once.
    PartitionAndClientKill,
    Delay,
    Reset,
    ClientKill,
    ServerStopped,
    ServerKilledWithFiles,
    ServerKilledWithQuarantine,
    RunnerKilled,
    /// Its kernel goes on answering for it, so the server hangs up, or it would never know.
    RunnerStopped,
    /// The runner and the command, but not what began a session of its own.
    GroupKilled,
}

pub const FAULTS: [Fault; 13] = [
    Fault::PartitionBothWays,
    Fault::PartitionToServer,
    Fault::PartitionToClient,
    Fault::PartitionAndClientKill,
    Fault::Delay,
    Fault::Reset,
    Fault::ClientKill,
    Fault::ServerStopped,
    Fault::ServerKilledWithFiles,
    Fault::ServerKilledWithQuarantine,
    Fault::RunnerKilled,
    Fault::RunnerStopped,
    Fault::GroupKilled,
];

/// The work that is to be ended: each keeps the pipe on descriptor 9 open in all its processes.
pub const WORKS: [Work; 5] = [
    Work("plain", "while :; do sleep 1; done"),
    Work("ignores TERM", "trap '' TERM; while :; do sleep 1; done"),
    Work(
        "forks twice",
        "trap '' TERM; ( (while :; do sleep 1; done) & ); while :; do sleep 1; done",
    ),
    Work(
        "setsid",
        "trap '' TERM; setsid sh -c 'while :; do sleep 1; done' & while :; do sleep 1; done",
    ),
    Work(
        "a daemon, and many",
        "trap '' TERM; (setsid sh -c '(while :; do sleep 1; done) &' &); for i in 1 2 3 4 5; do (while :; do sleep 1; done) & done; wait",
    ),
];

impl Fault {
    /// Strikes. It is over when this returns, unless it lasts until [`Lane::mend`].
    pub fn strike(self, lane: &mut Lane, random: &mut Random) {
        let fence = lane.times.fence;
        let within = |random: &mut Random, limit: Duration| {
            let limit = usize::try_from(limit.as_millis()).unwrap();
            Duration::from_millis(random.below(limit) as u64)
        };
        // At any moment between two pings.
        lane.pause(within(random, fence));
        match self {
            Fault::PartitionBothWays => lane.silence(&[Side::Server, Side::Client]),
            Fault::PartitionToServer => lane.silence(&[Side::Client]),
            Fault::PartitionToClient => lane.silence(&[Side::Server]),
            Fault::PartitionAndClientKill => {
                lane.silence(&[Side::Server, Side::Client]);
                lane.kill_clients();
            }
            Fault::Delay => {
                let bits = 500 + random.below(8000);
                lane.delay(bits);
                lane.pause(within(random, fence * 4));
                lane.mend();
            }
            Fault::Reset => lane.reset(),
            Fault::ClientKill => lane.kill_clients(),
            Fault::ServerStopped => {
                lane.signal_server(Signal::STOP);
                lane.pause(within(random, fence * 4));
                lane.signal_server(Signal::CONT);
            }
            Fault::ServerKilledWithFiles | Fault::ServerKilledWithQuarantine => {
                lane.crash_server(within(random, fence));
            }
            Fault::RunnerKilled => lane.signal_runner(Signal::KILL),
            Fault::RunnerStopped => {
                lane.signal_runner(Signal::STOP);
                lane.kill_clients();
            }
            Fault::GroupKilled => lane.kill_group(),
        }
    }

    /// Whether this holder is to end its work whatever happens. A stopped program ends nothing by itself, without a guard.
    pub fn is_for(self, holder: Holder) -> bool {
        holder != Holder::Python || self != Fault::RunnerStopped
    }

    /// Whether the client may find its server again by itself, and go on.
    pub fn may_be_survived(self) -> bool {
        matches!(
            self,
            Fault::Delay
                | Fault::Reset
                | Fault::ClientKill
                | Fault::ServerStopped
                | Fault::ServerKilledWithFiles
        )
    }

    /// The server's settings that it needs.
    pub fn lines(self) -> &'static [&'static str] {
        match self {
            Fault::ServerKilledWithQuarantine => &[],
            _ => &["appendonly yes", "appendfsync always"],
        }
    }
}
