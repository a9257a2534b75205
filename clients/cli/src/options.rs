//! What can be said to `tether`: help, man page and completions are made from this.

use crate::timing;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Locks of a Redis or Valkey server with the module tether.
#[derive(Parser, Debug)]
#[command(name = "tether", version = env!("TETHER_VERSION"), max_term_width = 100)]
pub struct Options {
    /// The server: redis://[user:password@]host[:port][/database], rediss:// for TLS, unix:///path
    #[arg(
        long,
        global = true,
        env = "TETHER_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379",
        value_hint = ValueHint::Url
    )]
    pub url: String,

    #[command(subcommand)]
    pub action: Action,
}

#[derive(Subcommand, Debug)]
pub enum Action {
    Run(Box<Run>),
    Ls(Ls),
    Who(Who),
    Why(Why),
    Log(Log),
    Sessions(Sessions),
    Top(Top),
    Watch(Watch),
    Kick(Kick),
    Doctor(Doctor),
    Qualify(Qualify),
    Metrics(Metrics),
    /// Print what a shell needs to complete words of this command
    Completions {
        shell: Shell,
    },
    /// Write the man pages into a folder
    Man {
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// Run a command while holding a lock
///
/// The command gets TETHER_KEY and TETHER_TOKEN (the fencing token) in its environment, and the terminal and the signals that
/// are sent to tether. No shell is involved. If the lock is lost, the command and everything that it started is ended. What it
/// leaves behind when it ends by itself is ended too, and then the lock is released.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct Run {
    /// Share the lock with others that share it
    #[arg(long, conflicts_with = "permits")]
    pub shared: bool,

    /// Take N permits of a semaphore with TOTAL permits
    #[arg(long, value_name = "N/TOTAL", value_parser = permits)]
    pub permits: Option<Permits>,

    /// Wait at most so long for the lock and the server (0 is --nowait); without it, wait for as long as it takes
    #[arg(long, value_name = "TIME", value_parser = timing::parse, conflicts_with = "nowait")]
    pub wait: Option<Duration>,

    /// Do not wait if the lock is taken or no server answers
    #[arg(long)]
    pub nowait: bool,

    /// Let the server end the hold after that time, whatever the command is doing
    #[arg(long, value_name = "TIME", value_parser = timing::parse)]
    pub lease: Option<Duration>,

    /// How long the server keeps the lock for this command when the connection breaks
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "10s")]
    pub grace: Duration,

    /// The signal that asks the command to end when the lock is lost
    #[arg(long, value_name = "SIGNAL", value_parser = signal, default_value = "TERM")]
    pub on_loss: Signal,

    /// Kill what is still there so long after that signal
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "5s")]
    pub kill_after: Duration,

    /// Hold the lock on a majority of these three or five independent servers, in place of --url
    ///
    /// No server is a replica of another or is ever replaced by one, each has a tether.quarantine of at least --grace in its
    /// configuration file, and everybody names the same servers by the same hosts and ports.
    #[arg(
        long,
        value_name = "URLS",
        value_delimiter = ',',
        env = "TETHER_QUORUM",
        hide_env_values = true,
        conflicts_with_all = ["shared", "permits", "lease"]
    )]
    pub quorum: Vec<String>,

    /// The lock
    pub key: OsString,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_hint = ValueHint::CommandWithArguments, num_args = 1..)]
    pub command: Vec<OsString>,
}

/// List the keys that are held or waited for
///
/// It goes through them as SCAN does: what is held all the while is in the list, what changes meanwhile may be.
#[derive(Args, Debug)]
pub struct Ls {
    /// Only keys with such names, as in KEYS: report:*
    pub pattern: Option<OsString>,

    /// Only what this connection holds or waits for
    #[arg(long, value_name = "ID", conflicts_with = "detached")]
    pub client: Option<u64>,

    /// Only what sessions hold whose connection is gone
    #[arg(long)]
    pub detached: bool,

    /// One JSON object for each key, a line each
    #[arg(long)]
    pub json: bool,
}

/// Show who holds a key and who waits for it
///
/// The exit code is 1 if nobody does.
#[derive(Args, Debug)]
pub struct Who {
    /// Show at most so many holders and so many waiters
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub count: u64,

    /// The server's answer as one JSON object
    #[arg(long)]
    pub json: bool,

    /// The lock or temporary key
    pub key: OsString,
}

/// Show why nobody gets a key: who holds it, what they wait for, who holds that, and so on
///
/// Those at the end, who wait for nothing, are the cause. A quarantine, a pause and missing replicas are told, too. The exit code
/// is 1 if nothing is in the way.
#[derive(Args, Debug)]
pub struct Why {
    /// One JSON object for each holder or other cause, a line each
    #[arg(long)]
    pub json: bool,

