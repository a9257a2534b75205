//! Whether this server is a master or a replica: at the start, and when it becomes a master.

use crate::engine::{Engine, Event};
use crate::shell::bridge::slots;
use crate::shell::bridge::tell::handle;
use crate::shell::server::epochs;
use crate::shell::state::shell;
use crate::shell::sys::raw::Ctx;
use crate::shell::timer;

const A_DAY_MS: u64 = 86_400_000;

/// Takes the role that the server has when the module is loaded. Once, at load.
pub fn begin(ctx: Ctx<'_>) {
    let has_master = ctx.state().is_replica();
    let awaits_master = !has_master && slots::is_clusters_replica(ctx);
    shell().awaits_master.set(awaits_master);
    if has_master || awaits_master {
        handle(ctx, Event::Demoted { redirect: false });
    }
}

/// A cluster's replica that starts has a master from the server's first cron on, or when it knows its master's address. The
/// server raises no event if it becomes a master before that.
pub fn check_awaited_master(ctx: Ctx<'_>) {
    const INTERVAL_MS: u64 = 1000;
    let shell = shell();
    if !shell.awaits_master.get() {
        return;
    }
    if ctx.state().is_replica() {
        shell.awaits_master.set(false);
    } else if slots::is_clusters_replica(ctx) {
        timer::wake_in_ms(INTERVAL_MS);
    } else {
        promoted(ctx);
    }
}

/// This server became a master.
pub fn promoted(ctx: Ctx<'_>) {
    shell().awaits_master.set(false);
    slots::forget_served();
    epochs::begin_epoch();
    let former = shell().engine.with(Engine::foreign_holds);
    if former > 0 {
        let text = format!("promoted: {former} holds of the former master ended");
        ctx.log(c"notice", &text);
    }
    handle(ctx, Event::Promoted);
    if shell().has_refused_records.get() {
        ctx.log(
            c"warning",
            "promoted, and nothing is granted for a day: this server refused what its master told of sessions (see above)",
        );
        handle(ctx, Event::Quarantine { ms: A_DAY_MS });
    }
    slots::refresh_all_ttls(ctx);
}
