//! Commands, as tests write them and as they go over the wire.

use std::io::Write;

/// The words of a command: `"SET k v"` is split at spaces, a list is taken as it is.
pub trait Words {
    fn words(&self) -> Vec<&[u8]>;
}

impl Words for &str {
    fn words(&self) -> Vec<&[u8]> {
        self.split_ascii_whitespace().map(str::as_bytes).collect()
    }
}

impl Words for &String {
    fn words(&self) -> Vec<&[u8]> {
        self.split_ascii_whitespace().map(str::as_bytes).collect()
    }
}

impl<T: AsRef<[u8]>> Words for &[T] {
    fn words(&self) -> Vec<&[u8]> {
        self.iter().map(AsRef::as_ref).collect()
    }
}

impl<T: AsRef<[u8]>, const N: usize> Words for [T; N] {
    fn words(&self) -> Vec<&[u8]> {
        self.iter().map(AsRef::as_ref).collect()
    }
}

impl<T: AsRef<[u8]>> Words for Vec<T> {
    fn words(&self) -> Vec<&[u8]> {
        self.iter().map(AsRef::as_ref).collect()
    }
}

/// A command as it goes over the wire.
pub fn encode(command: impl Words) -> Vec<u8> {
    let words = command.words();
    let mut bytes = Vec::new();
    let header = |bytes: &mut Vec<u8>, kind, count| {
        write!(bytes, "{kind}{count}\r\n").expect("a vector takes all");
    };
    header(&mut bytes, '*', words.len());
    for word in words {
        header(&mut bytes, '$', word.len());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command, as a message tells of it.
pub fn spelled(words: &[&[u8]]) -> String {
    let words = words.iter().map(|word| word.escape_ascii().to_string());
    format!("{:?}", words.collect::<Vec<_>>())
}
