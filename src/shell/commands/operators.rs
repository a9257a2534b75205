//! Access to commands for operators.

use crate::command::Verb;
use crate::engine::ClientId;
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
