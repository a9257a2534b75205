//! Every command of a server that has keys, bare on one server and guarded on its twin: the same reply, the same data, the same
//! words to replicas, the same verdict about rights.

use super::guarded;
use crate::harness::*;
use std::collections::BTreeMap;
use tether::command::TABLE;
use tether_testing::grammar::{Command, Vocabulary, commands_with_keys};
use tether_testing::random::{Random, seed, steps};

/// The lock that guards.
const LOCK: &str = "lock";

/// Where the order of what is told depends on the process (seeds of hash tables): elements in any order.
const ANY_ORDER: &[&str] = &[
    "hgetall", "hkeys", "hvals", "sdiff", "sinter", "smembers", "sort", "sort_ro", "sunion",
];

/// Where what is told is random, or depends on the time or on memory: the kinds of what is told.
const SHAPE: &[&str] = &[
    "dump",
    "hexpiretime",
    "hpexpiretime",
    "hpttl",
    "hrandfield",
    "httl",
    "memory|usage",
    "object|idletime",
    "pexpiretime",
    "expiretime",
    "pttl",
    "spop",
    "srandmember",
    "ttl",
    "xadd",
    "xinfo|consumers",
    "xinfo|groups",
    "xinfo|stream",
    "xpending",
    "zrandmember",
];

/// Where even how much is told depends on that.
const KIND: &[&str] = &["hscan", "sscan", "zscan"];

/// What these write is random or depends on the time, so that it is not compared either.
const WRITES_BY_CHANCE: &[&str] = &["spop", "xadd"];

/// The server itself looks at none of their keys in some forms, and lets everybody have them: `PFMERGE` without a source (Redis 8).
const UNGUARDED_KEYS: &[&str] = &["pfmerge"];

/// These are not made to succeed here, and why.
const NEVER_SUCCEED: &[(&str, &str)] = &[
    ("clusterscan", "it needs a cluster"),
    ("migrate", "it needs another server"),
    ("object|freq", "it needs another policy of eviction"),
    ("pfdebug", "a command for the server's own developers"),
    ("restore-asking", "nodes of a cluster give it"),
];

/// Fills the databases, which have only the lock before.
const FILL: &str = "
    for db = 1, 0, -1 do
        redis.call('SELECT', db)
        for _, key in ipairs(redis.call('KEYS', '*')) do
            if key ~= 'lock' then redis.call('DEL', key) end
        end
    end
    redis.call('MSET', 's1', 'a text', 's2', '7', 's3', '2.5')
    redis.call('RPUSH', 'l1', 'a', 'b', 'c')
    redis.call('RPUSH', 'l2', '7', 'a')
    redis.call('HSET', 'h1', 'f1', 'a', 'f2', 'b', 'n', '7')
    redis.call('HSET', 'h2', 'f1', 'c')
    redis.call('SADD', 'e1', 'a', 'b', 'c')
    redis.call('SADD', 'e2', 'a', '7')
    redis.call('ZADD', 'z1', 1, 'a', 2, 'b', 3, 'c')
    redis.call('ZADD', 'z2', 0, 'a', 0, 'b', 0, 'c')
    redis.call('GEOADD', 'o1', '13.361389', '38.115556', 'a', '15.087269', '37.502669', 'b')
    redis.call('PFADD', 'p1', 'a', 'b')
    redis.call('PFADD', 'p2', 'c')
    redis.call('XADD', 'x1', '1-1', 'f', 'v')
    redis.call('XADD', 'x1', '2-1', 'f', 'w')
    redis.call('XGROUP', 'CREATE', 'x1', 'workers', '0')
    redis.call('XREADGROUP', 'GROUP', 'workers', 'w1', 'COUNT', 1, 'STREAMS', 'x1', '>')
    redis.call('SET', 't1', 'a text', 'EX', 100000)
";

