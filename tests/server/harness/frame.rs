//! What a server sends, as values; read strictly: any byte that the protocol does not allow is an error.

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
        matches!(kind.as_slice(), b"watchex" | b"settp" | b"lock")
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

/// Why no frame could be read.
#[derive(Debug)]
pub enum Unread {
    /// The bytes so far may be the beginning of a frame.
    Incomplete,
    /// No server may send this.
    Broken(String),
}

/// The first frame in `bytes`, and how many of them it takes.
pub fn parse(bytes: &[u8]) -> Result<(Frame, usize), Unread> {
    let mut reader = Reader { bytes, at: 0 };
    let frame = reader.frame(0)?;
    Ok((frame, reader.at))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn frame(&mut self, depth: usize) -> Result<Frame, Unread> {
        let kind = *self.bytes.get(self.at).ok_or(Unread::Incomplete)?;
        self.at += 1;
        match kind {
            b'>' if depth > 0 => self.broken("a push inside another frame"),
            b'+' => Ok(Frame::Simple(self.line()?.to_vec())),
            b'-' => Ok(Frame::Error(self.line()?.to_vec())),
            b':' => Ok(Frame::Integer(self.number()?)),
            b',' => Ok(Frame::Double(self.line()?.to_vec())),
            b'_' => match self.line()? {
                b"" => Ok(Frame::Null),
                _ => self.broken("a null with content"),
            },
            b'#' => match self.line()? {
                b"t" => Ok(Frame::Boolean(true)),
                b"f" => Ok(Frame::Boolean(false)),
                _ => self.broken("a boolean neither t nor f"),
            },
            b'$' => Ok(self
                .blob()?
                .map_or(Frame::Null, |bytes| Frame::Bulk(bytes.to_vec()))),
            b'=' => match self.blob()? {
                Some(bytes) if bytes.get(3) == Some(&b':') => {
                    Ok(Frame::Verbatim(bytes[4..].to_vec()))
                }
                _ => self.broken("a verbatim string without its format"),
            },
            b'*' => Ok(self.elements(depth)?.map_or(Frame::Null, Frame::Array)),
            b'~' => Ok(self.elements(depth)?.map_or(Frame::Null, Frame::Set)),
            b'>' => Ok(self.elements(depth)?.map_or(Frame::Null, Frame::Push)),
            b'%' => self.map(depth),
            _ => self.broken("an unknown kind of frame"),
        }
    }

    fn elements(&mut self, depth: usize) -> Result<Option<Vec<Frame>>, Unread> {
        let Some(count) = self.length()? else {
            return Ok(None);
        };
        (0..count)
            .map(|_| self.frame(depth + 1))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn map(&mut self, depth: usize) -> Result<Frame, Unread> {
        let Some(count) = self.length()? else {
            return Ok(Frame::Null);
        };
        let pairs = (0..count).map(|_| Ok((self.frame(depth + 1)?, self.frame(depth + 1)?)));
        pairs.collect::<Result<_, _>>().map(Frame::Map)
    }

    fn blob(&mut self) -> Result<Option<&'a [u8]>, Unread> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let end = self.at + length;
        if self.bytes.len() < end + 2 {
            return Err(Unread::Incomplete);
        }
        let content = &self.bytes[self.at..end];
        self.at = end;
        match self.line()? {
            b"" => Ok(Some(content)),
            _ => self.broken("more bytes in a bulk than its length says"),
        }
    }

    /// A length; none for -1.
    fn length(&mut self) -> Result<Option<usize>, Unread> {
        match self.number()? {
            -1 => Ok(None),
            number => usize::try_from(number)
                .map(Some)
                .or_else(|_| self.broken("a negative length")),
        }
    }

    fn number(&mut self) -> Result<i64, Unread> {
        let line = self.line()?;
        let digits = line.strip_prefix(b"-").unwrap_or(line);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return self.broken("something that is no number");
        }
        std::str::from_utf8(line)
            .unwrap()
            .parse()
            .or_else(|_| self.broken("a number out of range"))
    }

    fn line(&mut self) -> Result<&'a [u8], Unread> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            return Err(Unread::Incomplete);
        };
        match rest.get(end..end + 2) {
            None if rest[end] == b'\r' => Err(Unread::Incomplete),
            Some(b"\r\n") => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            _ => self.broken("a line that does not end in CR LF"),
        }
    }

    fn broken<T>(&self, what: &str) -> Result<T, Unread> {
        let near = &self.bytes[self.at.saturating_sub(120)..self.bytes.len().min(self.at + 120)];
        Err(Unread::Broken(format!(
            "{what} at byte {} in or near {}",
            self.at,
            near.escape_ascii()
        )))
    }
}

#[test]
fn the_strict_reader_accepts_whole_frames_and_nothing_else() {
    for (bytes, frame) in [
        ("+OK\r\n", ok()),
        (":-7\r\n", int(-7)),
        ("$3\r\na\r\n\r\n", bulk("a\r\n")),
        ("$-1\r\n", null()),
        ("*2\r\n:1\r\n_\r\n", array([int(1), null()])),
        (">1\r\n$1\r\nk\r\n", Frame::Push(vec![bulk("k")])),
    ] {
        assert_eq!(parse(bytes.as_bytes()).unwrap(), (frame, bytes.len()));
        for cut in 0..bytes.len() {
            assert!(
                matches!(parse(&bytes.as_bytes()[..cut]), Err(Unread::Incomplete)),
                "{bytes:?} cut at {cut}"
            );
        }
    }
    for bytes in [
        "OK\r\n",
        "+O\nK\r\n",
        ":1x\r\n",
        ":+1\r\n",
        "$1\r\nab\r\n",
        "$-2\r\n",
        "*1\r\n>1\r\n:1\r\n",
        "#y\r\n",
    ] {
        assert!(
            matches!(parse(bytes.as_bytes()), Err(Unread::Broken(_))),
            "{bytes:?} was not refused"
        );
    }
}
