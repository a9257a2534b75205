//! Performs the engine's effects, one at a time. The engine is told nothing here: what follows from an effect is returned.

use crate::engine::{ClientId, Db, Effect, Key, KeyBuf, KeyState};
use crate::policy::blocked::Answer;
use crate::shell::bridge::losses;
use crate::shell::delivery::{blocked, push, replication, reply};
use crate::shell::server::{attribution, epochs, io_threads, keepalive, subscriptions};
use crate::shell::state::{self, shell};
use crate::shell::sys::at_end::meanwhile;
use crate::shell::sys::raw::{self, Ctx, OpenKey, Str, Text, Word};
use std::cell::Cell;

/// The command that is being answered.
pub struct CommandContext<'a> {
    /// Its first argument: where it is about one key, that key.
    pub key: Key<'a>,
    /// The same, as the server has it.
    pub name: Str<'a>,
    /// A temporary key's value; none for a lock.
    pub value: Option<Str<'a>>,
    /// Whether it says more than these.
    pub has_options: bool,
    /// The key as it was opened to look at it, so that it is looked up once.
    pub open: Cell<Option<OpenKey<'a>>>,
}

/// What the engine is to be told because of an effect, before the next one is performed.
pub enum Follows {
    Nothing,
    /// The server does not block this connection.
    BlockRefused(ClientId),
    /// The key had no time to live, and has its backstop now.
    Renewed(KeyBuf),
    /// Something else stands at the key than was thought.
    Found(KeyBuf, KeyState),
}

/// Performs one effect.
pub fn perform(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, effect: Effect) -> Follows {
    match effect {
        Effect::Reply(answer) => reply::send(ctx, &answer),
        Effect::Block => {
            if !blocked::block(ctx) {
                return Follows::BlockRefused(ctx.client());
            }
        }
        Effect::Answer {
            client,
            reply,
            granted,
        } => {
            let answer = Answer { reply, granted };
            blocked::answer(ctx, client, answer, in_command.is_some());
        }
        Effect::CreateKey => match in_command {
            Some(in_command) => create_key(ctx, in_command),
            None => state::fault("a key was to be made without a command that asks for it"),
        },
        Effect::Make { key, value } => {
            let string = string_of(&value);
            with_name(ctx, in_command, key.as_key(), |ctx, name| {
                make(ctx, key.db, name, Some(string.as_str()));
            });
            shell().value.set((value.len() <= SHORT).then_some(string));
        }
        Effect::MakeLock { key } => {
            with_name(ctx, in_command, key.as_key(), |ctx, name| {
                make(ctx, key.db, name, None);
            });
        }
        Effect::Remove(key) => {
            with_name(ctx, in_command, key.as_key(), |ctx, name| {
                remove(ctx, key.db, name);
            });
        }
        Effect::Renew {
            key,
            least_ms,
            most_ms,
        } => {
            close(in_command);
            return renew(ctx, key, least_ms, most_ms);
        }
        Effect::Persist(key) => {
            close(in_command);
            persist(ctx, key.as_key());
        }
        Effect::ReplicateToken(token) => {
            ctx.replicate_token(token);
            epochs::replicate_epoch(ctx, token);
        }
        Effect::Replicate(record) => replication::replicate(ctx, &record),
        Effect::Push { to, push } => push::send(ctx, to, push),
        Effect::EnablePush(client) => {
            subscriptions::to_keys(ctx);
            io_threads::attend(ctx, client);
        }
        Effect::TrackDisconnect(client) => {
            attribution::observe(ctx);
            let _ = keepalive::notice_death(ctx, client);
        }
        Effect::CountAcks => {
            // See `acks.rs`.
            shell().counts_acks.set(true);
            subscriptions::to_event_loop(ctx);
        }
        Effect::Lost(lost) => losses::log(ctx, lost),
        Effect::NextHolder { key, token } => losses::change(|log| log.granted(key.as_key(), token)),
    }
    Follows::Nothing
}

/// No longer value is kept.
const SHORT: usize = 1024;

/// A value as a string of the server's. Those who take turns at a key mostly give it the same value, and to make a string of
/// it and to free that takes longer than to write it: so the last one is kept.
fn string_of(value: &[u8]) -> Text {
    let last = shell().value.take();
    let same = last.filter(|last| last.as_str().bytes() == value);
    same.unwrap_or_else(|| Text::new(value))
}

/// Closes what was opened, before a key is written by its name: it may be the same key, and would be closed after its value
/// is freed.
fn close(in_command: Option<&CommandContext<'_>>) {
    if let Some(in_command) = in_command {
        in_command.open.take();
    }
}

