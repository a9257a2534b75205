//! Peers that vanish without a word.
//!
//! A host that loses its power or its network sends no FIN. The kernel notices by itself only after
//! hours (an idle connection) or a quarter of an hour (one with data under way); the server's own
//! `tcp-keepalive` makes that minutes. For a connection whose death somebody waits for, the socket
//! is set to notice within `tether.peer-timeout`: by keepalive probes when nothing is under way, by
//! `TCP_USER_TIMEOUT` (Linux) when something is.

use crate::engine::ClientId;
use crate::policy::attribution::field;
use crate::shell::state::shell;
use crate::shell::sys::raw::Ctx;
use std::ffi::{c_int, c_void};

/// Sets a connection's socket to notice a vanished peer, and says within how many milliseconds it does from then on: 0 where
/// the setting leaves the sockets alone, and on a Unix socket, whose peer cannot vanish.
pub fn notice_death(ctx: Ctx<'_>, client: ClientId) -> u64 {
    let timeout_ms = shell().settings.get().peer_timeout_ms;
    if timeout_ms == 0 {
        return 0;
    }
    // The API knows no socket; what CLIENT LIST tells is its only public name.
    let line = ctx.client_line(client);
    let fd = line.and_then(|line| field(&line, "fd=")?.parse().ok());
    let fd = fd.filter(|fd: &c_int| *fd >= 0);
    fd.map_or(0, |fd| set_timeouts(fd, &Probing::within(timeout_ms)))
}

/// When to probe and when to give up, so that the sum is the timeout. Seconds, of which the kernel
/// wants at least one each: no timeout below two seconds can be kept.
#[derive(Debug, PartialEq, Eq)]
struct Probing {
    idle: c_int,
    interval: c_int,
    count: c_int,
}

impl Probing {
    fn within(timeout_ms: u32) -> Self {
        let seconds = c_int::try_from(timeout_ms / 1000).unwrap_or(c_int::MAX);
        let interval = (seconds / 5).clamp(1, 75);
        let count = ((seconds / 2) / interval).clamp(1, 10);
        Probing {
            idle: (seconds - interval * count).max(1),
            interval,
            count,
        }
    }
}

/// The time in milliseconds after which the peer counts as dead; 0 if the socket takes none.
fn set_timeouts(fd: c_int, probing: &Probing) -> u64 {
    let Probing {
        idle,
        interval,
        count,
    } = *probing;
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    #[cfg(target_os = "linux")]
    {
        set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle);
        // Half an interval less than the probes take: the last probe finds the time used up.
        let in_flight_ms = (idle + interval * count) * 1000 - interval * 500;
        set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, in_flight_ms);
    }
    #[cfg(target_os = "macos")]
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPALIVE, idle);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval);
    match set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, count) {
        true => (idle + interval * count) as u64 * 1000,
        false => 0,
    }
}

/// Whether the socket took the option; one that does not goes on without it.
fn set(fd: c_int, level: c_int, option: c_int, value: c_int) -> bool {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the value lives during the call, and its length is right.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            (&raw const value).cast::<c_void>(),
            length,
        )
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_end_when_the_timeout_does() {
        for (timeout_ms, idle, interval, count) in [
            (10_000, 6, 2, 2),
            (3_000, 2, 1, 1),
            (1_000, 1, 1, 1),
            (60_000, 36, 12, 2),
        ] {
            let expected = Probing {
                idle,
                interval,
                count,
            };
            assert_eq!(Probing::within(timeout_ms), expected);
        }
    }
}
