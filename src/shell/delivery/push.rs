//! Frames that are no replies.
//!
//! What a command of ours tells its own connection of requests and holds is written in front of its reply, so that no
//! reply is contradicted by what comes after it.
//!
//! Most servers hold any other push to the connection whose command is running back until that command's
//! reply is complete. Redis 7.0 does not, and none of them holds one back that an UNWATCHEX in the
//! same transaction has made void. Such pushes wait in the outbox until the command is over. Redis 8
//! answers a flush only when its memory is freed: the flusher's own pushes wait for that. Valkey 9 holds them back, but
//! loses count of their bytes, and ends by that, where its command came upon a lapsed key (`GETDEL`), or where the
//! connection wants no replies. What goes to many connections waits a moment everywhere, since more may follow.

use crate::engine::{ClientId, Key, Push, Token};
use crate::policy::attribution::field;
use crate::policy::outbox::{Circumstances, Limits, Outbox, Post, Run, Until};
use crate::shell::delivery::frames;
use crate::shell::guard::guard;
use crate::shell::state::shell;
use crate::shell::sys::at_end::{AtEnd, meanwhile};
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::sys::shim::{self, Frames, Pushed};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;

/// A flush is under way, and may be answered later.
pub fn expect_late_reply() {
    shell().outbox.with_mut(Outbox::expect_late_reply);
}

/// Does what follows from a keyspace event, which tells that the server has removed a key by itself or something else.
pub fn in_event(by_itself: bool, act: impl FnOnce()) {
    let shell = shell();
    let loses_count = shell.server.get().loses_count_of_pushes;
    // Who is to be told of a flush that goes on must be looked at first, and that may not be done in such an event.
    if by_itself && (loses_count || shell.outbox.with(Outbox::keeps_back)) {
        return hold(act);
    }
    if !loses_count {
        return act();
    }
    let _meanwhile = meanwhile(&shell.pushes_in_event, true);
    act();
}

/// The command of a connection, which has not replied, is executed until what this returns is dropped.
pub fn begin_turn(client: ClientId) -> AtEnd<impl FnMut()> {
    meanwhile(&shell().turn, Some(client))
}

/// Does what makes pushes that may not come after the reply to a command which is only about to begin, such as an UNWATCHEX:
/// [`send_before`] sends them in front of it.
pub fn hold(act: impl FnOnce()) {
    let _meanwhile = meanwhile(&shell().holds_pushes, true);
    act();
}

/// Sends a frame to each of these connections, now or as soon as may be.
pub fn send(ctx: Ctx<'_>, to: Vec<ClientId>, push: Push) {
    let shell = shell();
    let now = Circumstances {
        turn: shell.turn.get(),
        in_exec: ctx.state().in_exec(),
        late: shell.server.get().late_pushes,
        holding: shell.holds_pushes.get(),
    };
    let (post, is_any_doubtful) = shell.outbox.with_mut(|outbox| {
        let post = outbox.post(to, push, now);
        (post, outbox.is_any_doubtful())
    });
    if is_any_doubtful {
        read_limits(ctx);
    }
    match post {
        Post::InFront(client, push) => write_in_front(ctx, client, push),
        Post::Now(to, push) => write(ctx, &to, &[push]),
        Post::Waits(Until::Soon) => push_soon(),
        Post::Waits(Until::Later) => timer::wake_in_ms(0),
        Post::Waits(Until::Full) => send_waiting(ctx),
    }
}

/// Has the server send what waits to be pushed as soon as the current command is over.
fn push_soon() {
    timer::call_soon(push_after_command);
}

unsafe extern "C" fn push_after_command(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        send_waiting(unsafe { Ctx::new(&ctx) });
    });
}

/// Has a push wait that could not be written.
fn put(ctx: Ctx<'_>, client: ClientId, push: Push) {
    let is_any_doubtful = shell().outbox.with_mut(|outbox| {
        outbox.put(vec![client], push);
        outbox.is_any_doubtful()
    });
    if is_any_doubtful {
        read_limits(ctx);
    }
    push_soon();
}

