//! Checks whether waiters still have the ACL rights that their request needs.
//!
//! The server checks rights when it executes a command, and raises no event when they change. So from the first wait on, a
//! command filter records commands that change the ACL. When a waiter's turn has come that has waited since before the last
//! change, the server is asked whether its user may still run the request.

use crate::engine::{ClientId, Engine, Form, Key, Moment, NoRight};
use crate::policy::rights::{ALWAYS, Rights, Sight};
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str, Text};
use crate::shell::sys::scoped::without_callbacks;
use hashbrown::HashMap;
use redis_module::raw as c;
use std::hash::{DefaultHasher, Hash, Hasher};

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
    let name = unsafe { raw::filtered_word(filter, 0) }.unwrap_or_default();
    if Rights::may_change_by(name) {
        // SAFETY: the caller.
        unsafe { note(filter) };
    }
}

/// Apart from what runs for every command.
///
/// # Safety
/// As for [`on_filtered_command`].
#[inline(never)]
unsafe fn note(filter: *mut c::RedisModuleCommandFilterCtx) {
    // SAFETY: the caller.
    let word = |place| unsafe { raw::filtered_word(filter, place) }.unwrap_or_default();
    // The engine's time, so that no clock is read for each EXEC.
    let now = || shell().engine.try_with_mut(|engine| engine.now());
    let now = || now().unwrap_or(ALWAYS);
    shell()
        .rights
        .note(word(0), word(1), raw::must_not_write, now);
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
    let keys: Vec<_> = keys.collect();
    // The server finds the keys of the module's commands by their specifications, and calls nothing for them.
    without_callbacks(|| revoked(client, form, &keys))
}

/// The right that a user lacks for a request, if any. (A user unknown by name belongs to another module, which is responsible
/// for it.)
#[cold]
fn revoked(client: ClientId, form: Form, keys: &[Key<'_>]) -> Option<NoRight> {
    let user = raw::detached()?.user_of(client)?;
    // A request names keys of one database.
    let db = keys.first()?.db;
    let count = keys.len().to_string();
    let name = command_name(form).as_bytes();
    let names = keys.iter().map(|key| key.name);
    let words: Vec<&[u8]> = match form {
        Form::Locks => [name, count.as_bytes()].into_iter().chain(names).collect(),
        Form::Settp | Form::SettpToken | Form::Sequence => {
            [name].into_iter().chain(names).chain([&b""[..]]).collect()
        }
        Form::Lock => [name].into_iter().chain(names).collect(),
    };
    let words: Vec<_> = words.into_iter().map(Text::new).collect();
    let words: Vec<_> = words.iter().map(Text::as_str).collect();
    if user.may_give_in(db, &words) {
        return None;
    }
    if user.lacks_db(db, &words) {
        return Some(NoRight::Database);
    }
    let mut names = keys.iter().map(|key| Text::new(key.name));
    let may_write = names.all(|name| user.may_write(name.as_str()));
    Some(match may_write {
        true => NoRight::Command(form),
        false => NoRight::Key,
    })
}

/// Whether the caller may see a key, possibly of another database: it may read the key and, where the server grants rights
/// per database, may run one of these commands for it there.
pub fn may_see(ctx: Ctx<'_>, key: Key<'_>, commands: &[&[u8]]) -> bool {
    let may_give = |words: &[Str<'_>]| ctx.may_give_in(key.db, words);
    ctx.may_read(Text::new(key.name).as_str())
        && (key.db == ctx.db() || is_any_given(key, commands, may_give))
}

/// Whether a client may know of a key: it may read or write it and, where the server grants rights per database, may run one of
/// these commands for it there.
pub fn may_know(ctx: Ctx<'_>, client: ClientId, key: Key<'_>) -> bool {
    const COMMANDS: [&[u8]; 3] = [b"lock.info", b"lock.acquire", b"settp"];
    let Some(user) = ctx.user_of(client) else {
        return false;
    };
    let name = Text::new(key.name);
    let may_give = |words: &[Str<'_>]| user.may_give_in(key.db, words);
    (user.may_read(name.as_str()) || user.may_write(name.as_str()))
        && (!raw::has_rights_by_db() || is_any_given(key, &COMMANDS, may_give))
}

/// Whether one of these commands may be given for a key.
fn is_any_given(key: Key<'_>, commands: &[&[u8]], may_give: impl Fn(&[Str<'_>]) -> bool) -> bool {
    let name = Text::new(key.name);
    let mut commands = commands.iter().map(|command| Text::new(command));
    commands.any(|command| may_give(&[command.as_str(), name.as_str()]))
}

/// What a client may see, as a number that is another one when its user or the user's rights are others; 0 if its user is gone.
pub fn sight_of(ctx: Ctx<'_>, client: ClientId) -> u64 {
    match ctx.user_name_of(client) {
        Some(name) => sight_of_user(ctx, client, name.as_str().bytes()),
        None => 0,
    }
}

/// The server is asked again only if a right may have changed since it was asked last.
fn sight_of_user(ctx: Ctx<'_>, client: ClientId, name: &[u8]) -> u64 {
    let shell = shell();
    let known = shell.sights.with(|sights| sights.of(name));
    if let Some(known) = known
        && !shell.rights.may_have_changed_since(known.asked)
        && (!known.in_exec || ctx.state().in_exec())
    {
        return known.sight;
    }
    let Some(user) = ctx.user_of(client) else {
        return 0;
    };
    let known = Sight {
        asked: shell.engine.with(Engine::now),
        in_exec: ctx.state().in_exec(),
        sight: hash_of(name, &user.rules()),
    };
    shell.sights.with_mut(|sights| sights.set(name, known));
    known.sight
}

fn hash_of(name: &[u8], rules: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, rules).hash(&mut hasher);
    // 0 is nobody's.
    hasher.finish() | 1
}

/// Which of the clients that a change is told to may still see what they saw, and may read this key. Asks once for each user.
pub struct Readers<'a> {
    ctx: Ctx<'a>,
    key: Str<'a>,
    /// By the name of the user.
    users: HashMap<Box<[u8]>, (u64, bool)>,
}

impl<'a> Readers<'a> {
    pub fn new(ctx: Ctx<'a>, key: Str<'a>) -> Self {
        let users = HashMap::new();
        Readers { ctx, key, users }
    }

    /// Its sight, and whether it may read the key.
    pub fn look(&mut self, client: ClientId) -> (u64, bool) {
        let Some(name) = self.ctx.user_name_of(client) else {
            return (0, false);
        };
        let name = name.as_str().bytes();
        if let Some(known) = self.users.get(name) {
            return *known;
        }
        let sight = sight_of_user(self.ctx, client, name);
        let user = self.ctx.user_of(client);
        let may_read = user.is_some_and(|user| user.may_read(self.key));
        self.users.insert(name.into(), (sight, may_read));
        (sight, may_read)
    }
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
        NoRight::Database => "NOPERM No permissions to access database".to_owned(),
        NoRight::Command(form) => format!(
            "NOPERM User {} has no permissions to run the '{}' command",
            ctx.user_name(),
            command_name(form)
        ),
    }
}
