//! The engine's answers in the protocol's words.

use super::raw::Ctx;
use crate::engine::{Refusal, Reply};

pub fn send(ctx: Ctx<'_>, reply: &Reply) {
    match reply {
        Reply::Integer(value) => ctx.reply_integer(*value),
        Reply::States(states) => {
            if states.len() != 1 {
                ctx.reply_array(states.len());
            }
            for present in states {
                ctx.reply_bulk(if *present { b"EXIST" } else { b"NOEXIST" });
            }
        }
        Reply::Refused(refusal) => ctx.reply_error(&words(refusal)),
    }
}

fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooManyWatches { limit } => format!(
            "ERR too many watches for one connection (tether.max-watches-per-client is {limit})"
        ),
        Refusal::TooManyKeys { limit } => format!(
            "ERR too many temporary keys for one connection (tether.max-keys-per-client is {limit})"
        ),
    }
}
