//! `LOCK.INFO`, `LOCK.LIST`, `LOCK.MINE`, `LOCK.LOG` and `LOCK.SERVER`: the engine's state, joined with the server's data on clients.

use crate::command::{List, Log, Request, matches};
use crate::engine::{ClientId, Engine, Key, KeyBuf, Page, Walk};
use crate::policy::losses::{Entry, LossLog, key_in_log};
use crate::policy::release;
use crate::shell::bridge::losses;
use crate::shell::server::{keepalive, rights};
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, Text};
use crate::shell::sys::{clock, secret, shim};
use crate::wire::reports::{self, ServerReport};

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
    reports::info(&mut { ctx }, inspection.as_ref());
}

/// Answers `LOCK.LIST`.
fn list(ctx: Ctx<'_>, list: &List<'_>) {
    let pattern = list.pattern;
    let walk = Walk {
        cursor: list.cursor,
        db: ctx.db(),
        client: list.client.map(ClientId),
        is_meant: &|name| pattern.is_none_or(|pattern| matches(pattern, name)),
        pattern_len: pattern.map_or(0, <[u8]>::len),
        count: list.count,
    };
    let page = shell()
        .engine
        .with(|engine| engine.list(clock::now(), &walk));
    let Page { cursor, mut lines } = page;
    lines.retain(|line| ctx.may_read(Text::new(&line.key.name).as_str()));
    reports::list(&mut { ctx }, cursor, &lines);
}

/// Answers `LOCK.MINE`.
fn mine(ctx: Ctx<'_>, caller: ClientId, cursor: u64, count: u64) {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let (next, entries) = shell()
        .engine
        .with(|engine| engine.mine(clock::now(), caller, cursor, most));
    reports::mine(&mut { ctx }, next, &entries);
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
    reports::log(&mut { ctx }, &entries, now, wall);
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
    let can_push = shim::can_push() && (settings.resp2_push || ctx.state().resp3());
    let left = |engine: &Engine| engine.quarantine_left_ms(clock::now());
    let report = ServerReport {
        version: release::VERSION,
        commit: release::COMMIT,
        run_id: &run_id,
        is_replica: shell.is_replica(),
        can_push,
        peer_timeout_ms: keepalive::detect_dead_peer(ctx, client),
        quarantine_ms: settings.quarantine_ms.into(),
        quarantine_left_ms: shell.engine.with(left),
    };
    report.send(&mut { ctx });
}
