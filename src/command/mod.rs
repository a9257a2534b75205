//! What clients may say: bytes in, a typed request or a refusal out.
//!
//! [`parse`] is total: there are no arguments that it does not answer for, and none that make it
//! panic. It knows nothing of servers or of the engine's state.

mod table;

pub use table::{Access, Argument, ArgumentKind, KeyPlaces, Spec, TABLE, Verb};

use std::fmt;

/// A command that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a, 'b> {
    Settp {
        key: &'a [u8],
        value: &'a [u8],
    },
    Watchex {
        keys: &'b [&'a [u8]],
    },
    /// Without keys: every watch of the connection.
    Unwatchex {
        keys: &'b [&'a [u8]],
    },
}

/// A command that makes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadInput {
    /// The server has its own words for this.
    WrongArity,
    UnknownOption(Box<[u8]>),
}

impl fmt::Display for BadInput {
    /// As the client sees it after the error code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadInput::WrongArity => write!(f, "wrong number of arguments"),
            BadInput::UnknownOption(word) => write!(f, "unknown option '{}'", shown(word)),
        }
    }
}

/// A client's bytes in an error message: printable, and not longer than a line can bear.
fn shown(word: &[u8]) -> impl fmt::Display + '_ {
    const MOST: usize = 64;
    word[..word.len().min(MOST)].escape_ascii()
}

/// Understands a command's arguments, its name not among them. O(their number).
pub fn parse<'a, 'b>(verb: Verb, arguments: &'b [&'a [u8]]) -> Result<Request<'a, 'b>, BadInput> {
    match (verb, arguments) {
        (Verb::Settp, [key, value]) => Ok(Request::Settp { key, value }),
        (Verb::Settp, [_, _, option, ..]) => Err(BadInput::UnknownOption((*option).into())),
        (Verb::Watchex, keys @ [_, ..]) => Ok(Request::Watchex { keys }),
        (Verb::Unwatchex, keys) => Ok(Request::Unwatchex { keys }),
        (Verb::Settp | Verb::Watchex, _) => Err(BadInput::WrongArity),
    }
}
