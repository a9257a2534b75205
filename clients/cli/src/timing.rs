//! The times of `tether run`, and how they must fit together.

use std::time::Duration;
use tether_client::timing::{MARGIN, SHORTEST_FENCE, Unfit};

/// What it takes to notice a loss before the server gives the lock away.
const NOTICE: Duration = MARGIN.saturating_add(SHORTEST_FENCE);

/// Why times do not fit together, in the words of the options, and what to do. With a quorum or with --at-least there is no way
/// without a grace.
pub fn complaint(unfit: &Unfit, needs_grace: bool) -> String {
    match unfit {
        Unfit::Grace { grace, least } => {
            let without = (!needs_grace).then_some("--grace 0");
            format!(
                "--grace {} is too short: it must be at least {}, which is --kill-after and {} to notice a loss before the server gives the lock away{}",
                shown(*grace),
                shown(*least),
                shown(NOTICE),
                or_use([without, shorter_kill_after(*grace)]),
            )
        }
        Unfit::NoPeerTimeout => "without --grace the server must detect peers that vanished, and its tether.peer-timeout is 0 here; set it, or use --grace".to_owned(),
        Unfit::PeerTimeout {
            peer_timeout,
            least,
        } => format!(
            "without --grace the server's tether.peer-timeout of {} must be at least {}, which is --kill-after and {}{}",
            shown(*peer_timeout),
            shown(*least),
            shown(NOTICE),
            or_use([Some("--grace"), shorter_kill_after(*peer_timeout)]),
        ),
        other => other.to_string(),
    }
}

/// If the time is long enough for any --kill-after.
fn shorter_kill_after(time: Duration) -> Option<&'static str> {
    (time >= NOTICE).then_some("a shorter --kill-after")
}

fn or_use(ways: [Option<&str>; 2]) -> String {
    let ways: Vec<_> = ways.into_iter().flatten().collect();
    match ways.is_empty() {
        true => String::new(),
        false => format!("; or use {}", ways.join(" or ")),
    }
}

/// A time as people write it: `500ms`, `5s`, `1m 30s`, `2h`, `1day`; a number alone is in seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("'{text}' is not a time like 500ms, 5s, 1m30s, 2h, or a number of seconds");
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time = match is_number {
        true => text
            .parse()
            .ok()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        false => humantime::parse_duration(text).ok(),
    };
    let time = time.ok_or_else(wrong)?;
    // What the server can count with.
    let (least, most) = (Duration::from_millis(1), Duration::from_millis(1 << 53));
    match time {
        Duration::ZERO => Ok(time),
        _ if time < least => Err(format!("'{text}' is less than a millisecond")),
        _ if time >= most => Err(format!("'{text}' is too long")),
        _ => Ok(Duration::from_millis(time.as_millis() as u64)),
    }
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
    fn what_does_not_fit_is_said_in_the_words_of_the_options() {
        let (grace, least) = (ms(6000), ms(6100));
        let unfit = Unfit::Grace { grace, least };
        let said = complaint(&unfit, false);
        assert!(said.starts_with("--grace 6s is too short: it must be at least 6100ms"));
        assert!(said.ends_with("; or use --grace 0 or a shorter --kill-after"));
        let said = complaint(&unfit, true);
        assert!(said.ends_with("away; or use a shorter --kill-after"));
        let grace = ms(1000);
        let said = complaint(&Unfit::Grace { grace, least }, true);
        assert!(said.ends_with("gives the lock away"), "{said}");
        let peer_timeout = ms(2000);
        let unfit = Unfit::PeerTimeout {
            peer_timeout,
            least,
        };
        let said = complaint(&unfit, false);
        assert!(said.contains("tether.peer-timeout of 2s must be at least 6100ms"));
        assert!(said.ends_with("; or use --grace or a shorter --kill-after"));
    }

    #[test]
    fn times_are_read_as_they_are_shown() {
        for text in ["0", "1ms", "500ms", "5s", "90s", "2m", "1h", "25h"] {
            assert_eq!(shown(parse(text).unwrap()), text);
        }
        assert_eq!(parse("60s"), Ok(ms(60_000)));
        assert_eq!(shown(ms(60_000)), "1m");
        for (text, time) in [
            ("5", 5000),
            ("0.25", 250),
            ("1.5", 1500),
            ("1m30s", 90_000),
            ("1h 5m", 3_900_000),
            ("2min", 120_000),
            ("1day", 86_400_000),
            ("1500us", 1),
        ] {
            assert_eq!(parse(text), Ok(ms(time)), "{text}");
        }
        for nonsense in [
            "",
            "s",
            ".",
            "1.2.3",
            "-5s",
            "-5",
            "5x",
            "inf",
            "1e3",
            "10us",
            "99999999999999999999s",
            "99999999999999999999",
        ] {
            assert!(parse(nonsense).is_err(), "{nonsense}");
        }
        assert!(parse("9007199254740992ms").is_err());
    }
}
