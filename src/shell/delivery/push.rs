//! Sends pushes, at the right moment relative to replies.
//!
//! Pushes about requests and holds that a command causes to its own client are written before its reply, so that no later
//! frame contradicts the reply.
//!
//! Most servers delay any other push to the executing client until its reply is complete. Redis 7.0 does not, and no server
//! drops one that an UNWATCHEX in the same transaction cancels. Such pushes wait in the outbox until the command is over.
//! Valkey since 8.1 delays pushes but miscounts their bytes, and crashes, if the client's command expires a key (`GETDEL`) or
//! the client wants no replies; so what its keyspace events cause waits, too. Redis 8 replies to a flush only after freeing
//! its memory; pushes to the client that sent it wait for that. Pushes to many clients are batched for a moment on all
//! servers, since more may follow.

use crate::engine::{ClientId, Key, Push, Token};
use crate::policy::attribution::field;
use crate::policy::outbox::{BYTES_MAX, Circumstances, Facts, Outbox, Post, Run, Until};
use crate::shell::callbacks::call_after_command;
use crate::shell::delivery::frames;
use crate::shell::state::shell;
use crate::shell::sys::at_end::{AtEnd, meanwhile};
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::sys::shim::{self, Frames};
use crate::shell::timer;
use hashbrown::HashSet;

/// A flush is in progress, and the server may reply to it later.
pub fn expect_late_flush_reply() {
    shell().outbox.with_mut(Outbox::expect_late_flush_reply);
}

/// Handles a keyspace event.
pub fn in_event(act: impl FnOnce()) {
    let shell = shell();
    // Recipients may be waiting for the reply to their flush. That must be checked first, which not every event allows.
    if shell.server.get().miscounts_pushes || shell.outbox.with(Outbox::may_withhold) {
        return defer_during(act);
    }
    act();
}

/// Marks the client whose command is executing and has not replied, until the returned value is dropped.
pub fn set_executing_client(client: ClientId) -> AtEnd<impl FnMut()> {
    meanwhile(&shell().executing_client, Some(client))
}

/// Defers the pushes that `act` causes: they must not follow the reply to a command that is about to begin, such as an
/// UNWATCHEX. [`send_before`] sends them before it.
pub fn defer_during(act: impl FnOnce()) {
    let _meanwhile = meanwhile(&shell().defers_pushes, true);
    act();
}

/// Sends a push to each of these clients, now or as soon as possible.
pub fn send(ctx: Ctx<'_>, to: Vec<ClientId>, push: Push) {
    let shell = shell();
    let now = Circumstances {
        executing_client: shell.executing_client.get(),
        in_exec: ctx.state().in_exec(),
        must_wait: shell.server.get().pushes_before_reply || shell.defers_pushes.get(),
    };
    let post = shell.outbox.with_mut(|outbox| outbox.post(to, push, now));
    match post {
        Post::InFront(client, push) => write_in_front(ctx, client, push),
        Post::Now(to, push) => write(ctx, &to, &[push]),
        Post::Queued(Until::Soon) => push_soon(),
        Post::Queued(Until::Later) => timer::wake_in_ms(0),
        Post::Flush => send_waiting(ctx),
    }
}

/// Sends queued pushes right after the current command; with the next tick on servers without such callbacks.
fn push_soon() {
    let is_scheduled = shell().pushes_soon.replace(true);
    if !is_scheduled && !call_after_command(send_waiting) {
        timer::wake_in_ms(0);
    }
}

/// Whether any push is queued. O(1).
pub fn is_any_waiting() -> bool {
    !shell().outbox.with(Outbox::is_empty)
}

/// A command in this client's transaction begins while pushes are queued, which wait for the end of the transaction.
pub fn begin_in_exec(client: ClientId) {
    shell()
        .outbox
        .with_mut(|outbox| outbox.note_command_in_exec(client));
}

/// Sends queued pushes before this client's command does anything. Its own pushes are written before the reply even if the
/// server would delay them: no watch push may follow the reply to an UNWATCHEX.
pub fn send_before(ctx: Ctx<'_>, client: ClientId) {
    send_withheld(ctx);
    if !shell().server.get().pushes_before_reply {
        let outbox = &shell().outbox;
        for push in outbox.with_mut(|outbox| outbox.take_fresh_for(client, &Known)) {
            write_in_front(ctx, client, push);
        }
    }
    send_others(ctx);
}

/// Sends queued pushes. Call it when no command is executing, or before it has written anything.
pub fn send_waiting(ctx: Ctx<'_>) {
    send_withheld(ctx);
    send_others(ctx);
}

/// Sends the queued pushes of a blocked client before its answer, which they precede.
pub fn send_before_answer(ctx: Ctx<'_>, client: ClientId) {
    let outbox = &shell().outbox;
    if outbox.with(Outbox::is_empty) {
        return;
    }
    let pushes = outbox.with_mut(|outbox| outbox.take_for(client));
    if !pushes.is_empty() {
        write(ctx, &[client], &pushes);
    }
}

fn send_others(ctx: Ctx<'_>) {
    shell().pushes_soon.set(false);
    let outbox = &shell().outbox;
    for Run { to, pushes, .. } in outbox.with_mut(|outbox| outbox.take(&Known)) {
        write(ctx, &to, &pushes);
    }
    if outbox.with(Outbox::is_any_over_limit) {
        timer::wake_in_ms(0);
    }
}