/// Names, kinds and sizes of all keys.
const LOOK: &str = "
    local sizes = {string = 'STRLEN', list = 'LLEN', hash = 'HLEN', set = 'SCARD', zset = 'ZCARD', stream = 'XLEN'}
    local found = {}
    for db = 1, 0, -1 do
        redis.call('SELECT', db)
        local keys = redis.call('KEYS', '*')
        table.sort(keys)
        for _, key in ipairs(keys) do
            local kind = redis.call('TYPE', key).ok
            local size = sizes[kind] and redis.call(sizes[kind], key) or 0
            local left = redis.call('PTTL', key)
            if left > 0 then left = math.floor(left / 60000 + 0.5) end
            table.insert(found, table.concat({db, key, kind, size, left}, ' '))
        end
    end
    return found
";

/// The keys that a group of commands is about, and others now and then.
fn key_of_group(random: &mut Random, group: &str) -> String {
    const ALL: &[&str] = &[
        "s1", "s2", "s3", "l1", "l2", "h1", "h2", "e1", "e2", "z1", "z2", "o1", "p1", "p2", "x1",
        "t1",
    ];
    let own: &[&str] = match group {
        "string" | "bitmap" => &["s1", "s2", "s3"],
        "list" => &["l1", "l2"],
        "hash" => &["h1", "h2"],
        "set" => &["e1", "e2"],
        "sorted-set" | "sorted_set" => &["z1", "z2"],
        "geo" => &["o1"],
        "hyperloglog" => &["p1", "p2"],
        "stream" => &["x1"],
        _ => ALL,
    };
    let from = random.weighted(&[(80, own), (12, &["new1", "new2"]), (8, ALL)]);
    random.pick(from).to_owned()
}

/// Who gives a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Resp2,
    Resp3,
    /// In a transaction.
    InExec,
    /// May do all but to give this command.
    Refused,
    /// May read all keys and write none.
    Reader,
    /// May use the keys whose names end in 1, and read the lock.
    Ones,
}

const EACH: &[(usize, Who)] = &[
    (4, Who::Resp2),
    (4, Who::Resp3),
    (2, Who::InExec),
    (1, Who::Refused),
    (1, Who::Reader),
    (2, Who::Ones),
];

/// A server whose lock is held.
struct Twin {
    _server: Server,
    admin: Client,
    _holder: Client,
    clients: BTreeMap<&'static str, Client>,
    tap: Tap,
    /// None where commands are given as they are.
    token: Option<i64>,
    /// What lines of `OF_MODULES` need is filled in, too.
    has_vectors: bool,
    /// No command has written since the databases were filled.
    is_filled: bool,
    fill: String,
    look: String,
}

impl Twin {
    fn new(guards: bool) -> Twin {
        let server = Server::with(&["repl-ping-replica-period 3600", "repl-diskless-sync no"]);
        let mut admin = server.resp2();
        let mut holder = server.resp3();
        let token = holder.run(["LOCK.ACQUIRE", LOCK]).number();
        for (user, rights) in [
            ("reader", "%R~* &*"),
            ("ones", "~*1 %R~lock &*"),
            ("refused", "~* &*"),
        ] {
            admin.run(&format!("ACL SETUSER {user} on nopass +@all {rights}"));
        }
        let load = |client: &mut Client, script| client.run(["SCRIPT", "LOAD", script]).text();
        let mut clients = BTreeMap::from([("resp2", server.resp2()), ("resp3", server.resp3())]);
        for user in ["reader", "ones", "refused"] {
            let mut client = server.resp2();
            client.run(["AUTH", user, "x"]);
            clients.insert(user, client);
        }
        Twin {
            fill: load(&mut admin, FILL),
            look: load(&mut admin, LOOK),
            tap: Tap::open(&server),
            token: guards.then_some(token),
            has_vectors: false,
            is_filled: false,
            admin,
            _holder: holder,
            clients,
            _server: server,
        }
    }

