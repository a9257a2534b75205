//! Where a command's keys stand among its arguments.

use crate::command::KeyPlaces;
use crate::shell::sys::raw::{Ctx, Str};

/// A cluster routes by keys, and asks where they stand when that depends on the arguments.
pub fn tell_keys(ctx: Ctx<'_>, arguments: &[Str<'_>]) {
    let Some((number, rest)) = arguments.split_first() else {
        return;
    };
    let number = std::str::from_utf8(number.bytes()).ok();
    let count = number.and_then(|number| number.parse::<usize>().ok());
    for place in 0..count.unwrap_or(0).min(rest.len()) {
        ctx.key_stands_at(place + 2);
    }
}

/// The keys of a command, among its arguments.
pub fn keys_among<'a, 's>(places: KeyPlaces, strings: &'a [Str<'s>]) -> &'a [Str<'s>] {
    match places {
        KeyPlaces::Nowhere => &[],
        KeyPlaces::First => &strings[..strings.len().min(1)],
        KeyPlaces::All => strings,
        // Options come after the keys; to take them for keys does no harm.
        KeyPlaces::Numbered => &strings[strings.len().min(1)..],
    }
}
