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
    /// A keyspace event leaves the client whose command is executing in the event's database (the first releases of Valkey 8.1, 9.0
    /// and 9.1).
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
            event_moves_client_db: version.is_some_and(Version::leaves_clients_in_event_dbs),
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

/// What the server reports about itself in INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report<'a> {
    /// `redis_version`. Valkey has it, too.
    pub redis: Option<&'a str>,
    /// `valkey_version`.
    pub valkey: Option<&'a str>,
    /// `server_name` (Valkey).
    pub name: Option<&'a str>,
    /// `valkey_release_stage`: `ga`, or that of a release candidate.
    pub stage: Option<&'a str>,
    /// `redict_version`.
    pub redict: Option<&'a str>,
}

/// A server's name and version, as it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub is_valkey: bool,
    pub series: (u32, u32),
    patch: u32,
    build: Build,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Release,
    /// A release candidate, or built between two releases.
    Candidate,
    /// Another server, which bears the version that it was forked from.
    Fork,
}

/// How a series was verified to be compatible with the calls of `shim.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// All tests run on a server of this series (`make test-matrix`).
    Tested,
    /// Each function called and each field read was compared in the tagged sources.
    Compared,
}

/// A verified series, and the patch releases that were tested or compared.
struct Series {
    series: (u32, u32),
    how: How,
    patches: &'static [u32],
}

const fn series(series: (u32, u32), how: How, patches: &'static [u32]) -> Series {
    Series {
        series,
        how,
        patches,
    }
}

/// The verified series of Redis and of Valkey.
const KNOWN: [&[Series]; 2] = [
    &[
        series((7, 0), How::Tested, &[15]),
        series((7, 2), How::Tested, &[4]),
        series((7, 4), How::Tested, &[1]),
        series((8, 0), How::Tested, &[6]),
        series((8, 2), How::Tested, &[3]),
        series((8, 6), How::Tested, &[3]),
    ],
    &[
        series((7, 2), How::Compared, &[5, 6, 7]),
        series((8, 0), How::Tested, &[1]),
        series((8, 1), How::Tested, &[1, 8]),
        series((9, 1), How::Tested, &[2]),
    ],
];

/// Releases of verified series that fail: whether it is a Valkey, the version, and why.
const BAD: [(bool, (u32, u32, u32), &str); 1] = [(
    false,
    (7, 0, 0),
    "its function for pushes takes other arguments",
)];

/// What is known of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Tested,
    Compared,
    /// Another patch release of a verified series.
    OtherPatch,
    Bad(&'static str),
    Unknown,
}

impl Version {
    pub fn read(report: Report<'_>) -> Option<Version> {
        let mut numbers = report
            .valkey
            .or(report.redis)?
            .split('.')
            .map(|number| number.parse().ok());
        let is_own_name = report
            .name
            .is_none_or(|name| matches!(name, "redis" | "valkey"));
        let build = match report.stage {
            _ if !is_own_name || report.redict.is_some() => Build::Fork,
            None | Some("ga") => Build::Release,
            Some(_) => Build::Candidate,
        };
        Some(Version {
            is_valkey: report.valkey.is_some(),
            series: (numbers.next()??, numbers.next()??),
            patch: numbers.next()??,
            build,
        })
    }

    fn known_series(self) -> Option<&'static Series> {
        let mut known = KNOWN[usize::from(self.is_valkey)].iter();
        known.find(|one| one.series == self.series)
    }

    fn standing(self) -> Standing {
        let (major, minor) = self.series;
        let this = (self.is_valkey, (major, minor, self.patch));
        let bad = BAD.iter().find(|(is_valkey, version, _)| {
            (*is_valkey, *version) == this && self.build != Build::Fork
        });
        match (bad, self.known_series()) {
            (Some((.., why)), _) => Standing::Bad(why),
            (None, Some(known)) if self.build == Build::Release => {
                match (known.patches.contains(&self.patch), known.how) {
                    (false, _) => Standing::OtherPatch,
                    (true, How::Tested) => Standing::Tested,
                    (true, How::Compared) => Standing::Compared,
                }
            }
            _ => Standing::Unknown,
        }
    }

    /// If this is another patch release of a verified series: those that were verified.
    pub fn verified_patches(self) -> Option<String> {
        let known = self.known_series()?;
        if self.standing() != Standing::OtherPatch {
            return None;
        }
        let (major, minor) = self.series;
        let patches = known.patches.iter();
        let names: Vec<_> = patches
            .map(|patch| format!("{major}.{minor}.{patch}"))
            .collect();
        Some(names.join(" and "))
    }

    /// See [`Server::event_moves_client_db`]. Valkey does so since 8.1.0, and was mended in each series for itself.
    fn leaves_clients_in_event_dbs(self) -> bool {
        let mended = match self.series {
            (8, 1) => 9,
            (9, 0) => 5,
            (9, 1) => 1,
            _ => 0,
        };
        self.is_valkey && self.patch < mended
    }

    /// Whether ending a block takes two calls, see `shim.c`.
    pub fn ends_blocks_in_two_steps(self) -> bool {
        !self.is_valkey && self.series <= (7, 0)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.is_valkey { "Valkey" } else { "Redis" };
        let (major, minor) = self.series;
        let kind = match self.build {
            Build::Release => "",
            Build::Candidate => " (a release candidate)",
            Build::Fork => " (a fork)",
        };
        write!(f, "{name} {major}.{minor}.{}{kind}", self.patch)
    }
}

