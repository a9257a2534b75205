//! Command entry points: arguments in, an event for the engine out.

use crate::command::{self, Access, Ask, BadInput, KeyPlaces, Request, Spec, TABLE, Verb};
use crate::engine::{
    Acquire, ClientId, Db, Engine, Event, Few, Form, Key, KeySnapshot, Raise, SessionId, Start,
    Token, Wait, WatchPrefix,
};
use crate::shell::bridge::perform::CommandContext;
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::tell::{handle, handle_in_command};
use crate::shell::bridge::{acks, losses, slices, slots};
use crate::shell::commands::{guarded, inspect, operators, places, sequence};
use crate::shell::delivery::{blocked, push};
use crate::shell::guard::guard;
use crate::shell::persistence::stream;
use crate::shell::server::{
    attribution, cluster, lookup, private, replicas, rights, subscriptions, writes,
};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, OpenKey, Str};
use crate::shell::sys::{clock, secret, shim};
use crate::shell::timer;
use crate::wire::reports;
use redis_module::raw as c;
use std::cell::Cell;
use std::ffi::c_int;

/// The entry of the table's command number `N`.
pub unsafe extern "C" fn entry<const N: usize>(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    let is_done = guard(false, || {
        // SAFETY: the server's arguments, for the length of this call.
        let (ctx, arguments) = unsafe { raw::given(&ctx, arguments, count) };
        if shell().server.get().pushes_before_reply && !shell().knows_executing.get() {
            let knows = shim::learn_executing(ctx.client());
            shell().knows_executing.set(knows);
        }
        raw::in_own_execution_unit(|| run(ctx, &TABLE[N], &arguments[1..]));
        true
    });
    if !is_done {
        // SAFETY: as above.
        guard((), || give_up(unsafe { Ctx::new(&ctx) }));
    }
    c::REDISMODULE_OK as c_int
}

/// After a panic in a command: its connection may lack a reply, and would take the next ones for those of other commands, so it is
/// closed. Blocked clients that the command has answered get their answers.
#[cold]
fn give_up(ctx: Ctx<'_>) {
    if !ctx.state().is_replay() {
        // The server closes a connection after a reply.
        ctx.reply_error("ERR tether has stopped after a fault; the server's log tells which");
        ctx.close(ctx.client());
    }
    blocked::unblock_answered();
}

fn run(ctx: Ctx<'_>, spec: &'static Spec, strings: &[Str<'_>]) {
    // Most commands have few arguments, which need no allocation.
    const STACK_ARGUMENTS: usize = 8;
    let mut on_stack: [&[u8]; STACK_ARGUMENTS] = [&[]; STACK_ARGUMENTS];
    let on_heap: Vec<&[u8]>;
    let arguments: &[&[u8]] = if strings.len() <= STACK_ARGUMENTS {
        for (place, string) in on_stack.iter_mut().zip(strings) {
            *place = string.bytes();
        }
        &on_stack[..strings.len()]
    } else {
        on_heap = strings.iter().map(|string| string.bytes()).collect();
        &on_heap
    };
    let request = match command::parse(spec, arguments) {
        Ok(request) => request,
        Err(BadInput::WrongArity) => return ctx.reply_wrong_arity(),
        Err(BadInput::Because(why)) => return ctx.reply_error(&format!("ERR {why}")),
    };
    if let Some(cause) = shell().fault.with(Option::clone) {
        return ctx.reply_error(&format!("ERR tether has stopped after a fault: {cause}"));
    }
    // These need no connection.
    match request {
        Request::Check { key, token } => return guarded::check(ctx, strings[0], key, token),
        Request::Guard { key, token } => return guarded::run(ctx, strings, key, token),
        _ => {}
    }
    if may_be_replay() && ctx.state().is_replay() {
        return stream::apply(ctx, &request, strings);
    }
    let Some(client) = connection(ctx) else {
        return ctx.reply_error(&format!(
            "ERR {} needs a connection of its own: scripts, functions and modules have none",
            spec.name.to_ascii_uppercase()
        ));
    };
    if let Some(words) = operators::refused(ctx, spec.verb, client) {
        return ctx.reply_error(words);
    }
    let keys = places::keys_of(spec.keys, &request, strings);
    if matches!(spec.access, Access::Write | Access::Release) && shell().is_replica() {
        return refuse_as_replica(ctx, spec, keys);
    }
    if spec.keys == KeyPlaces::Numbered
        && let Some(error) = places::refuse_cross_slot(keys)
    {
        return ctx.reply_error(error);
    }
    let _executing = push::set_executing_client(client);
    catch_up_before(ctx, spec, client, keys);
    let caller = Caller {
        ctx,
        client,
        db: ctx.db(),
        spec,
        strings,
        words: arguments,
    };
    caller.answer(request);
    #[cfg(debug_assertions)]
    fault_if_asked_for(spec);
    blocked::unblock_answered();
}

/// For the tests of what becomes of a panic.
#[cfg(debug_assertions)]
fn fault_if_asked_for(spec: &Spec) {
    use std::ffi::OsString;
    use std::sync::LazyLock;
    static COMMAND: LazyLock<Option<OsString>> = LazyLock::new(|| std::env::var_os("TETHER_FAULT"));
    if COMMAND.as_ref().is_some_and(|name| name == spec.name) {
        panic!("the fault that TETHER_FAULT asks for");
    }
}

/// Refuses a command that writes, as the server does. It passes on releases, which it does not know as writes: in a cluster they
/// come from connections that read from replicas.
#[cold]
fn refuse_as_replica(ctx: Ctx<'_>, spec: &Spec, keys: &[Str<'_>]) {
    if let (Access::Release, true, [first, ..]) =
        (spec.access, shell().server.get().is_cluster, keys)
    {
        let key = Key {
            db: ctx.db(),
            name: first.bytes(),
        };
        return ctx.reply_error(&cluster::redirection(ctx, key));
    }
    ctx.reply_error("READONLY You can't write against a read only replica.");
}

