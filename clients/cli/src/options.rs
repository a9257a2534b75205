//! What can be said to `tether`: help, man page and completions are made from this.

use crate::timing;
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Locks of a Redis or Valkey server with the module tether.
#[derive(Parser, Debug)]
#[command(name = "tether", version, max_term_width = 100)]
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

    /// Wait at most so long for the lock; without it, wait for as long as it takes
    #[arg(long, value_name = "TIME", value_parser = timing::parse, conflicts_with = "nowait")]
    pub wait: Option<Duration>,

    /// Do not wait if the lock is taken
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

    /// The lock
    pub key: OsString,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_hint = ValueHint::CommandWithArguments, num_args = 1..)]
    pub command: Vec<OsString>,
}

pub const EXIT_CODES: &str = "\
Exit codes:
  the command's own   128 + N if signal N ended it
  64                  the arguments make no sense
  69                  no server answered
  75                  the lock is taken
  78                  the server refused
  79                  the lock was lost, and the command was ended
  125                 tether itself failed
  126, 127            the command cannot be executed, was not found";

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
