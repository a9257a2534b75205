//! Differences between servers, and which servers' private functions may be called.
//!
//! `docs/servers.md` documents the latter.

/// Properties of the server, determined at load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    /// A push to the executing client would be written before its reply, or inside EXEC's (Redis 7.0), so all pushes wait
    /// until the command is done.
    pub pushes_before_reply: bool,
    /// The server crashes (it miscounts output-buffer bytes) after a push to a client whose own command expires a key, or
    /// that wants no replies and whose own command raises an event.
    pub miscounts_pushes: bool,
    /// In a transaction, an event's context names the transaction's database and not the event's
    /// (Valkey 9).
    pub event_db_is_wrong_in_exec: bool,
    /// Setting a TTL in the past raises `expired` instead of `del` (Valkey since 8.1).
    pub past_is_expiry: bool,
    /// The server is a cluster node.
    pub is_cluster: bool,
    /// As the server reports it.
    pub version: Option<Version>,
    /// Whether private functions are called. `None` until that is decided.
    pub private: Option<Private>,
    /// The server's private function for ending a block may be called; see `shell/sys/shim.rs`.
    pub ends_blocks: bool,
    /// The server tracks how far its append-only file is synced (`WAITAOF`, since Redis 7.2).
    pub counts_aof: bool,
    /// I/O threads may own a connection's buffers (Redis 8 with `io-threads` above 1).
    pub threads_own_clients: bool,
    /// Atomic slot migration, if all modules declare support for it (Valkey 9).
    pub moves_slots_in_one_go: bool,
    /// Atomic slot migration that deletes the slot's keys without keyspace events (Redis since 8.4).
    pub trims_slots: bool,
    /// A keyspace event leaves the client in the event's database (Valkey 8.1).
    pub event_moves_client_db: bool,
    /// `CLIENT LIST ID` scans all clients (Valkey since 8.1).
    pub looks_at_all: bool,
    /// Keys of a lost slot are deleted without events (Redis 7.0).
    pub slots_go_silently: bool,
    /// A `CLIENT UNBLOCK` of a client that a module has unblocked earlier in the same turn of the event loop leaves the
    /// client without a reply (Redis 7.0) or crashes the server (Redis 7.2.4, hence Valkey 7.2).
    pub fails_unblock_after_answer: bool,
}

impl Server {
    /// Derives the properties from the version, cluster mode, whether command filters get client ids (`names_clients`), and
    /// whether I/O threads are on.
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
            pushes_before_reply: !names_clients,
            event_moves_client_db: valkey == Some((8, 1)),
            miscounts_pushes: valkey >= Some((8, 1)),
            looks_at_all: valkey >= Some((8, 1)),
            slots_go_silently: is_cluster && !names_clients,
            fails_unblock_after_answer: version.is_some_and(|version| version.series <= (7, 2)),
            // Valkey was forked from a Redis that does.
            counts_aof: valkey.is_some() || redis >= Some((7, 2)),
            threads_own_clients: redis >= Some((8, 0)) && has_io_threads,
        }
    }
}

/// A server's name and version, as it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub is_valkey: bool,
    pub series: (u32, u32),
    patch: u32,
}

/// How a series was verified to be compatible with the calls of `shim.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// All tests run on a server of this series (`make test-matrix`).
    Tested,
    /// Each function called and each field read was compared in the tagged sources.
    Compared,
}

/// The verified series of Redis and of Valkey.
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
        // In 7.0.0 the push function has one argument less.
        let is_first = !self.is_valkey && self.series == (7, 0) && self.patch == 0;
        let known = KNOWN[usize::from(self.is_valkey)].iter();
        !is_first
            && known
                .map(|(series, _)| *series)
                .any(|one| one == self.series)
    }

    /// Whether ending a block takes two calls, see `shim.c`.
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

/// The setting `tether.private-functions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Call private functions on verified servers.
    #[default]
    Known,
    /// Call them on every server that has them.
    Always,
    Never,
}

/// The resulting decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    /// Called, on a verified server.
    Known,
    /// Called, on an unverified server.
    Tried,
    /// Not called: the server is unverified.
    Unknown,
    /// Not called: some symbols are missing or belong to another library.
    Unfit,
    /// Not called: the setting forbids it.
    Never,
}

impl Private {
    /// `fits` checks the symbols; its argument is whether ending a block takes two calls.
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

    /// The value in INFO.
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
