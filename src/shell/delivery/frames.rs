//! Encodes pushes, byte for byte.

use crate::engine::{ClientId, NameFrom, News, Push};
use crate::shell::server::rights;
use crate::shell::sys::raw::{Ctx, Text};
use crate::wire::pushes;

/// Encodes a push for these clients: the first two elements as on the wire, and the bytes of the third.
pub fn texts(ctx: Ctx<'_>, to: &[ClientId], push: &Push) -> (Text, Text) {
    let name: &[u8] = match may_see_name(ctx, to, push) {
        true => &push.key.name,
        false => b"",
    };
    let (kind, payload) = pushes::words(&ctx, push);
    let head = Text::new(&pushes::head(kind, name));
    (head, Text::new(&payload))
}

/// Whether the clients may see the key's name. A client knows the name that it asked for, but not one that another client
/// has renamed the key to: that one is sent only if every recipient may access it, and if it is short enough that a RENAME
/// cannot make others pay for a huge name.
fn may_see_name(ctx: Ctx<'_>, to: &[ClientId], push: &Push) -> bool {
    const SHOWN_NAME_MAX_BYTES: usize = 1024;
    let may_know = |client: &ClientId| rights::may_know(ctx, *client, push.key.as_key());
    let is_renamed = matches!(push.news(), News::Lost(_, _, NameFrom::Rename));
    !is_renamed || push.key.name.len() <= SHOWN_NAME_MAX_BYTES && to.iter().all(may_know)
}

/// Encodes a whole frame for the executing client.
pub fn frame(ctx: Ctx<'_>, client: ClientId, resp3: bool, push: &Push) -> Vec<u8> {
    let (head, payload) = texts(ctx, &[client], push);
    pushes::frame(resp3, head.as_str().bytes(), payload.as_str().bytes())
}