    /// Begins anew, gives a command, and tells what came of it.
    fn outcome(&mut self, who: Who, words: &[Vec<u8>]) -> Outcome {
        if !self.is_filled {
            self.admin.run(["EVALSHA", &self.fill, "0"]);
            if self.has_vectors {
                self.admin.run("VADD v1 VALUES 3 1 2 3 a");
            }
            self.tap.after(&mut self.admin);
        }
        let given = match self.token {
            Some(token) => guarded(LOCK, token, words),
            None => words.to_vec(),
        };
        let name = match who {
            Who::Resp2 => "resp2",
            Who::Resp3 | Who::InExec => "resp3",
            Who::Refused => "refused",
            Who::Reader => "reader",
            Who::Ones => "ones",
        };
        let client = self.clients.get_mut(name).expect("each has a client");
        // On Valkey 8.1 a bare COPY leaves it in another database: see docs/servers.md.
        client.send("SELECT 0");
        let reply = if who == Who::InExec {
            client.send("MULTI");
            client.read_reply();
            client.reply_to("MULTI");
            // What is wrong with its words or rights the bare command is told at once, and the guarded one by EXEC.
            match client.call(given) {
                Frame::Error(text) => {
                    client.run("DISCARD");
                    Frame::Error(text)
                }
                _ => client.run("EXEC").items().remove(0),
            }
        } else {
            client.send(given);
            client.read_replies(2).remove(1)
        };
        let (look, digest) = (["EVALSHA", &self.look, "0"], "DEBUG DIGEST");
        self.admin.send(look);
        self.admin.send(digest);
        let keys = self.admin.reply_to(look);
        let data = self.admin.reply_to(digest).text();
        let stream = self.tap.after(&mut self.admin);
        self.is_filled = stream.is_empty();
        Outcome {
            reply,
            keys: keys.items().iter().map(Frame::text).collect(),
            data,
            stream,
        }
    }
}

#[derive(Debug)]
struct Outcome {
    reply: Frame,
    keys: Vec<String>,
    data: String,
    stream: Vec<Vec<String>>,
}

/// What two replies must have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Likeness {
    Exact,
    AnyOrder,
    Shape,
    Kind,
}

impl Likeness {
    fn of(command: &Command) -> Likeness {
        let name = &&*command.name;
        match () {
            () if ANY_ORDER.contains(name) => Likeness::AnyOrder,
            () if SHAPE.contains(name) => Likeness::Shape,
            () if KIND.contains(name) => Likeness::Kind,
            () => Likeness::Exact,
        }
    }

    fn said(self, frame: &Frame) -> String {
        match (self, frame) {
            (_, Frame::Error(text)) => {
                let text = String::from_utf8_lossy(text);
                // The servers have other words for it when a module calls.
                let code = text.split(' ').next().unwrap_or_default();
                if code == "NOPERM" {
                    code.to_owned()
                } else {
                    text.into_owned()
                }
            }
            (Likeness::Exact, frame) => format!("{frame:?}"),
            (Likeness::AnyOrder, frame) => {
                let mut letters: Vec<_> = format!("{frame:?}").into_bytes();
                letters.sort_unstable();
                String::from_utf8_lossy(&letters).into_owned()
            }
            (Likeness::Shape, frame) => shape(frame),
            (Likeness::Kind, frame) => format!("{:?}", std::mem::discriminant(frame)),
        }
    }
}

fn shape(frame: &Frame) -> String {
    let kind = format!("{frame:?}");
    match frame {
        Frame::Integer(_) | Frame::Double(_) => "a number".to_owned(),
        Frame::Bulk(_) => "a bulk".to_owned(),
        Frame::Array(_) | Frame::Set(_) | Frame::Map(_) => {
            let items = frame.items();
            let inside: Vec<_> = items.iter().map(shape).collect();
            format!("{} of {inside:?}", kind.chars().take(1).collect::<String>())
        }
        _ => kind,
    }
}

/// What is compared of the words to replicas: times and ids that are made of them differ.
fn told(command: &Command, stream: &[Vec<String>]) -> Vec<Vec<String>> {
    let timeless = |word: &String| {
        let digits = word.split('-').next().unwrap_or_default();
        let is_time = digits.len() >= 13 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_time {
            "<time>".to_owned()
        } else {
            word.clone()
        }
    };
    let by_chance = WRITES_BY_CHANCE.contains(&&*command.name);
    let words = |words: &Vec<String>| match by_chance {
        true => words.iter().take(2).cloned().collect(),
        false => words.iter().map(timeless).collect(),
    };
    stream.iter().map(words).collect()
}

