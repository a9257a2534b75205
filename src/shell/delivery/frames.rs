//! Encodes pushes, byte for byte.

use crate::engine::{ClientId, Kind, NameFrom, News, PresenceChange, Push, Token};
use crate::shell::delivery::reply;
use crate::shell::sys::raw::{Ctx, Text};

/// Encodes a push for these clients: the first two elements as on the wire, and the bytes of the third.
pub fn texts(ctx: Ctx<'_>, to: &[ClientId], push: &Push) -> (Text, Text) {
    let text;
    let (kind, payload): (&[u8], &[u8]) = match push.news() {
        News::Added => (b"watchex", b"ADD"),
        News::Deleted => (b"watchex", b"DEL"),
        News::Granted(kind, Token(number)) => {
            text = number.to_string();
            (kind_name(*kind), text.as_bytes())
        }
        News::TimedOut(kind) => (kind_name(*kind), b"TIMEOUT"),
        News::Failed(kind, refusal) => {
            text = format!("FAILED {}", reply::code(ctx, refusal));
            (kind_name(*kind), text.as_bytes())
        }
        News::Presence(news) => {
            return (
                Text::new(&head(b"watchtp", &push.key.name)),
                Text::new(&presence_payload(news.0, news.1.as_deref())),
            );
        }
        News::Lost(kind, why, _) => {
            text = format!("LOST {}", why.name());
            (kind_name(*kind), text.as_bytes())
        }
    };
    let name: &[u8] = match may_see_name(ctx, to, push) {
        true => &push.key.name,
        false => b"",
    };
    let head = Text::new(&head(kind, name));
    let payload = match push.label() {
        [] => Text::new(payload),
        label => Text::new(&[payload, b" ", label].concat()),
    };
    (head, payload)
}

/// A key that has no value to tell has no third word.
fn presence_payload(change: PresenceChange, value: Option<&[u8]>) -> Vec<u8> {
    let text = match change {
        PresenceChange::Added(token) => format!("ADD {}", token.0),
        PresenceChange::Set(token) => format!("SET {}", token.0),
        PresenceChange::Gone(token, why) => format!("DEL {} {}", token.0, why.name()),
        PresenceChange::Flushed => "FLUSHED".to_owned(),
        PresenceChange::Over(why) => format!("END {}", why.name()),
    };
    match value {
        Some(value) => [text.as_bytes(), b" ", value].concat(),
        None => text.into_bytes(),
    }
}

/// Whether the clients may see the key's name. A client knows the name that it asked for, but not one that another client
/// has renamed the key to: that one is sent only if every recipient may access it, and if it is short enough that a RENAME
/// cannot make others pay for a huge name.
fn may_see_name(ctx: Ctx<'_>, to: &[ClientId], push: &Push) -> bool {
    const SHOWN_NAME_MAX_BYTES: usize = 1024;
    let may_know = |client: &ClientId| {
        let (user, name) = (ctx.user_of(*client), Text::new(&push.key.name));
        user.is_some_and(|user| user.may_read(name.as_str()) || user.may_write(name.as_str()))
    };
    let is_renamed = matches!(push.news(), News::Lost(_, _, NameFrom::Rename));
    !is_renamed || push.key.name.len() <= SHOWN_NAME_MAX_BYTES && to.iter().all(may_know)
}

/// Encodes a whole frame for the executing client.
pub fn frame(ctx: Ctx<'_>, client: ClientId, resp3: bool, push: &Push) -> Vec<u8> {
    let start: &[u8] = if resp3 { b">3\r\n" } else { b"*3\r\n" };
    let (head, payload) = texts(ctx, &[client], push);
    let payload = payload.as_str().bytes();
    let length = format!("${}\r\n", payload.len());
    [
        start,
        head.as_str().bytes(),
        length.as_bytes(),
        payload,
        b"\r\n",
    ]
    .concat()
}

fn kind_name(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Temporary => b"settp",
        Kind::Lock => b"lock",
    }
}

fn head(kind: &[u8], name: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(kind.len() + name.len() + 32);
    for bulk in [kind, name] {
        head.push(b'$');
        head.extend_from_slice(bulk.len().to_string().as_bytes());
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(bulk);
        head.extend_from_slice(b"\r\n");
    }
    head
}
