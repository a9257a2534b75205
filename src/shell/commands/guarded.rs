//! `LOCK.CHECK` and `LOCK.GUARD`: tokens that the server checks.

use crate::engine::{Key, KeySnapshot, Stale, Token};
use crate::shell::bridge::dispatch;
use crate::shell::commands::places;
use crate::shell::server::look;
use crate::shell::state::shell;
use crate::shell::sys::clock;
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
    raw::not_on_our_own(|| ctx.run_as_caller(inner));
}

/// Whether the token is that of a current hold; if not, that is the reply. The key is looked at, since what was done to it in the
/// same script or transaction may otherwise be looked at only later. Nothing is changed.
fn is_current(ctx: Ctx<'_>, string: Str<'_>, name: &[u8], token: u64) -> bool {
    dispatch::settle_flush(ctx);
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
