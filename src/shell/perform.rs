//! Carries out the engine's orders.

use super::raw::{Ctx, Str, Text};
use super::state::{self, shell};
use super::{executing, observe, peers, push, reply};
use crate::engine::Effect;

/// The command that is being answered.
pub struct InHand<'a> {
    pub key: Str<'a>,
    pub value: Str<'a>,
}

pub fn perform(ctx: Ctx<'_>, in_hand: Option<&InHand<'_>>, effect: Effect) {
    match effect {
        Effect::Reply(answer) => reply::send(ctx, &answer),
        Effect::Make => {
            let Some(InHand { key, value }) = in_hand else {
                state::fault("a key was to be made without a command that asks for it");
                return;
            };
            if !performing(*key, || ctx.make(*key, *value)) {
                state::fault("the server refused to make an absent key");
            }
        }
        Effect::Remove(key) => {
            let name = Text::new(&key.name);
            performing(name.as_str(), || ctx.remove(key.db, name.as_str()));
        }
        Effect::Push { to, push } => push::send(ctx, to, push),
        Effect::Attend(client) => {
            observe::subscribe(ctx);
            push::attend(client);
        }
        Effect::Guard(client) => {
            executing::observe(ctx);
            peers::notice_death(ctx, client);
        }
    }
}

/// Runs `act`; events for this key meanwhile are of our own making.
fn performing<T>(key: Str<'_>, act: impl FnOnce() -> T) -> T {
    let former = shell().performing.replace(Some(key.as_ptr()));
    let result = act();
    shell().performing.set(former);
    result
}
