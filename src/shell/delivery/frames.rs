//! What pushes say, byte for byte.

use crate::engine::{ClientId, Kind, NameFrom, News, Push, Token};
use crate::shell::delivery::reply;
use crate::shell::sys::raw::{Ctx, Text};

/// The first two elements as they go over the wire to these connections, and the third one's bytes.
pub fn texts(ctx: Ctx<'_>, to: &[ClientId], push: &Push) -> (Text, Text) {
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
        News::Lost(kind, why, _) => {
            text = format!("LOST {}", why.word());
            (word(*kind), text.as_bytes())
        }
    };
    let name: &[u8] = match is_to_be_named(ctx, to, push) {
        true => &push.key.name,
        false => b"",
    };
    let head = Text::new(&head(kind, name));
    let news = match push.label() {
        [] => Text::new(news),
        label => Text::new(&[news, b" ", label].concat()),
    };
    (head, news)
}

/// Who asked for a key knows its name, but not the one that somebody has given it since: that is told to who could ask for
/// it, and unless it is so long that the one who gave it has another pay for it.
fn is_to_be_named(ctx: Ctx<'_>, to: &[ClientId], push: &Push) -> bool {
    const LONGEST: usize = 1024;
    let may_know = |client: &ClientId| {
        let (user, name) = (ctx.user_of(*client), Text::new(&push.key.name));
        user.is_some_and(|user| user.may_read(name.as_str()) || user.may_write(name.as_str()))
    };
    let is_given = matches!(push.news(), News::Lost(_, _, NameFrom::Rename));
    !is_given || push.key.name.len() <= LONGEST && to.iter().all(may_know)
}

/// A whole frame for the connection whose command this is.
pub fn frame(ctx: Ctx<'_>, client: ClientId, resp3: bool, push: &Push) -> Vec<u8> {
    let start: &[u8] = if resp3 { b">3\r\n" } else { b"*3\r\n" };
    let (head, news) = texts(ctx, &[client], push);
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
