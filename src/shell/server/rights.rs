//! Checks whether waiters still have the ACL rights that their request needs.
//!
//! The server checks rights when it executes a command, and raises no event when they change. So from the first wait on, a
//! command filter records commands that change the ACL. When a waiter's turn has come that has waited since before the last
//! change, the server is asked whether its user may still run the request.

use crate::engine::{ClientId, Form, Key, Moment, NoRight};
use crate::policy::rights::ALWAYS;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text};
use crate::shell::sys::scoped::without_callbacks;
use redis_module::raw as c;

/// Starts recording ACL changes: called in the command that enqueues the first waiter.
pub fn observe(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.rights.observe(|| ctx.has_no_acl()) {
        subscriptions::to_commands(ctx);
        let check = Box::new(lost_right);
        shell
            .engine
            .with_mut(|engine| engine.check_rights_by(check));
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
    // The engine's time, so that no clock is read for each EXEC.
    let now = || shell().engine.try_with_mut(|engine| engine.now());
    // SAFETY: the caller.
    rights.note(
        name,
        || unsafe { raw::filtered_word(filter, 1) },
        raw::must_not_write,
        || now().unwrap_or(ALWAYS),
    );
}

/// See [`LostRight`](crate::engine::LostRight).
fn lost_right(
    client: ClientId,
    form: Form,
    since: Moment,
    keys: &mut dyn Iterator<Item = Key<'_>>,
) -> Option<NoRight> {
    if !shell().rights.may_have_changed_since(since) {
        return None;
    }
    let keys: Vec<_> = keys.map(|key| key.name).collect();
    // The server finds the keys of the module's commands by their specifications, and calls nothing for them.
    without_callbacks(|| revoked(client, form, &keys))
}

/// The right that a user lacks for a request, if any. (A user unknown by name belongs to another module, which is responsible
/// for it.)
#[cold]
fn revoked(client: ClientId, form: Form, names: &[&[u8]]) -> Option<NoRight> {
    let user = raw::detached()?.user_of(client)?;
    let count = names.len().to_string();
    let name = command_name(form).as_bytes();
    let keys = names.iter().copied();
    let words: Vec<&[u8]> = match form {
        Form::Locks => [name, count.as_bytes()].into_iter().chain(keys).collect(),
        Form::Settp | Form::SettpToken | Form::Sequence => {
            [name].into_iter().chain(keys).chain([&b""[..]]).collect()
        }
        Form::Lock => [name].into_iter().chain(keys).collect(),
    };
    let words: Vec<_> = words.into_iter().map(Text::new).collect();
    let words: Vec<_> = words.iter().map(Text::as_str).collect();
    if user.may_give(&words) {
        return None;
    }
    let mut keys = names.iter().map(|name| Text::new(name));
    let may_write = keys.all(|key| user.may_write(key.as_str()));
    Some(match may_write {
        true => NoRight::Command(form),
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
        Form::Settp | Form::SettpToken | Form::Sequence => "settp",
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