/// The setting `tether.private-functions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Call private functions on verified series, and on servers that have qualified.
    #[default]
    Known,
    /// Call them on tested versions.
    Tested,
    /// Call them on every server that has them.
    Always,
    Never,
}

/// The resulting decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    /// Called, on a server of a verified series.
    Known,
    /// Called, on a server that has qualified.
    Qualified,
    /// Called, on an unverified server.
    Tried,
    /// Called: `tether qualify` tries the server.
    Trial,
    /// Not called: the server is unverified.
    Unknown,
    /// Not called: the version is known to fail.
    Bad,
    /// Not called: some symbols are missing or belong to another library.
    Unfit,
    /// Not called: the setting forbids it.
    Never,
}

impl Private {
    /// `has_qualified` asks whether the running program is among those that have; `fits` checks the symbols, and its argument
    /// is whether ending a block takes two calls.
    pub fn decide(
        version: Option<Version>,
        wanted: Wanted,
        is_trial: bool,
        has_qualified: impl FnOnce() -> bool,
        fits: impl FnOnce(bool) -> bool,
    ) -> Private {
        let standing = version.map_or(Standing::Unknown, Version::standing);
        let two_steps = version.is_some_and(Version::ends_blocks_in_two_steps);
        let called = match (wanted, standing) {
            _ if is_trial => Private::Trial,
            (Wanted::Never, _) => return Private::Never,
            (_, Standing::Bad(_)) => return Private::Bad,
            (_, Standing::Tested) => Private::Known,
            (Wanted::Tested, _) => return Private::Unknown,
            (_, Standing::Compared | Standing::OtherPatch) => Private::Known,
            _ if has_qualified() => Private::Qualified,
            (Wanted::Always, _) => Private::Tried,
            (Wanted::Known, _) => return Private::Unknown,
        };
        match fits(two_steps) {
            true => called,
            false => Private::Unfit,
        }
    }

