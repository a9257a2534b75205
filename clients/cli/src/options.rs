//! The command line of `tether`: help, man pages and completions are made from this.

use crate::{codes, timing};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// Locks on a Redis or Valkey server with the tether module.
#[derive(Parser, Debug)]
#[command(name = "tether", version = env!("TETHER_VERSION"), max_term_width = 100)]
pub struct Options {
    /// The server: redis://[user:password@]host[:port][/database], rediss:// for TLS, unix:///path
    ///
    /// Or the master that Sentinels name: redis+sentinel://[user:password@]host[:port],host[:port]/name[/database], with the user
    /// and password of the servers; rediss+sentinel:// for TLS. Of a cluster it is any node.
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
    Elect(Box<Elect>),
    Ls(Ls),
    Who(Who),
    Why(Why),
    Log(Log),
    Sessions(Sessions),
    Top(Top),
    Watch(Watch),
    Presence(Presence),
    Kick(Kick),
    Doctor(Doctor),
    Qualify(Qualify),
    Metrics(Metrics),
    Devserver(Devserver),
    /// Print a shell completion script
    #[command(before_help = "Example: tether completions bash")]
    Completions {
        shell: Shell,
    },
    /// Write the man pages into a folder
    #[command(before_help = "Example: tether man ./man")]
    Man {
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// Run a command while holding a lock
///
/// The command gets TETHER_KEY and TETHER_TOKEN (the fencing token) in its environment, tether's terminal, and the signals that
/// tether receives. No shell is involved. If the lock is lost, tether kills the command and everything it started. When the
/// command exits, tether kills any processes it left running, then releases the lock.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether run --nowait report -- ./make-report", after_help = EXIT_CODES)]
pub struct Run {
    /// Share the lock with others that share it
    #[arg(long, conflicts_with = "permits")]
    pub shared: bool,

    /// Take N permits of a semaphore with TOTAL permits
    #[arg(long, value_name = "N/TOTAL", value_parser = permits)]
    pub permits: Option<Permits>,

    /// Wait at most TIME for the lock and the server (0 is --nowait); without it, there is no limit
    #[arg(long, value_name = "TIME", value_parser = timing::parse, conflicts_with = "nowait")]
    pub wait: Option<Duration>,

    /// Do not wait if the lock is taken or no server answers
    #[arg(long)]
    pub nowait: bool,

    /// Exit with N instead of 75 if the lock is taken
    #[arg(long, value_name = "N", default_value_t = codes::TAKEN, hide_default_value = true)]
    pub taken_exit: u8,

    /// Give the lock up after TIME even if the command still runs; the command is then killed
    #[arg(long, value_name = "TIME", value_parser = timing::parse)]
    pub lease: Option<Duration>,

    /// Keep the lock for at least TIME from its grant, even if the command ends sooner
    ///
    /// For jobs that clocks start on several machines: a machine whose clock is late finds the lock taken. --grace must be as
    /// long, and is by default.
    #[arg(long, value_name = "TIME", value_parser = timing::parse, conflicts_with = "lease")]
    pub at_least: Option<Duration>,

    /// Make the temporary key KEY with this VALUE while the command runs: `tether presence` shows it
    #[arg(long, value_name = "KEY[=VALUE]", value_parser = OsStringValueParser::new().try_map(announcement))]
    pub announce: Option<Announcement>,

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
        conflicts_with_all = ["shared", "permits", "lease", "at_least", "announce"]
    )]
    pub quorum: Vec<String>,

    #[command(flatten)]
    pub work: Work,
}

/// Run a command while this machine leads
///
/// Of all candidates for one NAME, one leads at a time; the others wait. The leader runs the command. If it loses the lead,
/// tether kills the command and everything it started, and stands again. When the command exits, tether resigns and exits with
/// the command's code. NAME is a temporary key with the value of --value: the command gets it as TETHER_KEY, and the term's
/// fencing token as TETHER_TOKEN.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether elect --value web1:8080 scheduler -- ./schedule", after_help = EXIT_CODES)]
pub struct Elect {
    /// What others see while this one leads, such as its address
    #[arg(long, value_name = "VALUE", default_value = "")]
    pub value: OsString,