/// Tells how much the server lets wait for those for whom much waits. Without `CONFIG` it is not known, and taken for what it
/// is by default: as much as there is.
#[cold]
fn read_limits(ctx: Ctx<'_>) {
    let outbox = &shell().outbox;
    if raw::is_in_uncaused_event() {
        // With the next push, or before any is sent.
        return timer::wake_in_ms(0);
    }
    let setting = ctx.server_setting(c"client-output-buffer-limit");
    let limits = Limits::read(&setting.unwrap_or_default());
    for client in outbox.with_mut(Outbox::doubtful) {
        let limit = limits.of(raw::is_subscribed(client));
        outbox.with_mut(|outbox| outbox.limit(client, limit));
    }
}

/// Whether anything waits. O(1).
pub fn is_any_waiting() -> bool {
    !shell().outbox.with(Outbox::is_empty)
}

/// In a transaction a command of this connection's begins while something waits, which has to wait until its end.
pub fn begin_in_exec(client: ClientId) {
    shell()
        .outbox
        .with_mut(|outbox| outbox.may_give_back(client));
}

/// Sends what waits before a command of this connection's does anything. What is for itself comes before the reply, where a
/// server would hold it back until after that: an UNWATCHEX is to be the end of them.
pub fn send_before(ctx: Ctx<'_>, client: ClientId) {
    send_kept_back(ctx);
    if !shell().server.get().late_pushes {
        let outbox = &shell().outbox;
        for push in outbox.with_mut(|outbox| outbox.take_out(client, holds)) {
            write_in_front(ctx, client, push);
        }
    }
    send_others(ctx);
}

/// Sends what waits; to be called when no command is running, or before one has written anything.
pub fn send_waiting(ctx: Ctx<'_>) {
    send_kept_back(ctx);
    send_others(ctx);
}

/// Sends what waits for a connection that is blocked and is about to be answered: it was before the answer.
pub fn send_first(ctx: Ctx<'_>, client: ClientId) {
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
    if shell().outbox.with(Outbox::is_any_doubtful) {
        read_limits(ctx);
    }
    let taken = shell().outbox.with_mut(|outbox| outbox.take(holds));
    for Run { to, pushes, .. } in taken.runs {
        write(ctx, &to, &pushes);
    }
    for client in taken.too_much {
        close(ctx, client);
    }
}

/// Whether a connection still has what it was granted.
fn holds(client: ClientId, push: &Push, token: Token) -> bool {
    let key = push.key.as_key();
    shell()
        .engine
        .with(|engine| engine.holds_as(client, key, token))
}

/// Ends a connection for which more waited than it may have. Mostly the server does so by itself when that is written.
fn close(ctx: Ctx<'_>, client: ClientId) {
    if ctx.close(client) {
        let ClientId(id) = client;
        ctx.log(c"warning", &format!("client id={id} is closed: what waits to be pushed to it is over client-output-buffer-limit"));
        shell().outbox.with_mut(|outbox| outbox.close_again(client));
        timer::wake_in_ms(0);
    }
}

/// Closes those once more that were closed in the middle of a command. To be called when none is running.
pub fn close_again(ctx: Ctx<'_>) {
    for client in shell().outbox.with_mut(Outbox::take_closing) {
        ctx.close(client);
    }
}

/// Sends what was kept back, as far as nothing is in its way any more.
fn send_kept_back(ctx: Ctx<'_>) {
    let outbox = &shell().outbox;
    if shell().pushes_in_event.get() {
        return;
    }
    for client in outbox.with(Outbox::all_kept_back) {
        // The flusher's next command is being executed already, so its flush is answered; and this
        // was before that command.
        let is_executing = client == ctx.client() && !raw::is_blocked(client);
        if !is_executing && is_flushing(ctx, client) {
            timer::wake_in_ms(1);
            continue;
        }
        let pushes = outbox.with_mut(|outbox| outbox.take_kept_back(client));
        if !is_executing {
            write(ctx, &[client], &pushes);
            continue;
        }
        for push in pushes {
            write_in_front(ctx, client, push);
        }
    }
    outbox.with_mut(Outbox::flushes_are_answered);
}

