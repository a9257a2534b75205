//! Performs the engine's effects, one at a time. Never calls the engine: returns what follows from an effect.

use crate::engine::{
    Bytes, ClientId, Effect, GrantRecord, Key, KeyBuf, KeyState, Mode, Presence, Reply,
    SnapshotPage,
};
use crate::policy::blocked::Answer;
use crate::shell::bridge::losses;
use crate::shell::delivery::{blocked, presence, push};
use crate::shell::server::{attribution, epochs, io_threads, keepalive, replicas, subscriptions};
use crate::shell::state::{self, shell};
use crate::shell::sys::at_end::meanwhile;
use crate::shell::sys::raw::{self, Ctx, OpenKey, Str, Target, Text};
use crate::wire::replies;
use std::cell::Cell;

/// The command that is being executed.
pub struct CommandContext<'a> {
    /// Its first argument as a key; the only key of a single-key command.
    pub key: Key<'a>,
    /// The server's string of that argument.
    pub name: Str<'a>,
    /// The value of a temporary key; `None` for a lock.
    pub value: Option<Str<'a>>,
    /// The handle that the lookup opened; the write reuses it.
    pub open: Cell<Option<OpenKey<'a>>>,
}

/// What follows from an effect. The engine must hear of it before the next effect is performed.
pub enum Follows {
    Nothing,
    /// The server refused to block this client.
    BlockRefused(ClientId),
    /// The key had no TTL; the backstop TTL is set now.
    Renewed(KeyBuf),
    /// The key's state differs from what the engine assumed.
    Found(KeyBuf, KeyState),
    /// Of the page for this client and prefix only the keys up to this name were returned.
    PageCut(ClientId, KeyBuf, Bytes),
    /// What these clients may see is not what it was.
    SightLost(Vec<ClientId>),
}

