//! RESP3, as much of it as locks need: commands out, frames in.

/// A frame that is longer, or nested deeper, is none (P-FRAME-2).
const LONGEST: usize = 16 << 20;
const DEEPEST: usize = 16;

/// What the server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Null,
    Int(i64),
    /// Any kind of string, and what is sent as text: numbers with a fraction, truth.
    Bytes(Vec<u8>),
    Error(String),
    Array(Vec<Frame>),
    Map(Vec<(Frame, Frame)>),
    Push(Vec<Frame>),
}

impl Frame {
    pub fn error(&self) -> Option<&str> {
        match self {
            Frame::Error(text) => Some(text),
            _ => None,
        }
    }

    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Frame::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The elements of an array; nothing of anything else.
    pub fn items(&self) -> &[Frame] {
        match self {
            Frame::Array(items) => items,
            _ => &[],
        }
    }

    /// A number that is not negative.
    pub fn number(&self) -> Option<u64> {
        match self {
            Frame::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// What stands under this name in a map.
    pub fn named(&self, name: &str) -> Option<&Frame> {
        let Frame::Map(pairs) = self else {
            return None;
        };
        let mut pairs = pairs.iter();
        let is_it = |(is, _): &&(Frame, Frame)| is.bytes() == Some(name.as_bytes());
        pairs.find(is_it).map(|(_, value)| value)
    }
}

/// Adds a command to what is to be sent.
pub fn pack(command: &[Vec<u8>], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", command.len()).bytes());
    for word in command {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
}

/// These bytes are no RESP3.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// Makes frames of bytes, however they are cut. Linear in the number of bytes (P-FRAME-3).
#[derive(Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    /// Before this, all has been read.
    at: usize,
    /// Before this, there is no end of a line.
    looked: usize,
    /// The length of a string whose bytes come next.
    string: Option<(u8, usize)>,
    open: Vec<Open>,
    /// Bytes of the frame so far.
    size: usize,
}

/// An array, map or push of which elements are missing.
#[derive(Debug)]
struct Open {
    kind: u8,
    left: usize,
    items: Vec<Frame>,
}

impl Reader {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.looked -= self.at;
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame that is there as a whole.
    pub fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        loop {
            let Some(element) = self.element()? else {
                let is_too_long = self.size + self.bytes.len() - self.at > LONGEST;
                return if is_too_long {
                    Err(Malformed)
                } else {
                    Ok(None)
                };
            };
            let Some(mut frame) = element else {
                continue;
            };
            loop {
                let Some(open) = self.open.last_mut() else {
                    self.size = 0;
                    return Ok(Some(frame));
                };
                open.items.push(frame);
                open.left -= 1;
                if open.left > 0 {
                    break;
                }
                let whole = self.open.pop().map(Open::whole);
                match whole.flatten() {
                    Some(whole) => frame = whole,
                    None => break,
                }
            }
        }
    }

    /// A string, number or empty collection; or nothing yet, where a collection or string was begun. None is that bytes are missing.
    #[expect(clippy::option_option, reason = "as it says")]
    fn element(&mut self) -> Result<Option<Option<Frame>>, Malformed> {
        if let Some((kind, length)) = self.string {
            let Some(bytes) = self.bytes.get(self.at..self.at + length + 2) else {
                return Ok(None);
            };
            let bytes = bytes.strip_suffix(b"\r\n").ok_or(Malformed)?.to_vec();
            self.string = None;
            self.take(length + 2)?;
            return Ok(Some(Some(match kind {
                b'!' => Frame::Error(String::from_utf8_lossy(&bytes).into_owned()),
                // Three letters and a colon say what kind of text it is.
                b'=' => Frame::Bytes(bytes.get(4..).unwrap_or_default().to_vec()),
                _ => Frame::Bytes(bytes),
            })));
        }
        let mut ends = self.bytes[self.looked..].windows(2);
        let Some(end) = ends.position(|end| end == b"\r\n") else {
            self.looked = self.bytes.len().saturating_sub(1).max(self.at);
            return Ok(None);
        };
        let line = self.bytes[self.at..self.looked + end].to_vec();
        self.take(line.len() + 2)?;
        let (kind, rest) = line.split_first().ok_or(Malformed)?;
        self.line(*kind, rest).map(Some)
    }

    fn take(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.at += bytes;
        self.looked = self.at;
        self.size += bytes;
        match self.size > LONGEST {
            true => Err(Malformed),
            false => Ok(()),
        }
    }

    fn line(&mut self, kind: u8, rest: &[u8]) -> Result<Option<Frame>, Malformed> {
        let text = || std::str::from_utf8(rest).map_err(|_| Malformed);
        let number = || text()?.parse::<i64>().map_err(|_| Malformed);
        Ok(Some(match kind {
            b'+' | b',' | b'#' | b'(' => Frame::Bytes(rest.to_vec()),
            b'-' => Frame::Error(String::from_utf8_lossy(rest).into_owned()),
            b':' => Frame::Int(number()?),
            b'_' => Frame::Null,
            b'$' | b'*' if number()? == -1 => Frame::Null,
            b'$' | b'!' | b'=' => {
                let length = length(number()?)?;
                self.string = Some((kind, length));
                return Ok(None);
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let count = length(number()?)?;
                let is_of_pairs = matches!(kind, b'%' | b'|');
                let left = if is_of_pairs { count * 2 } else { count };
                let items = Vec::new();
                let open = Open { kind, left, items };
                if left == 0 {
                    return Ok(open.whole());
                }
                if self.open.len() == DEEPEST {
                    return Err(Malformed);
                }
                self.open.push(open);
                return Ok(None);
            }
            _ => return Err(Malformed),
        }))
    }
}

impl Open {
    /// Attributes are nobody's here.
    fn whole(self) -> Option<Frame> {
        Some(match self.kind {
            b'>' => Frame::Push(self.items),
            b'%' => {
                let mut items = self.items.into_iter();
                let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
                Frame::Map(pairs.collect())
            }
            b'|' => return None,
            _ => Frame::Array(self.items),
        })
    }
}

fn length(number: i64) -> Result<usize, Malformed> {
    let length = usize::try_from(number).map_err(|_| Malformed)?;
    if length > LONGEST {
        Err(Malformed)
    } else {
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn frames(chunks: &[&[u8]]) -> Result<Vec<Frame>, Malformed> {
        let mut reader = Reader::default();
        let mut frames = Vec::new();
        for chunk in chunks {
            reader.feed(chunk);
            while let Some(frame) = reader.next()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    fn text(text: &str) -> Frame {
        Frame::Bytes(text.into())
    }

    const STREAM: &[u8] = b"+OK\r\n-BUSY no\r\n:7\r\n$5\r\na\r\nbc\r\n*2\r\n$0\r\n\r\n*0\r\n_\r\n%2\r\n$4\r\nrole\r\n\
        +master\r\n:1\r\n*1\r\n#t\r\n>3\r\n+lock\r\n+k\r\n+7 .1\r\n|1\r\n+a\r\n+b\r\n=7\r\ntxt:any\r\n!3\r\nERR\r\n$-1\r\n,1.5\r\n";

    #[test]
    fn frames_are_the_same_however_the_bytes_are_cut() {
        let whole = frames(&[STREAM]).unwrap();
        let [
            ok,
            busy,
            seven,
            line,
            nested,
            null,
            map,
            push,
            verbatim,
            error,
            nothing,
            double,
        ] = <[Frame; 12]>::try_from(whole.clone()).unwrap();
        assert_eq!([ok, verbatim, double], ["OK", "any", "1.5"].map(text));
        assert_eq!(busy.error(), Some("BUSY no"));
        assert_eq!(error.error(), Some("ERR"));
        assert_eq!((seven.number(), line), (Some(7), text("a\r\nbc")));
        assert_eq!(nested, Frame::Array(vec![text(""), Frame::Array(vec![])]));
        assert_eq!([null, nothing], [Frame::Null, Frame::Null]);
        assert_eq!(map.named("role"), Some(&text("master")));
        assert_eq!(push, Frame::Push(["lock", "k", "7 .1"].map(text).into()));
        let bytes: Vec<_> = STREAM.chunks(1).collect();
        assert_eq!(frames(&bytes).unwrap(), whole);
        for cut in 0..STREAM.len() {
            let (one, other) = STREAM.split_at(cut);
            assert_eq!(frames(&[one, other]).unwrap(), whole, "{cut}");
        }
    }

    #[test]
    fn what_is_no_frame_is_malformed() {
        let deep = b"*1\r\n".repeat(DEEPEST + 1);
        let long = [b"$16777217\r\n".to_vec(), b"x".repeat(LONGEST)].concat();
        let endless = b"x".repeat(LONGEST + 1);
        let streams: [&[u8]; 8] = [
            b"hello\r\n",
            b"\r\n",
            b":x\r\n",
            b"$1\r\nxyz",
            b"*-7\r\n",
            &deep,
            &long,
            &endless,
        ];
        for stream in streams {
            assert_eq!(frames(&[stream]), Err(Malformed));
        }
        assert!(frames(&[&b"*1\r\n".repeat(DEEPEST), b"_\r\n"]).is_ok());
    }

    /// If it were quadratic, this would take a minute.
    #[test]
    fn the_cost_of_a_frame_is_linear_in_its_bytes() {
        const PAIRS: usize = 100_000;
        for kind in ['*', '~', '>', '%', '|'] {
            let count = if "%|".contains(kind) {
                PAIRS
            } else {
                PAIRS * 2
            };
            let bytes = format!("{kind}{count}\r\n{}:1\r\n", "_\r\n".repeat(PAIRS * 2));
            let begun = Instant::now();
            assert!(!frames(&[bytes.as_bytes()]).unwrap().is_empty());
            assert!(begun.elapsed() < Duration::from_secs(10), "{kind}");
        }
    }

    #[test]
    fn a_command_is_packed_as_an_array_of_strings() {
        let mut out = Vec::new();
        pack(&[b"GET".to_vec(), b"a\r\n".to_vec()], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }
}