/// Handles what happened before the command: deferred work on its keys, and queued pushes to its client.
#[inline(always)]
fn catch_up_before(ctx: Ctx<'_>, spec: &Spec, client: ClientId, keys: &[Str<'_>]) {
    let scope = KeyScope::of_command(ctx, keys);
    send_before(ctx, client);
    if recheck::handle_deferred(ctx, scope) {
        send_before(ctx, client);
    }
    // Resuming or detaching a session writes nothing, and must not cause a write.
    let may_write = match spec.access {
        Access::Write => {
            let writes = !matches!(spec.verb, Verb::Resume | Verb::Detach);
            if writes && !shell().engine.with(Engine::accepts_writes) {
                update_accepts_writes(ctx);
            }
            writes
        }
        // The server takes it also with too few replicas. Then nobody is granted what it frees.
        Access::Release => update_accepts_writes(ctx),
        Access::Withdraw => writes::may_write_now(ctx),
        Access::Look => false,
    };
    if may_write {
        slots::redirect_from_leaving(ctx, scope);
        slices::end_leases(ctx, scope, keys);
    }
    if !looks_keys_up(spec.verb) {
        recheck::remove_expired(ctx, keys);
    }
}

/// Whether there are enough replicas for a write: the engine is told of each change.
fn update_accepts_writes(ctx: Ctx<'_>) -> bool {
    let accepted = replicas::has_enough(ctx);
    if accepted != shell().engine.with(Engine::accepts_writes) {
        handle(ctx, Event::Writes { accepted });
    }
    accepted
}

/// Whether a command looks its keys up, or only forgets them. The others act on their holds, or report them.
fn looks_keys_up(verb: Verb) -> bool {
    use Verb::{Acquire, Macquire, Settp, Unwatchex, Watchex};
    matches!(verb, Acquire | Macquire | Settp | Unwatchex | Watchex)
}

fn send_before(ctx: Ctx<'_>, client: ClientId) {
    if push::is_any_waiting() {
        match ctx.state().in_exec() {
            true => push::begin_in_exec(client),
            false => push::send_before(ctx, client),
        }
    }
}

/// Whether a command may come from a master, a file, or a node that this one imports a slot from. Cheaper than asking the
/// server.
fn may_be_replay() -> bool {
    let shell = shell();
    shell.server.get().is_cluster || shell.is_replica() || shell.is_loading()
}

/// The client of this command. Scripts cannot call these commands; calls by other modules have no connection.
fn connection(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ctx.client();
    attribution::is_connected(client).then_some(client)
}

