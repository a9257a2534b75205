//! Reports: the commands that only read the engine and the log, and reply with what is there.
//!
//! When you add one: an arm of [`answer`], and the function that looks and replies.

use crate::command::{List, Log, Request, matches};
use crate::engine::{
    ClientId, Db, Engine, Holder, Key, KeyBuf, KeyInspection, KeyLine, ModeKind, Moment, Origin,
    Own, Page, SessionLine, Stale, Step, Token, Walk,
};
use crate::policy::losses::{Entry, LossLog, key_in_log};
use crate::policy::release;
use crate::wire::host::Host;

/// The server, as far as reports to one caller go.
pub trait Reporter: Host {
    fn caller(&self) -> ClientId;
    fn caller_db(&self) -> Db;
    /// On the engine's clock.
    fn now(&self) -> Moment;
    /// Milliseconds since 1970.
    fn wall_ms(&self) -> u64;
    fn engine<T>(&self, look: impl FnOnce(&Engine) -> T) -> T;
    fn losses<T>(&self, look: impl FnOnce(&LossLog) -> T) -> T;
    /// Whether the caller may see keys of whatever name.
    fn may_see_all(&self) -> bool;
    /// Whether a key of the caller's database exists.
    fn is_present(&self, key: Key<'_>) -> bool;
    /// Why the server writes nothing now.
    fn refuses(&self) -> Vec<Cause>;
    /// The time since a client's last command; none for a detached session.
    fn idle_ms(&self, client: ClientId) -> Option<i64>;
    fn about(&self) -> About;
}

/// What one server says of itself to one connection.
pub struct About {
    pub run_id: String,
    pub can_push: bool,
    pub peer_timeout_ms: u64,
    pub quarantine_ms: u64,
}

/// Answers a command that only reports.
pub fn answer(host: &mut impl Reporter, request: &Request<'_, '_>) {
    match *request {
        Request::Info { key, count } => info(host, key, count),
        Request::List(list) => self::list(host, &list),
        Request::Mine { cursor, count } => mine(host, cursor, count),
        Request::Log(log) => self::log(host, &log),
        Request::Why { key } => why(host, key),
        Request::Server => server(host),
        Request::Sessions => sessions(host),
        ref other => unreachable!("{other:?} was answered before"),
    }
}

fn most(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// LOCK.INFO.
fn info(host: &mut impl Reporter, name: &[u8], count: u64) {
    let (db, now) = (host.caller_db(), host.now());
    let inspection = host.engine(|engine| engine.inspect(now, Key { db, name }, most(count)));
    reply_info(host, inspection.as_ref());
}

fn reply_info(host: &mut impl Host, inspection: Option<&KeyInspection>) {
    let Some(inspection) = inspection else {
        return host.null();
    };
    host.map(6);
    host.bulk(b"kind");
    host.bulk(
        inspection
            .kind
            .map_or("", ModeKind::display_name)
            .as_bytes(),
    );
    optional(host, b"total", inspection.total.map(u64::from));
    number(host, b"holder-count", inspection.holder_count as u64);
    host.bulk(b"holders");
    host.array(inspection.holders.len());
    for holder in &inspection.holders {
        let connection = Connection::of(host, holder.client);
        host.map(HOLDER_PAIRS);
        reply_holder(host, &connection, holder, true);
    }
    number(host, b"waiter-count", inspection.waiter_count as u64);
    host.bulk(b"waiters");
    host.array(inspection.waiters.len());
    for waiter in &inspection.waiters {
        host.map(6);
        Connection::of(host, waiter.client).reply(host);
        bytes(host, b"label", &waiter.terms.label);
        text(host, b"mode", waiter.terms.mode.kind().display_name());
        number(host, b"waiting-ms", waiter.waiting_ms);
    }
}

/// Number of pairs that [`reply_holder`] sends.
const HOLDER_PAIRS: usize = 12;

/// Sends a holder's pairs of a map. The label is null if the caller may not read the key.
fn reply_holder(host: &mut impl Host, connection: &Connection, holder: &Holder, may_read: bool) {
    connection.reply(host);
    text(host, b"user", &connection.user);
    let label = may_read.then_some(&*holder.terms.label);
    or_null(host, b"label", label);
    number(host, b"token", holder.token.0);
    number(host, b"permits", holder.terms.mode.permits().into());
    number(host, b"depth", holder.depth.into());
    number(host, b"held-ms", holder.held_ms);
    optional(host, b"lease-ms", holder.terms.lease_ms);
    let session = holder.session.map(|is_attached| match is_attached {
        true => "attached",
        false => "detached",
    });
    or_null(host, b"session", session.map(str::as_bytes));
    reply_acks(host, holder.acks);
}

fn reply_acks(host: &mut impl Host, acks: Option<(u32, u32)>) {
    host.bulk(b"acks");
    match acks {
        Some((got, wanted)) => {
            host.array(2);
            host.integer(got.into());
            host.integer(wanted.into());
        }
        None => host.null(),
    }
}

/// LOCK.LIST: a page.
fn list(host: &mut impl Reporter, list: &List<'_>) {
    let (now, pattern) = (host.now(), list.pattern);
    let walk = Walk {
        cursor: list.cursor,
        db: host.caller_db(),
        client: list.client.map(ClientId),
        is_meant: &|name| pattern.is_none_or(|pattern| matches(pattern, name)),
        pattern_len: pattern.map_or(0, <[u8]>::len),
        count: list.count,
    };
    let Page { cursor, mut lines } = host.engine(|engine| engine.list(now, &walk));
    lines.retain(|line| host.may_see(line.key.as_key(), &[b"lock.list"]));
    reply_list(host, cursor, &lines);
}

fn reply_list(host: &mut impl Host, cursor: u64, lines: &[KeyLine]) {
    host.array(2);
    host.bulk(cursor.to_string().as_bytes());
    host.array(lines.len());
    for line in lines {
        host.map(4);
        bytes(host, b"key", &line.key.name);
        host.bulk(b"holders");
        host.array(line.holders.len());
        for holder in &line.holders {
            host.integer(holder.0 as i64);
        }
        number(host, b"waiters", line.waiters as u64);
        optional(host, b"oldest-hold-ms", line.oldest_ms);
    }
}

/// LOCK.MINE: a page.
fn mine(host: &mut impl Reporter, cursor: u64, count: u64) {
    let (caller, now) = (host.caller(), host.now());
    let (next, entries) = host.engine(|engine| engine.mine(now, caller, cursor, most(count)));
    host.array(2);
    host.bulk(next.to_string().as_bytes());
    host.array(entries.len());
    for own in &entries {
        reply_own(host, own);
    }
}

fn reply_own(host: &mut impl Host, own: &Own) {
    let (kind, mode) = match own.terms.mode.kind() {
        ModeKind::Temporary => ("temporary", ModeKind::Exclusive),
        mode => ("lock", mode),
    };
    let may_read = host.may_see(own.key.as_key(), &[b"lock.mine"]);
    host.map(11);
    number(host, b"db", own.key.db.0.into());
    or_null(host, b"key", may_read.then_some(&*own.key.name));
    text(host, b"kind", kind);
    bytes(host, b"label", &own.terms.label);
    text(host, b"mode", mode.display_name());
    number(host, b"permits", own.terms.mode.permits().into());
    number(host, b"depth", own.depth.into());
    optional(host, b"token", own.token.map(|token| token.0));
    let state = match (own.token, own.acks) {
        (Some(_), _) => "held",
        (None, Some(_)) => "pending",
        (None, None) => "waiting",
    };
    text(host, b"state", state);
    reply_acks(host, own.acks);
    optional(host, b"lease-ms", own.terms.lease_ms);
}

/// LOCK.LOG.
fn log(host: &mut impl Reporter, log: &Log<'_>) {
    let db = host.caller_db();
    let key = log.key.map(|name| key_in_log(Key { db, name }));
    let is_meant = |entry: &&Entry| {
        entry.id > log.since && key.as_ref().is_none_or(|key| entry.lost.key == *key)
    };
    // ACL checks call the server, so the log must not be borrowed meanwhile.
    let mut entries: Vec<Entry> = host.losses(|log| log.iter().filter(is_meant).cloned().collect());
    entries.retain(|entry| may_see_loss(host, &entry.lost.key, entry.is_cut));
    entries.truncate(most(log.count));
    let (now, wall_ms) = (host.now(), host.wall_ms());
    reply_log(host, &entries, now, wall_ms);
}

/// Whether the caller may see a logged key. The rest of a truncated name is unknown.
pub fn may_see_loss(host: &impl Reporter, key: &KeyBuf, is_cut: bool) -> bool {
    host.may_see(key.as_key(), &[b"lock.log"]) && (!is_cut || host.may_see_all())
}

fn reply_log(host: &mut impl Host, entries: &[Entry], now: Moment, wall_ms: u64) {
    host.array(entries.len());
    for entry in entries {
        let lost = &entry.lost;
        let origin = lost.origin.as_deref();
        let of = |field: fn(&Origin) -> &str| origin.map_or("", field);
        host.map(16);
        number(host, b"id", entry.id);
        let ago_ms = now.ms_since(entry.at);
        number(host, b"time-ms", wall_ms.saturating_sub(ago_ms));
        number(host, b"db", lost.key.db.0.into());
        bytes(host, b"key", &lost.key.name);
        number(host, b"token", lost.token.0);
        bytes(host, b"label", &lost.label);
        number(host, b"client", lost.client.0);
        text(host, b"addr", of(|origin| &origin.addr));
        text(host, b"name", of(|origin| &origin.name));
        text(host, b"user", of(|origin| &origin.user));
        text(host, b"mode", lost.mode.kind().display_name());
        number(host, b"held-ms", lost.since.held_ms(entry.at));
        text(host, b"reason", lost.why.name());
        number(host, b"waiters", lost.waiters as u64);
        optional(host, b"next-token", entry.next.map(|token| token.0));
        number(host, b"count", lost.count);
    }
}

/// Why LOCK.CHECK and LOCK.GUARD refuse a token.
pub fn stale(token: u64, why: Stale) -> String {
    let why = match why {
        Stale::Replica => "this server is a replica".to_owned(),
        Stale::Pending => "it waits for acknowledgements of replicas".to_owned(),
        Stale::Nobody => "nobody holds the key".to_owned(),
        Stale::HeldWith(Token(other)) => format!("the key is held with token {other}"),
    };
    format!("STALE token {token} is not current: {why}")
}

/// Causes other than holders for which a key is not granted.
pub enum Cause {
    /// The key exists, but is not held.
    Unheld,
    Quarantine {
        left_ms: u64,
    },
    Pause,
    Replicas,
    Memory,
    Misconf,
    /// A replica grants nothing, and does not know what its master's clients hold.
    Replica,
}

/// LOCK.WHY.
fn why(host: &mut impl Reporter, name: &[u8]) {
    let (db, now) = (host.caller_db(), host.now());
    let key = Key { db, name };
    let (steps, left_ms, is_replica) = host.engine(|engine| {
        let left_ms = engine.quarantine_left_ms(now);
        (engine.why(now, key), left_ms, engine.is_replica())
    });
    let mut causes = Vec::new();
    if !is_replica && steps.is_empty() && host.is_present(key) {
        causes.push(Cause::Unheld);
    }
    if left_ms > 0 {
        causes.push(Cause::Quarantine { left_ms });
    }
    causes.extend(host.refuses());
    host.array(steps.len() + causes.len());
    for step in &steps {
        reply_step(host, step);
    }
    for cause in &causes {
        reply_cause(host, cause);
    }
}

fn reply_step(host: &mut impl Reporter, step: &Step) {
    let may_read = |host: &_, key: &KeyBuf| Host::may_see(host, key.as_key(), &[b"lock.why"]);
    let may_read_it = may_read(host, &step.key);
    let connection = Connection::of(host, step.holder.client);
    host.map(HOLDER_PAIRS + 5);
    text(host, b"cause", "holder");
    number(host, b"db", step.key.db.0.into());
    or_null(host, b"key", may_read_it.then_some(&*step.key.name));
    reply_holder(host, &connection, &step.holder, may_read_it);
    host.bulk(b"idle-ms");
    match host.idle_ms(step.holder.client) {
        Some(ms) => host.integer(ms),
        None => host.null(),
    }
    let waits_for = step.waits_for.as_ref();
    let waits_for = waits_for.filter(|key| may_read(host, key));
    or_null(host, b"waits-for", waits_for.map(|key| &*key.name));
}

fn reply_cause(host: &mut impl Host, cause: &Cause) {
    let word = match cause {
        Cause::Unheld => "unheld",
        Cause::Quarantine { .. } => "quarantine",
        Cause::Pause => "pause",
        Cause::Replicas => "replicas",
        Cause::Memory => "memory",
        Cause::Misconf => "misconf",
        Cause::Replica => "replica",
    };
    let left_ms = match cause {
        Cause::Quarantine { left_ms } => Some(*left_ms),
        _ => None,
    };
    host.map(1 + usize::from(left_ms.is_some()));
    text(host, b"cause", word);
    if let Some(left_ms) = left_ms {
        number(host, b"left-ms", left_ms);
    }
}

/// LOCK.SERVER.
fn server(host: &mut impl Reporter) {
    let about = host.about();
    let now = host.now();
    let (is_replica, left_ms) =
        host.engine(|engine| (engine.is_replica(), engine.quarantine_left_ms(now)));
    host.map(8);
    text(host, b"version", release::VERSION);
    text(host, b"commit", release::COMMIT);
    text(host, b"run-id", &about.run_id);
    let role = match is_replica {
        true => "replica",
        false => "master",
    };
    text(host, b"role", role);
    number(host, b"pushes", about.can_push.into());
    number(host, b"peer-timeout-ms", about.peer_timeout_ms);
    number(host, b"quarantine-ms", about.quarantine_ms);
    number(host, b"quarantine-left-ms", left_ms);
}

/// SESSION.LIST.
fn sessions(host: &mut impl Reporter) {
    let now = host.now();
    let lines = host.engine(|engine| engine.sessions(now));
    reply_sessions(host, &lines);
}

fn reply_sessions(host: &mut impl Host, lines: &[SessionLine]) {
    host.array(lines.len());
    for line in lines {
        let is_attached = line.client.0 > 0;
        let connection = Connection::of(host, line.client);
        let last_user = line.origin.as_ref().map(|origin| &*origin.user);
        let of_attached = |text| is_attached.then_some(text);
        host.map(8);
        number(host, b"id", line.id.0);
        number(host, b"client", line.client.0);
        let user = of_attached(&*connection.user).or(last_user);
        or_null(host, b"user", user.map(str::as_bytes));
        let addr = of_attached(&*connection.addr);
        or_null(host, b"addr", addr.map(str::as_bytes));
        number(host, b"grace-ms", line.grace_ms);
        number(host, b"keys", line.keys);
        number(host, b"holds", line.holds);
        number(host, b"waits", line.waits);
    }
}

/// A client, and what the server says of its connection: nothing of a detached session's.
struct Connection {
    id: ClientId,
    addr: String,
    name: String,
    user: String,
}

impl Connection {
    fn of(host: &impl Host, id: ClientId) -> Self {
        let origin = (id.0 > 0).then(|| host.origin(id)).flatten();
        let (addr, name, user) = origin.unwrap_or_default();
        Connection {
            id,
            addr,
            name,
            user,
        }
    }

    /// Sends three pairs of a map.
    fn reply(&self, host: &mut impl Host) {
        number(host, b"client", self.id.0);
        text(host, b"addr", &self.addr);
        text(host, b"name", &self.name);
    }
}

fn text(host: &mut impl Host, name: &[u8], value: &str) {
    bytes(host, name, value.as_bytes());
}

fn bytes(host: &mut impl Host, name: &[u8], value: &[u8]) {
    host.bulk(name);
    host.bulk(value);
}

fn number(host: &mut impl Host, name: &[u8], value: u64) {
    host.bulk(name);
    host.integer(value as i64);
}

fn or_null(host: &mut impl Host, name: &[u8], value: Option<&[u8]>) {
    host.bulk(name);
    match value {
        Some(value) => host.bulk(value),
        None => host.null(),
    }
}

fn optional(host: &mut impl Host, name: &[u8], value: Option<u64>) {
    host.bulk(name);
    match value {
        Some(value) => host.integer(value as i64),
        None => host.null(),
    }
}
