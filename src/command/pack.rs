//! Binary packs for files: the names of many keys, their tokens, and session records.
//!
//! Reading one value of an RDB file costs the server about as much as adding a key costs the engine, and there may be
//! millions of keys, so many names are saved in one value.

use crate::engine::{Db, Key, SessionRecord, Token};

/// Size of a full pack, in bytes.
const FULL: usize = 1 << 16;

/// For each key: its database and the length of its name, as little-endian u32, then the name.
#[derive(Default)]
pub struct Pack(Vec<u8>);

impl Pack {
    pub fn of(first: Key<'_>) -> Self {
        let mut pack = Pack::default();
        pack.push(first);
        pack
    }

    pub fn push(&mut self, key: Key<'_>) {
        self.0.extend(key.db.0.to_le_bytes());
        push_word(&mut self.0, key.name);
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= FULL
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn push_word(bytes: &mut Vec<u8>, word: &[u8]) {
    let length = u32::try_from(word.len()).expect("the server's strings are shorter");
    bytes.extend(length.to_le_bytes());
    bytes.extend(word);
}

fn take_number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

fn take_word<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (word, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    Some(word)
}

/// Takes the first key off a pack's bytes; `None` at the end, or if malformed.
pub fn take_first<'a>(bytes: &mut &'a [u8]) -> Option<Key<'a>> {
    let mut rest = *bytes;
    let db = Db(take_number(&mut rest)?);
    let name = take_word(&mut rest)?;
    *bytes = rest;
    Some(Key { db, name })
}

/// Packs tokens, in the order of their keys: each as a little-endian u64.
pub fn pack_tokens(tokens: &[Token]) -> Vec<u8> {
    let bytes = tokens.iter().flat_map(|token| token.0.to_le_bytes());
    bytes.collect()
}

/// Unpacks tokens. `None` if malformed; does not check whether they are credible.
pub fn unpack_tokens(bytes: &[u8]) -> Option<Vec<Token>> {
    let (tokens, rest) = bytes.as_chunks();
    let tokens = tokens.iter().map(|token| u64::from_le_bytes(*token));
    let tokens = tokens.map(Token::checked).collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(tokens)
}

/// Packs a record: its database as u32, then each word as its length (u32) and its bytes.
pub fn pack_record(record: &SessionRecord) -> Vec<u8> {
    let mut bytes = record.db().unwrap_or(Db(0)).0.to_le_bytes().to_vec();
    let (command, words) = record.words();
    push_word(&mut bytes, command.as_bytes());
    words.iter().for_each(|word| push_word(&mut bytes, word));
    bytes
}

/// Unpacks a record. `None` if malformed; does not check whether the database exists.
pub fn unpack_record(mut bytes: &[u8]) -> Option<(Db, SessionRecord)> {
    let db = Db(take_number(&mut bytes)?);
    let command = std::str::from_utf8(take_word(&mut bytes)?).ok()?;
    let words: Vec<&[u8]> = std::iter::from_fn(|| take_word(&mut bytes)).collect();
    let record = SessionRecord::read(command, db, &words)?;
    bytes.is_empty().then_some((db, record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SessionId;

    #[test]
    fn what_is_packed_is_found_in_order() {
        let keys = [(0, &b"a"[..]), (15, b""), (1 << 20, b"\0binary\xff")];
        let keys = keys.map(|(db, name)| Key { db: Db(db), name });
        let mut pack = Pack::default();
        keys.iter().for_each(|key| pack.push(*key));
        let mut bytes = pack.bytes();
        for key in keys {
            assert_eq!(take_first(&mut bytes), Some(key));
        }
        assert!(bytes.is_empty() && take_first(&mut bytes).is_none());
        let whole = pack.bytes();
        for cut in 1..9 {
            assert_eq!(take_first(&mut &whole[..cut.min(8)]), None);
        }
    }

    #[test]
    fn tokens_are_found_in_order() {
        let tokens = [0, 1, 1 << 30, Token::MAX].map(Token);
        let bytes = pack_tokens(&tokens);
        assert_eq!(unpack_tokens(&bytes).as_deref(), Some(&tokens[..]));
        assert_eq!(unpack_tokens(b"").as_deref(), Some(&[][..]));
        assert_eq!(unpack_tokens(&bytes[1..]), None);
        assert_eq!(unpack_tokens(&[0xff; 8]), None);
    }

    #[test]
    fn a_record_is_found_whole_or_not_at_all() {
        let record = SessionRecord::Freed {
            session: SessionId(5),
            key: Key {
                db: Db(3),
                name: b"k\0",
            }
            .to_owned(),
            label: b"job".as_slice().into(),
            token: None,
        };
        let bytes = pack_record(&record);
        assert_eq!(unpack_record(&bytes), Some((Db(3), record)));
        for cut in 0..bytes.len() {
            assert_eq!(unpack_record(&bytes[..cut]), None, "{cut}");
        }
    }
}
