//! Rights that may be gone since somebody began to wait.
//!
//! The server looks at rights when a command is given, and tells modules of no change. So from the first wait on a filter
//! notes the commands that change rights, and before the next turn comes to anybody who has waited since before that, the
//! server is asked whether its user may still do what it has asked for.
//!
//! The filter sees a command before it is executed, and one of a transaction when it is queued. So once rights have changed
//! each EXEC may change them, too. A command that is put off (`CLIENT PAUSE`) is executed nobody knows when.

use crate::engine::{Doubt, Event, Form, NoRight};
use crate::shell::bridge::dispatch::tell;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text, api, have};
use redis_module::raw as c;
use std::cell::Cell;

#[derive(Default)]
pub struct Rights {
    /// There may be something to do before an event is told.
    matter: Cell<bool>,
    observing: Cell<bool>,
    /// Rights may have changed since the engine was told so.
    noted: Cell<bool>,
    /// They have changed before.
    have_changed: Cell<bool>,
    /// They may change at any time.
    unseen: Cell<bool>,
}

impl Rights {
    /// Whether [`look`] may have something to do. Asked before each event.
    #[inline(always)]
    pub fn matter(&self) -> bool {
        self.matter.get()
    }

    #[cold]
    fn note(&self) {
        if raw::must_not_write() {
            self.unseen.set(true);
        }
        self.noted.set(true);
        self.matter.set(true);
    }
}

/// Begins to note what changes rights: in the command with which somebody begins to wait.
pub fn observe(ctx: Ctx<'_>) {
    let rights = &shell().rights;
    if rights.observing.replace(true) {
        return;
    }
    if ctx.has_no_acl() {
        // It goes by another name here.
        rights.unseen.set(true);
        rights.note();
    }
    // Where filters tell whose command it is there is one already, see `executing`.
    if have!(RedisModule_CommandFilterGetClientId) {
        return;
    }
    let not_ours = c::REDISMODULE_CMDFILTER_NOSELF as i32;
    // SAFETY: the table, the context.
    unsafe {
        api!(RedisModule_RegisterCommandFilter(
            ctx.as_ptr(),
            Some(filter),
            not_ours
        ))
    };
}

unsafe extern "C" fn filter(filter: *mut c::RedisModuleCommandFilterCtx) {
    // SAFETY: the server's argument, for the length of this call.
    unsafe { note(filter) };
}

/// Looks whether a command changes rights. Runs for every command, and there is nothing here that can panic.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
#[inline(always)]
pub unsafe fn note(filter: *mut c::RedisModuleCommandFilterCtx) {
    let rights = &shell().rights;
    if !rights.observing.get() {
        return;
    }
    // SAFETY: the caller.
    let Some(name) = (unsafe { raw::filtered_word(filter, 0) }) else {
        return;
    };
    let is_acl = name.len() == 3 && name.eq_ignore_ascii_case(b"acl");
    if is_acl {
        // SAFETY: the caller.
        let word = unsafe { raw::filtered_word(filter, 1) };
        const CHANGING: [&[u8]; 3] = [b"setuser", b"deluser", b"load"];
        let is_it = |word: &[u8]| CHANGING.iter().any(|it| it.eq_ignore_ascii_case(word));
        if word.is_some_and(is_it) {
            rights.have_changed.set(true);
            rights.note();
        }
    } else if name.len() == 4 && rights.have_changed.get() && name.eq_ignore_ascii_case(b"exec") {
        rights.note();
    }
}

/// Looks at the rights of those whose turn may come by this event, before it is told.
#[cold]
pub fn look(ctx: Ctx<'_>, event: &Event<'_>) {
    /// Whoever comes after so many is served a little later.
    const MOST: usize = 64;
    let rights = &shell().rights;
    // What is told here needs no look.
    rights.matter.set(false);
    if rights.noted.get() {
        // The command that changes them may be still to come in this transaction.
        let stays = rights.unseen.get() || ctx.state().in_exec();
        rights.noted.set(stays);
        tell(ctx, Event::RightsChanged);
    }
    for _ in 0..MOST {
        let Some(doubt) = shell().engine.with(|engine| engine.doubt(event)) else {
            break;
        };
        let (wait, lost) = (doubt.wait, lost(ctx, &doubt));
        tell(ctx, Event::Rights { wait, lost });
    }
    let has_doubts = shell().engine.with(|engine| engine.has_doubts());
    rights.matter.set(rights.noted.get() || has_doubts);
}

/// What a connection's user may not do any more of what it has asked for. (A user that the server does not know by name is
/// another module's, and that one's affair.)
fn lost(ctx: Ctx<'_>, doubt: &Doubt) -> Option<NoRight> {
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
