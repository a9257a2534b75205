//! What a master's stream and the append-only file tell.
//!
//! There a command of ours means that it was granted: the key was made, and somebody at the former
//! server held it. Here nobody does. A replica leaves such keys alone; as soon as this server may
//! remove them (it is promoted, or has loaded its data) they go. Sessions go on here: of those the
//! stream says all, in words that only it has (see `engine/record.rs`).

use crate::command::Request;
use crate::engine::{
    Cause, Event, FREE, HOLD, Key, KeyState, Mode, SESSION, SessionRecord, read_moment_ms,
    read_token, skip_pairs,
};
use crate::policy::release::Release;
use crate::shell::bridge::perform::{replicate_grant, write};
use crate::shell::bridge::{recheck, tell};
use crate::shell::guard::guard;
use crate::shell::persistence::intake;
use crate::shell::server::{cluster, look};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str, Word, api, c_string, entries};
use redis_module::raw as c;
use std::ffi::c_int;

/// Carries out a command of the stream. Nobody reads the reply.
pub fn apply(ctx: Ctx<'_>, request: &Request<'_, '_>, strings: &[Str<'_>]) {
    match request {
        Request::Settp { .. } => make(ctx, strings, Some(strings[1])),
        Request::Acquire { .. } => make(ctx, strings, None),
        _ => return ctx.reply_error("ERR only SETTP and LOCK.ACQUIRE are replicated"),
    }
    ctx.reply_integer(1);
}

fn make(ctx: Ctx<'_>, strings: &[Str<'_>], value: Option<Str<'_>>) {
    let string = strings[0];
    // Opened before: what expires by that was somebody else's.
    let open = ctx.open(string);
    write(ctx, string, value, || open);
    let mode = match value {
        Some(_) => Mode::Temporary,
        None => Mode::Exclusive,
    };
    let (db, name) = (ctx.db(), string.bytes());
    let key = Key { db, name };
    match is_import(ctx, Some(name)) {
        // Nobody's key from now on: whoever follows this server must not take it away.
        true if !mode.is_lock() => {
            let by = Cause::Server;
            tell::handle(ctx, Event::Replaced { key, by });
            return ctx.replicate(db, Word::Set, string, value);
        }
        true if !shell().is_replica() => recheck::restored(key),
        _ => intake::inherited(ctx, db, name, mode),
    }
    // Of use to this server's own append-only file, and to replicas of it.
    let has_options = strings.len() > 1 + usize::from(value.is_some());
    replicate_grant(ctx, db, string, value, has_options);
}

/// Whether what is told, of a key or of none, comes with a slot that moves to here, or to this server's
/// master. Until it has, its former server may tell more of its keys; after that a temporary key ends with
/// the time that it was given, and a lock as soon as it is looked at.
fn is_import(ctx: Ctx<'_>, name: Option<&[u8]>) -> bool {
    let shell = shell();
    let to_master = || name.is_some_and(|name| cluster::is_coming(ctx, name));
    !shell.is_loading() && (!shell.is_replica() || to_master())
}

/// A command that only the stream and the append-only file have. It makes no key, and says something of what is there.
struct InternalCommand {
    name: &'static str,
    /// Where its only key stands; 0 where it has none or several.
    key: c_int,
    /// Takes in the command of this name with these arguments, of which there is one at least. False where they make
    /// no sense.
    know: fn(Ctx<'_>, &str, &[Str<'_>]) -> bool,
}

const INTERNAL_COMMANDS: [InternalCommand; 6] = [
    internal_command("TETHER.TOKEN", 0, apply_token),
    internal_command("TETHER.BOUND", 0, apply_bound),
    internal_command(SESSION, 0, apply_session_record),
    internal_command(HOLD, 1, apply_session_record),
    internal_command(FREE, 1, apply_session_record),
    internal_command("TETHER.RENEW", 1, apply_renewal),
];

/// Each one's entry.
const ENTRIES: [c::RedisModuleCmdFunc; INTERNAL_COMMANDS.len()] = entries![entry: 0 1 2 3 4 5];

const fn internal_command(
    name: &'static str,
    key: c_int,
    know: fn(Ctx<'_>, &str, &[Str<'_>]) -> bool,
) -> InternalCommand {
    InternalCommand { name, key, know }
}

