//! Commands: arguments in, a fact for the engine out.

use crate::command::{self, Access, Ask, BadInput, KeyPlaces, Request, Spec, TABLE, Verb};
use crate::engine::{
    Acquire, ClientId, Db, Engine, Event, Few, Form, Key, KeySnapshot, Raise, SessionId, Start,
    Token, Wait,
};
use crate::shell::bridge::perform::CommandContext;
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::tell::handle_in_command;
use crate::shell::bridge::{acks, losses, slices};
use crate::shell::commands::{guarded, inspect, operators, places, why};
use crate::shell::delivery::{blocked, push};
use crate::shell::guard::guard;
use crate::shell::persistence::stream;
use crate::shell::server::{attribution, look, rights, strays, subscriptions, writes};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str};
use crate::shell::sys::{clock, secret, shim};
use redis_module::raw as c;
use std::cell::Cell;
use std::ffi::c_int;

/// The entry of the table's command number `N`.
pub unsafe extern "C" fn entry<const N: usize>(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call.
        let (ctx, arguments) = unsafe { raw::given(&ctx, arguments, count) };
        if shell().server.get().late_pushes && !shell().knows_executing.get() {
            let knows = shim::learn_executing(ctx.client());
            shell().knows_executing.set(knows);
        }
        raw::on_our_own(|| strays::and_back(ctx, || run(ctx, &TABLE[N], &arguments[1..])));
    });
    c::REDISMODULE_OK as c_int
}

fn run(ctx: Ctx<'_>, spec: &'static Spec, strings: &[Str<'_>]) {
    // Most commands have few arguments: they need no memory.
    const FEW: usize = 8;
    let mut few: [&[u8]; FEW] = [&[]; FEW];
    let many: Vec<&[u8]>;
    let arguments: &[&[u8]] = if strings.len() <= FEW {
        for (place, string) in few.iter_mut().zip(strings) {
            *place = string.bytes();
        }
        &few[..strings.len()]
    } else {
        many = strings.iter().map(|string| string.bytes()).collect();
        &many
    };
    let request = match command::parse(spec.verb, arguments) {
        Ok(request) => request,
        Err(BadInput::WrongArity) => return ctx.reply_wrong_arity(),
        Err(bad) => return ctx.reply_error(&format!("ERR {bad}")),
    };
    if let Some(cause) = shell().fault.with(Option::clone) {
        return ctx.reply_error(&format!("ERR tether has stopped after a fault: {cause}"));
    }
    // These ask nothing of a connection.
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
    if spec.access == Access::Write && shell().is_replica() {
        return ctx.reply_error("READONLY You can't write against a read only replica.");
    }
    let keys = places::keys_of(spec.keys, &request, strings);
    if spec.keys == KeyPlaces::Numbered
        && let Some(error) = places::refuse_slots(keys)
    {
        return ctx.reply_error(error);
    }
    let _turn = push::begin_turn(client);
    bring_up_to_date(ctx, spec, client, keys);
    let caller = Caller {
        ctx,
        client,
        db: ctx.db(),
        spec,
        strings,
        words: arguments,
    };
    caller.answer(request);
    blocked::end_answered();
}

/// What has happened until now comes before the command: to its keys, and to be told to its connection.
#[inline(always)]
fn bring_up_to_date(ctx: Ctx<'_>, spec: &Spec, client: ClientId, keys: &[Str<'_>]) {
    let reach = KeyScope::of_command(ctx, keys);
    send_before(ctx, client);
    if recheck::catch_up(ctx, reach) {
        send_before(ctx, client);
    }
    // To resume a session, or to let go of it, writes nothing, and must not cause a write.
    let may_write = match spec.access {
        Access::Write => !matches!(spec.verb, Verb::Resume | Verb::Detach),
        Access::Withdraw => writes::may_write_now(ctx),
        Access::Look => false,
    };
    if may_write {
        slices::end_leases(ctx, reach, keys);
    }
    if is_about_what_is_held(spec.verb) {
        recheck::end_lapsed(ctx, keys);
    }
}

/// Whether a command does not look at its keys by itself, but at what is held of them.
fn is_about_what_is_held(verb: Verb) -> bool {
    use Verb::{Cancel, Deltp, Extend, Info, Raise, Release, Why};
    matches!(verb, Cancel | Deltp | Extend | Info | Raise | Release | Why)
}

fn send_before(ctx: Ctx<'_>, client: ClientId) {
    if push::is_any_waiting() {
        match ctx.state().in_exec() {
            true => push::begin_in_exec(client),
            false => push::send_before(ctx, client),
        }
    }
}

