//! The times of `tether run`, and how they must fit together.

use std::time::Duration;

/// What is kept between the death of the old work and the earliest next grant, for clocks that do not go alike and for
/// processes that take a moment to be gone.
pub const MARGIN: Duration = Duration::from_secs(1);

/// Shorter than this a fence would fall for any short delay.
pub const SHORTEST_FENCE: Duration = Duration::from_millis(100);

/// How long a lock is vouched for after the moment at which the last answered ping was sent: as long as leaves time to
/// stop the work, and the margin, before the server may give the lock away.
pub fn fence(grace: Duration, kill_after: Duration) -> Result<Duration, String> {
    let fence = grace
        .checked_sub(kill_after)
        .and_then(|left| left.checked_sub(MARGIN))
        .filter(|fence| *fence >= SHORTEST_FENCE);
    fence.ok_or_else(|| {
        let needed = kill_after + MARGIN + SHORTEST_FENCE;
        format!(
            "--grace {} is too short: it must be at least {}, which is --kill-after {} and {} to notice a loss before the server gives the lock away",
            shown(grace),
            shown(needed),
            shown(kill_after),
            shown(MARGIN + SHORTEST_FENCE),
        )
    })
}

/// The same without a session: a connection that breaks frees the lock at once, so this covers silence only, which the server
/// notices after its `tether.peer-timeout`.
pub fn fence_without_session(
    peer_timeout: Option<Duration>,
    kill_after: Duration,
) -> Result<Duration, String> {
    let Some(peer_timeout) = peer_timeout else {
        return Err("without --grace the server must detect peers that vanished, and its tether.peer-timeout is 0 here".to_owned());
    };
    let left = peer_timeout.checked_sub(kill_after + MARGIN);
    let fence = left.map(|left| left.min(peer_timeout / 2));
    fence.filter(|fence| *fence >= SHORTEST_FENCE).ok_or_else(|| {
        format!(
            "without --grace the server's tether.peer-timeout of {} must be longer than --kill-after {} and {}",
            shown(peer_timeout),
            shown(kill_after),
            shown(MARGIN + SHORTEST_FENCE),
        )
    })
}

/// A time as users write it: `500ms`, `5s`, `2m`, `1h`, or `0`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time like 500ms, 5s, 2m, 1h");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    // What the server can count with.
    let most = 1 << 53;
    let whole = number.checked_mul(milliseconds).filter(|ms| *ms < most);
    let whole = whole.ok_or_else(|| format!("'{text}' is too long"))?;
    Ok(Duration::from_millis(whole))
}

/// The shortest way to write it that [`parse`] understands.
pub fn shown(time: Duration) -> String {
    let milliseconds = time.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let whole = units
        .iter()
        .find(|(size, _)| milliseconds.is_multiple_of(*size));
    match whole {
        _ if milliseconds == 0 => "0".to_owned(),
        Some((size, unit)) => format!("{}{unit}", milliseconds / size),
        None => format!("{milliseconds}ms"),
    }
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
        for (grace, kill_after) in [(10_000, 5000), (1100, 0), (86_400_000, 60_000)] {
            let fence = fence(ms(grace), ms(kill_after)).unwrap();
            assert!(fence + ms(kill_after) + MARGIN <= ms(grace));
        }
    }

    #[test]
    fn a_grace_that_leaves_no_time_is_refused_and_the_least_is_named() {
        for (grace, kill_after, least) in [
            (6000, 5000, "6100ms"),
            (1099, 0, "1100ms"),
            (0, 0, "1100ms"),
        ] {
            let refusal = fence(ms(grace), ms(kill_after)).unwrap_err();
            assert!(refusal.contains(&format!("at least {least}")), "{refusal}");
        }
        assert_eq!(fence(ms(6100), ms(5000)), Ok(SHORTEST_FENCE));
    }

    #[test]
    fn without_a_session_the_fence_is_half_the_peer_timeout_at_most() {
        let fence = fence_without_session;
        assert_eq!(fence(Some(ms(10_000)), ms(1000)), Ok(ms(5000)));
        assert_eq!(fence(Some(ms(10_000)), ms(5000)), Ok(ms(4000)));
        for (peer_timeout, kill_after) in [(None, 0), (Some(ms(6000)), 5000), (Some(ms(500)), 5000)]
        {
            assert!(fence(peer_timeout, ms(kill_after)).is_err());
        }
    }

    #[test]
    fn times_are_read_as_they_are_shown() {
        for text in ["0", "1ms", "500ms", "5s", "90s", "2m", "1h", "25h"] {
            assert_eq!(shown(parse(text).unwrap()), text);
        }
        assert_eq!(parse("60s"), Ok(ms(60_000)));
        assert_eq!(shown(ms(60_000)), "1m");
        for nonsense in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "5S",
            "1.5s",
            "5d",
            "99999999999999999999s",
        ] {
            assert!(parse(nonsense).is_err(), "{nonsense}");
        }
        assert!(parse("9007199254740992ms").is_err());
    }
}
