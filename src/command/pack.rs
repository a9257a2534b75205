//! The names of many keys in one piece of bytes.
//!
//! A value of an RDB file costs the server about as much to read as a key costs the engine to take
//! in, and there can be millions of names: so they are saved many at a time.

use crate::engine::{Db, Key};

/// So large a piece is enough.
const FULL: usize = 1 << 16;

/// For each key its database and its name's length, in four bytes each, the lowest first; then its
/// name.
#[derive(Default)]
pub struct Pack(Vec<u8>);

impl Pack {
    pub fn of(first: Key<'_>) -> Self {
        let mut pack = Pack::default();
        pack.push(first);
        pack
    }

    pub fn push(&mut self, key: Key<'_>) {
        let length = u32::try_from(key.name.len()).expect("the server's names are shorter");
        self.0.extend(key.db.0.to_le_bytes());
        self.0.extend(length.to_le_bytes());
        self.0.extend(key.name);
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= FULL
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Takes the first key off a pack's bytes; none where they end, or are no pack.
pub fn take_first<'a>(bytes: &mut &'a [u8]) -> Option<Key<'a>> {
    let (db, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    let db = Db(u32::from_le_bytes(*db));
    Some(Key { db, name })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