    /// Exit with 79 when the lead is lost, and do not stand again
    #[arg(long)]
    pub once: bool,

    #[command(flatten)]
    pub work: Work,
}

/// A command, and how it is kept from working without its lock.
#[derive(Args, Debug)]
pub struct Work {
    /// How long the server keeps the lock after the connection breaks, so that tether can reconnect [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = timing::parse)]
    pub grace: Option<Duration>,

    /// The signal that the command gets first when the lock is lost
    #[arg(long, value_name = "SIGNAL", value_parser = signal, default_value = "TERM")]
    pub on_loss: Signal,

    /// How long to wait after --on-loss before sending KILL
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "5s")]
    pub kill_after: Duration,

    /// Print nothing while waiting, or if the lock is taken; failures are still printed
    #[arg(long, short)]
    pub quiet: bool,

    /// The key, if its name begins with `-`
    #[arg(long = "key", value_name = "KEY", value_parser = key(), allow_hyphen_values = true)]
    key_option: Option<OsString>,

    /// The key of the lock
    #[arg(value_name = "KEY", value_parser = key(), required_unless_present = "key_option", conflicts_with = "key_option")]
    key: Option<OsString>,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_hint = ValueHint::CommandWithArguments, num_args = 1..)]
    pub command: Vec<OsString>,
}

/// Where nothing else is said.
const GRACE: Duration = Duration::from_secs(10);

impl Work {
    pub fn key(&self) -> &OsStr {
        let key = self.key_option.as_deref().or(self.key.as_deref());
        key.unwrap_or_default()
    }

    /// How long the server keeps the lock after the connection breaks, which is at least so long if nothing is said.
    pub fn grace(&self, at_least: Option<Duration>) -> Duration {
        let default = GRACE.max(at_least.unwrap_or_default());
        self.grace.unwrap_or(default)
    }
}

/// The name of a key.
fn key() -> impl TypedValueParser<Value = OsString> {
    not_empty("a key cannot be empty")
}

fn not_empty(why: &'static str) -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(move |text| match text.is_empty() {
        true => Err(why),
        false => Ok(text),
    })
}

/// A temporary key and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

fn announcement(text: OsString) -> Result<Announcement, &'static str> {
    let text = text.into_vec();
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let mut part = || parts.next().unwrap_or_default().to_vec();
    let (key, value) = (part(), part());
    match key.is_empty() {
        true => Err("a key cannot be empty"),
        false => Ok(Announcement { key, value }),
    }
}

/// List the keys that are held or waited for
///
/// Like SCAN: keys that change while it runs may or may not be listed. In a cluster all masters are asked.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether ls 'report*'")]
pub struct Ls {
    /// Only keys whose names match this pattern, as in KEYS: report:*
    pub pattern: Option<OsString>,

    /// Only keys that this connection holds or waits for
    #[arg(long, value_name = "ID", conflicts_with = "detached")]
    pub client: Option<u64>,

    /// Only keys held by sessions whose connection is gone
    #[arg(long)]
    pub detached: bool,

    /// Print one JSON object per line, one for each key
    #[arg(long)]
    pub json: bool,
}

/// Show the holders of a key and its waiters
///
/// The exit code is 1 if there are none.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether who report")]
pub struct Who {
    /// Show at most N holders and N waiters
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub count: u64,

    /// Print the server's answer as one JSON object
    #[arg(long)]
    pub json: bool,

    /// The lock or temporary key; after -- if it begins with `-`
    #[arg(value_parser = key())]
    pub key: OsString,
}

/// Show why nobody gets a key: who holds it, what they wait for, who holds that, and so on
///
/// The holders at the end of the chain, who wait for nothing, are the cause. Other causes are a quarantine, a pause, or missing
/// replicas. The exit code is 1 if nothing is in the way.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether why report")]
pub struct Why {
    /// Print one JSON object per line, one for each holder or other cause
    #[arg(long)]
    pub json: bool,

    /// The lock or temporary key; after -- if it begins with `-`
    #[arg(value_parser = key())]
    pub key: OsString,
}

