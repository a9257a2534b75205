//! What comes from a server: replies, and pushes among them.

use super::frame::Frame;

/// One thing that came from the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival {
    Reply(Frame),
    /// `watchex key ADD` and the like, its elements joined by spaces.
    Push(String),
}

pub fn reply(frame: Frame) -> Arrival {
    Arrival::Reply(frame)
}

pub fn push(text: &str) -> Arrival {
    Arrival::Push(text.into())
}

impl Arrival {
    pub fn into_reply(self) -> Frame {
        match self {
            Arrival::Reply(frame) => frame,
            Arrival::Push(push) => unreachable!("{push}"),
        }
    }

    pub fn into_push(self) -> String {
        match self {
            Arrival::Push(push) => push,
            Arrival::Reply(frame) => unreachable!("{frame:?}"),
        }
    }
}

/// A push as one line: its elements joined by spaces (those of `invalidate`, which holds a list, in Rust's notation).
pub fn sentence(frame: &Frame) -> String {
    let words = frame.items().into_iter().map(|item| match item {
        Frame::Bulk(bytes) => String::from_utf8(bytes)
            .unwrap_or_else(|bytes| bytes.as_bytes().escape_ascii().to_string()),
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join(" ")
}
