//! The module's side of reports, see `wire/reports.rs`: what the server says of its clients and of itself. And `LOCK.LOG RESET`.

use crate::engine::{ClientId, Db, Engine, Key, Moment};
use crate::policy::attribution::field;
use crate::policy::losses::{Entry, LossLog};
use crate::shell::bridge::losses;
use crate::shell::server::{keepalive, lookup, replicas};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text};
use crate::shell::sys::{clock, secret, shim};
use crate::wire::reports::{About, Cause, Reporter, may_see_loss};

impl Reporter for Ctx<'_> {
    fn caller(&self) -> ClientId {
        self.client()
    }

    fn caller_db(&self) -> Db {
        self.db()
    }

    fn now(&self) -> Moment {
        clock::now()
    }

    fn wall_ms(&self) -> u64 {
        clock::since_1970().as_millis() as u64
    }

    fn engine<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        shell().engine.with(look)
    }

    fn losses<T>(&self, look: impl FnOnce(&LossLog) -> T) -> T {
        shell().losses.with(look)
    }

    /// Checked with a random name.
    fn may_see_all(&self) -> bool {
        self.may_read(Text::new(&secret::new()).as_str())
    }

    fn is_present(&self, key: Key<'_>) -> bool {
        lookup::key_state(*self, key.db, Text::new(key.name).as_str()).is_present()
    }

    fn refuses(&self) -> Vec<Cause> {
        let pause = raw::must_not_write().then_some(Cause::Pause);
        let others = match shell().is_replica() {
            true => vec![Cause::Replica],
            false => write_errors(*self),
        };
        pause.into_iter().chain(others).collect()
    }

    fn idle_ms(&self, client: ClientId) -> Option<i64> {
        let line = (client.0 > 0).then(|| self.client_line(client))??;
        let seconds: i64 = field(&line, "idle=")?.parse().ok()?;
        Some(seconds * 1000)
    }

    fn about(&self) -> About {
        let settings = shell().settings.get();
        let run_id = self.server_info(c"server", c"run_id");
        About {
            run_id: run_id.unwrap_or_default(),
            can_push: shim::can_push() && (settings.resp2_push || self.state().resp3()),
            peer_timeout_ms: keepalive::detect_dead_peer(*self, self.client()),
            quarantine_ms: settings.quarantine_ms.into(),
        }
    }
}

/// Why the server refuses all writes, if it does.
fn write_errors(ctx: Ctx<'_>) -> Vec<Cause> {
    let is = |section, field, what: &str| {
        let state = ctx.server_info(section, field);
        state.is_some_and(|state| state == what)
    };
    let set = |name| ctx.server_setting(name).unwrap_or_default();
    let is_unsaved = is(c"persistence", c"rdb_last_bgsave_status", "err")
        && set("stop-writes-on-bgsave-error") == "yes"
        && !set("save").is_empty();
    let is_unwritten = is(c"persistence", c"aof_enabled", "1")
        && is(c"persistence", c"aof_last_write_status", "err");
    let causes = [
        (!replicas::has_enough(ctx)).then_some(Cause::Replicas),
        ctx.state().is_out_of_memory().then_some(Cause::Memory),
        (is_unsaved || is_unwritten).then_some(Cause::Misconf),
    ];
    causes.into_iter().flatten().collect()
}

/// Answers `LOCK.LOG RESET`. A caller cannot remove entries that it may not read.
pub fn reset_log(ctx: Ctx<'_>) {
    let key = |entry: &Entry| (entry.lost.key.clone(), entry.is_cut);
    let keys: Vec<_> = shell().losses.with(|log| log.iter().map(key).collect());
    if !keys
        .iter()
        .all(|(key, is_cut)| may_see_loss(&ctx, key, *is_cut))
    {
        return ctx.reply_error("NOPERM the log has entries of keys that this user may not read");
    }
    losses::change(LossLog::clear);
    ctx.reply_ok();
}
