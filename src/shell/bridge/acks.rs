//! Counts replica acknowledgements of grants with option `ACKS`.
//!
//! A command's effects enter the replication stream when the command ends. So the offset that replicas must reach is read
//! before the server's event loop sleeps; including later writes of that turn is harmless. Then the server is told to
//! request acknowledgements, which it does in the same turn. The replies wake the event loop, and are counted before it
//! sleeps again.
//!
//! The module subscribes to the event loop only while such grants are pending.

use crate::engine::{ClientId, Counted, Engine, Event};
use crate::shell::bridge::tell::handle;
use crate::shell::server::replicas;
use crate::shell::state::shell;
use crate::shell::sys::clock::{self, Slice};
use crate::shell::sys::raw::Ctx;
use crate::shell::sys::shim;
use crate::shell::timer;

/// Grants past their deadline that are counted once more before they are withdrawn.
const DUE_GRANTS_PER_TICK: usize = 1000;

/// Idle time after which the module unsubscribes from the event loop.
const IDLE_MS: u64 = 1000;

/// Passes the number of replicas to the engine: before a request with `ACKS`, and on each change.
pub fn count_replicas(ctx: Ctx<'_>) {
    let count = shim::count_acks(0);
    handle(ctx, Event::Replicas { count });
}

/// Counts the replicas again if one has connected or disconnected, and it matters to somebody.
pub fn count_replicas_if_changed(ctx: Ctx<'_>) {
    if replicas::matter() && shell().replicas_changed.take() {
        count_replicas(ctx);
    }
}

/// Counts grants past their deadline for the last time.
pub fn count_due(ctx: Ctx<'_>) {
    let due = |engine: &Engine| engine.grants_due(clock::now(), DUE_GRANTS_PER_TICK);
    for grant in shell().engine.with(due) {
        count(ctx, grant);
    }
}

/// Counts the grant that blocks this client.
pub fn count_blocking(ctx: Ctx<'_>, client: ClientId) {
    if let Some(grant) = shell().engine.with(|engine| engine.grant_blocking(client)) {
        count(ctx, grant);
    }
}

/// Passes a grant's acknowledgements to the engine. Returns whether they suffice.
fn count(ctx: Ctx<'_>, grant: Counted) -> bool {
    let Some(offset) = grant.offset else {
        return false;
    };
    let replicas = shim::count_acks(offset);
    let token = grant.token;
    handle(ctx, Event::Acknowledged { token, replicas });
    replicas >= grant.wanted
}

/// Called before the server's event loop sleeps.
pub fn before_sleep(ctx: Ctx<'_>) {
    let engine = &shell().engine;
    if engine.with(Engine::has_unplaced_grants)
        && let Some(offset) = replicas::offset(ctx)
    {
        handle(ctx, Event::Propagated { offset });
        shim::request_acks();
    }
    let slice = Slice::begin();
    // Once a grant is acknowledged, the next one for the same number of replicas becomes the oldest.
    while engine
        .with(Engine::grants_to_count)
        .into_iter()
        .any(|grant| count(ctx, grant))
    {
        if slice.is_over() {
            return timer::wake_in_ms(0);
        }
    }
    if engine.with(Engine::pending_grants) == 0 {
        timer::wake_in_ms(IDLE_MS);
    }
}

/// Stops counting if no grant is pending.
pub fn stop_if_idle() {
    let shell = shell();
    if shell.counts_acks.get() && shell.engine.with(Engine::pending_grants) == 0 {
        shell.counts_acks.set(false);
    }
}

pub fn is_counting() -> bool {
    shell().counts_acks.get()
}
