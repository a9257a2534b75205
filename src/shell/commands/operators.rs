//! `SESSION.LIST`: what operators ask of the whole server.

use crate::shell::commands::inspect::{Connection, number};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::Ctx;

/// Answers `SESSION.LIST`.
pub fn sessions(ctx: Ctx<'_>) {
    let lines = shell().engine.with(|engine| engine.sessions(clock::now()));
    ctx.reply_array(lines.len());
    for line in lines {
        let is_attached = line.client.0 > 0;
        let connection = Connection::of(ctx, line.client);
        let former = line.origin.as_ref().map(|origin| &*origin.user);
        let field = |name| is_attached.then(|| connection.field(name));
        ctx.reply_map(8);
        number(ctx, b"id", line.id.0);
        number(ctx, b"client", line.client.0);
        or_null(ctx, b"user", field("user=").or(former));
        or_null(ctx, b"addr", field("addr="));
        number(ctx, b"grace-ms", line.grace_ms);
        number(ctx, b"keys", line.keys);
        number(ctx, b"holds", line.holds);
        number(ctx, b"waits", line.waits);
    }
}

fn or_null(ctx: Ctx<'_>, name: &[u8], value: Option<&str>) {
    ctx.reply_bulk(name);
    match value {
        Some(value) => ctx.reply_bulk(value.as_bytes()),
        None => ctx.reply_null(),
    }
}