    /// The value in INFO.
    pub fn word(self) -> &'static str {
        match self {
            Private::Known => "known",
            Private::Qualified => "qualified",
            Private::Tried => "tried",
            Private::Trial => "trial",
            Private::Unknown => "unknown",
            Private::Bad => "bad",
            Private::Unfit => "unfit",
            Private::Never => "never",
        }
    }

    pub fn are_called(self) -> bool {
        self.are_verified() || self == Private::Tried
    }

    /// Whether those are called, too, that only make a server faster.
    pub fn are_verified(self) -> bool {
        matches!(self, Private::Known | Private::Qualified | Private::Trial)
    }

    /// Why they are not called.
    pub fn why_not(self, version: Option<Version>, wanted: Wanted) -> String {
        let server = version.map(|version| version.to_string());
        let server = server.as_deref().unwrap_or("a server of unknown version");
        match (self, version.map(Version::standing)) {
            (Private::Never, _) => "tether.private-functions is never".to_owned(),
            (Private::Bad, Some(Standing::Bad(why))) => {
                format!("{server} is known to fail with tether: {why}")
            }
            (Private::Unknown, _) if wanted == Wanted::Tested => {
                format!("tether was not tested on {server}, and tether.private-functions is tested")
            }
            (Private::Unknown, _) => {
                format!("{server} has not been tried with tether; run tether qualify")
            }
            _ => format!("{server} does not show modules the functions that tether needs for that"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(version: &str) -> Option<Version> {
        Version::read(Report {
            redis: Some(version),
            ..Report::default()
        })
    }

    fn valkey(version: &str) -> Option<Version> {
        Version::read(Report {
            redis: Some("7.2.4"),
            valkey: Some(version),
            name: Some("valkey"),
            ..Report::default()
        })
    }

    #[test]
    fn private_functions_are_called_where_they_are_verified_and_fit() {
        use Private::*;
        let tested = redis("7.0.15");
        let other_patch = redis("7.0.16");
        let compared = valkey("7.2.6");
        let unknown = redis("8.4.0");
        let bad = redis("7.0.0");
        for (version, wanted, expected) in [
            (tested, Wanted::Known, Known),
            (tested, Wanted::Tested, Known),
            (tested, Wanted::Always, Known),
            (tested, Wanted::Never, Never),
            (other_patch, Wanted::Known, Known),
            (other_patch, Wanted::Tested, Unknown),
            (other_patch, Wanted::Always, Known),
            (compared, Wanted::Known, Known),
            (compared, Wanted::Tested, Unknown),
            (unknown, Wanted::Known, Unknown),
            (unknown, Wanted::Tested, Unknown),
            (unknown, Wanted::Always, Tried),
            (unknown, Wanted::Never, Never),
            (bad, Wanted::Known, Bad),
            (bad, Wanted::Tested, Bad),
            (bad, Wanted::Always, Bad),
            (bad, Wanted::Never, Never),
            (None, Wanted::Known, Unknown),
        ] {
            let decide = |is_trial, qualifies, fits| {
                Private::decide(version, wanted, is_trial, || qualifies, |_| fits)
            };
            let what = format!("{version:?} {wanted:?}");
            let done = decide(false, false, true);
            assert_eq!(done, expected, "{what}");
            assert_eq!(done.are_called(), matches!(done, Known | Tried), "{what}");
            let unfit = if done.are_called() { Unfit } else { done };
            assert_eq!(decide(false, false, false), unfit, "{what}");
            // Whoever has qualified is called where nobody says otherwise.
            let is_open = matches!(wanted, Wanted::Known | Wanted::Always);
            let is_unverified = matches!(expected, Unknown | Tried);
            let qualified = if is_open && is_unverified {
                Qualified
            } else {
                expected
            };
            assert_eq!(decide(false, true, true), qualified, "{what}");
            // A trial is to find out by itself.
            assert_eq!(decide(true, false, true), Trial, "{what}");
            assert_eq!(decide(true, true, false), Unfit, "{what}");
        }
    }

    #[test]
    fn a_version_is_read_from_what_the_server_reports() {
        let standing = |version: Option<Version>| version.map(Version::standing);
        for version in ["7.0.15", "7.2.4", "7.4.1", "8.0.6", "8.2.3", "8.6.3"] {
            assert_eq!(
                standing(redis(version)),
                Some(Standing::Tested),
                "{version}"
            );
        }
        for version in ["7.0.1", "7.0.16", "7.2.0", "8.6.255"] {
            let other = Some(Standing::OtherPatch);
            assert_eq!(standing(redis(version)), other, "{version}");
        }
        for version in ["8.0.1", "8.1.1", "8.1.8", "9.1.2"] {
            let tested = Some(Standing::Tested);
            assert_eq!(standing(valkey(version)), tested, "{version}");
        }
        assert_eq!(standing(valkey("7.2.5")), Some(Standing::Compared));
        for version in [
            "6.2.1",
            "7.1.240",
            "7.9.240",
            "8.4.0",
            "9.0.0",
            "255.255.255",
        ] {
            let unknown = Some(Standing::Unknown);
            assert_eq!(standing(redis(version)), unknown, "{version}");
        }
        for version in ["7.0.9", "8.2.0", "9.0.0", "9.2.0", "10.0.0", "255.255.255"] {
            let unknown = Some(Standing::Unknown);
            assert_eq!(standing(valkey(version)), unknown, "{version}");
        }
        for version in ["8", "x", "", "8.0", "8.0.0-rc1"] {
            assert_eq!(redis(version), None, "{version}");
        }
        assert!(matches!(standing(redis("7.0.0")), Some(Standing::Bad(_))));
        assert_eq!(Version::read(Report::default()), None);
        assert_eq!(
            valkey("8.1.8")
                .map(|version| version.to_string())
                .as_deref(),
            Some("Valkey 8.1.8")
        );
        let patches = redis("7.0.16").and_then(Version::verified_patches);
        assert_eq!(patches.as_deref(), Some("7.0.15"));
        assert_eq!(redis("7.0.15").and_then(Version::verified_patches), None);
    }

    #[test]
    fn it_is_known_which_servers_leave_clients_in_the_databases_of_events() {
        let leaves = |version: Option<Version>| {
            assert!(version.is_some());
            Server::of(version, false, true, false).event_moves_client_db
        };
        for version in ["8.1.0", "8.1.1", "8.1.8", "9.0.0", "9.0.4", "9.1.0"] {
            assert!(leaves(valkey(version)), "{version}");
        }
        for version in [
            "7.2.5",
            "8.0.0",
            "8.0.1",
            "8.1.9",
            "8.1.10",
            "9.0.5",
            "9.1.1",
            "9.1.2",
            "9.2.0",
            "10.0.0",
            "255.255.255",
        ] {
            assert!(!leaves(valkey(version)), "{version}");
        }
        for version in ["7.0.15", "8.1.0", "8.2.3", "9.0.0", "9.1.0"] {
            assert!(!leaves(redis(version)), "{version}");
        }
        assert!(!Server::of(None, false, true, false).event_moves_client_db);
    }

    #[test]
    fn candidates_and_forks_are_not_taken_for_the_release_whose_numbers_they_bear() {
        let tested = Report {
            redis: Some("7.2.4"),
            valkey: Some("9.1.2"),
            name: Some("valkey"),
            stage: Some("ga"),
            redict: None,
        };
        let candidate = Report {
            stage: Some("rc1"),
            ..tested
        };
        let fork = Report {
            name: Some("other"),
            ..tested
        };
        let redict = Report {
            redis: Some("7.2.4"),
            redict: Some("7.3.0"),
            ..Report::default()
        };
        let standing = |report| Version::read(report).expect("a version").standing();
        assert_eq!(standing(tested), Standing::Tested);
        for (report, name) in [
            (candidate, "Valkey 9.1.2 (a release candidate)"),
            (fork, "Valkey 9.1.2 (a fork)"),
            (redict, "Redis 7.2.4 (a fork)"),
        ] {
            assert_eq!(standing(report), Standing::Unknown, "{report:?}");
            let version = Version::read(report);
            assert_eq!(version.expect("a version").to_string(), name);
            let private = Private::decide(version, Wanted::Known, false, || false, |_| true);
            let why = private.why_not(version, Wanted::Known);
            assert_eq!(
                why,
                format!("{name} has not been tried with tether; run tether qualify")
            );
        }
    }

    #[test]
    fn a_refusal_says_what_is_so() {
        for (version, wanted, word) in [
            (
                redis("8.10.2"),
                Wanted::Known,
                "Redis 8.10.2 has not been tried with tether; run tether qualify",
            ),
            (
                redis("7.0.16"),
                Wanted::Tested,
                "tether was not tested on Redis 7.0.16, and tether.private-functions is tested",
            ),
            (
                redis("7.0.0"),
                Wanted::Known,
                "Redis 7.0.0 is known to fail with tether: its function for pushes takes other arguments",
            ),
            (
                redis("7.0.15"),
                Wanted::Never,
                "tether.private-functions is never",
            ),
            (
                redis("7.0.15"),
                Wanted::Known,
                "Redis 7.0.15 does not show modules the functions that tether needs for that",
            ),
            (
                None,
                Wanted::Known,
                "a server of unknown version has not been tried with tether; run tether qualify",
            ),
        ] {
            let private = Private::decide(version, wanted, false, || false, |_| false);
            assert!(!private.are_called());
            assert_eq!(private.why_not(version, wanted), word);
        }
    }

    /// One row of the table for each series, with its versions, and a server of the matrix for each that is tested. Then one for
    /// each release that fails.
    #[test]
    fn the_page_about_servers_and_the_matrix_say_the_same() {
        let page = include_str!("../../docs/servers.md");
        let matrix = include_str!("../../scripts/servers.sh");
        let mut rows = Vec::new();
        for (name, known) in ["Redis", "Valkey"].iter().zip(KNOWN) {
            for one in known {
                let (major, minor) = one.series;
                let word = match one.how {
                    How::Tested => "tested",
                    How::Compared => "compared",
                };
                let patches = one.patches.iter();
                let patches: Vec<_> = patches
                    .map(|patch| format!("{major}.{minor}.{patch}"))
                    .collect();
                let patches = patches.join(", ");
                rows.push(format!("| {name} {major}.{minor} | {word} | {patches} |"));
                let server = format!("{}-{major}.{minor}", name.to_lowercase());
                let is_there =
                    matrix.contains(&format!("fetch_{}()", server.replace(['-', '.'], "_")));
                assert_eq!(is_there, one.how == How::Tested, "{server}");
            }
        }
        for (is_valkey, (major, minor, patch), why) in BAD {
            let name = if is_valkey { "Valkey" } else { "Redis" };
            rows.push(format!("| {name} {major}.{minor}.{patch} | {why} |"));
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
