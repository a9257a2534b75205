//! What pushes say, byte for byte.

use crate::engine::{KeyBuf, Kind, Loss, News, Push, Token};
use crate::shell::commands::reply;
use crate::shell::sys::raw::{Ctx, Text};

/// The first two elements as they go over the wire, and the third one's bytes.
pub fn texts(ctx: Ctx<'_>, push: &Push) -> (Text, Text) {
    let text;
    let (kind, news): (&[u8], &[u8]) = match push.news() {
        News::Added => (b"watchex", b"ADD"),
        News::Deleted => (b"watchex", b"DEL"),
        News::Granted(kind, Token(number)) => {
            text = number.to_string();
            (word(*kind), text.as_bytes())
        }
        News::TimedOut(kind) => (word(*kind), b"TIMEOUT"),
        News::Failed(kind, refusal) => {
            text = format!("FAILED {}", reply::code(ctx, refusal));
            (word(*kind), text.as_bytes())
        }
        News::Lost(kind, why) => {
            text = format!("LOST {}", reason(*why));
            (word(*kind), text.as_bytes())
        }
    };
    let head = Text::new(&head(kind, &push.key));
    let news = match push.label() {
        [] => Text::new(news),
        label => Text::new(&[news, b" ", label].concat()),
    };
    (head, news)
}

fn reason(why: Loss) -> &'static str {
    match why {
        Loss::Lease => "lease",
        Loss::Deleted => "deleted",
        Loss::Expired => "expired",
        Loss::Evicted => "evicted",
        Loss::Flushed => "flushed",
        Loss::Overwritten => "overwritten",
        Loss::Moved => "moved",
        Loss::Demoted => "demoted",
    }
}

/// A whole frame for the connection whose command this is.
pub fn frame(ctx: Ctx<'_>, resp3: bool, push: &Push) -> Vec<u8> {
    let start: &[u8] = if resp3 { b">3\r\n" } else { b"*3\r\n" };
    let (head, news) = texts(ctx, push);
    let news = news.as_str().bytes();
    let length = format!("${}\r\n", news.len());
    [
        start,
        head.as_str().bytes(),
        length.as_bytes(),
        news,
        b"\r\n",
    ]
    .concat()
}

fn word(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Temporary => b"settp",
        Kind::Lock => b"lock",
    }
}

fn head(kind: &[u8], key: &KeyBuf) -> Vec<u8> {
    let mut head = Vec::with_capacity(kind.len() + key.name.len() + 32);
    for bulk in [kind, &key.name] {
        head.push(b'$');
        head.extend_from_slice(bulk.len().to_string().as_bytes());
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(bulk);
        head.extend_from_slice(b"\r\n");
    }
    head
}
