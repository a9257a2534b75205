//! `LOCK.WHY`: why a key is not granted.

use crate::engine::{ClientId, Engine, Key};
use crate::policy::attribution::field;
use crate::shell::server::{lookup, replicas};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, Str};
use crate::wire::reports::{self, Cause};

/// Answers `LOCK.WHY`.
pub fn answer(ctx: Ctx<'_>, string: Str<'_>, key: Key<'_>) {
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
    let idle_ms = |client| idle_ms(ctx, client);
    reports::why(&mut { ctx }, &steps, idle_ms, &causes);
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

/// Time since a client's last command; `None` for a detached session.
fn idle_ms(ctx: Ctx<'_>, client: ClientId) -> Option<i64> {
    let line = (client.0 > 0).then(|| ctx.client_line(client))??;
    let seconds: i64 = field(&line, "idle=")?.parse().ok()?;
    Some(seconds * 1000)
}
