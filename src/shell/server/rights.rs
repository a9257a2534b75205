//! Checks whether waiters still have the ACL rights that their request needs.
//!
//! The server checks rights when it executes a command, and raises no event when they change. So from the first wait on, a
//! command filter records commands that change the ACL. Before a waiter whose last check is older is granted a key, the
//! server is asked whether its user may still run the request.

use crate::engine::{Doubt, Form, Key, NoRight};
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text};
use redis_module::raw as c;

/// Starts recording ACL changes: called in the command that enqueues the first waiter.
pub fn observe(ctx: Ctx<'_>) {
    if !shell().rights.observe(|| ctx.has_no_acl()) {
        subscriptions::to_commands(ctx);
    }
}

/// Records whether a command changes the ACL. Runs for every command, and cannot panic.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
#[inline(always)]
pub unsafe fn on_filtered_command(filter: *mut c::RedisModuleCommandFilterCtx) {
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

/// The right that a waiter's user has lost, if any. (A user unknown by name belongs to another module, which is responsible
/// for it.)
pub fn revoked(ctx: Ctx<'_>, doubt: &Doubt) -> Option<NoRight> {
    let user = ctx.user_of(doubt.client)?;
    let count = doubt.keys.len().to_string();
    let name = command_name(doubt.form).as_bytes();
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

/// Whether the caller may see a key, possibly of another database: it may read the key and, where the server grants rights
/// per database, may run one of these commands for it there.
pub fn may_see(ctx: Ctx<'_>, key: Key<'_>, commands: &[&[u8]]) -> bool {
    let name = Text::new(key.name);
    let may_give = |command: &&[u8]| {
        let command = Text::new(command);
        ctx.may_give_in(key.db, &[command.as_str(), name.as_str()])
    };
    ctx.may_read(name.as_str()) && (key.db == ctx.db() || commands.iter().any(may_give))
}

/// The command that enqueued the waiter.
fn command_name(form: Form) -> &'static str {
    match form {
        Form::Settp | Form::SettpToken => "settp",
        Form::Lock => "lock.acquire",
        Form::Locks => "lock.macquire",
    }
}

/// In the server's own wording.
pub fn error_text(ctx: Ctx<'_>, right: NoRight) -> String {
    match right {
        NoRight::Key => "NOPERM No permissions to access a key".to_owned(),
        NoRight::Command(form) => format!(
            "NOPERM User {} has no permissions to run the '{}' command",
            ctx.user_name(),
            command_name(form)
        ),
    }
}
