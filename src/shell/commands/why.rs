//! `LOCK.WHY`: why a key is not granted.

use crate::engine::{ClientId, Engine, Key, KeyBuf};
use crate::policy::attribution::field;
use crate::shell::server::{lookup, replicas, rights};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, Str};
use crate::wire::reports::{Connection, HOLDER_PAIRS, number, reply_holder, text};

/// Causes other than holders.
enum Cause {
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

/// Answers `LOCK.WHY`.
pub fn answer(mut ctx: Ctx<'_>, string: Str<'_>, key: Key<'_>) {
    let state = |engine: &Engine| {
        let now = clock::now();
        (engine.why(now, key), engine.quarantine_left_ms(now))
    };
    let (steps, left_ms) = shell().engine.with(state);
    let mut causes = Vec::new();
    let is_replica = shell().is_replica();
    if !is_replica && steps.is_empty() && lookup::key_state(ctx, key.db, string).is_present() {
        causes.push(Cause::Unheld);
    }
    if left_ms > 0 {
        causes.push(Cause::Quarantine { left_ms });
    }
    if raw::must_not_write() {
        causes.push(Cause::Pause);
    }
    if is_replica {
        causes.push(Cause::Replica);
    } else {
        causes.extend(server_refuses(ctx));
    }
    ctx.reply_array(steps.len() + causes.len());
    for step in &steps {
        let may_read = may_read(ctx, &step.key);
        let connection = Connection::of(&ctx, step.holder.client);
        ctx.reply_map(HOLDER_PAIRS + 5);
        text(&mut ctx, b"cause", "holder");
        number(&mut ctx, b"db", step.key.db.0.into());
        name(ctx, b"key", Some(&step.key).filter(|_| may_read));
        reply_holder(&mut ctx, &connection, &step.holder, may_read);
        ctx.reply_bulk(b"idle-ms");
        match idle_ms(ctx, step.holder.client) {
            Some(ms) => ctx.reply_integer(ms),
            None => ctx.reply_null(),
        }
        let waits_for = step.waits_for.as_ref();
        let waits_for = waits_for.filter(|key| self::may_read(ctx, key));
        name(ctx, b"waits-for", waits_for);
    }
    for cause in &causes {
        reply_cause(ctx, cause);
    }
}

fn reply_cause(mut ctx: Ctx<'_>, cause: &Cause) {
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
    ctx.reply_map(1 + usize::from(left_ms.is_some()));
    text(&mut ctx, b"cause", word);
    if let Some(left_ms) = left_ms {
        number(&mut ctx, b"left-ms", left_ms);
    }
}

/// Why the server refuses all writes, if it does.
fn server_refuses(ctx: Ctx<'_>) -> impl Iterator<Item = Cause> {
    let is = |section, field, what: &str| {
        let state = ctx.server_info(section, field);
        state.is_some_and(|state| state == what)
    };
    let set = |name| ctx.server_setting(name).unwrap_or_default();
    let is_unsaved = is(c"persistence", c"rdb_last_bgsave_status", "err")
        && set(c"stop-writes-on-bgsave-error") == "yes"
        && !set(c"save").is_empty();
    let is_unwritten = is(c"persistence", c"aof_enabled", "1")
        && is(c"persistence", c"aof_last_write_status", "err");
    [
        (!replicas::has_enough(ctx)).then_some(Cause::Replicas),
        ctx.state().is_out_of_memory().then_some(Cause::Memory),
        (is_unsaved || is_unwritten).then_some(Cause::Misconf),
    ]
    .into_iter()
    .flatten()
}

fn may_read(ctx: Ctx<'_>, key: &KeyBuf) -> bool {
    rights::may_see(ctx, key.as_key(), &[b"lock.why"])
}

fn name(ctx: Ctx<'_>, name: &[u8], key: Option<&KeyBuf>) {
    ctx.reply_bulk(name);
    match key {
        Some(key) => ctx.reply_bulk(&key.name),
        None => ctx.reply_null(),
    }
}

/// Time since a client's last command; `None` for a detached session.
fn idle_ms(ctx: Ctx<'_>, client: ClientId) -> Option<i64> {
    let line = (client.0 > 0).then(|| ctx.client_line(client))??;
    let seconds: i64 = field(&line, "idle=")?.parse().ok()?;
    Some(seconds * 1000)
}