/// The executing command and its client.
struct Caller<'a> {
    ctx: Ctx<'a>,
    client: ClientId,
    db: Db,
    spec: &'static Spec,
    /// Its arguments as server strings, and their bytes.
    strings: &'a [Str<'a>],
    words: &'a [&'a [u8]],
}

impl<'c> Caller<'c> {
    fn answer(&self, request: Request<'_, '_>) {
        let ctx = self.ctx;
        match request {
            Request::Settp {
                key,
                value,
                token,
                sequential,
                ask,
            } => match sequential {
                true => self.settp_next(value, ask),
                false => self.settp(key, value, token, ask),
            },
            Request::Acquire { keys, ask } => self.acquire(keys, ask),
            Request::Deltp { keys } => {
                let keys = self.keys(keys);
                self.handle(Event::Drop {
                    client: self.client,
                    keys: &keys,
                });
            }
            Request::Release { key, label, all } => self.handle(Event::Release {
                client: self.client,
                key: self.key(key),
                label,
                all,
            }),
            Request::Extend {
                key,
                lease_ms,
                label,
            } => self.handle(Event::Extend {
                client: self.client,
                key: self.key(key),
                label,
                lease_ms,
            }),
            Request::Raise { key, token, label } => self.handle(Event::Raise(Raise {
                client: self.client,
                key: self.key(key),
                label,
                token: Token(token),
                most: Engine::max_raise(clock::since_1970()),
            })),
            Request::Cancel { key, label } => self.handle(Event::Cancel {
                client: self.client,
                key: self.key(key),
                label,
            }),
            Request::Watchex { keys } => self.watchex(keys),
            Request::Unwatchex { keys } => self.unwatchex(keys),
            Request::Watchtp {
                prefix,
                goes_on,
                keys_only,
            } => self.watchtp(prefix, goes_on, keys_only),
            Request::Unwatchtp { prefix } => self.handle(Event::UnwatchPrefix {
                client: self.client,
                prefix: prefix.map(|prefix| self.key(prefix)),
            }),
            Request::ResetLog => inspect::reset_log(ctx),
            about_sessions => self.answer_about_sessions(about_sessions),
        }
    }

    fn answer_about_sessions(&self, request: Request<'_, '_>) {
        let (ctx, client) = (self.ctx, self.client);
        match request {
            Request::Start { grace_ms } => self.start(grace_ms),
            Request::Resume { secret, notify } => self.resume(secret, notify),
            Request::EndSession => self.handle(Event::EndSession {
                client,
                later: self.is_bound_to_slot(),
            }),
            Request::Detach => {
                losses::note_origin(ctx, client);
                self.handle(Event::Detach { client });
            }
            Request::KillSession { id } => self.handle(Event::KillSession {
                session: SessionId(id),
                later: self.is_bound_to_slot(),
            }),
            report => reports::answer(&mut { ctx }, &report),
        }
    }

    /// Whether the session's keys may be in another slot than this transaction; see `KeyScope`.
    fn is_bound_to_slot(&self) -> bool {
        shell().server.get().is_cluster && self.ctx.state().in_exec()
    }

    fn start(&self, grace_ms: u64) {
        let most = u64::from(shell().settings.get().max_grace_ms);
        if grace_ms > most {
            return self.ctx.reply_error(&format!(
                "ERR GRACE is out of range, it goes from 1 to {most} (tether.max-grace)"
            ));
        }
        let secret = secret::new();
        self.handle(Event::Start(Start {
            client: self.client,
            secret: &secret,
            digest: secret::digest(&secret),
            grace_ms,
            user: self.ctx.user_name().as_bytes(),
        }));
    }

    fn resume(&self, secret: &[u8], notify: bool) {
        if notify && !self.may_push() {
            return;
        }
        self.handle(Event::Resume {
            client: self.client,
            digest: secret::digest(secret),
            notify,
        });
    }

    fn settp(&self, name: &[u8], value: &[u8], token: bool, ask: Ask<'_>) {
        let (in_command, seen) = self.open(self.strings[0], name, Some(self.strings[1]));
        let ask = Acquire {
            seen: &[seen],
            value,
            form: if token { Form::SettpToken } else { Form::Settp },
            ..self.acquire_event(ask)
        };
        self.request(Some(&in_command), ask);
    }

