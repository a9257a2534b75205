//! `SESSION.LIST`, and access to commands for operators.

use crate::command::Verb;
use crate::engine::ClientId;
use crate::shell::commands::inspect::{Connection, number};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Ctx, Text, have};

/// Why this client may not run a command for operators. Redis 7.0 puts module commands into no ACL category, so a user with
/// everything but `@admin` and `@dangerous` could run them: there the right to the corresponding server command decides.
pub fn refused(ctx: Ctx<'_>, verb: Verb, client: ClientId) -> Option<&'static str> {
    let (counterpart, words): (&[&[u8]], _) = match verb {
        Verb::Sessions => (
            &[b"client", b"list"],
            "NOPERM on this server SESSION.LIST needs the right to CLIENT LIST",
        ),
        Verb::KillSession => (
            &[b"client", b"kill", b"id", b"0"],
            "NOPERM on this server SESSION.KILL needs the right to CLIENT KILL",
        ),
        _ => return None,
    };
    if have!(RedisModule_SetCommandACLCategories) {
        return None;
    }
    let counterpart: Vec<_> = counterpart.iter().map(|word| Text::new(word)).collect();
    let counterpart: Vec<_> = counterpart.iter().map(Text::as_str).collect();
    let user = ctx.user_of(client);
    let may_give = user.is_some_and(|user| user.may_give(&counterpart));
    (!may_give).then_some(words)
}

/// Answers `SESSION.LIST`.
pub fn list_sessions(ctx: Ctx<'_>) {
    let lines = shell().engine.with(|engine| engine.sessions(clock::now()));
    ctx.reply_array(lines.len());
    for line in lines {
        let is_attached = line.client.0 > 0;
        let connection = Connection::of(ctx, line.client);
        let last_user = line.origin.as_ref().map(|origin| &*origin.user);
        let of_attached = |text| is_attached.then_some(text);
        ctx.reply_map(8);
        number(ctx, b"id", line.id.0);
        number(ctx, b"client", line.client.0);
        or_null(ctx, b"user", of_attached(&*connection.user).or(last_user));
        or_null(ctx, b"addr", of_attached(&*connection.addr));
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
