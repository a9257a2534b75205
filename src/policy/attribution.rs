//! Determines which client is executing a command, from recorded client ids and the lines of `CLIENT LIST`.

use crate::engine::{ClientId, Moment};

/// The last two clients that sent a command, and whether they can be relied on.
///
/// A script's inner commands carry the id of a fake client; then the one before is the connection that runs the script.
#[derive(Clone, Copy, Debug)]
pub struct RecentClients {
    pub last: ClientId,
    pub before: ClientId,
    pause: Pause,
}

/// Whether the server may be executing a postponed command.
#[derive(Clone, Copy, Debug)]
enum Pause {
    No,
    /// A client sent a command while writes were paused.
    Seen,
    /// The pause was over at this moment or earlier.
    Over(Moment),
}

impl RecentClients {
    /// Only this client has sent commands so far.
    pub const fn only(last: ClientId) -> RecentClients {
        RecentClients {
            last,
            before: ClientId(0),
            pause: Pause::No,
        }
    }

    /// Records a command of another client than the last. (While one client sends all commands, a postponed one is also
    /// its.)
    pub fn note(&mut self, client: ClientId, is_paused: bool) {
        self.before = self.last;
        self.last = client;
        if is_paused {
            self.pause = Pause::Seen;
        }
    }

    /// Whether the executing command may be a postponed one, which was not recorded again.
    pub fn may_be_postponed(
        &mut self,
        is_paused: impl FnOnce() -> bool,
        now: impl FnOnce() -> Moment,
    ) -> bool {
        /// Long enough for all postponed commands to be executed.
        const AFTER_PAUSE_MS: u64 = 10_000;
        match self.pause {
            Pause::No => return false,
            Pause::Seen if is_paused() => {}
            Pause::Seen => self.pause = Pause::Over(now()),
            Pause::Over(moment) if now().ms_since(moment) < AFTER_PAUSE_MS => {}
            Pause::Over(_) => {
                self.pause = Pause::No;
                return false;
            }
        }
        true
    }
}

/// Whether a client is executing a command that sets a TTL, possibly in the past.
pub fn sets_time(line: &str) -> bool {
    const SET_TIMES: &[&str] = &[
        "eval",
        "evalsha",
        "exec",
        "expire",
        "expireat",
        "fcall",
        "getex",
        "lock.guard",
        "pexpire",
        "pexpireat",
    ];
    let command = field(line, "cmd=").unwrap_or_default();
    is_executing(line) && SET_TIMES.contains(&command)
}

/// Whether a client is executing a command, or has read its next one: it has arguments, and is neither blocked (also by a
/// pause) nor just unblocked with a command pending.
pub fn is_executing(line: &str) -> bool {
    has_arguments(line) && !is_blocked_or_pending(line)
}

/// Whether a client is blocked, or unblocked with its command still pending.
pub fn is_blocked_or_pending(line: &str) -> bool {
    field(line, "flags=").is_some_and(|flags| flags.contains(['b', 'u']))
}

fn has_arguments(line: &str) -> bool {
    field(line, "argv-mem=").is_some_and(|bytes| bytes != "0")
}

/// A field of a `CLIENT LIST` line; `name` includes the equals sign.
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_ascii_whitespace()
        .find_map(|field| field.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_in_a_pause_may_be_executed_for_a_while_after_it() {
        let mut recent = RecentClients::only(ClientId(1));
        let at = |ms: u64| move || Moment(ms * 1000);
        assert!(
            !recent.may_be_postponed(|| true, at(0)),
            "nobody has given a command"
        );
        recent.note(ClientId(2), true);
        assert!(recent.may_be_postponed(|| true, at(60_000)));
        assert!(recent.may_be_postponed(|| false, at(70_000)));
        recent.note(ClientId(1), false);
        assert!(recent.may_be_postponed(|| false, at(79_999)));
        assert!(!recent.may_be_postponed(|| false, at(80_000)));
        assert!(!recent.may_be_postponed(|| false, at(0)));
        assert_eq!((recent.last, recent.before), (ClientId(1), ClientId(2)));
    }

    #[test]
    fn a_client_that_only_waits_for_input_is_not_executing() {
        let line =
            "id=7 addr=127.0.0.1:5 fd=8 name= flags=N argv-mem=0 cmd=del user=default resp=3";
        assert!(!is_executing(line));
        let executing = line.replace("argv-mem=0", "argv-mem=10");
        assert!(is_executing(&executing));
        assert!(!is_executing(&executing.replace("flags=N", "flags=b")));
        assert_eq!(field(line, "fd="), Some("8"));
        assert_eq!(field(line, "name="), Some(""));
        assert_eq!(field(line, "db="), None);
    }
}
