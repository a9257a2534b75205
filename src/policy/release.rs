//! Versions of tether: this one, and those that wrote what it reads.

use crate::engine::{Pair, read_pairs};
use std::fmt;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of a release build, if `build.rs` could determine it.
pub const COMMIT: &str = match option_env!("TETHER_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The version as one number, as `MODULE LIST` shows it: 10203 is 1.2.3.
pub const NUMBER: u32 = part(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + part(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + part(env!("CARGO_PKG_VERSION_PATCH"));

const fn part(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(number) if number < 100 => number,
        _ => panic!("each part of a version has one digit or two"),
    }
}

const VERSION_NAME: &str = "version";
const COMMIT_NAME: &str = "commit";

/// The version as `name value` pairs, as replicated and in files.
pub const WORDS: [&str; 4] = [VERSION_NAME, VERSION, COMMIT_NAME, COMMIT];

/// A version of tether.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    version: String,
    commit: String,
}

impl Release {
    pub fn this() -> Self {
        Release {
            version: VERSION.to_owned(),
            commit: COMMIT.to_owned(),
        }
    }

    /// The version of a sender that does not state it, as 0.1.0.
    fn unsaid() -> Self {
        Release {
            version: "before 0.2.0".to_owned(),
            commit: "unknown".to_owned(),
        }
    }

    /// Parses [`WORDS`] of any version. `None` if malformed.
    pub fn read(words: &[&[u8]]) -> Option<Self> {
        let mut release = Release::unsaid();
        read_pairs(words, |name, value| match std::str::from_utf8(name) {
            Ok(VERSION_NAME) => Pair::set(&mut release.version, short(value)),
            Ok(COMMIT_NAME) => Pair::set(&mut release.commit, short(value)),
            _ => Pair::Unknown,
        })?;
        Some(release)
    }
}

/// A value that is safe in a log line.
fn short(value: &[u8]) -> Option<String> {
    const LONGEST: usize = 64;
    let is_plain = value.iter().all(u8::is_ascii_graphic) && (1..=LONGEST).contains(&value.len());
    is_plain.then(|| String::from_utf8_lossy(value).into_owned())
}

impl Default for Release {
    fn default() -> Self {
        Release::unsaid()
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tether {} (commit {})", self.version, self.commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_version_says_of_itself_is_understood() {
        let words = WORDS.map(str::as_bytes);
        assert_eq!(Release::read(&words), Some(Release::this()));
        assert_eq!(Release::read(&[]), Some(Release::unsaid()));
        let newer: [&[u8]; 4] = [b"version", b"9.9.9", b"more", b"things"];
        let newer = Release::read(&newer).expect("a version");
        assert_eq!(newer.to_string(), "tether 9.9.9 (commit unknown)");
        for refused in [
            &[b"version".as_slice()][..],
            &[b"version", b"9\n9"],
            &[b"version", b""],
        ] {
            assert_eq!(Release::read(refused), None, "{refused:?}");
        }
    }
}
