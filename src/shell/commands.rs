//! Commands: arguments in, a fact for the engine out.

use super::dispatch::tell_in_hand;
use super::guard::guard;
use super::perform::InHand;
use super::raw::{Ctx, Str};
use super::state::shell;
use super::{push, shim};
use crate::command::{self, BadInput, Request, Spec, TABLE};
use crate::engine::{ClientId, Event, Key, Seen};
use redis_module::raw as c;
use std::ffi::c_int;

/// The entry of the table's command number `N`.
pub unsafe extern "C" fn entry<const N: usize>(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call; a `Str` is a pointer to one,
        // and there is no null among them.
        let (ctx, arguments) = unsafe {
            let arguments = std::slice::from_raw_parts(arguments.cast::<Str>(), count as usize);
            (Ctx::new(ctx), arguments)
        };
        run(ctx, &TABLE[N], &arguments[1..]);
    });
    c::REDISMODULE_OK as c_int
}

fn run(ctx: Ctx<'_>, spec: &Spec, strings: &[Str<'_>]) {
    let arguments: Vec<&[u8]> = strings.iter().map(|string| string.bytes()).collect();
    let request = match command::parse(spec.verb, &arguments) {
        Ok(request) => request,
        Err(BadInput::WrongArity) => return ctx.reply_wrong_arity(),
        Err(bad) => return ctx.reply_error(&format!("ERR {bad}")),
    };
    if let Some(cause) = &*shell().fault.borrow() {
        return ctx.reply_error(&format!("ERR tether has stopped after a fault: {cause}"));
    }
    let Some(client) = connection(ctx) else {
        return ctx.reply_error(&format!(
            "ERR {} needs a connection of its own: scripts, functions and modules have none",
            spec.name.to_ascii_uppercase()
        ));
    };
    match request {
        Request::Settp { key, .. } => settp(ctx, client, strings, key),
        Request::Watchex { keys } => watchex(ctx, client, strings, keys),
        Request::Unwatchex { keys } => unwatchex(ctx, client, keys),
    }
}

/// Whose command this is. The server keeps scripts away from our commands; calls of other modules
/// come with a client that has no connection.
fn connection(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ctx.client();
    let known = shell().engine.borrow().knows_client(client);
    (known || shim::is_connected(client)).then_some(client)
}

fn settp(ctx: Ctx<'_>, client: ClientId, strings: &[Str<'_>], name: &[u8]) {
    if shell().is_replica.get() {
        return ctx.reply_error("READONLY You can't write against a read only replica.");
    }
    let in_hand = InHand {
        key: strings[0],
        value: strings[1],
    };
    let seen = look(ctx, strings[0], name);
    tell_in_hand(ctx, Some(&in_hand), Event::Settp { client, seen });
}

fn watchex(ctx: Ctx<'_>, client: ClientId, strings: &[Str<'_>], names: &[&[u8]]) {
    if !shim::can_push() {
        return ctx.reply_error(
            "ERR this server does not offer modules what pushes need (see docs/commands.md)",
        );
    }
    let state = ctx.state();
    if !shell().settings.get().resp2_push && !state.resp3() {
        return ctx.reply_error(
            "ERR pushes to RESP2 connections are switched off (tether.resp2-push); say HELLO 3 first",
        );
    }
    if !state.in_exec() {
        push::send_waiting(ctx);
    }
    let seen: Vec<Seen<'_>> = strings
        .iter()
        .zip(names)
        .map(|(string, name)| look(ctx, *string, name))
        .collect();
    let event = Event::Watch {
        client,
        seen: &seen,
    };
    tell_in_hand(ctx, None, event);
}

fn unwatchex(ctx: Ctx<'_>, client: ClientId, names: &[&[u8]]) {
    let db = ctx.db();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key { db, name }).collect();
    if ctx.state().in_exec() {
        // What is put off until after EXEC's reply would come after this command's, too.
        push::take_back(client, (!keys.is_empty()).then_some(&keys));
    } else {
        push::send_waiting(ctx);
    }
    let event = if keys.is_empty() {
        Event::UnwatchAll { client }
    } else {
        Event::Unwatch {
            client,
            keys: &keys,
        }
    };
    tell_in_hand(ctx, None, event);
}

fn look<'a>(ctx: Ctx<'_>, string: Str<'_>, name: &'a [u8]) -> Seen<'a> {
    let db = ctx.db();
    Seen {
        key: Key { db, name },
        present: ctx.exists(db, string),
    }
}
