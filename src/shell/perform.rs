//! Carries out the engine's orders.

use super::raw::{Ctx, Str, Text};
use super::state::{self, shell};
use super::{blocked, executing, observe, peers, push, reply, threads};
use crate::engine::Effect;

/// The command that is being answered.
pub struct InHand<'a> {
    pub key: Str<'a>,
    pub value: Str<'a>,
}

pub fn perform(ctx: Ctx<'_>, in_hand: Option<&InHand<'_>>, effect: Effect) {
    match effect {
        Effect::Reply(answer) => reply::send(ctx, &answer),
        Effect::Block => blocked::block(ctx),
        Effect::Answer { client, reply } => blocked::answer(client, reply),
        Effect::MakeInHand => match in_hand {
            Some(InHand { key, value }) => {
                made(performing(*key, || ctx.make(ctx.db(), *key, *value)));
            }
            None => state::fault("a key was to be made without a command that asks for it"),
        },
        Effect::Make { key, value } => {
            let (name, value) = (Text::new(&key.name), Text::new(&value));
            let (name, value) = (name.as_str(), value.as_str());
            made(performing(name, || ctx.make(key.db, name, value)));
        }
        Effect::MakeLock { key } => {
            let name = Text::new(&key.name);
            let name = name.as_str();
            made(performing(name, || ctx.make_lock(key.db, name)));
        }
        Effect::Remove(key) => {
            let name = Text::new(&key.name);
            let name = name.as_str();
            performing(name, || ctx.remove(key.db, name));
        }
        Effect::Push { to, push } => push::send(ctx, to, push),
        Effect::Attend(client) => {
            observe::subscribe(ctx);
            threads::attend(ctx, client);
        }
        Effect::Guard(client) => {
            executing::observe(ctx);
            peers::notice_death(ctx, client);
        }
    }
}

fn made(is_made: bool) {
    if !is_made {
        state::fault("the server refused to make a key");
    }
}

/// Runs `act`; events for this key meanwhile are of our own making.
fn performing<T>(key: Str<'_>, act: impl FnOnce() -> T) -> T {
    let former = shell().performing.replace(Some(key.as_ptr()));
    let result = act();
    shell().performing.set(former);
    result
}
