//! A byte string with inline capacity. The names and values in effects are mostly short, and to allocate and free them would cost
//! more than everything else that is done with them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// With a length and a discriminant, as many as fit into three pointers.
const INLINE_CAPACITY: usize = 22;

/// Immutable bytes. O(1) to move.
#[derive(Clone)]
pub struct Bytes(Storage);

/// Invariant: `length` is at most [`INLINE_CAPACITY`].
#[derive(Clone)]
enum Storage {
    Inline {
        length: u8,
        bytes: [u8; INLINE_CAPACITY],
    },
    Boxed(Box<[u8]>),
}

impl From<&[u8]> for Bytes {
    #[inline]
    fn from(given: &[u8]) -> Self {
        let mut bytes = [0; INLINE_CAPACITY];
        Bytes(match bytes.get_mut(..given.len()) {
            Some(place) => {
                place.copy_from_slice(given);
                let length = given.len() as u8;
                Storage::Inline { length, bytes }
            }
            None => Storage::Boxed(given.into()),
        })
    }
}

impl From<Box<[u8]>> for Bytes {
    #[inline]
    fn from(given: Box<[u8]>) -> Self {
        Bytes(Storage::Boxed(given))
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes::from(&[][..])
    }
}

impl Deref for Bytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Storage::Boxed(bytes) => bytes,
        }
    }
}

impl PartialEq for Bytes {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_strings_are_kept() {
        assert_eq!(size_of::<Bytes>(), 24);
        let all: Vec<u8> = (0..3 * INLINE_CAPACITY as u8).collect();
        for length in 0..all.len() {
            let given = &all[..length];
            let (copied, taken) = (Bytes::from(given), Bytes::from(Box::from(given)));
            assert_eq!((&*copied, &*taken), (given, given));
            assert_eq!(copied, taken);
            assert_eq!(
                matches!(copied.0, Storage::Inline { .. }),
                length <= INLINE_CAPACITY
            );
        }
        assert!(Bytes::default().is_empty());
        assert!(Bytes::from(&b"a"[..]) < Bytes::from(&b"b"[..]));
    }
}
