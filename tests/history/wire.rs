//! Commands as a server reads them, and its replies as the model says them.

use crate::harness::Frame;
use crate::model::command::{
    Acks, Ask, Command, Kind, LABELS, Label, Mode, Name, PREFIXES, Past, Raised, Replies, Task,
    Wait,
};
use crate::model::replies::Reply;
use crate::model::sequence::bytes_of;
use crate::model::speaking::CHANNEL;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub type Words = Vec<Vec<u8>>;

/// What commands say that the model does not know.
pub struct Book {
    /// What `DUMP` says of the keys that `RESTORE` makes.
    pub text: Vec<u8>,
    pub list: Vec<u8>,
    pub lock: Vec<u8>,
    /// The last connection's id, for each place.
    pub ids: Vec<i64>,
    /// Those of the sessions, in the order in which they were started.
    pub secrets: Vec<Vec<u8>>,
    /// The greatest token that was heard of before this step.
    pub last_token: i64,
}

/// Runs what its arguments say: for each command the number of its words, and those.
const SCRIPT: &str = "
local at, replies = 1, {}
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + count))
    at = at + count + 1
end
return replies";

macro_rules! words {
    ($($word:expr),*) => { vec![$(bytes(&$word)),*] };
}

fn bytes(word: &(impl AsRef<[u8]> + ?Sized)) -> Vec<u8> {
    word.as_ref().to_vec()
}

fn key(name: &Name) -> &'static [u8] {
    bytes_of(*name)
}

fn with_keys(command: &str, keys: &[Name]) -> Words {
    let keys = keys.iter().map(|name| bytes(key(name)));
    std::iter::once(bytes(command)).chain(keys).collect()
}

fn prefix_words(command: &Command) -> Words {
    match command {
        Command::Watchtp {
            prefix,
            goes_on,
            keys_only,
        } => {
            let mut words = words!["WATCHTP", PREFIXES[*prefix]];
            // The server knows where it goes on.
            words.extend(goes_on.then(|| words!["AFTER", "x"]).into_iter().flatten());
            words.extend(keys_only.then(|| bytes("KEYSONLY")));
            words
        }
        Command::Unwatchtp { prefix } => {
            let mut words = words!["UNWATCHTP"];
            words.extend(prefix.map(|prefix| bytes(PREFIXES[prefix])));
            words
        }
        other => unreachable!("{other:?} is about no prefix"),
    }
}

impl Book {
    pub fn words(&self, command: &Command) -> Words {
        match command {
            Command::Settp { .. } => settp_words(command),
            Command::Sequence {
                key: k,
                value,
                notify,
                acks,
            } => {
                let mut words = words!["SETTP", key(k), value.to_string(), "SEQ"];
                words.extend(notify_words(*notify));
                words.extend(acks_words(*acks));
                words
            }
            Command::Acquire { .. }
            | Command::Macquire { .. }
            | Command::Release { .. }
            | Command::Extend { .. }
            | Command::Cancel { .. } => lock_words(command),
            Command::Deltp { keys } => with_keys("DELTP", keys),
            Command::Watchex { keys } => with_keys("WATCHEX", keys),
            Command::Unwatchex { keys } => with_keys("UNWATCHEX", keys),
            Command::Watchtp { .. } | Command::Unwatchtp { .. } => prefix_words(command),
            Command::Mine => words!["LOCK.MINE"],
            Command::Start { grace_ms } => {
                words!["SESSION.START", "GRACE", grace_ms.to_string()]
            }
            Command::Resume { session, notify } => {
                let mut words = words!["SESSION.RESUME", self.secrets[*session as usize]];
                words.extend(notify_words(*notify));
                words
            }
            Command::EndSession => words!["SESSION.END"],
            Command::Detach => words!["SESSION.DETACH"],
            Command::KillSession { .. } => unreachable!("only the server knows its id"),
            Command::Set { key: k, value } => words!["SET", key(k), value.to_string()],
            Command::Setnx { key: k, value } => words!["SETNX", key(k), value.to_string()],
            Command::Append { key: k } => words!["APPEND", key(k), "+"],
            Command::Mset { keys } => {
                let pairs = keys.iter().flat_map(|name| [bytes(key(name)), bytes("m")]);
                std::iter::once(bytes("MSET")).chain(pairs).collect()
            }
            Command::Lpush { key: k } => words!["LPUSH", key(k), "1"],
            Command::Rename { from, to } => words!["RENAME", key(from), key(to)],
            Command::Renamenx { from, to } => words!["RENAMENX", key(from), key(to)],
            Command::Move { key: k, db } => words!["MOVE", key(k), db.to_string()],
            Command::Sort { from, to } => words!["SORT", key(from), "STORE", key(to)],
            Command::Swapdb => words!["SWAPDB", "0", "1"],
            Command::Del { keys } => with_keys("DEL", keys),
            Command::Unlink { keys } => with_keys("UNLINK", keys),
            Command::Getdel { key: k } => words!["GETDEL", key(k)],
            Command::Lpop { key: k } => words!["LPOP", key(k)],
            Command::Sunionstore { to } => words!["SUNIONSTORE", key(to), "nosuch", "norsuch"],
            Command::Flushdb => words!["FLUSHDB"],
            Command::Flushall => words!["FLUSHALL"],
            Command::Expire { key: k } => words!["EXPIRE", key(k), "100000"],
            Command::Persist { key: k } => words!["PERSIST", key(k)],
            Command::Exists { key: k } => words!["EXISTS", key(k)],
            Command::Select { db } => words!["SELECT", db.to_string()],
            Command::Kill { who } => words!["CLIENT", "KILL", "ID", self.ids[*who].to_string()],
            Command::Unblock { who, error } => {
                let how = if *error { "ERROR" } else { "TIMEOUT" };
                words!["CLIENT", "UNBLOCK", self.ids[*who].to_string(), how]
            }
            Command::Lapse { key: k, how } => lapse(key(k), *how),
            Command::Replies { how } => words!["CLIENT", "REPLY", reply_word(*how)],
            Command::Subscribe => words!["SUBSCRIBE", key(&CHANNEL.name)],
            Command::Unsubscribe => words!["UNSUBSCRIBE", key(&CHANNEL.name)],
            Command::Publish => words!["PUBLISH", key(&CHANNEL.name), "hi"],
            _ => self.longer_words(command),
        }
    }

