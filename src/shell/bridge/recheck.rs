//! Keys that are looked at again, as soon as that can be done.
//!
//! Of some changes the server tells only where the key cannot be looked at, and does not say what stands there: a value of
//! ours leaves its key, a lock is read from what `RESTORE` brings, a key is overwritten. Until the look, the key can go by
//! another name: so what is known of it follows it, through `RENAME`, `MOVE`, `SWAPDB`, flushes and what takes its place.

mod queue;

pub use queue::{Queue, Why};

use crate::engine::{Db, Event, Key, KeyBuf, Loss, Seen, Standing};
use crate::shell::bridge::dispatch::{self, Reach, tell};
use crate::shell::server::cluster;
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, Text};

/// Has a key looked at again as soon as the command in hand is over.
pub fn soon(key: Key<'_>, why: Why) {
    let is_next = shell().is_any_put_off.get();
    put_off(key, why);
    // One look is for all of them.
    match is_next {
        true => dispatch::wake_in_ms(0),
        false => dispatch::catch_up_soon(),
    }
}

/// Has a key looked at again when [`dispatch::catch_up`] is called next.
pub fn put_off(key: Key<'_>, why: Why) {
    let shell = shell();
    shell.rechecks.with_mut(|queue| queue.put(key, why));
    shell.is_any_put_off.set(true);
}

/// Whether an event of this key matters here.
pub fn concerns(key: Key<'_>) -> bool {
    let shell = shell();
    shell.is_any_put_off.get() && shell.rechecks.with(|queue| queue.concerns(key))
}

/// A key has gone: there is nothing to look at.
pub fn gone(key: Key<'_>) {
    let shell = shell();
    if shell.is_any_put_off.get() {
        shell.rechecks.with_mut(|queue| queue.take(key));
    }
}

/// A key leaves its place for another, which is told next. True if the engine is to be told of both then: what stands there
/// may be what somebody has written over a lock, and at its new place it can be seen.
pub fn leaves(key: Key<'_>) -> bool {
    let shell = shell();
    if !shell.is_any_put_off.get() {
        return false;
    }
    let why = shell.rechecks.with_mut(|queue| {
        let why = queue.why(key);
        queue.leaves(key);
        why
    });
    why.is_some_and(|why| why.overwritten)
}

/// The key that has just left its place stands at this one from now on.
pub fn arrives(ctx: Ctx<'_>, key: Key<'_>) {
    let shell = shell();
    if !shell.is_any_put_off.get() {
        return;
    }
    let arrived = shell.rechecks.with_mut(|queue| queue.arrives(key));
    let Some(from) = arrived else {
        return;
    };
    let from = from.as_key();
    // The command in hand has looked at the key itself, so this look does not find that its time is over.
    let standing = ctx.standing(key.db, Text::new(key.name).as_str());
    if standing != Standing::Lock {
        let seen = Seen {
            key: from,
            standing: Standing::Other,
        };
        let gone = Loss::Deleted;
        tell(ctx, Event::Found { seen, gone });
    }
    tell(ctx, Event::MovedFrom { key: from });
    cluster::follow(ctx, from);
}

/// Looks at those within reach. While a data set is loaded they wait for its end.
#[cold]
pub fn look(ctx: Ctx<'_>, reach: Reach<'_>) {
    let shell = shell();
    if shell.loading.get() {
        return;
    }
    let due = match reach {
        Reach::All => shell.rechecks.with_mut(Queue::take_all),
        Reach::Only(db, names) => {
            let names: Vec<_> = names.iter().map(|name| name.bytes()).collect();
            let keys = names.into_iter().map(|name| Key { db, name });
            let take = |queue: &mut Queue| {
                keys.filter_map(|key| Some((key.to_owned(), queue.take(key)?)))
                    .collect()
            };
            shell.rechecks.with_mut(take)
        }
    };
    for (key, why) in due {
        look_at(ctx, key.as_key(), why);
    }
    let is_any_left = !shell.rechecks.with(Queue::is_empty);
    shell.is_any_put_off.set(is_any_left);
}

fn look_at(ctx: Ctx<'_>, key: Key<'_>, why: Why) {
    if why.overwritten {
        let standing = ctx.standing(key.db, Text::new(key.name).as_str());
        found(ctx, key, standing);
    }
    if why.restored {
        cluster::look_at_restored(ctx, key);
    }
    if why.untimed {
        cluster::look_at_untimed(ctx, key);
    }
}

pub fn swapped(one: Db, other: Db) {
    shell().rechecks.with_mut(|queue| queue.swapped(one, other));
}

/// One database, or each, is empty.
pub fn flushed(db: Option<Db>) {
    shell().rechecks.with_mut(|queue| queue.flushed(db));
}

/// After a change without events of its own: looks at each of the keys that it can matter to.
pub fn look_again(ctx: Ctx<'_>, keys: Vec<KeyBuf>) {
    for key in keys {
        let name = Text::new(&key.name);
        let standing = ctx.standing_without_trace(key.db, name.as_str());
        found(ctx, key.as_key(), standing);
    }
}

/// What a fresh look at a key showed.
pub fn found(ctx: Ctx<'_>, key: Key<'_>, standing: Standing) {
    let seen = Seen { key, standing };
    let gone = match standing {
        Standing::Absent => cluster::loss_of_removal(ctx, key),
        Standing::Lock | Standing::Other => Loss::Overwritten,
    };
    tell(ctx, Event::Found { seen, gone });
    if !standing.is_present() {
        cluster::follow(ctx, key);
    }
}