#[test]
fn a_guarded_command_is_the_bare_one_in_reply_effect_rights_and_replication() {
    let (mut bare, mut guarded) = (Twin::new(false), Twin::new(true));
    let mut random = Random::new(seed());
    bare.admin.call(["EVALSHA", &bare.fill, "0"]);
    let vocabulary = Vocabulary {
        key_of_group: &key_of_group,
        dump: bare.admin.run("DUMP l1").bytes(),
    };
    let commands = commands_with_keys(&mut bare.admin);
    let (mut cases, mut refused, mut never) = (0, Vec::new(), Vec::new());
    for command in &commands {
        for twin in [&mut bare, &mut guarded] {
            let rights = format!("ACL SETUSER refused +@all -{}", command.name);
            twin.admin.run(&rights);
        }
        if command.has_flag("noscript") {
            is_not_run(&mut guarded, command, &mut random, &vocabulary);
            refused.push(command.name.clone());
            continue;
        }
        let mut succeeded = false;
        for step in 0..steps(10) {
            // Some succeed seldom.
            let who = match step {
                0..3 => Who::Resp3,
                _ => random.weighted(EACH),
            };
            let words = command.words(&mut random, &vocabulary);
            succeeded |= is_the_same(&mut bare, &mut guarded, command, who, &words);
            cases += 1;
        }
        // Whatever a command needs, one of very many is right.
        let is_hopeless = NEVER_SUCCEED.iter().any(|(name, _)| *name == command.name);
        for _ in 0..3_000 {
            if succeeded || is_hopeless {
                break;
            }
            let words = command.words(&mut random, &vocabulary);
            succeeded = is_success(&bare.outcome(Who::Resp3, &words).reply);
            if succeeded {
                let reply = guarded.outcome(Who::Resp3, &words).reply;
                assert!(is_success(&reply), "{}: {reply:?}", spelled(&words));
            }
        }
        if !succeeded {
            never.push(&*command.name);
        }
    }
    say(&format!(
        "{cases} cases of {} commands; not run in guards: {refused:?}",
        commands.len()
    ));
    let expected: Vec<_> = NEVER_SUCCEED.iter().map(|(name, _)| *name).collect();
    never.retain(|name| !expected.contains(name));
    assert!(never.is_empty(), "never made to succeed: {never:?}");
    let known = |name: &&&str| !commands.iter().any(|command| command.name == **name);
    let stale: Vec<_> = ANY_ORDER
        .iter()
        .chain(SHAPE)
        .chain(KIND)
        .chain(&expected)
        .filter(known)
        .collect();
    say(&format!("not among this server's commands: {stale:?}"));
}

/// Lines for the commands of each built-in module of which the server tells no arguments.
const OF_MODULES: &[(&str, &[&str])] = &[
    (
        "vadd",
        &[
            "VADD v1 VALUES 3 1 2 3 b",
            "VADD v1 CAS VALUES 3 3 2 1 c",
            "VADD new VALUES 2 1 2 a",
            "VADD v1 VALUES 2 1 2 a",
        ],
    ),
    ("vcard", &["VCARD v1"]),
    ("vdim", &["VDIM v1"]),
    ("vemb", &["VEMB v1 a", "VEMB v1 none"]),
    ("vgetattr", &["VGETATTR v1 a"]),
    ("vinfo", &["VINFO none"]),
    ("vismember", &["VISMEMBER v1 a"]),
    ("vlinks", &["VLINKS none a"]),
    ("vrandmember", &["VRANDMEMBER v1"]),
    ("vrange", &["VRANGE v1 - + 10"]),
    ("vrem", &["VREM v1 a", "VREM v1 none"]),
    ("vsetattr", &["VSETATTR v1 a {}"]),
    (
        "vsim",
        &[
            "VSIM v1 ELE a",
            "VSIM v1 VALUES 3 1 1 1 WITHSCORES",
            "VSIM none ELE a",
        ],
    ),
];