    /// This command, or one that raises a token too far where the clock has not come to what it asks for: a server that was
    /// started or has loaded its data is ahead of the clock.
    pub fn within_reach(&self, command: &Command) -> Command {
        let mut command = command.clone();
        if let Command::Raise { to, .. } = &mut command
            && *to != Raised::TooFar
            && self.raised(*to) > clock_as_token()
        {
            *to = Raised::TooFar;
        }
        command
    }

    /// The server may have given some more that nobody has heard of.
    fn raised(&self, to: Raised) -> i64 {
        const UNHEARD: i64 = 4096;
        const GREATEST: i64 = (1 << 53) - 1;
        match to {
            Raised::Least => 0,
            Raised::Above(more) => self.last_token + UNHEARD + i64::from(more),
            Raised::TooFar => GREATEST,
        }
    }

    fn longer_words(&self, command: &Command) -> Words {
        match command {
            Command::Raise { key: k, label, to } => {
                let mut words = words!["LOCK.RAISE", key(k), self.raised(*to).to_string()];
                words.extend(owner_words(*label));
                words
            }
            Command::Copy {
                from,
                to,
                db,
                replace,
            } => {
                let mut words = words!["COPY", key(from), key(to), "DB", db.to_string()];
                words.extend(replace.then(|| bytes("REPLACE")));
                words
            }
            Command::Restore {
                key: k,
                kind,
                replace,
            } => {
                let dump = match kind {
                    Kind::Text => &self.text,
                    Kind::List => &self.list,
                    Kind::Lock => &self.lock,
                };
                let mut words = words!["RESTORE", key(k), "0", dump];
                words.extend(replace.then(|| bytes("REPLACE")));
                words
            }
            Command::RestoreLapsed { key: k } => {
                words!["RESTORE", key(k), "1", &self.text, "ABSTTL", "REPLACE"]
            }
            Command::Script { commands, written } if *written => {
                let script = self.script(commands);
                words!["EVAL", script, "0"]
            }
            Command::Script { commands, .. } => {
                let mut words = words!["EVAL", SCRIPT, "0"];
                for command in commands {
                    let inner = self.words(command);
                    words.push(bytes(&inner.len().to_string()));
                    words.extend(inner);
                }
                words
            }
            other => unreachable!("{other:?} has no words"),
        }
    }

    /// A script in which the commands are written out.
    fn script(&self, commands: &[Command]) -> String {
        let calls = commands.iter().map(|command| {
            let words = self.words(command);
            let literals: Vec<String> = words.iter().map(|word| literal(word)).collect();
            format!("redis.pcall({})", literals.join(", "))
        });
        let calls: Vec<String> = calls.collect();
        format!("return {{{}}}", calls.join(", "))
    }
}

fn settp_words(command: &Command) -> Words {
    match command {
        Command::Settp {
            key: k,
            value,
            token,
            notify,
            task,
            wait,
            acks,
        } => {
            let mut words = words!["SETTP", key(k), value.to_string()];
            words.extend(token.then(|| bytes("TOKEN")));
            words.extend(notify_words(*notify));
            words.extend(task_words(*task));
            words.extend(wait_words(*wait));
            words.extend(acks_words(*acks));
            words
        }
        other => unreachable!("{other:?} asks for no temporary key"),
    }
}

