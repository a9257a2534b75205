//! The log of lost holds, with the address, name and user of their clients.

use crate::engine::{ClientId, Lost, Origin};
use crate::policy::losses::LossLog;
use crate::shell::server::attribution;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::Ctx;

/// Adds a hold to the log. O(1).
#[cold]
pub fn log(ctx: Ctx<'_>, lost: Box<Lost>) {
    let entry = change(|log| log.add(clock::now(), lost));
    if let Some((entry, client)) = entry
        && let Some(origin) = origin(ctx, client)
    {
        change(|log| log.describe(entry, origin));
    }
}

/// Changes the log, and tells the engine if no entry lacks its next holder.
pub fn change<T>(act: impl FnOnce(&mut LossLog) -> T) -> T {
    let shell = shell();
    let (result, closed) = shell.losses.with_mut(|log| (act(log), log.closed()));
    if let Some(logged) = closed {
        shell.engine.with_mut(|engine| engine.close_log(logged));
    }
    result
}

/// Sets the capacity, in entries.
pub fn set_most(most: usize) {
    change(|log| log.set_most(most));
    shell()
        .engine
        .with_mut(|engine| engine.set_logs_losses(most > 0));
}

/// A client with holds is about to disconnect: records its origin while the server still knows it.
pub fn note_origin(ctx: Ctx<'_>, client: ClientId) {
    if !shell().engine.with(|engine| engine.wants_origin(client)) {
        return;
    }
    if let Some(origin) = origin(ctx, client) {
        let killed = attribution::is_killing(ctx, client);
        shell()
            .engine
            .with_mut(|engine| engine.note_origin(client, origin, killed));
    }
}

fn origin(ctx: Ctx<'_>, client: ClientId) -> Option<Origin> {
    let (addr, name, user) = ctx.client_origin(client)?;
    Some(Origin::new(&addr, &name, &user))
}