/// What the engine knows now.
struct Known;

impl Facts for Known {
    fn wants(&self, client: ClientId, push: &Push) -> bool {
        shell().engine.with(|engine| engine.wants(client, push))
    }

    fn holds(&self, client: ClientId, push: &Push, token: Token) -> bool {
        let (key, label) = (push.key.as_key(), push.label());
        let engine = &shell().engine;
        engine.with(|engine| engine.holds_as(client, key, label, token))
    }

    fn granted(&self, client: ClientId) -> HashSet<Token> {
        shell().engine.with(|engine| engine.granted(client))
    }
}

/// Closes the clients for which too much was queued. Call it when no command is executing: during the client's own command
/// the server only marks it to be closed after its next reply, and that command may block.
pub fn close_over_limit(ctx: Ctx<'_>) {
    for client in shell().outbox.with_mut(Outbox::take_over_limit) {
        if ctx.close(client) {
            let (ClientId(id), mb) = (client, BYTES_MAX >> 20);
            ctx.log(
                c"warning",
                &format!(
                    "client id={id} is closed: one command caused over {mb} MB of pushes to it"
                ),
            );
        }
    }
}

/// Sends withheld pushes to clients whose flush has its reply.
fn send_withheld(ctx: Ctx<'_>) {
    let outbox = &shell().outbox;
    for client in outbox.with(Outbox::all_withheld) {
        // The client's next command is executing, so its flush has its reply; the pushes precede this command.
        let is_executing = client == ctx.client() && !raw::is_blocked(client);
        if !is_executing && is_flushing(ctx, client) {
            timer::wake_in_ms(1);
            continue;
        }
        let pushes = outbox.with_mut(|outbox| outbox.take_withheld(client));
        if !is_executing {
            write(ctx, &[client], &pushes);
            continue;
        }
        for push in pushes {
            write_in_front(ctx, client, push);
        }
    }
    outbox.with_mut(Outbox::flush_replied);
}

/// Whether a client waits for the reply to its own flush.
fn is_flushing(ctx: Ctx<'_>, client: ClientId) -> bool {
    let is_flush = |line: &String| matches!(field(line, "cmd="), Some("flushall" | "flushdb"));
    raw::is_blocked(client) && ctx.client_line(client).as_ref().is_some_and(is_flush)
}

/// Writes a push to the executing client before its reply; if it wants no replies, queues the push until the command is
/// over.
fn write_in_front(ctx: Ctx<'_>, client: ClientId, push: Push) {
    // Ask by id: the context may be an event's, which has no client.
    let resp3 = speaks_resp3(ctx, client);
    if shim::write(client, &frames::frame(ctx, client, resp3, &push)) {
        count_sent(1);
    } else {
        shell()
            .outbox
            .with_mut(|outbox| outbox.enqueue(vec![client], push));
        push_soon();
    }
}

/// Whether pushes to this client must be withheld.
fn has_to_wait(ctx: Ctx<'_>, client: ClientId) -> bool {
    let (is_withheld, is_flushing_at_all) = shell()
        .outbox
        .with(|outbox| (outbox.is_withheld(client), outbox.is_flushing()));
    is_withheld || is_flushing_at_all && is_flushing(ctx, client)
}

/// Cancels queued pushes of a client's watches on these keys, or on all keys.
pub fn cancel(client: ClientId, keys: Option<&[Key<'_>]>) {
    let outbox = &shell().outbox;
    outbox.with_mut(|outbox| outbox.cancel(client, keys));
}

/// Writes the same pushes to each of these clients.
fn write(ctx: Ctx<'_>, to: &[ClientId], pushes: &[Push]) {
    /// Frames take memory besides the pushes; more at once gain nothing.
    const FRAMES_AT_ONCE: usize = 256;
    for pushes in pushes.chunks(FRAMES_AT_ONCE) {
        write_at_once(ctx, to, pushes);
    }
}

/// Looks each client up once.
fn write_at_once(ctx: Ctx<'_>, to: &[ClientId], pushes: &[Push]) {
    let mut frames = Frames::default();
    for push in pushes {
        let (head, payload) = frames::texts(ctx, to, push);
        frames.add(head, payload);
    }
    let outbox = &shell().outbox;
    let may_withhold = outbox.with(Outbox::may_withhold);
    let mut sent = 0;
    for client in to {
        if may_withhold && has_to_wait(ctx, *client) {
            outbox.with_mut(|outbox| outbox.withhold(*client, pushes));
            timer::wake_in_ms(1);
        } else if frames.push(*client) {
            sent += frames.len() as u64;
        }
    }
    count_sent(sent);
}

fn count_sent(more: u64) {
    let sent = &shell().pushes_sent;
    sent.set(sent.get() + more);
}

/// Looked up at the last moment, since HELLO may change it at any time.
fn speaks_resp3(ctx: Ctx<'_>, client: ClientId) -> bool {
    let line = ctx.client_line(client);
    line.is_some_and(|line| line.split_ascii_whitespace().any(|field| field == "resp=3"))
}
