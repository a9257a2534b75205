//! Whose command ended a key, as far as words tell: the lines of `CLIENT LIST`, and commands with their arguments.

use crate::engine::{ClientId, Moment};

/// The last two connections that gave a command, and whether that can be relied on.
///
/// A script's inner commands come with the id of a client that no connection has; then the one before is the connection whose
/// script it is.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    pub last: ClientId,
    pub before: ClientId,
    pause: Pause,
}

/// Whether the server may be executing a command that it had postponed.
#[derive(Clone, Copy, Debug)]
enum Pause {
    No,
    /// Somebody gave a command while the server wanted no writes.
    Seen,
    /// The server wanted writes again at this moment, or does since before.
    Over(Moment),
}

impl Noted {
    /// Only this one has given commands so far.
    pub const fn only(last: ClientId) -> Noted {
        Noted {
            last,
            before: ClientId(0),
            pause: Pause::No,
        }
    }

    /// Another connection than the last one gives a command; and whether the server wants no writes. As long as the same one
    /// gives all commands, it is the one whose command was postponed, too.
    pub fn note(&mut self, client: ClientId, is_paused: bool) {
        self.before = self.last;
        self.last = client;
        if is_paused {
            self.pause = Pause::Seen;
        }
    }

    /// Whether the current command may be one that was postponed, which was not noted again.
    pub fn may_be_postponed(
        &mut self,
        is_paused: impl FnOnce() -> bool,
        now: impl FnOnce() -> Moment,
    ) -> bool {
        /// Long enough for all that was postponed to be executed.
        const WHILE_MS: u64 = 10_000;
        match self.pause {
            Pause::No => return false,
            Pause::Seen if is_paused() => {}
            Pause::Seen => self.pause = Pause::Over(now()),
            Pause::Over(moment) if now().ms_since(moment) < WHILE_MS => {}
            Pause::Over(_) => {
                self.pause = Pause::No;
                return false;
            }
        }
        true
    }
}

/// Whether a connection executes a command that gives a key a time to live, which may have passed.
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

/// Commands that can end a key, or run one that can.
#[rustfmt::skip]
const ENDS_KEYS: &[&str] = &[
    "bitop", "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax", "bzpopmin",
    "copy", "del", "eval", "evalsha", "exec", "expire", "expireat", "fcall", "flushall", "flushdb",
    "georadius", "georadiusbymember", "geosearchstore", "getdel", "getex", "hdel", "lmove", "lmpop",
    "lock.guard", "lpop", "lrem", "ltrim", "migrate", "move", "pexpire", "pexpireat", "rename", "renamenx",
    "restore", "rpop", "rpoplpush", "sdiffstore", "sinterstore", "smove", "sort", "spop", "srem",
    "sunionstore", "unlink", "zdiffstore", "zinterstore", "zmpop", "zpopmax", "zpopmin",
    "zrangestore", "zrem", "zremrangebylex", "zremrangebyrank", "zremrangebyscore", "zunionstore",
];

/// Whether a connection may be executing a command that ends keys.
pub fn can_be_executing(line: &str) -> bool {
    let command = field(line, "cmd=").unwrap_or_default();
    let has_input = field(line, "qbuf=").is_some_and(|bytes| bytes != "0");
    has_input && has_arguments(line) && ENDS_KEYS.contains(&command)
}

/// Whether a connection executes a command, as far as it does not just read the next one: then it has arguments, and is
/// neither blocked (also by a pause) nor still to go on after that.
pub fn is_executing(line: &str) -> bool {
    has_arguments(line) && !is_held_up(line)
}

/// Whether a connection is blocked, or no longer, but has still to go on.
pub fn is_held_up(line: &str) -> bool {
    field(line, "flags=").is_some_and(|flags| flags.contains(['b', 'u']))
}

fn has_arguments(line: &str) -> bool {
    field(line, "argv-mem=").is_some_and(|bytes| bytes != "0")
}

/// A field of a line of `CLIENT LIST`; its name comes with the equals sign.
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_ascii_whitespace()
        .find_map(|field| field.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_in_a_pause_may_be_executed_for_a_while_after_it() {
        let mut noted = Noted::only(ClientId(1));
        let at = |ms: u64| move || Moment(ms * 1000);
        assert!(
            !noted.may_be_postponed(|| true, at(0)),
            "nobody has given a command"
        );
        noted.note(ClientId(2), true);
        assert!(noted.may_be_postponed(|| true, at(60_000)));
        assert!(noted.may_be_postponed(|| false, at(70_000)));
        noted.note(ClientId(1), false);
        assert!(noted.may_be_postponed(|| false, at(79_999)));
        assert!(!noted.may_be_postponed(|| false, at(80_000)));
        assert!(!noted.may_be_postponed(|| false, at(0)));
        assert_eq!((noted.last, noted.before), (ClientId(1), ClientId(2)));
    }

    #[test]
    fn a_client_that_only_waits_for_input_is_not_executing() {
        let line =
            "id=7 addr=127.0.0.1:5 fd=8 name= qbuf=26 argv-mem=0 cmd=del user=default resp=3";
        assert!(!can_be_executing(line));
        assert!(can_be_executing(&line.replace("argv-mem=0", "argv-mem=10")));
        assert_eq!(field(line, "fd="), Some("8"));
        assert_eq!(field(line, "name="), Some(""));
        assert_eq!(field(line, "db="), None);
    }
}