/// Commands of modules may answer later, whatever they are called with: only a transaction keeps them from that.
#[test]
fn commands_of_other_modules_are_the_bare_ones_in_transactions_and_run_nowhere_else() {
    let (mut bare, mut guarded) = (Twin::new(false), Twin::new(true));
    let infos = bare.admin.run("COMMAND").items();
    let of_modules = infos.iter().map(Frame::items).filter(|info| {
        let flags: Vec<_> = info[2].items().iter().map(Frame::text).collect();
        flags.contains(&"module".to_owned())
    });
    let names: Vec<_> = of_modules
        .map(|info| info[0].text().to_lowercase())
        .collect();
    let is_ours = |name: &&String| {
        name.starts_with("tether.") || TABLE.iter().any(|spec| spec.name == **name)
    };
    let names: Vec<_> = names.iter().filter(|name| !is_ours(name)).collect();
    say(&format!("commands of built-in modules: {names:?}"));
    let has_vectors = names.iter().any(|name| *name == "vadd");
    (bare.has_vectors, guarded.has_vectors) = (has_vectors, has_vectors);
    (bare.is_filled, guarded.is_filled) = (false, false);
    for name in names {
        let lines = OF_MODULES.iter().find(|(known, _)| known == name);
        let (_, lines) = lines.unwrap_or_else(|| panic!("no line for {name}"));
        for line in *lines {
            let words: Vec<_> = line
                .split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect();
            let (one, other) = (
                bare.outcome(Who::InExec, &words),
                guarded.outcome(Who::InExec, &words),
            );
            let said = |frame: &Frame| Likeness::Exact.said(frame);
            assert_eq!(said(&other.reply), said(&one.reply), "{line}");
            assert_eq!(
                (&other.keys, &other.stream),
                (&one.keys, &one.stream),
                "{line}"
            );
            let before = guarded.outcome(Who::Resp3, &[b"PING".to_vec()]);
            let after = guarded.outcome(Who::Resp2, &words);
            let expected = format!(
                "ERR LOCK.GUARD runs '{name}' between MULTI and EXEC only: a command of another module may answer later"
            );
            assert_eq!(after.reply, Frame::Error(expected.into()), "{line}");
            assert_eq!(after.keys, before.keys, "{line}");
            assert!(after.stream.is_empty(), "{:?}", after.stream);
        }
    }
}

/// Compares all that comes of a command, and says whether it succeeded.
fn is_the_same(
    bare: &mut Twin,
    guarded: &mut Twin,
    command: &Command,
    who: Who,
    words: &[Vec<u8>],
) -> bool {
    let line = spelled(words);
    let (one, other) = (bare.outcome(who, words), guarded.outcome(who, words));
    let likeness = Likeness::of(command);
    let name = &&*command.name;
    if UNGUARDED_KEYS.contains(name) && likeness.said(&other.reply) == "NOPERM" {
        return false;
    }
    assert_eq!(
        likeness.said(&other.reply),
        likeness.said(&one.reply),
        "{who:?}: {line}: the guarded reply and the bare one"
    );
    assert_eq!(other.keys, one.keys, "{who:?}: {line}: the keys");
    if !WRITES_BY_CHANCE.contains(name) {
        assert_eq!(other.data, one.data, "{who:?}: {line}: the data");
    }
    assert_eq!(
        told(command, &other.stream),
        told(command, &one.stream),
        "{who:?}: {line}: what replicas are told"
    );
    is_success(&one.reply)
}

fn spelled(words: &[Vec<u8>]) -> String {
    let words = words.iter().map(|word| word.escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ")
}

fn is_success(reply: &Frame) -> bool {
    !matches!(reply, Frame::Error(_))
}

/// What scripts may not call is refused, and nothing comes of it.
fn is_not_run(
    twin: &mut Twin,
    command: &Command,
    random: &mut Random,
    vocabulary: &Vocabulary<'_>,
) {
    let words = command.words(random, vocabulary);
    let before = twin.outcome(Who::Resp3, &[b"PING".to_vec()]);
    let after = twin.outcome(Who::Resp3, &words);
    let expected = format!("ERR LOCK.GUARD does not run '{}'", command.name);
    assert_eq!(
        after.reply,
        Frame::Error(expected.into()),
        "{}",
        spelled(&words)
    );
    assert_eq!((after.keys, after.data), (before.keys, before.data));
    assert!(after.stream.is_empty(), "{:?}", after.stream);
}