/// Gives `act` what it needs to write a key: a context in which its database is selected, and its name as a string of the
/// server's. Both are the command's own where it is that key.
fn with_name(
    ctx: Ctx<'_>,
    in_command: Option<&CommandContext<'_>>,
    key: Key<'_>,
    act: impl FnOnce(Ctx<'_>, Str<'_>),
) {
    close(in_command);
    match in_command {
        Some(in_command) if in_command.key == key => act(ctx, in_command.name),
        _ => act(ctx.in_db(key.db), Text::new(key.name).as_str()),
    }
}

fn create_key(ctx: Ctx<'_>, in_command: &CommandContext<'_>) {
    let CommandContext { name, value, .. } = *in_command;
    let open = in_command.open.take();
    write(ctx, name, value, || open.unwrap_or_else(|| ctx.open(name)));
    replicate_grant(ctx, in_command.key.db, name, value, in_command.has_options);
}

/// Tells replicas and the append-only file that the key was made, and that somebody here holds it. The command that is
/// executed says the same, and is told as it is, which costs less; but for its options, which are its client's affair: another
/// version of the module may not know them.
pub fn replicate_grant(
    ctx: Ctx<'_>,
    db: Db,
    key: Str<'_>,
    value: Option<Str<'_>>,
    has_options: bool,
) {
    if !has_options {
        return ctx.replicate_verbatim();
    }
    let word = if value.is_some() {
        Word::Settp
    } else {
        Word::Acquire
    };
    ctx.replicate(db, word, key, value);
}

/// In a context in which this database is selected.
fn make(ctx: Ctx<'_>, db: Db, key: Str<'_>, value: Option<Str<'_>>) {
    write(ctx, key, value, || ctx.open(key));
    replicate_grant(ctx, db, key, value, true);
}

/// Makes a temporary key, or without a value a lock. To open the key can expire what stood there, unnoticed until then:
/// that was the former holder's and ends nothing of the new one's, so it is part of the making.
pub fn write<'a>(
    ctx: Ctx<'_>,
    key: Str<'_>,
    value: Option<Str<'_>>,
    open: impl FnOnce() -> OpenKey<'a>,
) {
    let made = performing(key, || match value {
        Some(value) => ctx.make(key, open(), value),
        None => ctx.make_lock(key, open()),
    });
    if !made {
        state::fault("the server refused to make a key");
    }
}

/// As in [`make`].
fn remove(ctx: Ctx<'_>, db: Db, key: Str<'_>) {
    if performing(key, || ctx.remove(key, ctx.open(key))) {
        ctx.replicate(db, Word::Del, key, None);
    }
}

/// While the server wants no writes a key is renewed all the same, lest it ends meanwhile. Only
/// others are not told, who end no key by themselves; they are as soon as may be.
fn renew(ctx: Ctx<'_>, key: KeyBuf, least_ms: u64, most_ms: u64) -> Follows {
    let name = Text::new(&key.name);
    let open = ctx.in_db(key.db).open_quietly(name.as_str());
    let standing = open.standing();
    if !standing.is_present() {
        return Follows::Found(key, standing);
    }
    let left_ms = open.left_ms();
    if left_ms.is_some_and(|left_ms| left_ms >= least_ms) {
        return Follows::Nothing;
    }
    let end_ms = open.end_in_ms(most_ms);
    drop(open);
    if raw::must_not_write() {
        shell().unreplicated.set(true);
    } else {
        ctx.replicate_end(key.db, name.as_str(), Some(end_ms));
    }
    match least_ms {
        0 => Follows::Renewed(key),
        _ => Follows::Nothing,
    }
}

/// Longer than a server is paused: a key whose end is so far away does not end meanwhile.
const A_YEAR_MS: u64 = 365 * 24 * 3600 * 1000;

/// While the server wants no writes the key's end is put far away, so that the visit in which others may be told finds it and
/// takes it away.
fn persist(ctx: Ctx<'_>, key: Key<'_>) {
    let name = Text::new(key.name);
    let open = ctx.in_db(key.db).open_quietly(name.as_str());
    if !open.standing().is_present() || open.left_ms().is_none() {
        return;
    }
    if raw::must_not_write() {
        open.end_in_ms(A_YEAR_MS);
        shell().unreplicated.set(true);
    } else {
        open.never_end();
        drop(open);
        ctx.replicate_end(key.db, name.as_str(), None);
    }
}

/// Runs `act`; events for this key meanwhile are of our own making.
fn performing<T>(key: Str<'_>, act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&shell().performing, Some(key.as_ptr()));
    act()
}
