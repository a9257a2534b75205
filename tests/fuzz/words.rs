//! Commands that come by chance.

use crate::random::Random;
use crate::spoken::{Unit, Words};
use tether::command::{ArgumentKind, KeyPlaces, Spec, TABLE};

/// What commands can be about.
pub struct World {
    /// Of connections, some of which have ended.
    pub ids: Vec<i64>,
    pub secrets: Vec<Vec<u8>>,
    /// What `DUMP` says of a string, a list, and a lock.
    pub dumps: Vec<Vec<u8>>,
}

const KEYS: [&[u8]; 9] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"{x}1",
    b"{x}2",
    b"",
    b"l",
    b"\xff\r\n d",
];
const CHANNELS: [&str; 2] = ["x", "y"];
const USERS: [&str; 3] = ["u1", "u2", "u3"];

/// What the server's own commands say; each word in braces stands for something that comes by chance.
const PLAIN: &str = "
SET {k} {v} | SET {k} {v} | SET {k} {v} PX {ms} | SET {k} {v} NX GET | SET {k} {v} KEEPTTL | SETNX {k} {v} | GETSET {k} {v}
MSET {k} {v} {k} {v} | APPEND {k} x | INCR {k} | SETRANGE {k} 3 y | GETDEL {k} | GETEX {k} PX {ms} | GETEX {k} PXAT 1
DEL {k} | DEL {k} | DEL {k} | DEL {k} {k} {k} | DEL {k} {k} {k} | UNLINK {k} | UNLINK {k} | UNLINK {k} {k} | UNLINK a b c d | RENAME {k} {k} | RENAMENX {k} {k} | COPY {k} {k} | COPY {k} {k} DB {db} REPLACE
MOVE {k} {db} | SWAPDB {db} {db} | FLUSHDB | FLUSHALL | FLUSHALL ASYNC | FLUSHDB SYNC | EXPIRE {k} 100 | PEXPIRE {k} {ms} | EXPIRE {k} -1
PEXPIREAT {k} 1 | PERSIST {k} | PTTL {k} | RESTORE {k} 0 {dump} REPLACE | RESTORE {k} 0 {dump} | RESTORE {k} {ms} {dump} REPLACE
RESTORE {k} 1 {dump} ABSTTL REPLACE | DUMP {k} | TYPE {k} | EXISTS {k} {k} | TOUCH {k} | OBJECT ENCODING {k} | OBJECT FREQ {k}
MEMORY USAGE {k} | MEMORY USAGE {k} SAMPLES 0 | SCAN 0 | KEYS * | RANDOMKEY | DBSIZE | LPUSH {k} {v} | LPUSH l 3 1 2 | LPOP {k} | RPOPLPUSH {k} {k}
LMPOP 2 {k} {k} LEFT | SORT {k} STORE {k} | SORT l STORE {k} | SADD {k} {v} | SUNIONSTORE {k} {k} {k} | SPOP {k} | ZADD {k} 1 {v} | XADD {k} * f {v}
HSET {k} f {v} | SETBIT {k} 7 1 | BITOP NOT {k} {k} | PFADD {k} {v} | GEOADD {k} 1 1 {v} | WATCH {k} | UNWATCH | SELECT {db}
CLIENT ID | CLIENT INFO | CLIENT LIST ID {id} | CLIENT SETNAME {v} | CLIENT NO-EVICT ON | CLIENT NO-EVICT OFF
CLIENT TRACKING ON | CLIENT TRACKING OFF | CLIENT TRACKING ON BCAST | CLIENT TRACKING ON OPTIN | CLIENT TRACKING ON REDIRECT {id} | CLIENT CACHING YES
CLIENT TRACKINGINFO | CLIENT UNBLOCK {id} | CLIENT UNBLOCK {id} ERROR | CLIENT KILL ID {id} | GET {k} | MGET {k} {k} | PING | ECHO {v} | TIME
INFO tether | CONFIG GET tether* | CONFIG GET maxmemory | COMMAND GETKEYS LOCK.MACQUIRE 2 {k} {k} WAIT 1 | COMMAND GETKEYS LOCK.MACQUIRE 9 {k}
COMMAND GETKEYS SETTP {k} {v} | COMMAND GETKEYSANDFLAGS LOCK.CANCEL {k} | ACL WHOAMI | ACL DRYRUN {user} LOCK.ACQUIRE {k}
ACL DRYRUN {user} LOCK.MACQUIRE 2 {k} {k} | ACL DRYRUN {user} LOCK.MACQUIRE 4 {k} | SLOWLOG GET 1 | LATENCY LATEST | MODULE LIST
PUBSUB NUMSUB {ch} | WAIT 0 1 | BLPOP {k} 0.01 | BLPOP {k} {k} 0 | BLMOVE {k} {k} LEFT RIGHT 0.01 | XREAD BLOCK 5 STREAMS {k} $
TETHER.TOKEN {n} | TETHER.BOUND {k} | TETHER.SESSION START {n} {v} {n} | TETHER.HOLD {k} {n} {v} exclusive 1 0 {n} - | TETHER.HOLD {k} {n} {v} mode shared token {n} depth {n} | TETHER.FREE {k} {n} {v} | TETHER.RENEW {k} {n} | TETHER.SETTP {k} {n} {v} | TETHER.LOCK {k} {n} shared
DEBUG OBJECT {k} | DEBUG DIGEST-VALUE {k} | OBJECT HELP | LOCK.INFO {k} COUNT 1 | NOSUCH {k} | SETTP {k} {v} WAIT 0 | SETTP {k} {v} | DELTP {k}
LOCK.ACQUIRE {k} WAIT 0 | LOCK.ACQUIRE {k} | LOCK.RELEASE {k} | LOCK.ACQUIRE {k} WAIT 0 PUSH | SETTP {k} {v} SEQ | SETTP {k} {v} WAIT 0 PUSH | WATCHEX {k} {k}";

