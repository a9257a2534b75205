//! What differs between servers, and on which of them functions may be called that the module API does not promise.
//!
//! `docs/servers.md` tells users the latter.

/// What differs between servers, found out once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    /// A push to the connection whose command is running would be written before that command's
    /// reply, or inside EXEC's (Redis 7.0): all pushes wait until the command is done.
    pub late_pushes: bool,
    /// It ends, sooner or later, when a connection is pushed to while its own command comes upon a lapsed key, or while it
    /// wants no replies and its own command causes an event.
    pub loses_count_of_pushes: bool,
    /// In a transaction, an event's context names the transaction's database and not the event's
    /// (Valkey 9).
    pub event_db_is_wrong_in_exec: bool,
    /// A key that is given a time which has passed goes as if its time were over (Valkey since 8.1).
    pub past_is_expiry: bool,
    /// Keys have slots, by which others follow what happens to them.
    pub is_cluster: bool,
    /// By its own word.
    pub version: Option<Version>,
    /// What is done with functions that the module API does not promise. None until that is decided.
    pub private: Option<Private>,
    /// We may use its own function for ending a block; see `shell/sys/shim.rs`.
    pub ends_blocks: bool,
    /// It can say how far its append-only file has been written (`WAITAOF`, since Redis 7.2).
    pub counts_aof: bool,
    /// I/O threads may own a connection's buffers (Redis 8 with `io-threads` above 1).
    pub threads_own_clients: bool,
    /// Slots move with all their keys in one step, if modules say that they can stand it (Valkey 9).
    pub moves_slots_in_one_go: bool,
    /// The same, but what stands in a slot that has moved goes without an event of its own (Redis since 8.4).
    pub trims_slots: bool,
    /// It leaves connections in the database of an event (Valkey 8.1).
    pub strays: bool,
    /// `CLIENT LIST ID` looks at all its connections (Valkey since 8.1).
    pub looks_at_all: bool,
    /// What stands in a slot that it loses goes without an event (Redis 7.0).
    pub slots_go_silently: bool,
    /// A `CLIENT UNBLOCK` of a client whose block a module has ended earlier in the same turn of its loop leaves the client
    /// without a reply (Redis 7.0), or is its own end (Redis 7.2.4, and so Valkey 7.2).
    pub fails_late_unblock: bool,
}

impl Server {
    /// What follows from its version; from whether it is a cluster's, whether filters are told whose a command is, and whether
    /// I/O threads are on.
    pub fn of(
        version: Option<Version>,
        is_cluster: bool,
        names_clients: bool,
        has_io_threads: bool,
    ) -> Server {
        let series_if = |is_valkey| {
            let version = version.filter(|version| version.is_valkey == is_valkey);
            version.map(|version| version.series)
        };
        let (redis, valkey) = (series_if(false), series_if(true));
        Server {
            event_db_is_wrong_in_exec: valkey >= Some((9, 0)),
            past_is_expiry: valkey >= Some((8, 1)),
            is_cluster,
            moves_slots_in_one_go: valkey >= Some((9, 0)),
            trims_slots: redis >= Some((8, 4)),
            ends_blocks: false,
            private: None,
            version,
            late_pushes: !names_clients,
            strays: valkey == Some((8, 1)),
            loses_count_of_pushes: valkey >= Some((8, 1)),
            looks_at_all: valkey >= Some((8, 1)),
            slots_go_silently: is_cluster && !names_clients,
            fails_late_unblock: version.is_some_and(|version| version.series <= (7, 2)),
            // Each Valkey came from a Redis that can.
            counts_aof: valkey.is_some() || redis >= Some((7, 2)),
            threads_own_clients: redis >= Some((8, 0)) && has_io_threads,
        }
    }
}

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

/// What is to be done with functions that the module API does not promise: the setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// They are called on servers that are known.
    #[default]
    Known,
    /// On all that have them.
    Always,
    Never,
}

/// What is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    /// They are called, on a server that is known.
    Known,
    /// They are called on one that is not known.
    Tried,
    /// They are not called: the server is not known.
    Unknown,
    /// They are not called: some are missing, or are another library's.
    Unfit,
    /// They are not called, because the setting says so.
    Never,
}

impl Private {
    /// `fits` looks whether they are there and what they should be; it is told whether a block is ended in two steps.
    pub fn decide(
        version: Option<Version>,
        wanted: Wanted,
        fits: impl FnOnce(bool) -> bool,
    ) -> Private {
        let is_known = version.is_some_and(Version::is_known);
        let two_steps = version.is_some_and(Version::ends_blocks_in_two_steps);
        match wanted {
            Wanted::Never => Private::Never,
            Wanted::Known if !is_known => Private::Unknown,
            _ if !fits(two_steps) => Private::Unfit,
            _ if is_known => Private::Known,
            _ => Private::Tried,
        }
    }

    /// As INFO says it.
    pub fn word(self) -> &'static str {
        match self {
            Private::Known => "known",
            Private::Tried => "tried",
            Private::Unknown => "unknown",
            Private::Unfit => "unfit",
            Private::Never => "never",
        }
    }

    pub fn are_called(self) -> bool {
        matches!(self, Private::Known | Private::Tried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_functions_are_called_where_they_are_known_and_fit() {
        let read = |redis| Version::read(Some(redis), None);
        let (known, unknown) = (read("7.0.15"), read("8.4.0"));
        let fits = |fits: bool| move |_two_steps: bool| fits;
        for (version, wanted, is_fit, expected) in [
            (known, Wanted::Known, true, Private::Known),
            (known, Wanted::Known, false, Private::Unfit),
            (known, Wanted::Never, true, Private::Never),
            (unknown, Wanted::Known, true, Private::Unknown),
            (unknown, Wanted::Always, true, Private::Tried),
            (unknown, Wanted::Always, false, Private::Unfit),
            (None, Wanted::Known, true, Private::Unknown),
        ] {
            let done = Private::decide(version, wanted, fits(is_fit));
            assert_eq!(done, expected, "{version:?} {wanted:?} {is_fit}");
            assert_eq!(
                done.are_called(),
                matches!(done, Private::Known | Private::Tried)
            );
        }
    }

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
        let page = include_str!("../../docs/servers.md");
        let matrix = include_str!("../../scripts/servers.sh");
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