/// Whether it can be that a command comes from a master, a file, or another server of the cluster
/// whose slot moves to here. What it is to ask the server costs more.
fn may_be_replay() -> bool {
    let shell = shell();
    shell.server.get().is_cluster || shell.is_replica() || shell.is_loading()
}

/// Whose command this is. The server keeps scripts away from our commands; calls of other modules
/// come with a client that has no connection.
fn connection(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ctx.client();
    attribution::is_connected(client).then_some(client)
}

/// The current command.
struct Caller<'a> {
    ctx: Ctx<'a>,
    client: ClientId,
    db: Db,
    spec: &'static Spec,
    /// Its arguments, as the server has them, and their bytes.
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
                ask,
            } => self.settp(key, value, token, ask),
            Request::Acquire { keys, ask } => self.acquire(keys, ask),
            Request::Deltp { keys } => {
                let keys = self.keys(keys);
                self.tell(Event::Drop {
                    client: self.client,
                    keys: &keys,
                });
            }
            Request::Release { key, label, all } => self.tell(Event::Release {
                client: self.client,
                key: self.key(key),
                label,
                all,
            }),
            Request::Extend {
                key,
                lease_ms,
                label,
            } => self.tell(Event::Extend {
                client: self.client,
                key: self.key(key),
                label,
                lease_ms,
            }),
            Request::Raise { key, token, label } => self.tell(Event::Raise(Raise {
                client: self.client,
                key: self.key(key),
                label,
                token: Token(token),
                most: Engine::most_to_raise_to(clock::since_1970()),
            })),
            Request::Cancel { key, label } => self.tell(Event::Cancel {
                client: self.client,
                key: self.key(key),
                label,
            }),
            Request::Watchex { keys } => self.watchex(keys),
            Request::Unwatchex { keys } => self.unwatchex(keys),
            Request::Check { key, token } => guarded::check(ctx, self.strings[0], key, token),
            Request::Guard { key, token } => guarded::run(ctx, self.strings, key, token),
            Request::Info { key, count } => inspect::info(ctx, self.key(key), count),
            Request::List(list) => inspect::list(ctx, &list),
            Request::Log(log) => inspect::log(ctx, &log),
            Request::ResetLog => inspect::reset_log(ctx),
            Request::Why { key } => why::answer(ctx, self.strings[0], self.key(key)),
            Request::Server => inspect::server(ctx, self.client),
            about_sessions => self.answer_about_sessions(about_sessions),
        }
    }

    fn answer_about_sessions(&self, request: Request<'_, '_>) {
        let (ctx, client) = (self.ctx, self.client);
        match request {
            Request::Start { grace_ms } => self.start(grace_ms),
            Request::Resume { secret, notify } => self.resume(secret, notify),
            Request::EndSession => self.tell(Event::EndSession {
                client,
                later: self.is_about_a_slot(),
            }),
            Request::Detach => {
                losses::note_origin(ctx, client);
                self.tell(Event::Detach { client });
            }
            Request::KillSession { id } => self.tell(Event::KillSession {
                session: SessionId(id),
                later: self.is_about_a_slot(),
            }),
            Request::Sessions => operators::sessions(ctx),
            other => unreachable!("{other:?} was answered before"),
        }
    }

    /// Whether this may be about another slot than what a session holds, as a transaction may be; see `KeyScope`.
    fn is_about_a_slot(&self) -> bool {
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
        self.tell(Event::Start(Start {
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
        self.tell(Event::Resume {
            client: self.client,
            digest: secret::digest(secret),
            notify,
        });
    }

    fn settp(&self, name: &[u8], value: &[u8], token: bool, ask: Ask<'_>) {
        let (in_command, seen) = self.open(name, Some(self.strings[1]));
        let ask = Acquire {
            seen: &[seen],
            value,
            form: if token { Form::SettpToken } else { Form::Settp },
            ..self.asked(ask)
        };
        self.request(Some(&in_command), ask);
    }

    /// What is asked for; of which keys is not known yet.
    #[inline(always)]
    fn asked<'b>(&self, ask: Ask<'b>) -> Acquire<'b> {
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
        let ask = self.asked(ask);
        if ask.in_command {
            let (in_command, seen) = self.open(names[0], None);
            let seen = &[seen];
            self.request(Some(&in_command), Acquire { seen, ..ask });
        } else {
            // The keys come after their number.
            let strings = &self.strings[1..=names.len()];
            if let Some(error) = places::refuse_partial(self.ctx, strings) {
                return self.ctx.reply_error(error);
            }
            let seen = &self.look_at_all(strings, names);
            let in_command = self.first_in_hand();
            self.request(in_command.as_ref(), Acquire { seen, ..ask });
        }
    }

    /// Tells a request, to wait as it may, unless it is refused.
    #[inline(always)]
    fn request(&self, in_command: Option<&CommandContext<'_>>, ask: Acquire<'_>) {
        // Whoever is told of its turn is told of a loss, too.
        if ask.terms.attributes.notify && !self.may_push() {
            return;
        }
        if ask.terms.acks.is_some() && !self.may_count_acks() {
            return;
        }
        let wait = self.wait_allowed(ask.wait, ask.seen);
        let event = Event::Acquire(Acquire { wait, ..ask });
        handle_in_command(self.ctx, in_command, event);
        self.hear_of_new_keys(wait);
    }

    /// Opens the key that a command asks for, and looks at it.
    #[inline(always)]
    fn open<'a>(
        &self,
        name: &'a [u8],
        value: Option<Str<'c>>,
    ) -> (CommandContext<'c>, KeySnapshot<'a>) {
        let open = self.ctx.open(self.strings[0]);
        let seen = KeySnapshot {
            key: self.key(name),
            standing: open.standing(),
        };
        let in_command = CommandContext {
            key: self.key(self.words[0]),
            name: self.strings[0],
            value,
            has_options: self.strings.len() > 1 + usize::from(value.is_some()),
            open: Cell::new(Some(open)),
        };
        (in_command, seen)
    }

    /// How this request may wait. In a transaction nobody can be blocked, and so none waits.
    fn wait_allowed(&self, wait: Option<Wait>, seen: &[KeySnapshot<'_>]) -> Option<Wait> {
        let wait = wait?;
        // It costs something to ask, and mostly a lock is free.
        let is_had = |engine: &Engine| engine.can_be_had_at_once(seen);
        if !wait.push && shell().engine.with(is_had) {
            return Some(wait);
        }
        (!self.ctx.state().denies_blocking()).then_some(wait)
    }

    /// After a request that might wait: if anybody does, what others make from now on matters. While nobody ever had to wait,
    /// new keys of others cost nothing.
    fn hear_of_new_keys(&self, wait: Option<Wait>) {
        if wait.is_some() && shell().engine.with(|engine| engine.is_awaited()) {
            subscriptions::to_new_keys(self.ctx);
            rights::observe(self.ctx);
        }
    }

    /// Whether this connection can be pushed to; if not, it has been refused.
    fn may_push(&self) -> bool {
        if !shim::can_push() {
            self.ctx.reply_error(
                "ERR this server does not offer modules what pushes need, or tether was not tried on it (see docs/servers.md)",
            );
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

    /// Whether a grant can be acknowledged by replicas; if not, the request has been refused.
    #[cold]
    fn may_count_acks(&self) -> bool {
        if !shim::can_count_acks() {
            self.ctx.reply_error(
                "ERR this server does not offer modules what ACKS needs, or tether was not tried on it (see docs/servers.md)",
            );
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
        let seen = self.look_at_all(self.strings, names);
        self.tell(Event::Watch {
            client: self.client,
            seen: &seen,
        });
    }

    fn unwatchex(&self, names: &[&[u8]]) {
        let keys = self.keys(names);
        if self.ctx.state().in_exec() {
            // What is deferred until after EXEC's reply would come after this command's, too.
            push::take_back(self.client, (!keys.is_empty()).then_some(&keys));
        }
        let client = self.client;
        self.tell(match &*keys {
            [] => Event::UnwatchAll { client },
            keys => Event::Unwatch { client, keys },
        });
    }

    fn tell(&self, event: Event<'_>) {
        handle_in_command(self.ctx, self.first_in_hand().as_ref(), event);
    }

    /// A command's first word, which is mostly a key.
    fn first_in_hand(&self) -> Option<CommandContext<'c>> {
        Some(CommandContext {
            key: self.key(self.words.first()?),
            name: *self.strings.first()?,
            value: None,
            has_options: true,
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

    fn look<'a>(&self, string: Str<'_>, name: &'a [u8]) -> KeySnapshot<'a> {
        let key = self.key(name);
        let standing = look::standing(self.ctx, key.db, string);
        KeySnapshot { key, standing }
    }

    fn look_at_all<'a>(&self, strings: &[Str<'_>], names: &[&'a [u8]]) -> Few<KeySnapshot<'a>> {
        let pairs = strings.iter().zip(names);
        pairs
            .map(|(string, name)| self.look(*string, name))
            .collect()
    }
}