    /// The lock or temporary key
    pub key: OsString,
}

/// Show how holds ended that their owners did not end, the latest first
///
/// The exit code is 1 if there are none.
#[derive(Args, Debug)]
pub struct Log {
    /// Show at most so many
    #[arg(long, value_name = "N", default_value = "20")]
    pub count: u64,

    /// One JSON object for each, a line each
    #[arg(long)]
    pub json: bool,

    /// Only of this lock or temporary key
    pub key: Option<OsString>,
}

/// List the sessions of all connections, the oldest first
///
/// It takes the rights of an administrator. SESSION.KILL ends one by its id.
#[derive(Args, Debug)]
pub struct Sessions {
    /// One JSON object for each, a line each
    #[arg(long)]
    pub json: bool,
}

/// Show the busiest keys again and again: who holds them, who waits, and what was lost
///
/// On a terminal it redraws the screen; elsewhere it prints each look, with an empty line between two. Ctrl-C ends it. The
/// counters are those of the server, the keys those of the database of --url. A look asks for 10,000 keys at most: of more keys,
/// the next look goes on where this one ended, and the busiest so far stay. When the connection breaks, it ends (exit code 69).
#[derive(Args, Debug)]
pub struct Top {
    /// How long to wait between two looks
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "2s")]
    pub interval: Duration,

    /// Look once, print that, and end
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,

    /// Show at most so many keys
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub count: u64,

    /// Which keys come first
    #[arg(long, value_enum, value_name = "ORDER", default_value = "waiters")]
    pub sort: Order,

    /// One JSON object for each look, a line each
    #[arg(long)]
    pub json: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Those with the most waiters
    Waiters,
    /// Those whose first waiter has waited for the longest time
    Waiting,
    /// Those that are held for the longest time
    Held,
}

/// Print whether keys exist, and each change of that as it happens
///
/// A line has EXIST or NOEXIST for the beginning and ADD or DEL for a change, and the key. When the connection breaks, changes
/// may be missed, so it ends (exit code 69) and does not connect again by itself.
#[derive(Args, Debug)]
pub struct Watch {
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,

    /// Run a command for each line, one after the other, with TETHER_KEY and TETHER_EVENT in its environment
    ///
    /// A signal that ends tether ends the command and what it started, too; after five seconds by KILL.
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true, value_hint = ValueHint::CommandName)]
    pub exec: Option<Vec<OsString>>,

    /// The keys
    #[arg(required = true)]
    pub keys: Vec<OsString>,
}

/// Take a key away from those who hold it
///
/// The key is deleted, which its holders are told if they asked for it, and the next in line gets it. Their other keys stay. It
/// prints who held it when it was deleted: if it was handed over just before, that is the new holder. The exit code is 1 if
/// nobody was kicked.
#[derive(Args, Debug)]
pub struct Kick {
    /// Only if it is held with this fencing token, as `tether who` shows it
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<u64>,

    /// End all that the holders have: their session if they have one (SESSION.KILL), else their connection
    #[arg(long)]
    pub connection: bool,

    /// The lock or temporary key
    pub key: OsString,
}

/// Check that servers and settings are fit for locks, and say what to do
///
/// It looks at the server and at the replicas that the server names, with the same user and password. The exit code is 1 if
/// something is wrong; warnings alone leave it 0.
#[derive(Args, Debug)]
pub struct Doctor {
    /// One JSON object for each finding, a line each
    #[arg(long)]
    pub json: bool,
}

/// Try whether a server is fit for pushes, and print the line that says so for its redis.conf
///
/// For servers that docs/servers.md does not name. It starts this very program with the module in a temporary folder, on a Unix
/// socket there and for some trials on 127.0.0.1 with a password, and does everything that the module would do with functions of
/// the server's that no API promises. It takes less than half a minute. What it prints can be appended to redis.conf.
#[derive(Args, Debug)]
#[command(after_help = QUALIFY_CODES)]
pub struct Qualify {
    /// The server's program; without it redis-server or valkey-server as found on PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub server: Option<PathBuf>,

    /// The module; without it libtether.so beside this program, or where the package has it
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub module: Option<PathBuf>,

    /// Do nothing if the server is known to tether
    #[arg(long)]
    pub if_needed: bool,
}

pub const QUALIFY_CODES: &str = "\
Exit codes:
  0     the server has qualified; or, with --if-needed, it needs not
  1     it has not: the standard error says why
  64    the arguments make no sense
  69    the server does not start, or not with the module
  125   tether itself failed";

