//! `LOCK.INFO`, `LOCK.LIST`, `LOCK.MINE`, `LOCK.LOG` and `LOCK.SERVER`: the engine's state, joined with the server's data on clients.

use crate::command::{List, Log, Request, matches};
use crate::engine::{
    ClientId, Engine, Holder, Key, KeyBuf, ModeKind, Origin, Own, OwnState, Page, Walk,
};
use crate::policy::losses::{Entry, LossLog, key_in_log};
use crate::policy::release;
use crate::shell::bridge::losses;
use crate::shell::server::{keepalive, rights};
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, Text};
use crate::shell::sys::{clock, secret, shim};

/// Answers a command that only reports.
pub fn answer(ctx: Ctx<'_>, caller: ClientId, report: &Request<'_, '_>) {
    let db = ctx.db();
    match *report {
        Request::Info { key: name, count } => info(ctx, Key { db, name }, count),
        Request::List(list) => self::list(ctx, &list),
        Request::Mine { cursor, count } => mine(ctx, caller, cursor, count),
        Request::Log(log) => self::log(ctx, &log),
        Request::ResetLog => reset_log(ctx),
        Request::Server => server(ctx, caller),
        ref other => unreachable!("{other:?} was answered before"),
    }
}

/// Answers `LOCK.INFO`.
fn info(ctx: Ctx<'_>, key: Key<'_>, count: u64) {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let inspection = shell()
        .engine
        .with(|engine| engine.inspect(clock::now(), key, most));
    let Some(inspection) = inspection else {
        return ctx.reply_null();
    };
    ctx.reply_map(6);
    ctx.reply_bulk(b"kind");
    ctx.reply_bulk(
        inspection
            .kind
            .map_or("", ModeKind::display_name)
            .as_bytes(),
    );
    optional(ctx, b"total", inspection.total.map(u64::from));
    number(ctx, b"holder-count", inspection.holder_count as u64);
    ctx.reply_bulk(b"holders");
    ctx.reply_array(inspection.holders.len());
    for holder in &inspection.holders {
        let connection = Connection::of(ctx, holder.client);
        ctx.reply_map(HOLDER_PAIRS);
        reply_holder(ctx, &connection, holder, true);
    }
    number(ctx, b"waiter-count", inspection.waiter_count as u64);
    ctx.reply_bulk(b"waiters");
    ctx.reply_array(inspection.waiters.len());
    for waiter in &inspection.waiters {
        ctx.reply_map(6);
        Connection::of(ctx, waiter.client).reply(ctx);
        bytes(ctx, b"label", &waiter.label);
        text(ctx, b"mode", waiter.mode.kind().display_name());
        number(ctx, b"waiting-ms", waiter.waiting_ms);
    }
}

/// Number of pairs that [`reply_holder`] sends.
pub const HOLDER_PAIRS: usize = 12;

/// Sends a holder's pairs of a map. The label is null if the caller may not read the key.
pub fn reply_holder(ctx: Ctx<'_>, connection: &Connection, holder: &Holder, may_read: bool) {
    connection.reply(ctx);
    text(ctx, b"user", &connection.user);
    ctx.reply_bulk(b"label");
    match may_read {
        true => ctx.reply_bulk(&holder.label),
        false => ctx.reply_null(),
    }
    number(ctx, b"token", holder.token.0);
    number(ctx, b"permits", holder.mode.permits().into());
    number(ctx, b"depth", holder.depth.into());
    number(ctx, b"held-ms", holder.held_ms);
    optional(ctx, b"lease-ms", holder.lease_ms);
    ctx.reply_bulk(b"session");
    match holder.session {
        Some(true) => ctx.reply_bulk(b"attached"),
        Some(false) => ctx.reply_bulk(b"detached"),
        None => ctx.reply_null(),
    }
    reply_acks(ctx, holder.acks);
}

fn reply_acks(ctx: Ctx<'_>, acks: Option<(u32, u32)>) {
    ctx.reply_bulk(b"acks");
    match acks {
        Some((got, wanted)) => {
            ctx.reply_array(2);
            ctx.reply_integer(got.into());
            ctx.reply_integer(wanted.into());
        }
        None => ctx.reply_null(),
    }
}

