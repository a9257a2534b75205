//! Valkey 8.1 tells a module of a key by the very connection whose command is being executed, with the event's database
//! selected, and leaves it there. So whoever gave `MOVE` would be in the other database from then on, and so would a
//! replica with all that follows in its master's stream. Here it is brought back.
//!
//! Not after `COPY ... DB`: no event says where it was.

use crate::engine::Db;
use crate::shell::state::shell;
use crate::shell::sys::raw::Ctx;
use std::cell::Cell;

/// Runs a command of ours, in which keys of other databases can come into being.
pub fn and_back<T>(ctx: Ctx<'_>, command: impl FnOnce() -> T) -> T {
    if !shell().server.get().strays {
        return command();
    }
    let home = ctx.db();
    let result = command();
    ctx.select(home);
    result
}

/// Where a key was that is being moved: there its `MOVE` was given.
#[derive(Default)]
pub struct Home(Cell<Option<Db>>);

impl Home {
    /// After an event has been heard.
    pub fn heard(&self, ctx: Ctx<'_>, event: &[u8]) {
        match event {
            b"move_from" => self.0.set(Some(ctx.db())),
            b"move_to" => {
                if let Some(home) = self.0.take() {
                    ctx.select(home);
                }
            }
            _ => {}
        }
    }
}