/// Registers the commands that only the stream and the append-only file have. Once, at load.
pub fn register(ctx: Ctx<'_>) -> bool {
    let mut all = INTERNAL_COMMANDS.iter().zip(ENTRIES);
    all.all(|(saying, entry)| create(ctx, saying, entry))
}

fn create(ctx: Ctx<'_>, saying: &InternalCommand, entry: c::RedisModuleCmdFunc) -> bool {
    let name = c_string(&saying.name.to_ascii_lowercase());
    let flags = c"write deny-script fast no-monitor".as_ptr();
    // SAFETY: the table, the context; the server copies the name.
    let made = unsafe {
        api!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            name.as_ptr(),
            entry,
            flags,
            saying.key,
            saying.key,
            saying.key
        ))
    };
    made == c::REDISMODULE_OK as c_int
}

/// The entry of the command number `N` of [`INTERNAL_COMMANDS`].
unsafe extern "C" fn entry<const N: usize>(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call.
        let (ctx, arguments) = unsafe { raw::given(&ctx, arguments, count) };
        let arguments = &arguments[1..];
        let InternalCommand { name, key, know } = INTERNAL_COMMANDS[N];
        if arguments.is_empty() {
            return ctx.reply_wrong_arity();
        }
        if !ctx.state().is_replay() {
            return ctx.reply_error(&format!("ERR {name} is for replication only"));
        }
        let key = (key > 0).then(|| arguments[0].bytes());
        if matches!(name, SESSION | HOLD | FREE) && is_import(ctx, key) {
            // Sessions do not move with a slot, and what they hold is nobody's there.
            return ctx.reply_integer(1);
        }
        if !know(ctx, name, arguments) {
            intake::refused(ctx, name);
            return ctx.reply_error(&format!("ERR {name} makes no sense"));
        }
        // Of use to this server's own append-only file, and to replicas of it.
        ctx.replicate_verbatim();
        ctx.reply_integer(1);
    });
    c::REDISMODULE_OK as c_int
}

/// `TETHER.TOKEN token [name value]...`: tokens from this one on may have been given. The first word of each link and file: it says
/// of which tether the server is that tells this.
fn apply_token(ctx: Ctx<'_>, _name: &str, arguments: &[Str<'_>]) -> bool {
    let words: Vec<_> = arguments[1..].iter().map(|word| word.bytes()).collect();
    let Some(sender) = Release::read(&words) else {
        return false;
    };
    shell().sender.with_mut(|last| *last = sender);
    read_token(arguments[0].bytes()).is_some_and(|token| intake::token(ctx, token))
}

/// `TETHER.BOUND key [key ...]`: these string keys, which are there, are temporary keys.
fn apply_bound(ctx: Ctx<'_>, _name: &str, arguments: &[Str<'_>]) -> bool {
    let db = ctx.db();
    for key in arguments {
        if look::standing(ctx, db, *key) == KeyState::Other {
            intake::inherited(ctx, db, key.bytes(), Mode::Temporary);
        }
    }
    true
}

/// `TETHER.RENEW key end [name value]...`: the backstop of this key ends then, in milliseconds since 1970. A `PEXPIREAT` would say the same,
/// but that is what users say, and goes before the backstop.
fn apply_renewal(ctx: Ctx<'_>, _name: &str, arguments: &[Str<'_>]) -> bool {
    let [key, end, more @ ..] = arguments else {
        return false;
    };
    let more: Vec<_> = more.iter().map(|word| word.bytes()).collect();
    let (Some(end), Some(())) = (read_moment_ms(end.bytes()), skip_pairs(&more)) else {
        return false;
    };
    let open = ctx.open_quietly(*key);
    if open.standing().is_present() {
        open.end_at_ms(end);
    }
    drop(open);
    let (db, name) = (ctx.db(), key.bytes());
    let key = Key { db, name };
    tell::handle(ctx, Event::Renewed { key });
    true
}

/// See `engine/record.rs`.
fn apply_session_record(ctx: Ctx<'_>, name: &str, arguments: &[Str<'_>]) -> bool {
    let words: Vec<_> = arguments.iter().map(|word| word.bytes()).collect();
    let record = SessionRecord::read(name, ctx.db(), &words);
    record.is_some_and(|record| intake::told_record(ctx, &record))
}