    /// `SETTP ... SEQ`: as SETTP of the name that it makes.
    #[cold]
    fn settp_next(&self, value: &[u8], ask: Ask<'_>) {
        let made = match sequence::next_name(self.ctx, self.strings[0]) {
            Ok(made) => made,
            Err(error) => return self.ctx.reply_error(&error),
        };
        let name = made.as_str();
        let (in_command, seen) = self.open(name, name.bytes(), Some(self.strings[1]));
        let ask = Acquire {
            seen: &[seen],
            value,
            form: Form::Sequence,
            ..self.acquire_event(ask)
        };
        self.request(Some(&in_command), ask);
    }

    /// The event for a request, still without its keys.
    #[inline(always)]
    fn acquire_event<'b>(&self, ask: Ask<'b>) -> Acquire<'b> {
        Acquire {
            client: self.client,
            seen: &[],
            terms: ask.terms,
            value: b"",
            wait: ask.wait,
            form: match self.spec.keys {
                KeyPlaces::First => Form::Lock,
                _ => Form::Locks,
            },
            in_command: self.spec.keys == KeyPlaces::First,
        }
    }

    fn acquire(&self, names: &[&[u8]], ask: Ask<'_>) {
        let ask = self.acquire_event(ask);
        if ask.in_command {
            let (in_command, seen) = self.open(self.strings[0], names[0], None);
            let seen = &[seen];
            self.request(Some(&in_command), Acquire { seen, ..ask });
        } else {
            // The keys follow their number.
            let strings = &self.strings[1..=names.len()];
            if let Some(error) = places::refuse_during_migration(self.ctx, strings) {
                return self.ctx.reply_error(error);
            }
            let seen = &self.look_up_all(strings, names);
            let in_command = self.first_key_context();
            self.request(in_command.as_ref(), Acquire { seen, ..ask });
        }
    }

    /// Passes a request to the engine, unless it is refused.
    #[inline(always)]
    fn request(&self, in_command: Option<&CommandContext<'_>>, ask: Acquire<'_>) {
        // A client that is notified of the grant is notified of a loss, too.
        if ask.terms.attributes.notify && !self.may_push() {
            return;
        }
        if ask.terms.acks.is_some() && !self.may_count_acks() {
            return;
        }
        let wait = self.wait_allowed(ask.wait, ask.seen);
        let event = Event::Acquire(Acquire { wait, ..ask });
        handle_in_command(self.ctx, in_command, event);
        self.subscribe_if_waiting(wait);
    }

    /// Opens the requested key and reads its state.
    #[inline(always)]
    fn open<'a>(
        &self,
        string: Str<'a>,
        name: &'a [u8],
        value: Option<Str<'a>>,
    ) -> (CommandContext<'a>, KeySnapshot<'a>)
    where
        'c: 'a,
    {
        let open: OpenKey<'a> = self.ctx.open(string);
        let key = self.key(name);
        let seen = KeySnapshot {
            key,
            state: open.key_state(),
        };
        let in_command = CommandContext {
            key,
            name: string,
            value,
            open: Cell::new(Some(open)),
        };
        (in_command, seen)
    }

    /// How this request may wait. In a transaction no client can be blocked, so requests do not wait.
    fn wait_allowed(&self, wait: Option<Wait>, seen: &[KeySnapshot<'_>]) -> Option<Wait> {
        let wait = wait?;
        // The flags cost a call, and mostly the lock is free.
        let is_had = |engine: &Engine| engine.is_uncontended(seen);
        if !wait.push && shell().engine.with(is_had) {
            return Some(wait);
        }
        (!self.ctx.state().denies_blocking()).then_some(wait)
    }

    /// After a request that might wait: once any request waits, subscribes to key creations and ACL changes. Until then
    /// they cost nothing.
    fn subscribe_if_waiting(&self, wait: Option<Wait>) {
        if wait.is_some() && shell().engine.with(|engine| engine.is_awaited()) {
            subscriptions::to_new_keys(self.ctx);
            rights::observe(self.ctx);
        }
    }

    /// Whether this client can get pushes; if not, replies with an error.
    fn may_push(&self) -> bool {
        if !shim::can_push() {
            self.refuse_private("pushes are");
            return false;
        }
        if !shell().settings.get().resp2_push && !self.ctx.state().resp3() {
            self.ctx.reply_error(
                "ERR pushes to RESP2 connections are switched off (tether.resp2-push); say HELLO 3 first",
            );
            return false;
        }
        true
    }

    /// Refuses what needs private functions of the server.
    #[cold]
    fn refuse_private(&self, what: &str) {
        let why = private::why_not();
        let why = why
            .as_deref()
            .unwrap_or("this server lacks a function that tether needs for that");
        let text = format!("ERR {what} off: {why} (see docs/servers.md)");
        self.ctx.reply_error(&text);
    }

    /// Whether replicas can acknowledge a grant; if not, replies with an error.
    #[cold]
    fn may_count_acks(&self) -> bool {
        if !shim::can_count_acks() {
            self.refuse_private("ACKS is");
            return false;
        }
        if self.ctx.state().denies_blocking() {
            self.ctx
                .reply_error("ERR option ACKS cannot be used in a transaction");
            return false;
        }
        acks::count_replicas(self.ctx);
        true
    }

    fn watchex(&self, names: &[&[u8]]) {
        if !self.may_push() {
            return;
        }
        subscriptions::to_new_keys(self.ctx);
        let seen = self.look_up_all(self.strings, names);
        self.handle(Event::Watch {
            client: self.client,
            seen: &seen,
        });
    }

    fn watchtp(&self, prefix: &[u8], goes_on: bool, keys_only: bool) {
        if self.ctx.state().in_exec() {
            // The pushes for what the transaction did before would follow a page that has it already.
            return self
                .ctx
                .reply_error("ERR WATCHTP cannot be used in a transaction");
        }
        if let Some(error) = places::refuse_untagged(prefix) {
            return self.ctx.reply_error(error);
        }
        if let Some(error) = cluster::redirect_unserved(self.ctx, self.key(prefix)) {
            return self.ctx.reply_error(&error);
        }
        if !self.may_push() {
            return;
        }
        if !keys_only {
            subscriptions::to_values(self.ctx);
        }
        rights::observe(self.ctx);
        cluster::begins_in_slot_of(prefix);
        self.handle(Event::WatchPrefix(WatchPrefix {
            client: self.client,
            prefix: self.key(prefix),
            goes_on,
            keys_only,
            sight: rights::sight_of(self.ctx, self.client),
            at_most: shell().pages.get().next().keys,
        }));
        // The turn ends, an index is to be built, or slots are to be looked at.
        timer::wake_in_ms(0);
    }

    fn unwatchex(&self, names: &[&[u8]]) {
        let keys = self.keys(names);
        if self.ctx.state().in_exec() {
            // Pushes deferred until after EXEC's reply would follow this command's reply, too.
            push::cancel(self.client, (!keys.is_empty()).then_some(&keys));
        }
        let client = self.client;
        self.handle(match &*keys {
            [] => Event::UnwatchAll { client },
            keys => Event::Unwatch { client, keys },
        });
    }

    fn handle(&self, event: Event<'_>) {
        handle_in_command(self.ctx, self.first_key_context().as_ref(), event);
    }

    /// The command's first argument, which is mostly a key.
    fn first_key_context(&self) -> Option<CommandContext<'c>> {
        Some(CommandContext {
            key: self.key(self.words.first()?),
            name: *self.strings.first()?,
            value: None,
            open: Cell::new(None),
        })
    }

    fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        let db = self.db;
        Key { db, name }
    }

    fn keys<'a>(&self, names: &[&'a [u8]]) -> Few<Key<'a>> {
        names.iter().map(|name| self.key(name)).collect()
    }

    fn look_up<'a>(&self, string: Str<'_>, name: &'a [u8]) -> KeySnapshot<'a> {
        let key = self.key(name);
        let state = lookup::key_state(self.ctx, key.db, string);
        KeySnapshot { key, state }
    }

    fn look_up_all<'a>(&self, strings: &[Str<'_>], names: &[&'a [u8]]) -> Few<KeySnapshot<'a>> {
        let pairs = strings.iter().zip(names);
        pairs
            .map(|(string, name)| self.look_up(*string, name))
            .collect()
    }
}
