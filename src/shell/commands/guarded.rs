//! `LOCK.CHECK` and `LOCK.GUARD`: tokens that the server checks.

use crate::command::TABLE;
use crate::engine::{Key, KeySnapshot, Stale, Token};
use crate::shell::bridge::tell;
use crate::shell::commands::places::{self, COMMAND_IS_RENAMED};
use crate::shell::server::look;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::inner::Maker;
use crate::shell::sys::raw::{self, Ctx, Str};

/// Answers `LOCK.CHECK`, also within a script.
pub fn check(ctx: Ctx<'_>, string: Str<'_>, name: &[u8], token: u64) {
    if is_current(ctx, string, name, token) {
        ctx.reply_integer(1);
    }
}

/// Answers `LOCK.GUARD`: runs the command that begins with the third argument as the caller itself, in the same step as the
/// check. What follows from it comes as from a command of the server's.
pub fn run(ctx: Ctx<'_>, strings: &[Str<'_>], name: &[u8], token: u64) {
    if !is_current(ctx, strings[0], name, token) {
        return;
    }
    let inner = &strings[2..];
    if let Some(error) = places::refuse_inside(ctx, inner, name) {
        return ctx.reply_error(error);
    }
    if let Some(error) = refuse_later_answer(ctx, inner[0]) {
        return ctx.reply_error(&error);
    }
    raw::not_on_our_own(|| ctx.run_as_caller(inner));
}

/// Why a command is not run that may answer later. The server ends where one does that a module has called; it tells its own
/// commands not to, and those of modules in a transaction only.
fn refuse_later_answer(ctx: Ctx<'_>, command: Str<'_>) -> Option<String> {
    let name = command.bytes().to_ascii_lowercase();
    let own = &shell().own_commands;
    if own.with(|own| own.contains(&*name)) || ctx.state().in_exec() {
        return None;
    }
    if TABLE.iter().any(|spec| spec.name.as_bytes() == name) {
        return None;
    }
    match ctx.maker_of(command) {
        None => Some(COMMAND_IS_RENAMED.to_owned()),
        // The server refuses it.
        Some(Maker::Nobody) => None,
        // There are only so many of these.
        Some(Maker::Server) => {
            own.with_mut(|own| own.insert(name.into()));
            None
        }
        Some(Maker::Module) => Some(format!(
            "ERR LOCK.GUARD runs '{}' between MULTI and EXEC only: a command of another module may answer later",
            String::from_utf8_lossy(&name)
        )),
    }
}

/// Whether the token is that of a current hold; if not, that is the reply. The key is looked at, since what was done to it in the
/// same script or transaction may otherwise be looked at only later. Nothing is changed.
fn is_current(ctx: Ctx<'_>, string: Str<'_>, name: &[u8], token: u64) -> bool {
    tell::settle_flush(ctx);
    let db = ctx.db();
    let key = Key { db, name };
    let standing = look::standing(ctx, db, string);
    let seen = KeySnapshot { key, standing };
    let checked = shell()
        .engine
        .with(|engine| engine.check_token(clock::now(), seen, Token(token)));
    let why = match checked {
        Ok(()) => return true,
        Err(Stale::Replica) => "this server is a replica".to_owned(),
        Err(Stale::Pending) => "it waits for acknowledgements of replicas".to_owned(),
        Err(Stale::Nobody) => "nobody holds the key".to_owned(),
        Err(Stale::HeldWith(Token(other))) => format!("the key is held with token {other}"),
    };
    ctx.reply_error(&format!("STALE token {token} is not current: {why}"));
    false
}
