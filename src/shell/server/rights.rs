//! Rights that may be gone since somebody began to wait.
//!
//! The server looks at rights when a command is given, and tells modules of no change. So from the first wait on a filter
//! notes the commands that change rights, and before the next turn comes to anybody who has waited since before that, the
//! server is asked whether its user may still do what it has asked for.

use crate::engine::{Doubt, Form, Key, NoRight};
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text};
use redis_module::raw as c;

/// Begins to note what changes rights: in the command with which somebody begins to wait.
pub fn observe(ctx: Ctx<'_>) {
    if !shell().rights.observe(|| ctx.has_no_acl()) {
        subscriptions::to_commands(ctx);
    }
}

/// Looks whether a command changes rights. Runs for every command, and there is nothing here that can panic.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
#[inline(always)]
pub unsafe fn note(filter: *mut c::RedisModuleCommandFilterCtx) {
    let rights = &shell().rights;
    if !rights.is_observing() {
        return;
    }
    // SAFETY: the caller.
    let Some(name) = (unsafe { raw::filtered_word(filter, 0) }) else {
        return;
    };
    // SAFETY: the caller.
    rights.note(
        name,
        || unsafe { raw::filtered_word(filter, 1) },
        raw::must_not_write,
    );
}

/// What a connection's user may not do any more of what it has asked for. (A user that the server does not know by name is
/// another module's, and that one's affair.)
pub fn lost(ctx: Ctx<'_>, doubt: &Doubt) -> Option<NoRight> {
    let user = ctx.user_of(doubt.client)?;
    let count = doubt.keys.len().to_string();
    let name = name(doubt.form).as_bytes();
    let keys = doubt.keys.iter().map(|key| &*key.name);
    let words: Vec<&[u8]> = match doubt.form {
        Form::Locks => [name, count.as_bytes()].into_iter().chain(keys).collect(),
        Form::Settp | Form::SettpToken => {
            [name].into_iter().chain(keys).chain([&b""[..]]).collect()
        }
        Form::Lock => [name].into_iter().chain(keys).collect(),
    };
    let words: Vec<_> = words.into_iter().map(Text::new).collect();
    let words: Vec<_> = words.iter().map(Text::as_str).collect();
    if user.may_give(&words) {
        return None;
    }
    let mut keys = doubt.keys.iter().map(|key| Text::new(&key.name));
    let may_write = keys.all(|key| user.may_write(key.as_str()));
    Some(match may_write {
        true => NoRight::Command(doubt.form),
        false => NoRight::Key,
    })
}

/// Whether the caller may be told of a key, which may be in another database than its own: if it may read it, and, where rights are
/// given by database, may give one of these commands for it there.
pub fn may_see(ctx: Ctx<'_>, key: Key<'_>, commands: &[&[u8]]) -> bool {
    let name = Text::new(key.name);
    let may_give = |command: &&[u8]| {
        let command = Text::new(command);
        ctx.may_give_in(key.db, &[command.as_str(), name.as_str()])
    };
    ctx.may_read(name.as_str()) && (key.db == ctx.db() || commands.iter().any(may_give))
}

/// By which command somebody has begun to wait.
fn name(form: Form) -> &'static str {
    match form {
        Form::Settp | Form::SettpToken => "settp",
        Form::Lock => "lock.acquire",
        Form::Locks => "lock.macquire",
    }
}

/// As the server words it for its own commands.
pub fn words(ctx: Ctx<'_>, right: NoRight) -> String {
    match right {
        NoRight::Key => "NOPERM No permissions to access a key".to_owned(),
        NoRight::Command(form) => format!(
            "NOPERM User {} has no permissions to run the '{}' command",
            ctx.user_name(),
            name(form)
        ),
    }
}
