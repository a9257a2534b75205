//! How long a client may rely on a server that does not answer.

use std::fmt;
use std::time::Duration;

/// What is kept between the end of the old work and the earliest next grant, for clocks that do not go alike and for work that
/// takes a moment to be gone.
pub const MARGIN: Duration = Duration::from_secs(1);

/// Shorter than this a fence would fall for any short delay.
pub const SHORTEST_FENCE: Duration = Duration::from_millis(100);

/// The peer of a Unix socket cannot vanish: what is left is a server that does not answer.
pub const FENCE_OF_UNIX: Duration = Duration::from_secs(5);

/// Times that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The grace is less than the work needs to stop, the margin and the shortest fence.
    Grace {
        /// What was given.
        grace: Duration,
        /// The least that is enough.
        least: Duration,
    },
    /// Without a session the server must notice peers that vanish, and tether.peer-timeout is 0 there.
    NoPeerTimeout,
    /// tether.peer-timeout is less than that.
    PeerTimeout {
        /// What the server has.
        peer_timeout: Duration,
        /// The least that is enough.
        least: Duration,
    },
    /// The fence that was asked for is longer than the server allows.
    Fence {
        /// What was asked for.
        fence: Duration,
        /// The most that holds.
        most: Duration,
    },
    /// What was asked for needs a session, and so a grace.
    NoSession,
    /// A hold that outlives its client needs a session with a grace as long.
    AtLeast {
        /// What was asked for.
        at_least: Duration,
    },
    /// A quorum has so many servers; it is three or five.
    Servers(usize),
    /// A server of a quorum is a replica.
    Replica,
    /// Two addresses of a quorum are one server.
    NamedTwice,
    /// tether.quarantine of a server of a quorum is less than is needed.
    Quarantine {
        /// What the server has.
        quarantine: Duration,
        /// The least that is enough.
        least: Duration,
    },
}

impl std::error::Error for Unfit {}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Grace { grace, least } => write!(
                f,
                "a grace of {grace:?} is too short: it must be at least {least:?}"
            ),
            Unfit::NoPeerTimeout => write!(
                f,
                "without a grace the server must detect peers that vanished, and its tether.peer-timeout is 0 here"
            ),
            Unfit::PeerTimeout {
                peer_timeout,
                least,
            } => write!(
                f,
                "without a grace the server's tether.peer-timeout must be at least {least:?}, and it is {peer_timeout:?}"
            ),
            Unfit::Fence { fence, most } => write!(
                f,
                "a fence of {fence:?} does not hold: it may be {most:?} at most"
            ),
            Unfit::NoSession => f.write_str("acknowledged grants need a session: give a grace"),
            Unfit::AtLeast { at_least } => write!(
                f,
                "to keep a lock for {at_least:?} at least needs a grace that is as long"
            ),
            Unfit::Servers(servers) => {
                write!(f, "a quorum has three or five servers, and not {servers}")
            }
            Unfit::Replica => f.write_str("a server of a quorum is a replica"),
            Unfit::NamedTwice => f.write_str("two addresses of the quorum are one server"),
            Unfit::Quarantine { quarantine, least } => write!(
                f,
                "the tether.quarantine of each server of a quorum must be at least {least:?}, and it is {quarantine:?}"
            ),
        }
    }
}

/// The longest fence with a session of this grace: it leaves time to stop the work, and the margin, before the server may give
/// a lock away.
pub fn fence(grace: Duration, stop_within: Duration) -> Result<Duration, Unfit> {
    let left = grace.checked_sub(stop_within + MARGIN);
    let fence = left.filter(|fence| *fence >= SHORTEST_FENCE);
    let least = stop_within + MARGIN + SHORTEST_FENCE;
    fence.ok_or(Unfit::Grace { grace, least })
}

/// The same without a session: a connection that breaks frees its locks at once, so this covers silence only, which the server
/// notices after its `tether.peer-timeout`; `None` is 0 there.
pub fn fence_without_session(
    peer_timeout: Option<Duration>,
    stop_within: Duration,
) -> Result<Duration, Unfit> {
    let peer_timeout = peer_timeout.ok_or(Unfit::NoPeerTimeout)?;
    let left = peer_timeout.checked_sub(stop_within + MARGIN);
    let fence = left.map(|left| left.min(peer_timeout / 2));
    let least = stop_within + MARGIN + SHORTEST_FENCE;
    fence
        .filter(|fence| *fence >= SHORTEST_FENCE)
        .ok_or(Unfit::PeerTimeout {
            peer_timeout,
            least,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn the_fence_leaves_time_to_stop_the_work_and_a_margin() {
        assert_eq!(fence(ms(10_000), ms(5000)), Ok(ms(4000)));
        assert_eq!(fence(ms(2200), ms(500)), Ok(ms(700)));
        for (grace, stop_within) in [(10_000, 5000), (1100, 0), (86_400_000, 60_000)] {
            let fence = fence(ms(grace), ms(stop_within)).unwrap();
            assert!(fence + ms(stop_within) + MARGIN <= ms(grace));
        }
    }

    #[test]
    fn a_grace_that_leaves_no_time_is_refused_and_the_least_is_named() {
        for (grace, stop_within, least) in [(6000, 5000, 6100), (1099, 0, 1100), (0, 0, 1100)] {
            let grace = ms(grace);
            let least = ms(least);
            let refused = Err(Unfit::Grace { grace, least });
            assert_eq!(fence(grace, ms(stop_within)), refused);
        }
        assert_eq!(fence(ms(6100), ms(5000)), Ok(SHORTEST_FENCE));
    }

    #[test]
    fn without_a_session_the_fence_is_half_the_peer_timeout_at_most() {
        let fence = fence_without_session;
        assert_eq!(fence(Some(ms(10_000)), ms(1000)), Ok(ms(5000)));
        assert_eq!(fence(Some(ms(10_000)), ms(5000)), Ok(ms(4000)));
        assert_eq!(fence(None, ms(0)), Err(Unfit::NoPeerTimeout));
        for (peer_timeout, stop_within) in [(6000, 5000), (500, 5000)] {
            assert!(fence(Some(ms(peer_timeout)), ms(stop_within)).is_err());
        }
    }
}
