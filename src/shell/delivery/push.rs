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

use crate::engine::{ClientId, Engine, Key, News, Push};
use crate::policy::attribution::field;
use crate::shell::delivery::frames;
use crate::shell::guard::guard;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::sys::shim::{self, Frames, Pushed};
use crate::shell::timer;
use hashbrown::HashSet;
use redis_module::raw as c;
use std::collections::VecDeque;
use std::ffi::c_void;

/// From so many watchers on it is worth it to wait for what else goes to the same ones: what is written
/// to a connection at once costs half of what it costs one by one.
const MANY: usize = 64;

/// So many pushes wait at most where they need not.
const MOST: usize = 64;

/// A flush is under way, and may be answered later.
pub fn expect_late_reply() {
    shell().outbox.with_mut(|outbox| outbox.flushing = true);
}

/// Does what follows from a keyspace event, which tells that a key has lapsed or something else.
pub fn in_event(lapsed: bool, act: impl FnOnce()) {
    let shell = shell();
    if !shell.server.get().loses_count_of_pushes {
        return act();
    }
    if lapsed {
        return hold(act);
    }
    let set = |to: bool| {
        let outbox = &shell.outbox;
        outbox.with_mut(|outbox| std::mem::replace(&mut outbox.in_event, to))
    };
    let former = set(true);
    act();
    set(former);
}

/// The command of a connection is executed until this is dropped.
pub struct Turn(());

/// A connection's command begins, which has not replied.
pub fn begin_turn(client: ClientId) -> Turn {
    shell().turn.set(Some(client));
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        shell().turn.set(None);
    }
}

/// Does what makes pushes that may not come after the reply to a command which is only about to begin, such as an UNWATCHEX:
/// [`send_before`] sends them in front of it.
pub fn hold(act: impl FnOnce()) {
    let outbox = &shell().outbox;
    let former = outbox.with_mut(|outbox| std::mem::replace(&mut outbox.holding, true));
    act();
    outbox.with_mut(|outbox| outbox.holding = former);
}

/// Sends a frame to each of these connections, now or as soon as may be.
pub fn send(ctx: Ctx<'_>, to: Vec<ClientId>, push: Push) {
    let shell = shell();
    let in_exec = ctx.state().in_exec();
    if let (false, &[client]) = (in_exec, &*to)
        && shell.turn.get() == Some(client)
        && !is_watch(&push)
    {
        return write_in_front(ctx, client, push);
    }
    let (holding, flushing, is_empty) = shell.outbox.with(|outbox| {
        let is_empty = outbox.waiting.is_empty();
        (outbox.holding, outbox.flushing, is_empty)
    });
    // Before the next command of the connection, unlike the timer.
    let soon = holding && !in_exec;
    let late = soon || shell.server.get().late_pushes || in_exec;
    let is_worth_it = to.len() >= MANY && !flushing;
    if !late && !is_worth_it && is_empty {
        return write(ctx, &to, &push);
    }
    if in_exec && is_grant(&push) {
        shell.outbox.with_mut(|outbox| outbox.grants_in_exec = true);
    }
    let is_full = put(to, push) >= MOST;
    if soon {
        push_soon();
    } else if is_full && !late {
        send_waiting(ctx);
    } else {
        timer::wake_in_ms(0);
    }
}

/// Has the server send what waits to be pushed as soon as the command in hand is over.
fn push_soon() {
    timer::call_soon(push_after_command);
}

unsafe extern "C" fn push_after_command(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        send_waiting(unsafe { Ctx::new(&ctx) });
    });
}

/// Has a push wait, and says how many do.
fn put(to: Vec<ClientId>, push: Push) -> usize {
    shell().outbox.with_mut(|outbox| {
        outbox.waiting.push_back((to, push));
        outbox.waiting.len()
    })
}

/// Whether anything waits. O(1).
pub fn is_any_waiting() -> bool {
    let outbox = &shell().outbox;
    outbox.with(|outbox| !outbox.waiting.is_empty() || !outbox.kept_back.is_empty())
}

/// Sends what waits before a command of this connection's does anything. What is for itself comes before the reply, where a
/// server would hold it back until after that: an UNWATCHEX is to be the end of them.
pub fn send_before(ctx: Ctx<'_>, client: ClientId) {
    send_kept_back(ctx);
    if !shell().server.get().late_pushes {
        for push in take_out(client) {
            write_in_front(ctx, client, push);
        }
    }
    send_others(ctx);
}

/// What waits for this connection, in its order.
fn take_out(client: ClientId) -> Vec<Push> {
    let mut own = Vec::new();
    shell().outbox.with_mut(|outbox| {
        if std::mem::take(&mut outbox.grants_in_exec) {
            leave_out_what_was_given_back(&mut outbox.waiting);
        }
        for (to, push) in &mut outbox.waiting {
            let all = to.len();
            to.retain(|id| *id != client);
            if to.len() < all {
                own.push(push.clone());
            }
        }
    });
    own
}

/// Sends what waits; to be called when no command is running, or before one has written anything.
pub fn send_waiting(ctx: Ctx<'_>) {
    send_kept_back(ctx);
    send_others(ctx);
}

