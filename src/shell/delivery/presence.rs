//! What watches of prefixes return and push: the engine says which temporary keys; their values are read here, and left out is
//! what a user may not read.

use crate::engine::{
    Bytes, ClientId, Key, News, Presence, PresenceChange, Push, SnapshotPage, Viewer,
};
use crate::shell::delivery::push;
use crate::shell::server::rights::Readers;
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, Str, Text, have};
use crate::wire::replies;
use redis_module::raw as c;
use std::ffi::c_int;

/// Longer values are not told.
const VALUE_MAX_BYTES: usize = 4096;

/// Pushes a change to those who may read the key. Returns those who may not see any longer what they saw when they began to
/// watch; they get nothing.
pub fn push(ctx: Ctx<'_>, presence: Presence) -> Vec<ClientId> {
    let Presence { to, key, change } = presence;
    let name = Text::new(&key.name);
    let mut readers = Readers::new(ctx, name.as_str());
    let (mut with_value, mut without, mut blind) = (Vec::new(), Vec::new(), Vec::new());
    for viewer in to {
        let Viewer {
            client,
            keys_only,
            sight,
        } = viewer;
        match readers.look(client) {
            (now, _) if now != sight => blind.push(client),
            (_, false) => {}
            (_, true) if keys_only => without.push(client),
            (_, true) => with_value.push(client),
        }
    }
    let has_value = matches!(change, PresenceChange::Added(_) | PresenceChange::Set(_));
    let value = match has_value && !with_value.is_empty() {
        true => value(ctx, key.as_key(), name.as_str()),
        false => None,
    };
    if value.is_none() {
        with_value.append(&mut without);
    }
    for (to, value) in [(with_value, value), (without, None)] {
        if !to.is_empty() {
            let news = News::of_presence(change, value);
            push::send(ctx, to, Push::new(key.clone(), news, b""));
        }
    }
    blind
}

/// The value of a temporary key, without side effects where the server can do that.
fn value(ctx: Ctx<'_>, key: Key<'_>, name: Str<'_>) -> Option<Bytes> {
    let mode = match have!(RedisModule_CommandFilterGetClientId) {
        true => c::REDISMODULE_READ | c::REDISMODULE_OPEN_KEY_NOEFFECTS,
        false => c::REDISMODULE_READ | c::REDISMODULE_OPEN_KEY_NOTOUCH,
    };
    let open = ctx.in_db(key.db).open_as(name, mode as c_int);
    let value = open.string(VALUE_MAX_BYTES)?;
    Some(Bytes::from(&*value))
}

/// A turn of the server's event loop is over: the next one has its own budget of pages.
pub fn turn_ended() {
    shell().pages.take();
}

/// Replies with a page of a snapshot. If only a part of it was returned, returns the name up to which.
pub fn send_page(ctx: Ctx<'_>, page: &SnapshotPage) -> Option<Bytes> {
    let user = ctx.user();
    let mut shown = Vec::new();
    let (mut looked, mut bytes, mut cut) = (0, 0, None);
    let mut pages = shell().pages.get();
    let at_most = pages.next().bytes;
    for (name, token) in &page.entries {
        if bytes >= at_most {
            cut = Some(page.entries[looked - 1].0.clone());
            break;
        }
        looked += 1;
        let text = Text::new(name);
        if !user
            .as_ref()
            .is_some_and(|user| user.may_read(text.as_str()))
        {
            continue;
        }
        let key = Key {
            db: page.prefix.db,
            name,
        };
        let value = match page.keys_only {
            true => None,
            false => value(ctx, key, text.as_str()),
        };
        bytes += name.len() + value.as_ref().map_or(0, |value| value.len());
        shown.push((name, *token, value));
    }
    pages.spend(looked, bytes);
    shell().pages.set(pages);
    replies::page(&mut { ctx }, page, &shown, cut.is_none());
    cut
}
