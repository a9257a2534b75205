//! Works around Valkey 8.1, which raises keyspace events on the executing client's own connection, with the event's
//! database selected, and leaves it selected. A client that sends `MOVE` would end up in the other database, and so would a
//! replica with the rest of its master's stream. The functions here select the original database again.
//!
//! `COPY ... DB` is not covered: no event names the original database.

use crate::shell::state::shell;
use crate::shell::sys::at_end::at_end;
use crate::shell::sys::raw::Ctx;

/// Runs one of the module's commands, which may create keys of other databases.
pub fn with_db_restored<T>(ctx: Ctx<'_>, command: impl FnOnce() -> T) -> T {
    if !shell().server.get().event_moves_client_db {
        return command();
    }
    let original_db = ctx.db();
    let _back = at_end(|| ctx.select(original_db));
    command()
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