/// Answers `LOCK.LIST`.
fn list(ctx: Ctx<'_>, list: &List<'_>) {
    let pattern = list.pattern;
    let walk = Walk {
        cursor: list.cursor,
        db: ctx.db(),
        client: list.client.map(ClientId),
        is_meant: &|name| pattern.is_none_or(|pattern| matches(pattern, name)),
        count: list.count,
    };
    let page = shell()
        .engine
        .with(|engine| engine.list(clock::now(), &walk));
    let Page { cursor, mut lines } = page;
    lines.retain(|line| ctx.may_read(Text::new(&line.key.name).as_str()));
    ctx.reply_array(2);
    ctx.reply_bulk(cursor.to_string().as_bytes());
    ctx.reply_array(lines.len());
    for line in lines {
        ctx.reply_map(4);
        bytes(ctx, b"key", &line.key.name);
        ctx.reply_bulk(b"holders");
        ctx.reply_array(line.holders.len());
        for holder in &line.holders {
            ctx.reply_integer(holder.0 as i64);
        }
        number(ctx, b"waiters", line.waiters as u64);
        optional(ctx, b"oldest-hold-ms", line.oldest_ms);
    }
}

/// Answers `LOCK.MINE`.
fn mine(ctx: Ctx<'_>, caller: ClientId, cursor: u64, count: u64) {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let (next, entries) = shell()
        .engine
        .with(|engine| engine.mine(clock::now(), caller, cursor, most));
    ctx.reply_array(2);
    ctx.reply_bulk(next.to_string().as_bytes());
    ctx.reply_array(entries.len());
    for own in &entries {
        reply_own(ctx, own);
    }
}

fn reply_own(ctx: Ctx<'_>, own: &Own) {
    let (kind, mode) = match own.mode.kind() {
        ModeKind::Temporary => ("temporary", ModeKind::Exclusive),
        mode => ("lock", mode),
    };
    let may_read = rights::may_see(ctx, own.key.as_key(), &[b"lock.mine"]);
    ctx.reply_map(11);
    number(ctx, b"db", own.key.db.0.into());
    ctx.reply_bulk(b"key");
    match may_read {
        true => ctx.reply_bulk(&own.key.name),
        false => ctx.reply_null(),
    }
    text(ctx, b"kind", kind);
    bytes(ctx, b"label", &own.label);
    text(ctx, b"mode", mode.display_name());
    number(ctx, b"permits", own.mode.permits().into());
    number(ctx, b"depth", own.depth.into());
    optional(ctx, b"token", own.token.map(|token| token.0));
    let state = match own.state {
        OwnState::Held => "held",
        OwnState::Pending => "pending",
        OwnState::Waiting => "waiting",
    };
    text(ctx, b"state", state);
    reply_acks(ctx, own.acks);
    optional(ctx, b"lease-ms", own.lease_ms);
}

/// Answers `LOCK.LOG`.
fn log(ctx: Ctx<'_>, log: &Log<'_>) {
    let db = ctx.db();
    let key = log.key.map(|name| key_in_log(Key { db, name }));
    let is_meant = |entry: &&Entry| {
        entry.id > log.since && key.as_ref().is_none_or(|key| entry.lost.key == *key)
    };
    // ACL checks call the server, so the log must not be borrowed meanwhile.
    let mut entries: Vec<Entry> = shell()
        .losses
        .with(|log| log.iter().filter(is_meant).cloned().collect());
    entries.retain(|entry| may_see(ctx, &entry.lost.key, entry.is_cut));
    entries.truncate(usize::try_from(log.count).unwrap_or(usize::MAX));
    let (now, wall) = (clock::now(), clock::since_1970().as_millis() as u64);
    ctx.reply_array(entries.len());
    for entry in &entries {
        let lost = &entry.lost;
        let origin = lost.origin.as_deref();
        let of = |field: fn(&Origin) -> &str| origin.map_or("", field);
        ctx.reply_map(16);
        number(ctx, b"id", entry.id);
        number(ctx, b"time-ms", wall.saturating_sub(now.ms_since(entry.at)));
        number(ctx, b"db", lost.key.db.0.into());
        bytes(ctx, b"key", &lost.key.name);
        number(ctx, b"token", lost.token.0);
        bytes(ctx, b"label", &lost.label);
        number(ctx, b"client", lost.client.0);
        text(ctx, b"addr", of(|origin| &origin.addr));
        text(ctx, b"name", of(|origin| &origin.name));
        text(ctx, b"user", of(|origin| &origin.user));
        text(ctx, b"mode", lost.mode.kind().display_name());
        number(ctx, b"held-ms", lost.since.held_ms(entry.at));
        text(ctx, b"reason", lost.why.name());
        number(ctx, b"waiters", lost.waiters as u64);
        optional(ctx, b"next-token", entry.next.map(|token| token.0));
        number(ctx, b"count", lost.count);
    }
}

