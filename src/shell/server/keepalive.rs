//! Detects peers that vanish without closing their connection.
//!
//! A host that loses power or network sends no FIN. The kernel notices by itself only after hours (an idle connection) or a
//! quarter of an hour (with data in flight); the server's `tcp-keepalive` makes that minutes. A connection whose death
//! others wait for gets its socket set to notice within `tether.peer-timeout`: by keepalive probes when idle, by
//! `TCP_USER_TIMEOUT` (Linux) with data in flight.

use crate::engine::ClientId;
use crate::policy::attribution::field;
use crate::shell::state::shell;
use crate::shell::sys::raw::Ctx;
use std::ffi::{c_int, c_void};

/// Sets a client's socket to detect a vanished peer. Returns the detection time in milliseconds: 0 if the setting leaves
/// sockets alone, and for a Unix socket, whose peer cannot vanish.
pub fn detect_dead_peer(ctx: Ctx<'_>, client: ClientId) -> u64 {
    let timeout_ms = shell().settings.get().peer_timeout_ms;
    if timeout_ms == 0 {
        return 0;
    }
    // The API does not expose the socket; CLIENT LIST does.
    let line = ctx.client_line(client);
    let fd = line.and_then(|line| field(&line, "fd=")?.parse().ok());
    let fd = fd.filter(|fd: &c_int| *fd >= 0);
    fd.map_or(0, |fd| set_timeouts(fd, &Probing::within(timeout_ms)))
}

/// Probe times in seconds that add up to the timeout. The kernel requires at least one second each, so timeouts below two
/// seconds are not met.
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

/// Returns the time in milliseconds after which the peer counts as dead; 0 if the socket does not support that.
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
        // Half an interval less than the probes take, so that the last probe finds it used up.
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

/// Returns whether the socket accepted the option; without it, it works as before.
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
