//! What pushes say: three elements, of which the first two are the kind and the key.

use crate::engine::{Kind, News, PresenceChange, Push, Token};
use crate::wire::host::Host;
use crate::wire::refusals;
use std::borrow::Cow;

/// The first element, and the third.
pub fn words<'a>(host: &impl Host, push: &'a Push) -> (&'static [u8], Cow<'a, [u8]>) {
    let (kind, payload) = match push.news() {
        News::Added => (&b"watchex"[..], Cow::Borrowed(&b"ADD"[..])),
        News::Deleted => (&b"watchex"[..], Cow::Borrowed(&b"DEL"[..])),
        News::Granted(kind, Token(number)) => (kind_name(*kind), owned(number.to_string())),
        News::TimedOut(kind) => (kind_name(*kind), Cow::Borrowed(&b"TIMEOUT"[..])),
        News::Failed(kind, refusal) => {
            let text = format!("FAILED {}", refusals::code(host, refusal));
            (kind_name(*kind), owned(text))
        }
        News::Presence(news) => {
            let payload = presence_payload(news.0, news.1.as_deref());
            return (b"watchtp", Cow::Owned(payload));
        }
        News::Lost(kind, why, _) => (kind_name(*kind), owned(format!("LOST {}", why.name()))),
    };
    match push.label() {
        [] => (kind, payload),
        label => (kind, Cow::Owned([&payload, &b" "[..], label].concat())),
    }
}

fn owned(text: String) -> Cow<'static, [u8]> {
    Cow::Owned(text.into_bytes())
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

fn kind_name(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Temporary => b"settp",
        Kind::Lock => b"lock",
    }
}

/// The first two elements as on the wire.
pub fn head(kind: &[u8], name: &[u8]) -> Vec<u8> {
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

/// A whole frame: a push on RESP3, on RESP2 an array.
pub fn frame(resp3: bool, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let start: &[u8] = if resp3 { b">3\r\n" } else { b"*3\r\n" };
    let length = format!("${}\r\n", payload.len());
    [start, head, length.as_bytes(), payload, b"\r\n"].concat()
}
