//! What only the server knows of holds that their owners did not end: when that was, and of which connections.

use crate::engine::{ClientId, Engine, Origin};
use crate::policy::attribution::field;
use crate::shell::server::attribution;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx};

/// Completes the new entries of the log: O(1) for each of their connections, of which there are as many as the log has entries
/// at most.
#[cold]
pub fn describe(ctx: Ctx<'_>) {
    let clients = shell().engine.with(Engine::clients_to_describe);
    let clients: Vec<_> = clients
        .into_iter()
        .filter_map(|client| Some((client, origin(ctx, client)?)))
        .collect();
    let now = clock::now();
    shell()
        .engine
        .with_mut(|engine| engine.describe_losses(now, &clients));
}

/// A connection is about to end: notes what it is while the server knows that, if it holds something.
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

/// What a connection is. No command is called for that where none may be.
fn origin(ctx: Ctx<'_>, client: ClientId) -> Option<Origin> {
    let (addr, name, user) = ctx.client_origin(client)?;
    // The peer has gone: the server remembers its address, and no function of the API tells that.
    let remembered = || {
        let line = (!raw::is_in_uncaused_event()).then(|| ctx.client_line(client));
        Some(field(&line??, "addr=")?.to_owned())
    };
    let addr = addr.or_else(remembered).unwrap_or_default();
    Some(Origin::new(&addr, &name, &user))
}
