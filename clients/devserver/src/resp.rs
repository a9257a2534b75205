//! Bytes to commands, and replies to bytes.

use std::str;

/// A command is at most so long: enough for tests, and no more memory for a mistake.
const LONGEST: usize = 16 << 20;

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// The words, and how many bytes they took.
    Command(Vec<Vec<u8>>, usize),
    Incomplete,
    /// No client may send this; the text is the error's.
    Broken(&'static str),
}

/// The first command in these bytes: an array of bulk strings, or a line of words.
pub fn read(bytes: &[u8]) -> Read {
    if bytes.len() > LONGEST {
        return Read::Broken("too big a command");
    }
    if bytes.is_empty() {
        return Read::Incomplete;
    }
    let mut at = 0;
    if bytes[0] != b'*' {
        let Some(line) = line(bytes, &mut at) else {
            return Read::Incomplete;
        };
        let words = line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        return Read::Command(words.map(<[u8]>::to_vec).collect(), at);
    }
    let count = match number(bytes, &mut at, b'*') {
        Ok(Some(count)) => count,
        Ok(None) => return Read::Incomplete,
        Err(()) => return Read::Broken("invalid multibulk length"),
    };
    let mut words = Vec::new();
    for _ in 0..count {
        let length = match number(bytes, &mut at, b'$') {
            Ok(Some(length)) => length,
            Ok(None) => return Read::Incomplete,
            Err(()) => return Read::Broken("invalid bulk length"),
        };
        let Some(word) = bytes.get(at..at + length + 2) else {
            return Read::Incomplete;
        };
        words.push(word[..length].to_vec());
        at += length + 2;
    }
    Read::Command(words, at)
}

fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = &bytes[*at..];
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    *at += end + 1;
    Some(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]))
}

fn number(bytes: &[u8], at: &mut usize, kind: u8) -> Result<Option<usize>, ()> {
    let Some(line) = line(bytes, at) else {
        return Ok(None);
    };
    let digits = line.strip_prefix(&[kind]).ok_or(())?;
    let number = str::from_utf8(digits)
        .map_err(drop)?
        .parse()
        .map_err(drop)?;
    if number > LONGEST {
        Err(())
    } else {
        Ok(Some(number))
    }
}

/// A reply in the making.
#[derive(Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
    pub resp3: bool,
}

impl Writer {
    fn line(&mut self, kind: char, text: &str) {
        self.bytes
            .extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
    }

    pub fn integer(&mut self, value: i64) {
        self.line(':', &value.to_string());
    }

    pub fn null(&mut self) {
        let null = if self.resp3 { "_\r\n" } else { "$-1\r\n" };
        self.bytes.extend_from_slice(null.as_bytes());
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.line('$', &bytes.len().to_string());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub fn array(&mut self, length: usize) {
        self.line('*', &length.to_string());
    }

    pub fn map(&mut self, length: usize) {
        match self.resp3 {
            true => self.line('%', &length.to_string()),
            false => self.array(2 * length),
        }
    }

    pub fn error(&mut self, message: &str) {
        self.line('-', &message.replace(['\r', '\n'], " "));
    }

    pub fn simple(&mut self, text: &str) {
        self.line('+', text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: &[&str]) -> Vec<Vec<u8>> {
        of.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_command_is_read_however_it_is_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\na\n\r\nPING\r\n";
        for end in 0..21 {
            assert_eq!(read(&bytes[..end]), Read::Incomplete, "{end}");
        }
        assert_eq!(read(bytes), Read::Command(words(&["GET", "a\n"]), 21));
        assert_eq!(read(&bytes[21..]), Read::Command(words(&["PING"]), 6));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for bytes in [
            "*x\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n$-1\r\n",
            "*99999999999\r\n",
        ] {
            assert!(
                matches!(read(bytes.as_bytes()), Read::Broken(_)),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn maps_and_nulls_are_those_of_the_protocol_that_is_spoken() {
        let mut writer = Writer::default();
        writer.map(1);
        writer.null();
        assert_eq!(writer.bytes, b"*2\r\n$-1\r\n");
        let mut writer = Writer {
            resp3: true,
            ..Writer::default()
        };
        writer.map(1);
        writer.null();
        assert_eq!(writer.bytes, b"%1\r\n_\r\n");
    }
}
