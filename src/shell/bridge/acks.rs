//! Counts how many replicas have acknowledged the grants that are to be acknowledged (`ACKS`).
//!
//! What a command replicates is on its way only when the command is over, so the offset that replicas are to come to is read
//! before the server's event loop sleeps: what has been replicated since belongs to it as well, which does no harm. Then the
//! server is asked to ask its replicas, which it does in the same turn. Their answers wake the event loop, and before it sleeps
//! again they are counted.
//!
//! All this is subscribed to only while there are such grants.

use crate::engine::{ClientId, Counted, Engine, Event};
use crate::shell::bridge::tell::handle;
use crate::shell::server::replicas;
use crate::shell::state::shell;
use crate::shell::sys::clock::{self, Slice};
use crate::shell::sys::raw::Ctx;
use crate::shell::sys::shim;
use crate::shell::timer;

/// Of the grants whose time is over so many are counted once more before they are withdrawn.
const DUE: usize = 1000;

/// How long nothing is to be counted before the event loop is listened to no longer.
const IDLE_MS: u64 = 1000;

/// Tells the engine how many replicas there are: before a request that is to be acknowledged by some, and whenever that changes.
pub fn count_replicas(ctx: Ctx<'_>) {
    let count = shim::count_acks(0);
    handle(ctx, Event::Replicas { count });
}

/// A replica has come or gone, perhaps: if that matters to a grant, it is counted.
pub fn look_at_replicas(ctx: Ctx<'_>) {
    if shell().replicas_changed.take() && shell().counts_acks.get() {
        count_replicas(ctx);
    }
}

/// Counts the acknowledgements of grants whose time is over, for the last time.
pub fn count_due(ctx: Ctx<'_>) {
    let due = |engine: &Engine| engine.grants_due(clock::now(), DUE);
    for grant in shell().engine.with(due) {
        count(ctx, grant);
    }
}

/// The same for the grant for which this connection is blocked.
pub fn count_blocking(ctx: Ctx<'_>, client: ClientId) {
    if let Some(grant) = shell().engine.with(|engine| engine.grant_blocking(client)) {
        count(ctx, grant);
    }
}

/// Tells the engine how many replicas have acknowledged a grant. Whether that is enough.
fn count(ctx: Ctx<'_>, grant: Counted) -> bool {
    let Some(offset) = grant.offset else {
        return false;
    };
    let replicas = shim::count_acks(offset);
    let token = grant.token;
    handle(ctx, Event::Acknowledged { token, replicas });
    replicas >= grant.wanted
}

/// Before the server's event loop sleeps.
pub fn before_sleep(ctx: Ctx<'_>) {
    let engine = &shell().engine;
    if engine.with(Engine::has_unplaced_grants)
        && let Some(offset) = replicas::offset(ctx)
    {
        handle(ctx, Event::Propagated { offset });
        shim::request_acks();
    }
    let slice = Slice::begin();
    // A grant that is acknowledged is followed by the next that wants as many replicas.
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

/// Counts no longer, if there is nothing to be counted.
pub fn end_if_idle() {
    let shell = shell();
    if shell.counts_acks.get() && shell.engine.with(Engine::pending_grants) == 0 {
        shell.counts_acks.set(false);
    }
}

pub fn is_counting() -> bool {
    shell().counts_acks.get()
}