/// Whether a connection waits for the answer to its own flush.
fn is_flushing(ctx: Ctx<'_>, client: ClientId) -> bool {
    let is_flush = |line: &String| matches!(field(line, "cmd="), Some("flushall" | "flushdb"));
    raw::is_blocked(client) && ctx.client_line(client).as_ref().is_some_and(is_flush)
}

/// Whether the server takes nothing more for a connection since it is going to close it.
fn is_being_closed(ctx: Ctx<'_>, client: ClientId) -> bool {
    let line = ctx.client_line(client);
    let flags = line.as_deref().and_then(|line| field(line, "flags="));
    flags.is_some_and(|flags| flags.contains('A'))
}

/// Writes a push to the connection that executes a command, before what that replies; or when the command is over, to one
/// that wants no replies.
fn write_in_front(ctx: Ctx<'_>, client: ClientId, push: Push) {
    // The context may be that of an event, which knows nothing of the connection.
    let resp3 = speaks_resp3(ctx, client);
    if shim::write(client, &frames::frame(ctx, client, resp3, &push)) {
        count_sent(1);
    } else {
        put(ctx, client, push);
    }
}

/// Whether something has to wait that others need not wait for.
fn has_to_wait(ctx: Ctx<'_>, client: ClientId) -> bool {
    let (is_kept_back, is_flushing_at_all) = shell()
        .outbox
        .with(|outbox| (outbox.is_kept_back(client), outbox.is_flushing()));
    is_kept_back || is_flushing_at_all && is_flushing(ctx, client)
}

/// Keeps pushes to a connection back until its own flush is answered, or the command is over in which it wants no replies.
fn keep_back(ctx: Ctx<'_>, client: ClientId, pushes: &[Push]) {
    let (is_kept, is_any_doubtful) = shell().outbox.with_mut(|outbox| {
        let is_kept = outbox.keep_back(client, pushes);
        (is_kept, outbox.is_any_doubtful())
    });
    if !is_kept {
        close(ctx, client);
    }
    if is_any_doubtful {
        read_limits(ctx);
    }
    timer::wake_in_ms(1);
}

/// Takes back what waits for a connection's watches of these keys, or of all.
pub fn take_back(client: ClientId, keys: Option<&[Key<'_>]>) {
    let outbox = &shell().outbox;
    outbox.with_mut(|outbox| outbox.take_back(client, keys));
}

/// Writes the same pushes to each of these connections: each is looked up once.
fn write(ctx: Ctx<'_>, to: &[ClientId], pushes: &[Push]) {
    let mut frames = Frames::default();
    for push in pushes {
        let (head, news) = frames::texts(ctx, to, push);
        frames.add(head, news);
    }
    let keeps_back = shell().outbox.with(Outbox::keeps_back);
    let in_event = shell().pushes_in_event.get();
    let mut sent = 0;
    for client in to {
        if keeps_back && has_to_wait(ctx, *client) {
            keep_back(ctx, *client, pushes);
            continue;
        }
        match frames.push(*client, in_event) {
            Pushed::All => sent += frames.len() as u64,
            Pushed::ToNobody => {}
            Pushed::NotNow => {
                if is_being_closed(ctx, *client) {
                    shell().outbox.with_mut(|outbox| outbox.drop_all(*client));
                }
                keep_back(ctx, *client, pushes);
                push_soon();
            }
        }
    }
    count_sent(sent);
}

fn count_sent(more: u64) {
    let sent = &shell().pushes_sent;
    sent.set(sent.get() + more);
}

/// Asked for at the last moment: HELLO changes it at any time.
fn speaks_resp3(ctx: Ctx<'_>, client: ClientId) -> bool {
    let line = ctx.client_line(client);
    line.is_some_and(|line| line.split_ascii_whitespace().any(|field| field == "resp=3"))
}
