//! Completes rewritten append-only files.
//!
//! A rewritten file begins with the data set as of the fork, either as an RDB file, with what `rdb.rs` adds, or
//! (`aof-use-rdb-preamble no`) as commands that create the keys, to which nothing can be added. Writes since the fork go to
//! another file. So that one begins with the temporary keys, the session records and the last token: `TETHER.BOUND`,
//! `TETHER.SESSION`, `TETHER.HOLD`, `TETHER.TOKEN`. Both files become the server's append-only file in one step, and the
//! commands are idempotent. They are appended right after the fork. Where that must wait (CLIENT PAUSE) and the rewriting ends
//! first, a crash before they are appended loses what sessions hold, without the RDB preamble.

use crate::command::pack::pack_tokens;
use crate::engine::{Db, Token};
use crate::shell::bridge::tell::settle_flush;
use crate::shell::server::{replicas, writes};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, ServerEvent, Target, Text};
use crate::shell::timer;
use redis_module::raw as c;
use std::collections::BTreeMap;

/// Keys per `TETHER.BOUND` command.
const KEYS_PER_COMMAND: usize = 512;

/// The server has forked a child, possibly to rewrite the file.
pub fn on_fork(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    if event.subevent != c::REDISMODULE_SUBEVENT_FORK_CHILD_BORN {
        return;
    }
    replicas::invalidate();
    let rewrites = ctx.server_info(c"persistence", c"aof_rewrite_in_progress");
    if rewrites.is_some_and(|rewrites| rewrites == "1") {
        shell().rewrite_is_due.set(true);
        writes::run_outside_command(ctx, replicate_if_due);
    }
}

/// Appends what the beginning of a rewritten file lacks. O(known keys).
pub fn replicate_if_due(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.rewrite_is_due.get() {
        return;
    }
    if raw::must_not_write() {
        timer::wake_in_ms(timer::RETRY_MS);
        return;
    }
    shell.rewrite_is_due.set(false);
    settle_flush(ctx);
    let preamble = ctx.server_setting("aof-use-rdb-preamble");
    let mut bound: BTreeMap<Db, (Vec<Text>, Vec<Token>)> = BTreeMap::new();
    let (mut names, mut records) = (Vec::new(), Vec::new());
    if preamble.is_some_and(|preamble| preamble == "no") {
        let now = clock::now();
        shell.engine.with(|engine| {
            let keys = engine.temporary_keys();
            names.extend(keys.map(|(key, token)| (key.to_owned(), token)));
            records.extend(engine.session_records(now));
        });
    }
    for (key, token) in names {
        let (keys, tokens) = bound.entry(key.db).or_default();
        keys.push(Text::new(&key.name));
        tokens.push(token);
    }
    let token = shell.engine.with(|engine| engine.last_token_given());
    if let Some(token) = token {
        ctx.replicate_token(Target::File, token);
    }
    for (db, (keys, tokens)) in bound {
        let tokens = tokens.chunks(KEYS_PER_COMMAND);
        for (keys, tokens) in keys.chunks(KEYS_PER_COMMAND).zip(tokens) {
            if let Some(last) = token {
                ctx.log_tokens(last, &pack_tokens(tokens));
            }
            ctx.log_bound(db, keys);
        }
    }
    for record in &records {
        ctx.replicate_record(Target::File, Db(0), record);
    }
}
