//! Which series of servers are known: those whose functions may be called that the module API does not promise.
//!
//! `docs/servers.md` tells users the same.

/// A server by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub is_valkey: bool,
    pub series: (u32, u32),
    patch: u32,
}

/// How it is known that a series takes the calls of `shim.c` as they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// All tests are run on a server of this series (`make test-matrix`).
    Tested,
    /// Each function that is called, and each field that is read, was compared in the tagged sources.
    Compared,
}

/// Of Redis and of Valkey.
const KNOWN: [&[((u32, u32), How)]; 2] = [
    &[
        ((7, 0), How::Tested),
        ((7, 2), How::Tested),
        ((7, 4), How::Tested),
        ((8, 0), How::Tested),
        ((8, 2), How::Tested),
        ((8, 6), How::Tested),
    ],
    &[
        ((7, 2), How::Compared),
        ((8, 0), How::Tested),
        ((8, 1), How::Tested),
        ((9, 1), How::Tested),
    ],
];

impl Version {
    /// From the fields `redis_version` and `valkey_version` of INFO. (A Valkey has both.)
    pub fn read(redis: Option<&str>, valkey: Option<&str>) -> Option<Version> {
        let mut numbers = valkey
            .or(redis)?
            .split('.')
            .map(|number| number.parse().ok());
        Some(Version {
            is_valkey: valkey.is_some(),
            series: (numbers.next()??, numbers.next()??),
            patch: numbers.next()??,
        })
    }

    pub fn is_known(self) -> bool {
        // There the function that pushes took one argument less.
        let is_first = !self.is_valkey && self.series == (7, 0) && self.patch == 0;
        let known = KNOWN[usize::from(self.is_valkey)].iter();
        !is_first
            && known
                .map(|(series, _)| *series)
                .any(|one| one == self.series)
    }

    /// Whether a block is ended in two steps, see `shim.c`.
    pub fn ends_blocks_in_two_steps(self) -> bool {
        !self.is_valkey && self.series == (7, 0)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.is_valkey { "Valkey" } else { "Redis" };
        let (major, minor) = self.series;
        write!(f, "{name} {major}.{minor}.{}", self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_the_server_says() {
        let known = |redis, valkey| Version::read(redis, valkey).is_some_and(Version::is_known);
        for redis in [
            "7.0.1", "7.0.15", "7.2.4", "7.4.1", "8.0.6", "8.2.3", "8.6.3",
        ] {
            assert!(known(Some(redis), None), "{redis}");
        }
        for valkey in ["7.2.5", "8.0.1", "8.1.8", "9.1.2"] {
            assert!(known(Some("7.2.4"), Some(valkey)), "{valkey}");
        }
        for redis in [
            "6.2.1",
            "7.0.0",
            "7.1.0",
            "8.4.0",
            "9.0.0",
            "255.255.255",
            "8",
            "x",
            "",
        ] {
            assert!(!known(Some(redis), None), "{redis}");
        }
        for valkey in ["7.0.9", "8.2.0", "9.0.0", "9.2.0", "10.0.0", "255.255.255"] {
            assert!(!known(Some("7.2.4"), Some(valkey)), "{valkey}");
        }
        assert!(!known(None, None));
        let version = Version::read(Some("7.2.4"), Some("8.1.8")).expect("a version");
        assert_eq!(version.to_string(), "Valkey 8.1.8");
    }

    /// One row of the table for each series, and a server of the matrix for each that is tested.
    #[test]
    fn the_page_about_servers_and_the_matrix_say_the_same() {
        let page = include_str!("../../../docs/servers.md");
        let matrix = include_str!("../../../scripts/servers.sh");
        let mut rows = Vec::new();
        for (name, series) in ["Redis", "Valkey"].iter().zip(KNOWN) {
            for ((major, minor), how) in series {
                let word = match how {
                    How::Tested => "tested",
                    How::Compared => "compared",
                };
                rows.push(format!("| {name} {major}.{minor} | {word} |"));
                let server = format!("{}-{major}.{minor}", name.to_lowercase());
                let is_there =
                    matrix.contains(&format!("fetch_{}()", server.replace(['-', '.'], "_")));
                assert_eq!(is_there, *how == How::Tested, "{server}");
            }
        }
        let table = page
            .lines()
            .filter(|line| line.starts_with("| Redis ") || line.starts_with("| Valkey "));
        let told: Vec<_> = table.collect();
        assert_eq!(told.len(), rows.len(), "{told:?}");
        for (told, row) in told.iter().zip(rows) {
            assert!(told.starts_with(&row), "{told:?} is to begin with {row:?}");
        }
    }
}
