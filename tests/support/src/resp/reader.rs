//! Reads strictly: any byte that the protocol does not allow is an error.

use super::frame::Frame;

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

/// How many bytes the first frame takes, for who does not want to know what it says.
pub fn length(bytes: &[u8]) -> Result<usize, Unread> {
    let mut reader = Reader { bytes, at: 0 };
    reader.skip(0)?;
    Ok(reader.at)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A frame without what is in it, of which there are so many.
enum Token<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Verbatim(&'a [u8]),
    Double(&'a [u8]),
    Boolean(bool),
    Null,
    Array(usize),
    Set(usize),
    Map(usize),
    Push(usize),
}

impl<'a> Reader<'a> {
    fn frame(&mut self, depth: usize) -> Result<Frame, Unread> {
        Ok(match self.token(depth)? {
            Token::Simple(text) => Frame::Simple(text.to_vec()),
            Token::Error(text) => Frame::Error(text.to_vec()),
            Token::Integer(number) => Frame::Integer(number),
            Token::Bulk(bytes) => Frame::Bulk(bytes.to_vec()),
            Token::Verbatim(bytes) => Frame::Verbatim(bytes.to_vec()),
            Token::Double(digits) => Frame::Double(digits.to_vec()),
            Token::Boolean(value) => Frame::Boolean(value),
            Token::Null => Frame::Null,
            Token::Array(count) => Frame::Array(self.frames(count, depth)?),
            Token::Set(count) => Frame::Set(self.frames(count, depth)?),
            Token::Push(count) => Frame::Push(self.frames(count, depth)?),
            Token::Map(count) => {
                let pair = |_| Ok((self.frame(depth + 1)?, self.frame(depth + 1)?));
                Frame::Map((0..count).map(pair).collect::<Result<_, _>>()?)
            }
        })
    }

    fn frames(&mut self, count: usize, depth: usize) -> Result<Vec<Frame>, Unread> {
        (0..count).map(|_| self.frame(depth + 1)).collect()
    }

    fn skip(&mut self, depth: usize) -> Result<(), Unread> {
        let inside = match self.token(depth)? {
            Token::Array(count) | Token::Set(count) | Token::Push(count) => count,
            Token::Map(count) => 2 * count,
            _ => 0,
        };
        (0..inside).try_for_each(|_| self.skip(depth + 1))
    }

    fn token(&mut self, depth: usize) -> Result<Token<'a>, Unread> {
        let kind = *self.bytes.get(self.at).ok_or(Unread::Incomplete)?;
        self.at += 1;
        match kind {
            b'>' if depth > 0 => self.broken("a push inside another frame"),
            b'+' => Ok(Token::Simple(self.line()?)),
            b'-' => Ok(Token::Error(self.line()?)),
            b':' => Ok(Token::Integer(self.number()?)),
            b',' => Ok(Token::Double(self.line()?)),
            b'_' => match self.line()? {
                b"" => Ok(Token::Null),
                _ => self.broken("a null with content"),
            },
            b'#' => match self.line()? {
                b"t" => Ok(Token::Boolean(true)),
                b"f" => Ok(Token::Boolean(false)),
                _ => self.broken("a boolean neither t nor f"),
            },
            b'$' => Ok(self.blob()?.map_or(Token::Null, Token::Bulk)),
            b'=' => match self.blob()? {
                Some(bytes) if bytes.get(3) == Some(&b':') => Ok(Token::Verbatim(&bytes[4..])),
                _ => self.broken("a verbatim string without its format"),
            },
            b'*' => Ok(self.length()?.map_or(Token::Null, Token::Array)),
            b'~' => Ok(self.length()?.map_or(Token::Null, Token::Set)),
            b'>' => Ok(self.length()?.map_or(Token::Null, Token::Push)),
            b'%' => Ok(self.length()?.map_or(Token::Null, Token::Map)),
            _ => self.broken("an unknown kind of frame"),
        }
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

#[cfg(test)]
mod tests {
    use super::super::frame::{Frame, array, bulk, int, null, ok, simple};
    use super::{Unread, length, parse};

    #[test]
    fn the_strict_reader_accepts_whole_frames_and_nothing_else() {
        for (bytes, frame) in [
            ("+OK\r\n", ok()),
            (":-7\r\n", int(-7)),
            ("$3\r\na\r\n\r\n", bulk("a\r\n")),
            ("$-1\r\n", null()),
            ("*2\r\n:1\r\n_\r\n", array([int(1), null()])),
            (">1\r\n$1\r\nk\r\n", Frame::Push(vec![bulk("k")])),
            (
                "%1\r\n+a\r\n*0\r\n",
                Frame::Map(vec![(simple("a"), array([]))]),
            ),
        ] {
            assert_eq!(parse(bytes.as_bytes()).unwrap(), (frame, bytes.len()));
            assert_eq!(length(bytes.as_bytes()).unwrap(), bytes.len());
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
}