fn lock_words(command: &Command) -> Words {
    match command {
        Command::Acquire { key: k, mode, ask } => {
            let mut words = words!["LOCK.ACQUIRE", key(k)];
            match mode {
                Mode::Shared => words.push(bytes("SHARED")),
                Mode::Permits { count, total } => {
                    let (count, total) = (count.to_string(), total.to_string());
                    words.extend(words!["PERMITS", count, "OF", total]);
                }
                Mode::Exclusive | Mode::Temporary => {}
            }
            words.extend(ask_words(ask));
            words
        }
        Command::Macquire { keys, ask } => {
            let mut words = words!["LOCK.MACQUIRE", keys.len().to_string()];
            words.extend(keys.iter().map(|name| bytes(key(name))));
            words.extend(ask_words(ask));
            words
        }
        Command::Release { key: k, label, all } => {
            let mut words = words!["LOCK.RELEASE", key(k)];
            words.extend(owner_words(*label));
            words.extend(all.then(|| bytes("ALL")));
            words
        }
        Command::Extend {
            key: k,
            label,
            lease_ms,
        } => {
            let mut words = words!["LOCK.EXTEND", key(k), lease_ms.to_string()];
            words.extend(owner_words(*label));
            words
        }
        Command::Cancel { key: k, label } => {
            let mut words = words!["LOCK.CANCEL", key(k)];
            words.extend(owner_words(*label));
            words
        }
        other => unreachable!("{other:?} is about no lock"),
    }
}

fn ask_words(ask: &Ask) -> Words {
    let mut words = owner_words(ask.label);
    words.extend(task_words(ask.task));
    if let Some(ms) = ask.lease_ms {
        words.extend(words!["LEASE", ms.to_string()]);
    }
    words.extend(ask.reentrant.then(|| bytes("REENTRANT")));
    words.extend(notify_words(ask.notify));
    words.extend(wait_words(ask.wait));
    words.extend(acks_words(ask.acks));
    words
}

fn owner_words(label: Label) -> Words {
    match label {
        0 => Vec::new(),
        label => words!["OWNER", LABELS[label]],
    }
}

fn task_words(task: Option<Task>) -> Words {
    task.map_or_else(Vec::new, |task| words!["TASK", LABELS[task]])
}

fn notify_words(notify: bool) -> Words {
    notify.then(|| bytes("NOTIFY")).into_iter().collect()
}

fn wait_words(wait: Option<Wait>) -> Words {
    let mut words = Vec::new();
    if let Some(wait) = wait {
        words = words!["WAIT", wait.limit_ms.to_string()];
        words.extend(wait.push.then(|| bytes("PUSH")));
    }
    words
}

fn acks_words(acks: Option<Acks>) -> Words {
    let words = acks.map(|acks| {
        let (replicas, ms) = (acks.replicas.to_string(), acks.timeout_ms.to_string());
        words!["ACKS", replicas, "ACKTIMEOUT", ms]
    });
    words.unwrap_or_default()
}

/// Any bytes, for Lua.
fn literal(word: &[u8]) -> String {
    let escaped = word.iter().map(|byte| format!("\\{byte:03}"));
    format!("'{}'", escaped.collect::<String>())
}

fn reply_word(how: Replies) -> &'static str {
    match how {
        Replies::All => "ON",
        Replies::None => "OFF",
        Replies::NotNext => "SKIP",
    }
}

fn lapse(key: &[u8], how: Past) -> Words {
    match how {
        Past::Expire => words!["EXPIRE", key, "-1"],
        Past::Pexpire => words!["PEXPIRE", key, "-1"],
        Past::Expireat => words!["EXPIREAT", key, "1"],
        Past::Pexpireat => words!["PEXPIREAT", key, "1"],
        Past::Getex => words!["GETEX", key, "PXAT", "1"],
    }
}

pub fn reply(frame: Frame) -> Reply {
    match frame {
        Frame::Simple(text) if text == b"OK" => Reply::Ok,
        Frame::Simple(text) if text == b"QUEUED" => Reply::Queued,
        Frame::Simple(text) | Frame::Bulk(text) => Reply::Text(text),
        Frame::Error(text) => Reply::Refused(String::from_utf8_lossy(&text).into_owned()),
        Frame::Integer(number) => Reply::Int(number),
        Frame::Null => Reply::Null,
        Frame::Array(frames) => Reply::Array(frames.into_iter().map(reply).collect()),
        Frame::Map(pairs) => {
            let parts = pairs.into_iter().flat_map(|(name, value)| [name, value]);
            Reply::Array(parts.map(reply).collect())
        }
        other => Reply::Text(format!("{other:?}").into_bytes()),
    }
}

/// To which token one may be raised at least, by the clock that the server has, too.
fn clock_as_token() -> i64 {
    const YEAR_2025: Duration = Duration::from_secs(1_735_689_600);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_2025 = since_1970.expect("a clock") - YEAR_2025;
    (since_2025.as_secs() as i64) << 22
}
