//! Applies commands from the master's stream and the append-only file.
//!
//! There, TETHER.SETTP and TETHER.LOCK mean that a grant was made: the key was created, and a client of the other server held it.
//! (Former versions wrote SETTP and LOCK.ACQUIRE.) On this server it has no holder. A replica leaves such keys alone; once this
//! server may remove them (after promotion or loading) it does. Sessions continue here: the stream contains all of their state
//! (see `engine/record.rs`).

use crate::command::Request;
use crate::engine::{
    Cause, Event, FREE, GrantRecord, HELD_KEY, HELD_LOCK, HOLD, Key, KeyState, Mode, Pair, SESSION,
    SessionRecord, TOKENS, Token, read_moment_ms, read_pairs, read_token, skip_pairs,
};
use crate::policy::release::Release;
use crate::shell::bridge::perform::write;
use crate::shell::bridge::{recheck, tell};
use crate::shell::guard::guard;
use crate::shell::persistence::intake;
use crate::shell::server::{cluster, lookup};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Docs, Str, Target, entries};
use redis_module::raw as c;
use std::ffi::c_int;
use std::iter;

/// Applies a grant in the words of former versions, which gave no token. The reply is discarded.
pub fn apply(ctx: Ctx<'_>, request: &Request<'_, '_>, strings: &[Str<'_>]) {
    let outcome = match request {
        Request::Settp {
            sequential: false, ..
        } => make(ctx, strings[0], Some(strings[1]), Mode::Temporary, None),
        Request::Acquire { .. } => make(ctx, strings[0], None, Mode::Exclusive, None),
        _ => return ctx.reply_error("ERR only SETTP and LOCK.ACQUIRE are replicated"),
    };
    outcome.answer(ctx, "a grant");
}

/// Makes a key that was granted on the other server.
fn make(
    ctx: Ctx<'_>,
    string: Str<'_>,
    value: Option<Str<'_>>,
    mode: Mode,
    token: Option<Token>,
) -> Outcome {
    // Opened first: a key that this expires was not the new one.
    let open = ctx.open(string);
    write(ctx, string, value, || open);
    let (db, name) = (ctx.db(), string.bytes());
    let key = Key { db, name };
    match is_import(ctx, Some(name)) {
        // The key has no owner from now on: replicas of this server must not remove it.
        true if !mode.is_lock() => {
            let by = Cause::Server;
            tell::handle(ctx, Event::Replaced { key, by });
            let words: Vec<_> = iter::once(string).chain(value).collect();
            ctx.replicate(Target::All, db, "SET", &words);
            return Outcome::Done;
        }
        true if !shell().is_replica() => recheck::lock_restored(key),
        _ => intake::add_foreign_hold(ctx, db, name, mode, token),
    }
    Outcome::Applied
}

/// What became of a command.
enum Outcome {
    /// This server's own append-only file and its replicas are told the same.
    Applied,
    /// They are told something else, or nothing.
    Done,
    /// It makes no sense.
    Refused,
}

impl Outcome {
    fn applied(is_applied: bool) -> Self {
        if is_applied {
            Outcome::Applied
        } else {
            Outcome::Refused
        }
    }

    fn answer(self, ctx: Ctx<'_>, name: &str) {
        match self {
            Outcome::Applied => ctx.replicate_verbatim(),
            Outcome::Done => {}
            Outcome::Refused => {
                intake::refused(ctx, name);
                return ctx.reply_error(&format!("ERR {name} makes no sense"));
            }
        }
        ctx.reply_integer(1);
    }
}

/// Whether a command, with or without a key, belongs to a slot that this server or its master is importing. During the
/// import the source node may send more about its keys; afterwards a temporary key ends with its TTL, and a lock when it is
/// looked up.
fn is_import(ctx: Ctx<'_>, name: Option<&[u8]>) -> bool {
    let shell = shell();
    let to_master = || name.is_some_and(|name| cluster::is_importing(ctx, name));
    !shell.is_loading() && (!shell.is_replica() || to_master())
}

/// An internal command of the stream and the append-only file.
struct InternalCommand {
    name: &'static str,
    summary: &'static str,
    /// Position of its only key; 0 if it has none or several.
    key: c_int,
    /// Applies the command with this name and at least one argument.
    apply: fn(Ctx<'_>, &str, &[Str<'_>]) -> Outcome,
}

const INTERNAL_COMMANDS: &[InternalCommand] = &[
    InternalCommand {
        name: "TETHER.TOKEN",
        summary: "Replicates the last token, and the version of the module that sends it.",
        key: 0,
        apply: apply_token,
    },
    InternalCommand {
        name: "TETHER.BOUND",
        summary: "Marks keys of an append-only file as temporary.",
        key: 0,
        apply: apply_bound,
    },
    InternalCommand {
        name: SESSION,
        summary: "Replicates the start, a change or the end of a session.",
        key: 0,
        apply: apply_session_record,
    },
    InternalCommand {
        name: HOLD,
        summary: "Replicates what a session holds of a key.",
        key: 1,
        apply: apply_session_record,
    },
    InternalCommand {
        name: FREE,
        summary: "Replicates that a session no longer holds a key.",
        key: 1,
        apply: apply_session_record,
    },
    InternalCommand {
        name: "TETHER.RENEW",
        summary: "Replicates when the backstop of a temporary key ends.",
        key: 1,
        apply: apply_renewal,
    },
    InternalCommand {
        name: HELD_KEY,
        summary: "Replicates the grant of a temporary key.",
        key: 1,
        apply: apply_grant,
    },
    InternalCommand {
        name: HELD_LOCK,
        summary: "Replicates the grant of a lock.",
        key: 1,
        apply: apply_grant,
    },
];