/// Performs one effect.
pub fn perform(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, effect: Effect) -> Follows {
    match effect {
        Effect::Reply(Reply::Page(page)) => return send_page(ctx, *page),
        Effect::Reply(answer) => replies::send(&mut { ctx }, &answer),
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
        Effect::CreateKey { mode, token } => match in_command {
            Some(in_command) => create_key(ctx, in_command, GrantRecord { mode, token }),
            None => state::fault("a key was to be made without a command that asks for it"),
        },
        Effect::Make { key, value, token } => {
            let string = string_of(&value);
            let mode = Mode::Temporary;
            let grant = GrantRecord { mode, token };
            make(ctx, in_command, &key, Some(string.as_str()), grant);
            cache_value(&value, string);
        }
        Effect::MakeLock { key, mode, token } => {
            make(ctx, in_command, &key, None, GrantRecord { mode, token });
        }
        Effect::Remove(key) => remove(ctx, in_command, &key),
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
            ctx.replicate_token(Target::All, token);
            epochs::broadcast_token(ctx, token);
        }
        Effect::Replicate(record) => {
            replicate(ctx, in_command, || {
                ctx.replicate_record(Target::All, ctx.db(), &record);
            });
        }
        Effect::Push { to, push } => push::send(ctx, to, push),
        Effect::Presence(change) => return push_presence(ctx, *change),
        Effect::EnablePush(client) => {
            subscriptions::to_keys(ctx);
            io_threads::enable_push(ctx, client);
        }
        Effect::TrackDisconnect(client) => {
            attribution::observe(ctx);
            let _ = keepalive::detect_dead_peer(ctx, client);
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

fn send_page(ctx: Ctx<'_>, page: SnapshotPage) -> Follows {
    match presence::send_page(ctx, &page) {
        Some(last) => Follows::PageCut(page.client, page.prefix, last),
        None => Follows::Nothing,
    }
}

fn push_presence(ctx: Ctx<'_>, change: Presence) -> Follows {
    if shell().has_deferred.get() {
        // It is told with its value.
        let rechecks = &shell().rechecks;
        rechecks.with_mut(|queue| queue.value_told(change.key.as_key()));
    }
    let blind = presence::push(ctx, change);
    match blind.is_empty() {
        true => Follows::Nothing,
        false => Follows::SightLost(blind),
    }
}

/// Longer values are not cached.
const MAX_CACHED_BYTES: usize = 1024;

/// A server string with this value. Successive holders of a key mostly write the same value, and allocating and freeing the
/// string costs more than the write, so the last one is cached.
fn string_of(value: &[u8]) -> Text {
    let last = shell().value.take();
    let same = last.filter(|last| last.as_str().bytes() == value);
    same.unwrap_or_else(|| Text::new(value))
}

fn cache_value(value: &[u8], string: Text) {
    let is_short = value.len() <= MAX_CACHED_BYTES;
    shell().value.set(is_short.then_some(string));
}

/// Closes the command's key handle before a key is written by name: if it is the same key, the handle would be closed after
/// its value is freed.
fn close(in_command: Option<&CommandContext<'_>>) {
    if let Some(in_command) = in_command {
        in_command.open.take();
    }
}

/// Calls `act` with a context that selects the key's database, and with the key's name as a server string. Both are the
/// command's own if the command names this key.
fn with_name(
    ctx: Ctx<'_>,
    in_command: Option<&CommandContext<'_>>,
    key: Key<'_>,
    act: impl FnOnce(Ctx<'_>, Str<'_>),
) {
    close(in_command);
    match in_command {
        Some(in_command) if in_command.key == key => act(ctx, in_command.name),
        _ => act(*ctx.in_db(key.db), Text::new(key.name).as_str()),
    }
}

fn create_key(ctx: Ctx<'_>, in_command: &CommandContext<'_>, grant: GrantRecord) {
    let CommandContext { name, value, .. } = *in_command;
    let open = in_command.open.take();
    write(ctx, name, value, || open.unwrap_or_else(|| ctx.open(name)));
    replicate(ctx, Some(in_command), || {
        ctx.replicate_grant(in_command.key.db, name, value, grant);
    });
}

fn make(
    ctx: Ctx<'_>,
    in_command: Option<&CommandContext<'_>>,
    key: &KeyBuf,
    value: Option<Str<'_>>,
    grant: GrantRecord,
) {
    with_name(ctx, in_command, key.as_key(), |there, name| {
        write(there, name, value, || there.open(name));
        replicate(ctx, in_command, || {
            there.replicate_grant(key.db, name, value, grant);
        });
    });
}

/// Replicates a change in words of its own, never in those of its client: a replica of another version may not know the
/// client's options. If nobody reads them, the command stands for them: that is cheaper, and `save` counts the change, too.
#[inline]
fn replicate(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, say: impl FnOnce()) {
    if in_command.is_some() && replicas::nobody_reads(ctx) {
        ctx.replicate_verbatim();
    } else {
        say();
    }
}

/// Writes a temporary key, or a lock if `value` is `None`. Opening the key may expire the previous value. That event
/// belongs to this write: the engine must not see it as the loss of the new hold.
pub fn write<'a>(
    ctx: Ctx<'_>,
    key: Str<'_>,
    value: Option<Str<'_>>,
    open: impl FnOnce() -> OpenKey<'a>,
) {
    let made = writing_key(key, || match value {
        Some(value) => ctx.make(key, open(), value),
        None => ctx.make_lock(key, open()),
    });
    if !made {
        state::fault("the server refused to make a key");
    }
}

fn remove(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, key: &KeyBuf) {
    with_name(ctx, in_command, key.as_key(), |there, name| {
        if writing_key(name, || there.remove(name, there.open(name))) {
            replicate(ctx, in_command, || {
                there.replicate(Target::All, key.db, "DEL", &[name]);
            });
        }
    });
}

/// Refreshes the TTL backstop. While the server refuses writes the TTL is still set, so that the key does not expire;
/// replicas, which never expire a key themselves, get it once writes resume.
fn renew(ctx: Ctx<'_>, key: KeyBuf, least_ms: u64, most_ms: u64) -> Follows {
    let name = Text::new(&key.name);
    let open = ctx.in_db(key.db).open_no_touch(name.as_str());
    let state = open.key_state();
    if !state.is_present() {
        return Follows::Found(key, state);
    }
    let left_ms = open.ttl_ms();
    if left_ms.is_some_and(|left_ms| left_ms >= least_ms) {
        return Follows::Nothing;
    }
    let end_ms = open.expire_in_ms(most_ms);
    drop(open);
    if raw::must_not_write() {
        shell().has_unreplicated_ttls.set(true);
    } else {
        ctx.replicate_ttl(key.db, name.as_str(), Some(end_ms));
    }
    match least_ms {
        0 => Follows::Renewed(key),
        _ => Follows::Nothing,
    }
}

/// One year: longer than any pause.
const FAR_AWAY_MS: u64 = 365 * 24 * 3600 * 1000;

/// Removes the TTL. While the server refuses writes, sets a very distant one instead: the next pass that may replicate
/// finds and removes it.
fn persist(ctx: Ctx<'_>, key: Key<'_>) {
    let name = Text::new(key.name);
    let open = ctx.in_db(key.db).open_no_touch(name.as_str());
    if !open.key_state().is_present() || open.ttl_ms().is_none() {
        return;
    }
    if raw::must_not_write() {
        open.expire_in_ms(FAR_AWAY_MS);
        shell().has_unreplicated_ttls.set(true);
    } else {
        open.persist();
        drop(open);
        ctx.replicate_ttl(key.db, name.as_str(), None);
    }
}

/// Runs `act`, and ignores keyspace events of this key meanwhile: the module causes them.
fn writing_key<T>(key: Str<'_>, act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&shell().key_being_written, Some(key.as_ptr()));
    act()
}