/// Show locks that were lost (not released), newest first, and why
///
/// The exit code is 1 if none was lost. In a cluster all masters are asked.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether log report")]
pub struct Log {
    /// Show at most N losses
    #[arg(long, value_name = "N", default_value = "20")]
    pub count: u64,

    /// Print one JSON object per line, one for each loss
    #[arg(long)]
    pub json: bool,

    /// Only this lock or temporary key
    #[arg(value_parser = key())]
    pub key: Option<OsString>,
}

/// List the sessions of all connections, the oldest first
///
/// This needs an administrator's rights. SESSION.KILL ends a session by its id. In a cluster all masters are asked, one after the
/// other; SERVER says which one has the session.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether sessions")]
pub struct Sessions {
    /// Print one JSON object per line, one for each session
    #[arg(long)]
    pub json: bool,
}

/// Show the busiest keys with their holders and waiters, and what was lost, refreshed at an interval
///
/// On a terminal it redraws the screen: `q` quits, `s` sorts by the next order, `/` asks for a filter (Esc shows all keys again).
/// Elsewhere it prints one refresh after the other, with an empty line in between; Ctrl-C ends it. The counters are the server's, the
/// keys those of the database in --url. One refresh reads at most 10,000 keys; if there are more, the next one continues there, and
/// the busiest keys so far stay. When the connection breaks, it exits with 69. In a cluster it shows the node in --url only.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether top --once")]
pub struct Top {
    /// The time between two refreshes
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "2s")]
    pub interval: Duration,

    /// Print one refresh and exit
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,

    /// Show at most N keys
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub count: u64,

    /// Which keys come first
    #[arg(long, value_enum, value_name = "ORDER", default_value = "waiters")]
    pub sort: Order,

    /// Print one JSON object per line, one for each refresh
    #[arg(long)]
    pub json: bool,

    /// Only keys whose names match this glob-style pattern, as of KEYS
    pub pattern: Option<OsString>,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Waiters => "waiters",
            Order::Waiting => "waiting",
            Order::Held => "held",
        }
    }

    /// The next in turn.
    pub fn next(self) -> Order {
        match self {
            Order::Waiters => Order::Waiting,
            Order::Waiting => Order::Held,
            Order::Held => Order::Waiters,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The keys with the most waiters
    Waiters,
    /// The keys whose first waiter has waited longest
    Waiting,
    /// The keys that have been held longest
    Held,
}

/// Print whether keys exist, then each change as it happens
///
/// The first line of a key says EXIST or NOEXIST, each further one ADD or DEL. When the connection breaks, changes may be missed,
/// so tether exits with 69 and does not reconnect. In a cluster all keys must be in one slot, and it exits with 69 if that moves.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether watch report")]
pub struct Watch {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,

    /// Run a command for each line, one after the other, with TETHER_KEY and TETHER_EVENT in its environment
    ///
    /// A signal that kills tether also kills the command and everything it started; what is left after five seconds gets KILL.
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true, value_hint = ValueHint::CommandName)]
    pub exec: Option<Vec<OsString>>,

    /// The keys; after -- if one begins with `-`
    #[arg(required = true, value_parser = key())]
    pub keys: Vec<OsString>,
}

/// Show the temporary keys whose names begin with PREFIX, and each change of them as it happens
///
/// On a terminal it redraws the table at each change. Elsewhere it prints the table, and then a line for each change: ADD or SET
/// with key, token and value; DEL with key, token and reason; FLUSHED. If the server ends the watch (END with a reason), it
/// prints a new table. When the connection breaks, it exits with 69. With --once, the exit code is 1 if there are none. In a
/// cluster the prefix must hold a whole hash tag, as in workers:{eu}:
#[derive(Args, Debug)]
#[command(before_help = "Example: tether presence --once workers:")]
pub struct Presence {
    /// Print the table and exit
    #[arg(long)]
    pub once: bool,

    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,

    /// What the names begin with; after -- if that begins with `-`
    #[arg(value_parser = not_empty("a prefix cannot be empty"))]
    pub prefix: OsString,
}

