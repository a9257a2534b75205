//! Where a command's keys stand among its arguments.

use crate::command::{self, KeyPlaces, Verb};
use crate::shell::sys::raw::{Ctx, Str};

/// A cluster routes by keys, and asks where they stand when that depends on the arguments.
pub fn reply_keys(ctx: Ctx<'_>, arguments: &[Str<'_>]) {
    let Some((number, rest)) = arguments.split_first() else {
        return;
    };
    let number = std::str::from_utf8(number.bytes()).ok();
    let count = number.and_then(|number| number.parse::<usize>().ok());
    for place in 0..count.unwrap_or(0).min(rest.len()) {
        ctx.key_stands_at(place + 2);
    }
}

/// Of a command with so many words, its name among them, all keys can be told. What the server's function for that tells us is
/// never freed where a command has more than six keys (Redis 7.4 and later) or 256 (the others).
pub const TOLD_WORDS: usize = 7;

/// The same of a command that has a whole one among its arguments, each of whose keys counts as it does to that one. The server
/// asks for these also in threads of its own.
pub fn tell_inner_keys(ctx: Ctx<'_>, arguments: &[Str<'_>]) {
    // The key, and the token; the command's name stands at 0.
    const BEFORE: usize = 2;
    ctx.key_is_read_at(1);
    let words: Vec<_> = arguments.iter().map(|word| word.bytes()).collect();
    // One that is refused may be another of ours with a command inside, and so on.
    let (Some(inner), Ok(_)) = (arguments.get(BEFORE..), command::parse(Verb::Guard, &words))
    else {
        return;
    };
    if inner.len() <= TOLD_WORDS {
        ctx.keys_of(inner, |place, flags| {
            ctx.key_stands_at_as(BEFORE + 1 + place, flags);
        });
    }
}

/// The keys of a command, among its arguments.
pub fn keys_among<'a, 's>(places: KeyPlaces, strings: &'a [Str<'s>]) -> &'a [Str<'s>] {
    match places {
        KeyPlaces::Nowhere => &[],
        KeyPlaces::First | KeyPlaces::Inner => &strings[..strings.len().min(1)],
        KeyPlaces::All => strings,
        // Options come after the keys; to take them for keys does no harm.
        KeyPlaces::Numbered => &strings[strings.len().min(1)..],
    }
}
