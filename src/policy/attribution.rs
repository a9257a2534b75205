//! Determines which client is executing a command, from recorded client ids and the lines of `CLIENT LIST`.

use crate::engine::{ClientId, Moment, NOBODY};
use hashbrown::HashSet;

/// The clients that sent the last commands, and whether they can be relied on.
///
/// The commands of a script, and those that other modules call, carry the ids of fake clients. The connection in whose
/// command that happens comes after them, unless there are more of them than are kept.
#[derive(Clone, Copy, Debug)]
pub struct RecentClients {
    /// Each once, the latest first.
    ids: [ClientId; RECENT_IDS],
    pause: Pause,
}

/// A script, a module that acts in an event of the script's, one that acts in an event of that, and a connection.
const RECENT_IDS: usize = 4;

/// Whether the server may be executing a postponed command.
#[derive(Clone, Copy, Debug)]
enum Pause {
    No,
    /// A client sent a command while writes were paused.
    Seen,
    /// The pause was over at this moment or earlier.
    Over(Moment),
}

/// Clients that gave commands in a pause: after it the server may be executing one of those, and not the last that was given.
#[derive(Default)]
pub struct InPause {
    clients: HashSet<ClientId>,
    /// There were others, too.
    is_full: bool,
}

impl InPause {
    /// Each is asked for at each loss, some microseconds.
    const MOST: usize = 64;

    /// A client gives a command, `last` the one before.
    pub fn note(&mut self, client: ClientId, last: ClientId, is_paused: bool) {
        if is_paused && self.clients.len() < Self::MOST {
            self.clients.extend([client, last]);
        } else if is_paused {
            self.is_full |= !self.clients.contains(&client);
        } else if !self.clients.is_empty() {
            // What it gave before is over.
            self.clients.remove(&client);
        }
    }

    pub fn clear(&mut self) {
        self.clients.clear();
        self.is_full = false;
    }

    /// All of them, unless there were too many to keep.
    pub fn all(&self) -> Option<Vec<ClientId>> {
        (!self.is_full).then(|| self.clients.iter().copied().collect())
    }

    /// Its command is over.
    pub fn is_over(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }
}

impl Default for RecentClients {
    fn default() -> Self {
        RecentClients::only(NOBODY)
    }
}

impl RecentClients {
    /// Only this client has sent commands so far.
    pub const fn only(last: ClientId) -> RecentClients {
        let mut ids = [NOBODY; RECENT_IDS];
        ids[0] = last;
        RecentClients {
            ids,
            pause: Pause::No,
        }
    }

    /// The client of the last command.
    #[inline(always)]
    pub const fn last(&self) -> ClientId {
        self.ids[0]
    }

    /// Each once, the latest first.
    pub const fn ids(self) -> [ClientId; RECENT_IDS] {
        self.ids
    }

    /// Records a command of another client than the last, or one that is given in a pause. (While one client sends all commands, each
    /// that is executed is its.)
    pub fn note(&mut self, client: ClientId, is_paused: bool, now: impl FnOnce() -> Moment) {
        let mut previous = client;
        for id in &mut self.ids {
            std::mem::swap(id, &mut previous);
            if previous == client {
                break;
            }
        }
        match self.pause {
            _ if is_paused => self.pause = Pause::Seen,
            Pause::Seen => self.pause = Pause::Over(now()),
            Pause::No | Pause::Over(_) => {}
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

/// Whether a client was unblocked, and its command is pending.
pub fn is_pending(line: &str) -> bool {
    field(line, "flags=").is_some_and(|flags| flags.contains('u'))
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
        recent.note(ClientId(2), true, at(0));
        assert!(recent.may_be_postponed(|| true, at(60_000)));
        assert!(recent.may_be_postponed(|| false, at(70_000)));
        recent.note(ClientId(1), false, at(75_000));
        assert!(recent.may_be_postponed(|| false, at(79_999)));
        assert!(!recent.may_be_postponed(|| false, at(80_000)));
        assert!(!recent.may_be_postponed(|| false, at(0)));
        assert_eq!(recent.ids(), [1, 2, 0, 0].map(ClientId));
    }

    #[test]
    fn a_pause_is_over_when_the_next_client_speaks() {
        let mut recent = RecentClients::only(ClientId(1));
        let at = |ms: u64| move || Moment(ms * 1000);
        recent.note(ClientId(2), true, at(0));
        recent.note(ClientId(1), false, at(60_000));
        recent.note(ClientId(2), false, at(65_000));
        assert!(recent.may_be_postponed(|| false, at(69_999)));
        assert!(!recent.may_be_postponed(|| false, at(70_000)));
    }

    #[test]
    fn who_gave_a_command_in_a_pause_may_be_executing_it_until_it_gives_another() {
        let (mut in_pause, id) = (InPause::default(), ClientId);
        in_pause.note(id(1), id(9), false);
        assert_eq!(in_pause.all(), Some(vec![]));
        // Nobody was noted when the client that spoke last spoke again.
        in_pause.note(id(2), id(1), true);
        in_pause.note(id(1), id(2), false);
        assert_eq!(in_pause.all(), Some(vec![id(2)]));
        in_pause.is_over(id(2));
        assert_eq!(in_pause.all(), Some(vec![]));
        for number in 0..=InPause::MOST as u64 {
            in_pause.note(id(number), id(0), true);
        }
        in_pause.is_over(id(1));
        assert_eq!(in_pause.all(), None);
        in_pause.clear();
        assert_eq!(in_pause.all(), Some(vec![]));
    }

    #[test]
    fn the_connection_comes_after_the_fake_clients_that_acted_in_its_command() {
        let mut recent = RecentClients::only(ClientId(1));
        // Connection 2 runs a script; at each of its commands another module calls one, at which a second module does.
        let (script, module, second) = (97, 98, 99);
        let never = || unreachable!();
        recent.note(ClientId(2), false, never);
        for _ in 0..3 {
            for fake in [script, module, second] {
                recent.note(ClientId(fake), false, never);
            }
        }
        assert_eq!(recent.last(), ClientId(second));
        assert_eq!(recent.ids(), [second, module, script, 2].map(ClientId));
        recent.note(ClientId(1), false, never);
        assert_eq!(recent.ids(), [1, second, module, script].map(ClientId));
        recent.note(ClientId(script), false, never);
        assert_eq!(recent.ids(), [script, 1, second, module].map(ClientId));
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