/// Whether the caller may see a logged key. The rest of a truncated name is unknown, so the caller sees it only if it may
/// read every key: checked with a random name.
fn may_see(ctx: Ctx<'_>, key: &KeyBuf, is_cut: bool) -> bool {
    let any = || ctx.may_read(Text::new(&secret::new()).as_str());
    rights::may_see(ctx, key.as_key(), &[b"lock.log"]) && (!is_cut || any())
}

/// Answers `LOCK.LOG RESET`. A caller cannot remove entries that it may not read.
fn reset_log(ctx: Ctx<'_>) {
    let key = |entry: &Entry| (entry.lost.key.clone(), entry.is_cut);
    let keys: Vec<_> = shell().losses.with(|log| log.iter().map(key).collect());
    if !keys.iter().all(|(key, is_cut)| may_see(ctx, key, *is_cut)) {
        return ctx.reply_error("NOPERM the log has entries of keys that this user may not read");
    }
    losses::change(LossLog::clear);
    ctx.reply_ok();
}

/// Answers `LOCK.SERVER`.
fn server(ctx: Ctx<'_>, client: ClientId) {
    let shell = shell();
    let settings = shell.settings.get();
    let run_id = ctx.server_info(c"server", c"run_id").unwrap_or_default();
    let role = match shell.is_replica() {
        true => "replica",
        false => "master",
    };
    let can_push = shim::can_push() && (settings.resp2_push || ctx.state().resp3());
    let left = |engine: &Engine| engine.quarantine_left_ms(clock::now());
    let left_ms = shell.engine.with(left);
    ctx.reply_map(8);
    text(ctx, b"version", release::VERSION);
    text(ctx, b"commit", release::COMMIT);
    text(ctx, b"run-id", &run_id);
    text(ctx, b"role", role);
    number(ctx, b"pushes", can_push.into());
    number(
        ctx,
        b"peer-timeout-ms",
        keepalive::detect_dead_peer(ctx, client),
    );
    number(ctx, b"quarantine-ms", settings.quarantine_ms.into());
    number(ctx, b"quarantine-left-ms", left_ms);
}

/// A client, and what the server says of its connection: nothing of a detached session's.
pub struct Connection {
    id: ClientId,
    pub addr: String,
    name: String,
    pub user: String,
}

impl Connection {
    pub fn of(ctx: Ctx<'_>, id: ClientId) -> Self {
        let origin = (id.0 > 0).then(|| ctx.client_origin(id)).flatten();
        let (addr, name, user) = origin.unwrap_or_default();
        Connection {
            id,
            addr,
            name,
            user,
        }
    }

    /// Sends three pairs of a map.
    fn reply(&self, ctx: Ctx<'_>) {
        number(ctx, b"client", self.id.0);
        text(ctx, b"addr", &self.addr);
        text(ctx, b"name", &self.name);
    }
}

pub fn text(ctx: Ctx<'_>, name: &[u8], value: &str) {
    bytes(ctx, name, value.as_bytes());
}

fn bytes(ctx: Ctx<'_>, name: &[u8], value: &[u8]) {
    ctx.reply_bulk(name);
    ctx.reply_bulk(value);
}

pub fn number(ctx: Ctx<'_>, name: &[u8], value: u64) {
    ctx.reply_bulk(name);
    ctx.reply_integer(value as i64);
}

fn optional(ctx: Ctx<'_>, name: &[u8], value: Option<u64>) {
    ctx.reply_bulk(name);
    match value {
        Some(value) => ctx.reply_integer(value as i64),
        None => ctx.reply_null(),
    }
}