/// What rights users are given. Each can go on to speak here.
const RIGHTS: [&str; 8] = [
    "on nopass resetkeys resetchannels ~* &* +@all",
    "on nopass resetkeys ~{x}* %R~a %W~b &* +@all",
    "on nopass resetkeys ~* &* +@all -settp -lock.acquire",
    "on nopass resetkeys resetchannels ~a ~b &x +@all -@write +settp +deltp +lock.acquire",
    "on nopass ~* &* -@all +@connection +@transaction +@pubsub +settp +lock.acquire +lock.macquire +watchex +lock.release",
    "resetkeys",
    "on nopass -@keyspace",
    "off",
];

/// What most clients say most of the time.
const USUAL: [&str; 23] = [
    "SETTP a v",
    "SETTP a v WAIT 0",
    "SETTP a v WAIT 0 PUSH",
    "DELTP a",
    "DELTP a b c",
    "DELTP a",
    "LOCK.ACQUIRE b WAIT 0",
    "LOCK.ACQUIRE b WAIT 0",
    "LOCK.ACQUIRE b SHARED WAIT 0 PUSH",
    "LOCK.RELEASE b",
    "LOCK.RELEASE b",
    "LOCK.MACQUIRE 2 b c WAIT 20",
    "LOCK.RELEASE c",
    "WATCHEX a b",
    "WATCHTP a",
    "WATCHTP a KEYSONLY",
    "UNWATCHTP",
    "SETTP a v SEQ",
    "LOCK.ACQUIRE b TASK t WAIT 0 PUSH",
    "LOCK.RELEASE b ALL",
    "LOCK.MINE",
    "DEL a",
    "UNLINK a b c",
];

/// Runs what its arguments say: for each command the number of its words, and those.
const SCRIPT: &str = "local at = 1 while at <= #ARGV do local count = tonumber(ARGV[at]) \
    redis.pcall(unpack(ARGV, at + 1, at + count)) at = at + count + 1 end return at";

