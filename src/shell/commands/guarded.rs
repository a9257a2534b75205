//! `LOCK.CHECK` and `LOCK.GUARD`: the server checks fencing tokens.

use crate::command::TABLE;
use crate::engine::{Key, KeySnapshot, Token};
use crate::shell::bridge::tell;
use crate::shell::commands::places::{self, COMMAND_IS_RENAMED};
use crate::shell::server::lookup;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::inner::CommandOrigin;
use crate::shell::sys::raw::{self, Ctx, Str};
use crate::wire::reports;

/// Answers `LOCK.CHECK`; scripts may call it.
pub fn check(ctx: Ctx<'_>, string: Str<'_>, name: &[u8], token: u64) {
    if is_current(ctx, string, name, token) {
        ctx.reply_integer(1);
    }
}

/// Answers `LOCK.GUARD`: checks the token and, in the same step, runs the command that begins at the third argument as the
/// caller. Its events are handled like those of any server command.
pub fn run(ctx: Ctx<'_>, strings: &[Str<'_>], name: &[u8], token: u64) {
    if !is_current(ctx, strings[0], name, token) {
        return;
    }
    let inner = &strings[2..];
    if let Some(error) = places::refuse_inner_slots(ctx, inner, name) {
        return ctx.reply_error(error);
    }
    if let Some(error) = refuse_async_reply(ctx, inner[0]) {
        return ctx.reply_error(&error);
    }
    raw::in_foreign_execution_unit(|| ctx.run_as_caller(inner));
}

/// Refuses a command that may reply asynchronously. The server crashes if a command called by a module does; it denies that
/// to its own commands, but to module commands only in a transaction.
fn refuse_async_reply(ctx: Ctx<'_>, command: Str<'_>) -> Option<String> {
    let name = command.bytes().to_ascii_lowercase();
    let own = &shell().own_commands;
    if own.with(|own| own.contains(&*name)) || ctx.state().in_exec() {
        return None;
    }
    if TABLE.iter().any(|spec| spec.name.as_bytes() == name) {
        return None;
    }
    match ctx.origin_of_command(command) {
        None => Some(COMMAND_IS_RENAMED.to_owned()),
        // The server rejects it.
        Some(CommandOrigin::Nobody) => None,
        // Bounded: the server has only so many commands.
        Some(CommandOrigin::Server) => {
            own.with_mut(|own| own.insert(name.into()));
            None
        }
        Some(CommandOrigin::Module) => Some(format!(
            "ERR LOCK.GUARD runs '{}' between MULTI and EXEC only: a command of another module may answer later",
            String::from_utf8_lossy(&name)
        )),
    }
}

/// Whether the token belongs to a current hold; if not, replies with the error. Looks up the key, since a change by the
/// same script or transaction may otherwise be noticed only later. Changes nothing.
fn is_current(ctx: Ctx<'_>, string: Str<'_>, name: &[u8], token: u64) -> bool {
    tell::settle_flush(ctx);
    let db = ctx.db();
    let key = Key { db, name };
    let state = lookup::key_state(ctx, db, string);
    let seen = KeySnapshot { key, state };
    let checked = shell()
        .engine
        .with(|engine| engine.check_token(clock::now(), seen, Token(token)));
    match checked {
        Ok(()) => true,
        Err(why) => {
            ctx.reply_error(&reports::stale(token, why));
            false
        }
    }
}