/// The entry point of each command.
const ENTRIES: [c::RedisModuleCmdFunc; INTERNAL_COMMANDS.len()] =
    entries!(entry, INTERNAL_COMMANDS.len());

/// Registers the internal commands. Once, at load. Or says what the server refuses.
pub fn register(ctx: Ctx<'_>) -> Result<(), String> {
    for (command, entry) in INTERNAL_COMMANDS.iter().zip(ENTRIES) {
        let name = command.name.to_ascii_lowercase();
        let keys = [command.key; 3];
        // Redis 8.0 and later hide a command with the first flag from all but the master's link and the append-only file.
        // Others do not know that flag, and show the command, which refuses clients by itself.
        let create = |flags| ctx.create_command(&name, entry, flags, keys);
        let created = create("internal write deny-script fast no-monitor")
            .or_else(|| create("write deny-script fast no-monitor"));
        let created = created.ok_or_else(|| refused_command(&name))?;
        let is_described = created.describe(Docs {
            summary: command.summary,
            complexity: "O(N) with N the number of arguments",
            arity: -2,
            key_specs: &mut [],
            arguments: &mut [],
        });
        if !is_described {
            return Err(format!("the description of {name}"));
        }
    }
    Ok(())
}

/// Says that the server refuses a command.
pub fn refused_command(name: &str) -> String {
    format!("the command {name}, which another module may have")
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
        let InternalCommand {
            name, key, apply, ..
        } = INTERNAL_COMMANDS[N];
        if arguments.is_empty() {
            return ctx.reply_wrong_arity();
        }
        if !ctx.state().is_replay() {
            return ctx.reply_error(&format!("ERR {name} is for replication only"));
        }
        let key = (key > 0).then(|| arguments[0].bytes());
        if matches!(name, SESSION | HOLD | FREE) && is_import(ctx, key) {
            // Sessions do not migrate with a slot; their holds have no owner on the target.
            return ctx.reply_integer(1);
        }
        raw::in_own_execution_unit(|| {
            apply(ctx, name, arguments).answer(ctx, name);
        });
    });
    c::REDISMODULE_OK as c_int
}

/// `TETHER.TOKEN token [name value]...`: this token and later ones of its epoch may have been issued. The first command of each link and
/// file; it also names the sender's version, and in a file perhaps the tokens of the keys of the `TETHER.BOUND` that follows.
fn apply_token(ctx: Ctx<'_>, _name: &str, arguments: &[Str<'_>]) -> Outcome {
    let Some(sender) = Release::read(&words(&arguments[1..])) else {
        return Outcome::Refused;
    };
    shell().sender.with_mut(|last| *last = sender);
    let mut tokens = Vec::new();
    let is_read = read_pairs(&words(&arguments[1..]), |name, value| match name {
        TOKENS => Pair::set(&mut tokens, intake::read_tokens(value)),
        _ => Pair::Unknown,
    });
    if is_read.is_none() {
        return Outcome::Refused;
    }
    shell().bound_tokens.with_mut(|next| *next = tokens);
    let token = read_token(arguments[0].bytes());
    Outcome::applied(token.is_some_and(|token| intake::apply_token(ctx, token)))
}

fn words<'a>(arguments: &'a [Str<'_>]) -> Vec<&'a [u8]> {
    arguments.iter().map(|word| word.bytes()).collect()
}

/// `TETHER.BOUND key [key ...]`: these existing string keys are temporary keys.
fn apply_bound(ctx: Ctx<'_>, _name: &str, arguments: &[Str<'_>]) -> Outcome {
    let db = ctx.db();
    let mut tokens = shell().bound_tokens.with_mut(std::mem::take);
    if tokens.len() != arguments.len() {
        tokens.clear();
    }
    for (at, key) in arguments.iter().enumerate() {
        if lookup::key_state(ctx, db, *key) == KeyState::Other {
            let token = tokens.get(at).copied();
            intake::add_foreign_hold(ctx, db, key.bytes(), Mode::Temporary, token);
        }
    }
    Outcome::Applied
}

/// A grant; see `engine/record.rs`.
fn apply_grant(ctx: Ctx<'_>, name: &str, arguments: &[Str<'_>]) -> Outcome {
    let Some(GrantRecord { mode, token }) = GrantRecord::read(name, &words(&arguments[1..])) else {
        return Outcome::Refused;
    };
    if !intake::is_credible_token(token) {
        return Outcome::Refused;
    }
    let value = (!mode.is_lock()).then(|| arguments[2]);
    make(ctx, arguments[0], value, mode, Some(token))
}

/// `TETHER.RENEW key end [name value]...`: sets the end of this key's TTL backstop, in milliseconds since 1970. Not a
/// `PEXPIREAT`, which is a client's and takes precedence over the backstop.
fn apply_renewal(ctx: Ctx<'_>, _name: &str, arguments: &[Str<'_>]) -> Outcome {
    let [key, end, more @ ..] = arguments else {
        return Outcome::Refused;
    };
    let (Some(end), Some(())) = (read_moment_ms(end.bytes()), skip_pairs(&words(more))) else {
        return Outcome::Refused;
    };
    let open = ctx.open_no_touch(*key);
    if open.key_state().is_present() {
        open.expire_at_ms(end);
    }
    drop(open);
    let (db, name) = (ctx.db(), key.bytes());
    let key = Key { db, name };
    tell::handle(ctx, Event::Renewed { key });
    Outcome::Applied
}

/// See `engine/record.rs`.
fn apply_session_record(ctx: Ctx<'_>, name: &str, arguments: &[Str<'_>]) -> Outcome {
    let record = SessionRecord::read(name, ctx.db(), &words(arguments));
    let is_applied = |record| intake::apply_streamed_record(ctx, &record);
    Outcome::applied(record.is_some_and(is_applied))
}
