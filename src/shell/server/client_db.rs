//! Works around servers that raise keyspace events on the connection of the client whose command is executing, with the event's
//! database selected, and leave it selected (Valkey 8.1 to 9.1, see `policy/server.rs`). Without this, that client would go on in
//! the other database, and so would a replica with the rest of its master's stream.
//!
//! - What a command does in other databases: [`Ctx::in_db`] selects the client's own one again, for the command's context is the
//!   client's.
//! - What follows right after a command has a context without a client, while the server still takes the command for executing:
//!   [`with_client_db_restored`].
//! - `MOVE`: [`on_keyspace_event`].
//!
//! `COPY ... DB` is not covered: no event names the original database.

use crate::shell::server::{attribution, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Job};
use crate::shell::timer;

/// Does a job after a command, whose client stays in its database. If that client cannot be told, the tick does the work.
pub fn with_client_db_restored(ctx: Ctx<'_>, job: Job) {
    if !shell().server.get().event_moves_client_db {
        return job(ctx);
    }
    let Some(clients) = attribution::may_be_executing() else {
        return timer::wake_promptly();
    };
    let before = clients.map(|client| (client, raw::db_of(client)));
    let before: Vec<_> = before.collect();
    job(ctx);
    for (client, before) in before {
        if let (Some(before), Some(now)) = (before, raw::db_of(client))
            && before != now
        {
            subscriptions::to_own_events(ctx);
            ctx.select_for_executing_client(before);
        }
    }
}

/// After an event: a `MOVE` was sent in the database that the key was moved from, so selects that one.
pub fn on_keyspace_event(ctx: Ctx<'_>, event: &[u8]) {
    let moved_from = &shell().moved_from_db;
    match event {
        b"move_from" => moved_from.set(Some(ctx.db())),
        b"move_to" => {
            if let Some(db) = moved_from.take() {
                ctx.select(db);
            }
        }
        _ => {}
    }
}
