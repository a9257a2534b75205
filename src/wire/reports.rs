//! Reports: what LOCK.INFO, LOCK.LIST, LOCK.MINE, LOCK.LOG, LOCK.WHY, LOCK.CHECK, LOCK.SERVER and SESSION.LIST reply.

use crate::engine::{
    ClientId, Holder, KeyBuf, KeyInspection, KeyLine, ModeKind, Moment, Origin, Own, OwnState,
    SessionLine, Stale, Step, Token,
};
use crate::policy::losses::Entry;
use crate::wire::host::Host;

/// LOCK.INFO.
pub fn info(host: &mut impl Host, inspection: Option<&KeyInspection>) {
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
        bytes(host, b"label", &waiter.label);
        text(host, b"mode", waiter.mode.kind().display_name());
        number(host, b"waiting-ms", waiter.waiting_ms);
    }
}

/// Number of pairs that [`reply_holder`] sends.
const HOLDER_PAIRS: usize = 12;

/// Sends a holder's pairs of a map. The label is null if the caller may not read the key.
fn reply_holder(host: &mut impl Host, connection: &Connection, holder: &Holder, may_read: bool) {
    connection.reply(host);
    text(host, b"user", &connection.user);
    host.bulk(b"label");
    match may_read {
        true => host.bulk(&holder.label),
        false => host.null(),
    }
    number(host, b"token", holder.token.0);
    number(host, b"permits", holder.mode.permits().into());
    number(host, b"depth", holder.depth.into());
    number(host, b"held-ms", holder.held_ms);
    optional(host, b"lease-ms", holder.lease_ms);
    host.bulk(b"session");
    match holder.session {
        Some(true) => host.bulk(b"attached"),
        Some(false) => host.bulk(b"detached"),
        None => host.null(),
    }
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
pub fn list(host: &mut impl Host, cursor: u64, lines: &[KeyLine]) {
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
pub fn mine(host: &mut impl Host, next: u64, entries: &[Own]) {
    host.array(2);
    host.bulk(next.to_string().as_bytes());
    host.array(entries.len());
    for own in entries {
        reply_own(host, own);
    }
}

fn reply_own(host: &mut impl Host, own: &Own) {
    let (kind, mode) = match own.mode.kind() {
        ModeKind::Temporary => ("temporary", ModeKind::Exclusive),
        mode => ("lock", mode),
    };
    let may_read = host.may_see(own.key.as_key(), &[b"lock.mine"]);
    host.map(11);
    number(host, b"db", own.key.db.0.into());
    host.bulk(b"key");
    match may_read {
        true => host.bulk(&own.key.name),
        false => host.null(),
    }
    text(host, b"kind", kind);
    bytes(host, b"label", &own.label);
    text(host, b"mode", mode.display_name());
    number(host, b"permits", own.mode.permits().into());
    number(host, b"depth", own.depth.into());
    optional(host, b"token", own.token.map(|token| token.0));
    let state = match own.state {
        OwnState::Held => "held",
        OwnState::Pending => "pending",
        OwnState::Waiting => "waiting",
    };
    text(host, b"state", state);
    reply_acks(host, own.acks);
    optional(host, b"lease-ms", own.lease_ms);
}

/// LOCK.LOG, at this time on the engine's clock and, in milliseconds since 1970, on the wall's.
pub fn log(host: &mut impl Host, entries: &[Entry], now: Moment, wall_ms: u64) {
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

/// LOCK.WHY. `idle_ms` is the time since a client's last command; `None` for a detached session.
pub fn why(
    host: &mut impl Host,
    steps: &[Step],
    idle_ms: impl Fn(ClientId) -> Option<i64>,
    causes: &[Cause],
) {
    let may_read = |host: &_, key: &KeyBuf| Host::may_see(host, key.as_key(), &[b"lock.why"]);
    host.array(steps.len() + causes.len());
    for step in steps {
        let may_read_it = may_read(host, &step.key);
        let connection = Connection::of(host, step.holder.client);
        host.map(HOLDER_PAIRS + 5);
        text(host, b"cause", "holder");
        number(host, b"db", step.key.db.0.into());
        name_or_null(host, b"key", Some(&step.key).filter(|_| may_read_it));
        reply_holder(host, &connection, &step.holder, may_read_it);
        host.bulk(b"idle-ms");
        match idle_ms(step.holder.client) {
            Some(ms) => host.integer(ms),
            None => host.null(),
        }
        let waits_for = step.waits_for.as_ref();
        let waits_for = waits_for.filter(|key| may_read(host, key));
        name_or_null(host, b"waits-for", waits_for);
    }
    for cause in causes {
        reply_cause(host, cause);
    }
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

fn name_or_null(host: &mut impl Host, name: &[u8], key: Option<&KeyBuf>) {
    host.bulk(name);
    match key {
        Some(key) => host.bulk(&key.name),
        None => host.null(),
    }
}

/// LOCK.SERVER: what one server says of itself to one connection.
pub struct ServerReport<'a> {
    pub version: &'a str,
    pub commit: &'a str,
    pub run_id: &'a str,
    pub is_replica: bool,
    pub can_push: bool,
    pub peer_timeout_ms: u64,
    pub quarantine_ms: u64,
    pub quarantine_left_ms: u64,
}

impl ServerReport<'_> {
    pub fn send(&self, host: &mut impl Host) {
        host.map(8);
        text(host, b"version", self.version);
        text(host, b"commit", self.commit);
        text(host, b"run-id", self.run_id);
        let role = match self.is_replica {
            true => "replica",
            false => "master",
        };
        text(host, b"role", role);
        number(host, b"pushes", self.can_push.into());
        number(host, b"peer-timeout-ms", self.peer_timeout_ms);
        number(host, b"quarantine-ms", self.quarantine_ms);
        number(host, b"quarantine-left-ms", self.quarantine_left_ms);
    }
}

/// SESSION.LIST.
pub fn sessions(host: &mut impl Host, lines: &[SessionLine]) {
    host.array(lines.len());
    for line in lines {
        let is_attached = line.client.0 > 0;
        let connection = Connection::of(host, line.client);
        let last_user = line.origin.as_ref().map(|origin| &*origin.user);
        let of_attached = |text| is_attached.then_some(text);
        host.map(8);
        number(host, b"id", line.id.0);
        number(host, b"client", line.client.0);
        or_null(host, b"user", of_attached(&*connection.user).or(last_user));
        or_null(host, b"addr", of_attached(&*connection.addr));
        number(host, b"grace-ms", line.grace_ms);
        number(host, b"keys", line.keys);
        number(host, b"holds", line.holds);
        number(host, b"waits", line.waits);
    }
}

fn or_null(host: &mut impl Host, name: &[u8], value: Option<&str>) {
    host.bulk(name);
    match value {
        Some(value) => host.bulk(value.as_bytes()),
        None => host.null(),
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

fn optional(host: &mut impl Host, name: &[u8], value: Option<u64>) {
    host.bulk(name);
    match value {
        Some(value) => host.integer(value as i64),
        None => host.null(),
    }
}
