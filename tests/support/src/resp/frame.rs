//! What a server sends, as values.

use std::fmt;

/// One frame of RESP2 or RESP3.
#[derive(Clone, PartialEq, Eq)]
pub enum Frame {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    Double(Vec<u8>),
    Boolean(bool),
    Null,
    Array(Vec<Frame>),
    Set(Vec<Frame>),
    Map(Vec<(Frame, Frame)>),
    Push(Vec<Frame>),
}

pub fn ok() -> Frame {
    simple("OK")
}

pub fn simple(text: &str) -> Frame {
    Frame::Simple(text.into())
}

pub fn int(number: i64) -> Frame {
    Frame::Integer(number)
}

pub fn bulk(bytes: impl AsRef<[u8]>) -> Frame {
    Frame::Bulk(bytes.as_ref().to_vec())
}

pub fn array(frames: impl IntoIterator<Item = Frame>) -> Frame {
    Frame::Array(frames.into_iter().collect())
}

pub fn null() -> Frame {
    Frame::Null
}

impl Frame {
    /// The text of a simple string, an error, a bulk or a number.
    pub fn text(&self) -> String {
        match self {
            Frame::Simple(bytes)
            | Frame::Error(bytes)
            | Frame::Bulk(bytes)
            | Frame::Verbatim(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Frame::Integer(number) => number.to_string(),
            other => panic!("no text in {other:?}"),
        }
    }

    /// What a bulk is made of, such as the reply of `DUMP`.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Frame::Bulk(bytes) => bytes,
            other => panic!("not a bulk: {other:?}"),
        }
    }

    pub fn number(&self) -> i64 {
        match self {
            Frame::Integer(number) => *number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The elements of an array, a set or a push; a map's keys and values in turn, as RESP2 would send it.
    pub fn items(&self) -> Vec<Frame> {
        match self {
            Frame::Array(items) | Frame::Set(items) | Frame::Push(items) => items.clone(),
            Frame::Map(pairs) => pairs
                .iter()
                .flat_map(|(key, value)| [key.clone(), value.clone()])
                .collect(),
            other => panic!("no elements in {other:?}"),
        }
    }

    /// The module's own pushes have this shape on RESP2, where nothing else tells them from a reply.
    pub fn looks_like_a_push(&self) -> bool {
        let Frame::Array(items) = self else {
            return false;
        };
        let [Frame::Bulk(kind), Frame::Bulk(_), Frame::Bulk(_)] = items.as_slice() else {
            return false;
        };
        matches!(
            kind.as_slice(),
            b"watchex" | b"watchtp" | b"settp" | b"lock"
        )
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Simple(bytes) => write!(f, "+{}", bytes.escape_ascii()),
            Frame::Error(bytes) => write!(f, "-{}", bytes.escape_ascii()),
            Frame::Integer(number) => write!(f, ":{number}"),
            Frame::Bulk(bytes) if bytes.len() > 200 => {
                write!(
                    f,
                    "\"{}...\" ({} bytes)",
                    bytes[..100].escape_ascii(),
                    bytes.len()
                )
            }
            Frame::Bulk(bytes) | Frame::Verbatim(bytes) => {
                write!(f, "\"{}\"", bytes.escape_ascii())
            }
            Frame::Double(bytes) => write!(f, ",{}", bytes.escape_ascii()),
            Frame::Boolean(value) => write!(f, "#{value}"),
            Frame::Null => write!(f, "null"),
            Frame::Array(items) => f.debug_list().entries(items).finish(),
            Frame::Set(items) => f.debug_set().entries(items).finish(),
            Frame::Map(pairs) => f
                .debug_map()
                .entries(pairs.iter().map(|(key, value)| (key, value)))
                .finish(),
            Frame::Push(items) => {
                write!(f, "push ")?;
                f.debug_list().entries(items).finish()
            }
        }
    }
}