/// Take a key away from its holders
///
/// This deletes the key: holders that asked with NOTIFY get a push, the next waiter gets the key, and the holders keep their other
/// keys. It prints who lost the key. Beware: if the key has just passed to a waiter, kick takes it from that waiter; use --token
/// to be sure. The exit code is 1 if nobody held the key.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether kick report")]
pub struct Kick {
    /// Only if the key is held with this fencing token, as `tether who` shows it
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<u64>,

    /// End everything that the holders have: their session (SESSION.KILL), or without one their connection
    #[arg(long)]
    pub connection: bool,

    /// The lock or temporary key; after -- if it begins with `-`
    #[arg(value_parser = key())]
    pub key: OsString,
}

/// Check that a server, its replicas and their settings are fit for locks, and say what to do
///
/// Replicas are those that the server names, and theirs; in a cluster all masters are looked at, and their replicas. User and password
/// are the same for all. Each finding has a command that does something about it, or shows more. A note is about a setting at its
/// default and what that costs, about one that is another after a restart, or about what could not be looked at. The exit code is 1 if
/// something is wrong, and 0 if there are only warnings.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether doctor")]
pub struct Doctor {
    /// The grace that clients have: with redis+sentinel:// it is compared with the times of the Sentinels
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "10s")]
    pub grace: Duration,

    /// The time that they take to stop their work, as --kill-after of tether run says it
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "5s")]
    pub kill_after: Duration,

    /// Print one JSON object per line, one for each finding
    #[arg(long)]
    pub json: bool,
}

/// Test whether pushes work on a server version, and print the line for its redis.conf that says so
///
/// For servers that docs/servers.md does not name. tether starts the server's program with the module in a temporary folder, on a
/// Unix socket and for some tests on 127.0.0.1 with a password, and uses every server function outside the module API that the
/// module would use. This takes less than half a minute. Append what it prints to redis.conf.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether qualify --if-needed", after_help = QUALIFY_CODES)]
pub struct Qualify {
    /// The server's program; by default redis-server or valkey-server on PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub server: Option<PathBuf>,

    /// The module; by default libtether.so beside this program, or where the package installs it
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub module: Option<PathBuf>,

    /// Do nothing if the server is known to tether
    #[arg(long)]
    pub if_needed: bool,
}

pub const QUALIFY_CODES: &str = "\
Exit codes:
  0     the server has qualified, or with --if-needed it is known already
  1     it has not; the standard error says why
  64    invalid arguments
  69    the server does not start, or not with the module
  125   tether itself failed";

/// Print the module's metrics in the text format of Prometheus
///
/// In a cluster they are those of the node in --url only.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether metrics")]
pub struct Metrics {
    /// Serve them over HTTP at /metrics; each request asks the server
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

/// Serve locks to unit tests, without a Redis
///
/// The module's engine behind RESP, in one process that starts at once: the module's commands, of the server's own those that
/// tests need (GET, SET, DEL, EXPIRE, RENAME, FLUSHALL, CLIENT KILL ...), and levers (DEV HELP) that lose a key, fall silent,
/// refuse, demote, or set the clock forward. It listens on 127.0.0.1 only, keeps nothing, and is for tests only. Once it
/// listens, it prints `ready on port N`.
#[derive(Args, Debug)]
#[command(before_help = "Example: tether devserver --port 0")]
pub struct Devserver {
    /// The port; 0 takes a free one
    #[arg(long, default_value = "6379")]
    pub port: u16,

    /// Listen on this Unix socket, too
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub unix_socket: Option<PathBuf>,

    /// The password of the user `default`
    #[arg(long)]
    pub password: Option<String>,

    /// The tether.peer-timeout that clients see, from which they compute their fence
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "10s")]
    pub peer_timeout: Duration,

    /// Grant nothing for TIME after the start, as with tether.quarantine
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "0s")]
    pub quarantine: Duration,

    /// Send no pushes, as a server on which tether must not use private functions
    #[arg(long)]
    pub no_pushes: bool,

    /// Know none of the module's commands, as a server that lacks the module
    #[arg(long)]
    pub no_module: bool,
}