fn send_others(ctx: Ctx<'_>) {
    let outbox = &shell().outbox;
    let (mut waiting, grants_in_exec) = outbox.with_mut(|outbox| {
        let grants_in_exec = std::mem::take(&mut outbox.grants_in_exec);
        (std::mem::take(&mut outbox.waiting), grants_in_exec)
    });
    if grants_in_exec {
        leave_out_what_was_given_back(&mut waiting);
    }
    let mut waiting = waiting.into_iter().peekable();
    while let Some((to, push)) = waiting.next() {
        // What is toggled many times at once goes to the same watchers each time, and very many leases can be one owner's.
        let mut run = vec![push];
        while let Some((_, push)) = waiting.next_if(|(next, _)| *next == to) {
            run.push(push);
        }
        write_all(ctx, &to, &run);
    }
}

/// Sends what was kept back until a flush was answered, as far as it is.
fn send_kept_back(ctx: Ctx<'_>) {
    let outbox = &shell().outbox;
    let kept_back = outbox.with_mut(|outbox| std::mem::take(&mut outbox.kept_back));
    for (client, push) in kept_back {
        // The flusher's next command is being executed already, so its flush is answered; and this
        // was before that command.
        let is_executing = client == ctx.client() && !raw::is_blocked(client);
        match is_executing {
            true => write_in_front(ctx, client, push),
            // In its order: what is still to wait is put back.
            false => write(ctx, &[client], &push),
        }
    }
    outbox.with_mut(|outbox| outbox.flushing = !outbox.kept_back.is_empty());
}

/// Writes a push to the connection that executes a command, before what that replies; or when the command is over, to one
/// that wants no replies.
fn write_in_front(ctx: Ctx<'_>, client: ClientId, push: Push) {
    // The context may be that of an event, which knows nothing of the connection.
    let resp3 = speaks_resp3(ctx, client);
    if shim::write(client, &frames::frame(ctx, client, resp3, &push)) {
        count_sent(1);
    } else {
        put(vec![client], push);
        push_soon();
    }
}

/// Whether these pushes have to wait until the connection's own flush is answered.
fn keep_back(ctx: Ctx<'_>, client: ClientId, pushes: &[Push]) -> bool {
    let is_kept = |(kept, _): &(ClientId, Push)| *kept == client;
    let outbox = &shell().outbox;
    let has_kept = outbox.with(|outbox| outbox.kept_back.iter().any(is_kept));
    let is_flusher = has_kept
        || raw::is_blocked(client)
            && ctx
                .client_line(client)
                .is_some_and(|line| matches!(field(&line, "cmd="), Some("flushall" | "flushdb")));
    if is_flusher {
        let kept = pushes.iter().map(|push| (client, push.clone()));
        outbox.with_mut(|outbox| outbox.kept_back.extend(kept));
        timer::wake_in_ms(1);
    }
    is_flusher
}

/// Takes back what waits for a connection's watches of these keys, or of all.
pub fn take_back(client: ClientId, keys: Option<&[Key<'_>]>) {
    shell().outbox.with_mut(|outbox| {
        for (to, push) in &mut outbox.waiting {
            if is_watch(push) && keys.is_none_or(|keys| keys.contains(&push.key.as_key())) {
                to.retain(|id| *id != client);
            }
        }
    });
}

/// Leaves out of what waits the grants that were given back since, in the same transaction: its replies have told that, and
/// nothing says that they were lost.
fn leave_out_what_was_given_back(waiting: &mut VecDeque<(Vec<ClientId>, Push)>) {
    let hold = |client: ClientId, push: &Push| (client, push.key.clone(), push.label().to_vec());
    // From the last on: what is lost was granted before.
    let mut lost = HashSet::new();
    let mut is_told = |to: &[ClientId], push: &Push| match (push.news(), to) {
        (News::Lost(..), &[client]) => {
            lost.insert(hold(client, push));
            true
        }
        (News::Granted(_, token), &[client]) => {
            let holds = |engine: &Engine| engine.holds_as(client, push.key.as_key(), *token);
            lost.remove(&hold(client, push)) || shell().engine.with(holds)
        }
        _ => true,
    };
    let all = std::mem::take(waiting).into_iter().rev();
    for told in all.filter(|(to, push)| is_told(to, push)) {
        waiting.push_front(told);
    }
}

fn write(ctx: Ctx<'_>, to: &[ClientId], push: &Push) {
    write_all(ctx, to, std::slice::from_ref(push));
}

/// Writes the same pushes to each of these connections: each is looked up once.
fn write_all(ctx: Ctx<'_>, to: &[ClientId], pushes: &[Push]) {
    let mut frames = Frames::default();
    for push in pushes {
        let (head, news) = frames::texts(ctx, to, push);
        frames.add(head, news);
    }
    let (flushing, in_event) = shell()
        .outbox
        .with(|outbox| (outbox.flushing, outbox.in_event));
    let mut sent = 0;
    for client in to {
        if flushing && keep_back(ctx, *client, pushes) {
            continue;
        }
        match frames.push(*client, in_event) {
            Pushed::All => sent += frames.len() as u64,
            Pushed::ToNobody => {}
            Pushed::NotNow => {
                for push in pushes {
                    put(vec![*client], push.clone());
                }
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

fn is_watch(push: &Push) -> bool {
    matches!(push.news(), News::Added | News::Deleted)
}

fn is_grant(push: &Push) -> bool {
    matches!(push.news(), News::Granted(..))
}

/// Asked for at the last moment: HELLO changes it at any time.
fn speaks_resp3(ctx: Ctx<'_>, client: ClientId) -> bool {
    let line = ctx.client_line(client);
    line.is_some_and(|line| line.split_ascii_whitespace().any(|field| field == "resp=3"))
}
