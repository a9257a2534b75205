//! Commands, as tests write them and as they go over the wire.

/// The words of a command: `"SET k v"` is split at spaces, a list is taken as it is.
pub trait Words {
    fn words(&self) -> Vec<Vec<u8>>;
}

impl Words for &str {
    fn words(&self) -> Vec<Vec<u8>> {
        self.split_whitespace()
            .map(|word| word.as_bytes().to_vec())
            .collect()
    }
}

impl Words for &String {
    fn words(&self) -> Vec<Vec<u8>> {
        self.as_str().words()
    }
}

impl<T: AsRef<[u8]>, const N: usize> Words for [T; N] {
    fn words(&self) -> Vec<Vec<u8>> {
        self.iter().map(|word| word.as_ref().to_vec()).collect()
    }
}

impl<T: AsRef<[u8]>> Words for Vec<T> {
    fn words(&self) -> Vec<Vec<u8>> {
        self.iter().map(|word| word.as_ref().to_vec()).collect()
    }
}

/// A command as it goes over the wire.
pub fn encode(command: impl Words) -> Vec<u8> {
    let words = command.words();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(&word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command, as a message tells of it.
pub fn spelled(words: &[Vec<u8>]) -> String {
    let words = words.iter().map(|word| word.escape_ascii().to_string());
    format!("{:?}", words.collect::<Vec<_>>())
}

/// The push with which the owner of `k` (`settp k` or `lock k`) is told that it lost it by these commands of another. A
/// time to live that is over as soon as it is given is an end of one kind or the other, as the server has it.
pub fn losses(what: &str, removal: &[&str]) -> Vec<String> {
    let has = |words: &[&str]| {
        let mut all = removal.iter();
        all.any(|command| words.iter().any(|word| command.starts_with(word)))
    };
    let reasons: &[&str] = if has(&["FLUSH"]) {
        &["flushed"]
    } else if has(&["RENAME", "COPY", "SET k"]) {
        &["overwritten"]
    } else if has(&["EXPIREAT", "PEXPIRE"]) {
        &["deleted", "expired"]
    } else {
        &["deleted"]
    };
    let pushes = reasons.iter().map(|reason| format!("{what} LOST {reason}"));
    pushes.collect()
}