pub const EXIT_CODES: &str = "\
Exit codes:
  the command's own   if signal N ended it, tether ends by that signal
  64                  invalid arguments
  69                  no server answered in the time to wait
  75                  the lock is taken (--taken-exit)
  78                  the server refused
  79                  the lock was lost; the command was killed or not started
  125                 tether itself failed
  126, 127            the command cannot be executed; it was not found";

/// `tether top` reads much from the server.
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
        format!("use one of {}", names.join(", "))
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
        assert_eq!(run.work.key(), "report");
        assert_eq!(run.work.command, ["make", "-j", "2"]);
        assert!(!run.shared && !run.nowait);
        assert_eq!((run.permits, run.wait, run.lease), (None, None, None));
        assert_eq!(run.work.grace(None), Duration::from_secs(10));
        assert_eq!(run.work.kill_after, Duration::from_secs(5));
        assert_eq!(run.work.on_loss, Signal(SIGTERM));
    }

    #[test]
    fn what_is_said_is_taken() {
        let run = run(
            "tether run --permits 1/3 --wait 5s --lease 1h --grace 20s --on-loss SIGINT --kill-after 500ms k -- cmd --wait 1",
        );
        assert_eq!(run.permits, Some(Permits { count: 1, total: 3 }));
        assert_eq!(run.wait, Some(Duration::from_secs(5)));
        assert_eq!(run.lease, Some(Duration::from_secs(3600)));
        assert_eq!(run.work.grace(None), Duration::from_secs(20));
        assert_eq!(run.work.on_loss, Signal(SIGINT));
        assert_eq!(run.work.kill_after, Duration::from_millis(500));
        assert_eq!(run.work.command, ["cmd", "--wait", "1"]);
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
            "tether run --wait 5x key -- cmd",
            "tether run --taken-exit 256 key -- cmd",
            "tether run --lease 5s --at-least 5s key -- cmd",
            "tether run --key a b -- cmd",
            "tether run --nowiat -- cmd",
            "tether run --announce =x key -- cmd",
            "tether elect --wait 5s key -- cmd",
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
    fn a_key_may_begin_with_a_dash_and_is_not_empty() {
        for line in ["tether run --key -x -- cmd", "tether run --key=-x -- cmd"] {
            assert_eq!(run(line).work.key(), "-x");
        }
        match parse("tether who -- -x").unwrap().action {
            Action::Who(who) => assert_eq!(who.key, "-x"),
            other => panic!("{other:?}"),
        }
        for words in [
            &["tether", "run", "", "--", "cmd"][..],
            &["tether", "run", "--key", "", "--", "cmd"],
            &["tether", "elect", "", "--", "cmd"],
            &["tether", "who", ""],
            &["tether", "why", ""],
            &["tether", "log", ""],
            &["tether", "watch", "a", ""],
            &["tether", "kick", ""],
            &["tether", "presence", ""],
        ] {
            let why = Options::try_parse_from(words).unwrap_err().to_string();
            assert!(why.contains("cannot be empty"), "{words:?}: {why}");
        }
    }

    #[test]
    fn an_announcement_is_a_key_and_its_value() {
        let of = |line: &str| run(line).announce.unwrap();
        let both = of("tether run --announce w:1=a=b k -- cmd");
        assert_eq!((&*both.key, &*both.value), (&b"w:1"[..], &b"a=b"[..]));
        assert_eq!(of("tether run --announce w:1 k -- cmd").value, b"");
    }

    #[test]
    fn the_grace_is_as_long_as_the_lock_is_kept() {
        let grace = |line: &str| {
            let run = run(line);
            run.work.grace(run.at_least)
        };
        assert_eq!(
            grace("tether run --at-least 1m k -- cmd"),
            Duration::from_secs(60)
        );
        assert_eq!(
            grace("tether run --at-least 1s k -- cmd"),
            Duration::from_secs(10)
        );
        let said = grace("tether run --at-least 1s --grace 20s k -- cmd");
        assert_eq!(said, Duration::from_secs(20));
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
            Action::Run(run) => assert_eq!(run.work.key(), key),
            other => panic!("{other:?}"),
        }
    }
}