pub fn words_of(line: &str) -> Words {
    line.split_whitespace()
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

pub struct Speaker {
    pub random: Random,
    plain: Vec<&'static str>,
}

impl Speaker {
    /// Two things that a server does without the module too are not provoked. What is tracked for another connection Redis 7.0 tells it
    /// in the middle of its transaction's reply, and Redis 8.2 while it is on its way to an I/O thread (`may_redirect`). Redis 7.4.1 ends itself by a `CLIENT UNBLOCK` of one
    /// that waits for a flush (`may_flush`).
    pub fn new(seed: u64, may_redirect: bool, may_flush: bool) -> Speaker {
        let plain = PLAIN.split(['|', '\n']).map(str::trim);
        let waits = |line: &str| line.starts_with("FLUSH") && !line.ends_with("ASYNC");
        let is_said = |line: &&str| {
            !line.is_empty()
                && (may_redirect || !line.contains("REDIRECT"))
                && (may_flush || !waits(line))
        };
        Speaker {
            random: Random::new(seed),
            plain: plain.filter(is_said).collect(),
        }
    }

    /// Whatever may be said next on a connection.
    pub fn unit(&mut self, world: &World, is_subscribed: bool) -> Unit {
        let kind = self.random.below(1000);
        match kind {
            0..=19 if is_subscribed => Unit::of(&words_of("RESET")),
            0..=119 => self.transaction(world),
            120..=159 => Unit::of(&self.script(world)),
            // Who is subscribed on RESP2 could not switch them on again.
            160..=199 if !is_subscribed => self.unanswered(world),
            200..=229 => Unit::of(&self.one_of(&["HELLO 2", "HELLO 3", "HELLO 3", "RESET"])),
            230..=259 => Unit::of(&self.about_channels()),
            260..=274 => {
                // Servers since 7.2 do not answer one that fails while other replies are under way.
                let (how, user) = (
                    self.random.pick(&["AUTH", "HELLO 3 AUTH"]),
                    self.random.pick(&USERS),
                );
                Unit::default().then(&words_of(&format!("{how} {user} x")), 0, 1)
            }
            275..=276 => Unit::of(&words_of("QUIT")),
            277..=500 => Unit::of(&self.ours(world)),
            501..=760 => self.usual(),
            _ => Unit::of(&self.plain(world)),
        }
    }

    pub fn usual(&mut self) -> Unit {
        Unit::of(&self.one_of(&USUAL))
    }

    fn command(&mut self, world: &World) -> Words {
        if self.random.per_mille(450) {
            self.ours(world)
        } else {
            self.plain(world)
        }
    }

    fn transaction(&mut self, world: &World) -> Unit {
        let mut unit = Unit::of(&words_of("MULTI"));
        for _ in 0..self.random.below(5) {
            let command = self.command(world);
            // With CLIENT TRACKING Redis 7.0 tells of a flush in the middle of the transaction's reply.
            if !command[0].starts_with(b"FLUSH") {
                unit = unit.then(&command, 1, 1);
            }
        }
        let end = self.one_of(&["EXEC", "EXEC", "EXEC", "DISCARD"]);
        unit.then(&end, 1, 1)
    }

    fn script(&mut self, world: &World) -> Words {
        let mut words = words_of("EVAL");
        words.extend([SCRIPT.into(), "0".into()]);
        for _ in 0..1 + self.random.below(4) {
            let inner = self.command(world);
            words.push(inner.len().to_string().into());
            words.extend(inner);
        }
        words
    }

    fn unanswered(&mut self, world: &World) -> Unit {
        if self.random.per_mille(400) {
            let unit = Unit::default().then(&words_of("CLIENT REPLY SKIP"), 0, 0);
            // What blocks its connection may be answered after all.
            return unit.then(&self.command(world), 0, 1);
        }
        let mut unit = Unit::default().then(&words_of("CLIENT REPLY OFF"), 0, 0);
        for _ in 0..1 + self.random.below(6) {
            let command = self.command(world);
            // That switches replies on again. (It comes about where LOCK.LOG RESET loses its first word.)
            if !command[0].eq_ignore_ascii_case(b"RESET") {
                unit = unit.then(&command, 0, 0);
            }
        }
        unit.then(&words_of("CLIENT REPLY ON"), 1, 1)
    }

    /// On Redis 7.0 what one publishes to oneself in a transaction comes in the middle of its reply: so that is not done.
    fn about_channels(&mut self) -> Words {
        const LINES: &str = "SUBSCRIBE|PSUBSCRIBE|SSUBSCRIBE|UNSUBSCRIBE|PUNSUBSCRIBE|SUNSUBSCRIBE|PUBLISH|SPUBLISH|PUBLISH";
        let verbs: Vec<_> = LINES.split('|').collect();
        let (verb, channel) = (self.random.pick(&verbs), self.random.pick(&CHANNELS));
        let message = if verb.contains("PUBLISH") { "v" } else { "" };
        words_of(&format!("{verb} {channel} {message}"))
    }

    /// What is said of users on a connection of its own: one that is subscribed to what its user may no more hear, and says so
    /// itself, ends some servers by themselves.
    pub fn about_users(&mut self) -> String {
        let user = self.random.pick(&USERS);
        let rights = self.random.pick(&RIGHTS);
        match self.random.below(8) {
            0 => format!("ACL DELUSER {user}"),
            // They go on being able to say what tells that they are there.
            _ => format!("ACL SETUSER {user} {rights} +@connection +@transaction +@pubsub"),
        }
    }

    fn one_of(&mut self, lines: &[&'static str]) -> Words {
        words_of(self.random.pick(lines))
    }

    fn plain(&mut self, world: &World) -> Words {
        let line = self.plain[self.random.below(self.plain.len())];
        let words = words_of(line).into_iter();
        let filled = words.map(|word| match word.as_slice() {
            b"{k}" => self.key(),
            b"{v}" => self.value(),
            b"{n}" => self.number(),
            b"{ms}" => self.one_of(&["1", "2", "20", "100000"]).remove(0),
            b"{db}" => self.random.below(3).to_string().into(),
            b"{id}" => self.id(world).to_string().into(),
            b"{ch}" => self.random.pick(&CHANNELS).into(),
            b"{user}" => self.random.pick(&USERS).into(),
            b"{dump}" => world.dumps[self.random.below(world.dumps.len())].clone(),
            _ => word,
        });
        filled.collect()
    }

    fn key(&mut self) -> Vec<u8> {
        // Some much more often than others.
        let most = 1 + self.random.below(KEYS.len());
        KEYS[self.random.below(most)].to_vec()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => Vec::new(),
            1 => vec![0xff, b'\r', b'\n', b' '],
            2 => vec![b'v'; 3000],
            other => format!("v{other}").into(),
        }
    }

    fn number(&mut self) -> Vec<u8> {
        const NUMBERS: [&str; 14] = [
            "0",
            "1",
            "1",
            "2",
            "3",
            "5",
            "20",
            "50",
            "-1",
            "x",
            "",
            "9007199254740991",
            "18446744073709551616",
            "007",
        ];
        self.random.pick(&NUMBERS).into()
    }

    fn id(&mut self, world: &World) -> i64 {
        self.random.pick(&world.ids)
    }

    /// A command of the module's, mostly as its arguments are described.
    fn ours(&mut self, world: &World) -> Words {
        let spec = &TABLE[self.random.below(TABLE.len())];
        let mut words = vec![spec.name.as_bytes().to_vec()];
        if spec.name == "session.resume" && !world.secrets.is_empty() {
            let secret = self.random.below(world.secrets.len());
            words.push(world.secrets[secret].clone());
        } else {
            self.arguments(spec, world, &mut words);
        }
        if self.random.per_mille(60) {
            self.spoil(&mut words);
        }
        words
    }

    fn arguments(&mut self, spec: &Spec, world: &World, words: &mut Words) {
        let mut optional = Vec::new();
        for argument in spec.arguments() {
            if argument.optional && argument.kind != ArgumentKind::Key {
                optional.push(argument);
                continue;
            }
            let count = match (argument.multiple, argument.optional) {
                (true, false) => 1 + self.random.below(4),
                (true, true) => self.random.below(3),
                (false, _) => 1,
            };
            if argument.multiple && spec.keys == KeyPlaces::Numbered {
                *words.last_mut().expect("their number") = count.to_string().into();
            }
            for _ in 0..count {
                let value = self.argument(argument.kind, argument.name, world);
                words.push(value);
            }
        }
        for argument in optional {
            // What PERMITS are of comes with them.
            if argument.name == "total" || !self.random.per_mille(350) {
                continue;
            }
            words.extend(argument.token.map(Into::into));
            if argument.name == "permits" {
                words.extend(
                    self.one_of(&["1 OF 2", "1 OF 3", "2 OF 3", "3 OF 3", "1 OF 2", "4 OF 3"]),
                );
            } else if argument.kind != ArgumentKind::Flag {
                let value = self.argument(argument.kind, argument.name, world);
                words.push(value);
            }
        }
    }

    fn argument(&mut self, kind: ArgumentKind, name: &str, world: &World) -> Vec<u8> {
        match kind {
            ArgumentKind::Key => self.key(),
            ArgumentKind::Integer if name == "client-id" => self.id(world).to_string().into(),
            // Most wait for a moment only, or until they are told that they need not.
            ArgumentKind::Integer if self.random.per_mille(700) => {
                self.one_of(&["0", "1", "5", "30"]).remove(0)
            }
            ArgumentKind::Integer => self.number(),
            ArgumentKind::Pattern => self.one_of(&["*", "a*", "[a-", "\\"]).remove(0),
            ArgumentKind::String if name == "label" || name == "task" => {
                self.one_of(&["p", "q", "r"]).remove(0)
            }
            ArgumentKind::String if name == "prefix" => {
                self.one_of(&["a", "{x}", "l", "a0"]).remove(0)
            }
            ArgumentKind::String if name == "key" => self.key(),
            ArgumentKind::String | ArgumentKind::Flag => self.value(),
        }
    }

    /// As people and broken programs get it wrong.
    fn spoil(&mut self, words: &mut Words) {
        let at = self.random.below(words.len());
        match self.random.below(4) {
            0 if words.len() > 1 => drop(words.remove(at)),
            1 => {
                let word = words[at].clone();
                words.push(word);
            }
            2 if at > 0 => words[at] = self.value(),
            _ => words[at].make_ascii_uppercase(),
        }
    }

    /// Bytes that are a command, or nearly.
    pub fn broken_bytes(&mut self, world: &World) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            bytes.extend(Unit::of(&self.command(world)).bytes);
        }
        for _ in 0..1 + self.random.below(3) {
            if bytes.len() < 3 {
                break;
            }
            let at = self.random.below(bytes.len() - 1);
            match self.random.below(4) {
                0 => bytes[at] ^= 1 << self.random.below(8),
                1 => drop(bytes.remove(at)),
                2 => bytes.truncate(at + 2),
                _ => bytes.insert(at, self.random.pick(b"\r\n$*-0159 \0\xff")),
            }
        }
        bytes
    }
}
