//! Valkey 8.1 tells a module of a key by the very connection whose command is being executed, with the event's database
//! selected, and leaves it there. So whoever gave `MOVE` would be in the other database from then on, and so would a
//! replica with all that follows in its master's stream. Here it is brought back.
//!
//! Not after `COPY ... DB`: no event says where it was.

use crate::shell::state::shell;
use crate::shell::sys::at_end::at_end;
use crate::shell::sys::raw::Ctx;

/// Runs a command of ours, in which keys of other databases can come into being.
pub fn and_back<T>(ctx: Ctx<'_>, command: impl FnOnce() -> T) -> T {
    if !shell().server.get().strays {
        return command();
    }
    let home = ctx.db();
    let _back = at_end(|| ctx.select(home));
    command()
}

/// An event has been heard. Where a key was that is being moved, its `MOVE` was given.
pub fn heard(ctx: Ctx<'_>, event: &[u8]) {
    let home = &shell().home;
    match event {
        b"move_from" => home.set(Some(ctx.db())),
        b"move_to" => {
            if let Some(home) = home.take() {
                ctx.select(home);
            }
        }
        _ => {}
    }
}