/// Print what the module counts, in the text format of Prometheus
#[derive(Args, Debug)]
pub struct Metrics {
    /// Serve it by HTTP (at /metrics), asking the server anew each time
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

pub const EXIT_CODES: &str = "\
Exit codes:
  the command's own   if signal N ended it, tether ends by that signal (128 + N to a shell)
  64                  the arguments make no sense
  69                  no server answered in the time to wait
  75                  the lock is taken
  78                  the server refused
  79                  the lock was lost, and the command was ended or not started
  125                 tether itself failed
  126, 127            the command cannot be executed, was not found";

/// What a server may be asked for so much as `tether top` does.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = timing::parse(text)?;
    if interval >= SHORTEST_INTERVAL {
        Ok(interval)
    } else {
        let least = timing::shown(SHORTEST_INTERVAL);
        Err(format!("'{text}' is shorter than {least}"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permits {
    pub count: u64,
    pub total: u64,
}

fn permits(text: &str) -> Result<Permits, String> {
    let wrong = || format!("'{text}' is not like 1/3");
    let (count, total) = text.split_once('/').ok_or_else(wrong)?;
    let count = count.parse().map_err(|_| wrong())?;
    let total = total.parse().map_err(|_| wrong())?;
    if (1..=total).contains(&count) {
        Ok(Permits { count, total })
    } else {
        Err(format!("of {total} permits 1 to {total} can be taken"))
    }
}

/// A signal by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal(pub i32);

/// The signals that can ask a command to end.
const SIGNALS: [(&str, i32); 7] = [
    ("HUP", SIGHUP),
    ("INT", SIGINT),
    ("QUIT", SIGQUIT),
    ("KILL", SIGKILL),
    ("USR1", SIGUSR1),
    ("USR2", SIGUSR2),
    ("TERM", SIGTERM),
];

fn signal(text: &str) -> Result<Signal, String> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| Signal(*number)).ok_or_else(|| {
        let names: Vec<_> = SIGNALS.iter().map(|(name, _)| *name).collect();
        format!("one of {} is wanted", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(line.split(' '))
    }

    fn run(line: &str) -> Run {
        match parse(line).unwrap().action {
            Action::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn what_is_not_said_has_its_defaults() {
        let run = run("tether run report -- make -j 2");
        assert_eq!(run.key, "report");
        assert_eq!(run.command, ["make", "-j", "2"]);
        assert!(!run.shared && !run.nowait);
        assert_eq!((run.permits, run.wait, run.lease), (None, None, None));
        assert_eq!(run.grace, Duration::from_secs(10));
        assert_eq!(run.kill_after, Duration::from_secs(5));
        assert_eq!(run.on_loss, Signal(SIGTERM));
    }

    #[test]
    fn what_is_said_is_taken() {
        let run = run(
            "tether run --permits 1/3 --wait 5s --lease 1h --grace 20s --on-loss SIGINT --kill-after 500ms k -- cmd --wait 1",
        );
        assert_eq!(run.permits, Some(Permits { count: 1, total: 3 }));
        assert_eq!(run.wait, Some(Duration::from_secs(5)));
        assert_eq!(run.lease, Some(Duration::from_secs(3600)));
        assert_eq!(run.grace, Duration::from_secs(20));
        assert_eq!(run.on_loss, Signal(SIGINT));
        assert_eq!(run.kill_after, Duration::from_millis(500));
        assert_eq!(run.command, ["cmd", "--wait", "1"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "tether",
            "tether run",
            "tether run key",
            "tether run key cmd",
            "tether run key --",
            "tether run --shared --permits 1/3 key -- cmd",
            "tether run --wait 5s --nowait key -- cmd",
            "tether run --wait 5 key -- cmd",
            "tether run --permits 3 key -- cmd",
            "tether run --permits 0/3 key -- cmd",
            "tether run --permits 4/3 key -- cmd",
            "tether run --on-loss STOP key -- cmd",
            "tether top --interval 0",
            "tether top --interval 99ms",
            "tether top --once --interval 1s",
            "tether top --count 0",
            "tether top --count 101",
            "tether top --sort name",
            "tether walk",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_key_is_any_bytes() {
        use std::os::unix::ffi::OsStringExt;
        let key = OsString::from_vec(vec![0xff, b' ', 0xfe]);
        let words = [
            "tether".into(),
            "run".into(),
            key.clone(),
            "--".into(),
            "true".into(),
        ];
        match Options::try_parse_from(words).unwrap().action {
            Action::Run(run) => assert_eq!(run.key, key),
            other => panic!("{other:?}"),
        }
    }
}
