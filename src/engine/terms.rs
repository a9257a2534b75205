//! On what terms a key is asked for, and held from then on. They move whole: from the request to its wait and its hold, and to
//! whoever goes on after this server.
//!
//! When you add one: a field of [`Terms`], of [`Kept`] if the hold is to keep it, and its name in [`Terms::write`] and
//! [`Terms::read_pair`] if other servers are to know it (see `pairs.rs`). Its option is read in `command/options.rs`, and told to
//! clients in `command/table.rs`.

use crate::engine::mode::{Mode, ModeKind};
use crate::engine::pairs::{self, Pair, read_number};
use crate::engine::storage::bytes::Bytes;
use crate::engine::types::{AskedAcks, MOST_MS, Moment};
use std::ops::Deref;

/// What is asked for. `L` are bytes, borrowed or owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms<L> {
    pub mode: Mode,
    /// Tells the owners apart that share one connection.
    pub label: L,
    pub attributes: Attributes,
    /// It ends by itself so long after the grant, or after its acknowledgement; in a record, after it is told of.
    pub lease_ms: Option<u64>,
    /// Not together with the attribute `reentrant`, and never in a record.
    pub acks: Option<AskedAcks>,
}

/// What a request says besides, and the hold that it becomes keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Its owner may take the lock again.
    pub reentrant: bool,
    /// Its owner is to be told when it loses it.
    pub notify: bool,
}

/// What a hold keeps of its terms that most holds have not: few keep anything.
pub(in crate::engine) struct Kept {
    /// Where the hold's header has no room for it.
    pub mode: Mode,
    pub label: Bytes,
}

impl Default for Kept {
    fn default() -> Self {
        Kept {
            mode: Mode::Exclusive,
            label: Bytes::default(),
        }
    }
}

impl Kept {
    /// The terms that it was made of, as far as it has them.
    pub fn terms(&self) -> Terms<&[u8]> {
        Terms {
            label: &*self.label,
            ..Terms::of(self.mode)
        }
    }
}

impl<L: Default> Terms<L> {
    /// Those of a request without an option.
    #[inline]
    pub fn of(mode: Mode) -> Self {
        Terms {
            mode,
            label: L::default(),
            attributes: Attributes::default(),
            lease_ms: None,
            acks: None,
        }
    }
}

impl<L: Deref<Target = [u8]>> Terms<L> {
    #[inline]
    pub fn borrowed(&self) -> Terms<&[u8]> {
        Terms {
            mode: self.mode,
            label: &*self.label,
            attributes: self.attributes,
            lease_ms: self.lease_ms,
            acks: self.acks,
        }
    }

    #[inline]
    pub fn owned<M: for<'a> From<&'a [u8]>>(&self) -> Terms<M> {
        Terms {
            mode: self.mode,
            label: M::from(&*self.label),
            attributes: self.attributes,
            lease_ms: self.lease_ms,
            acks: self.acks,
        }
    }

    /// The memory that they take beside what all take.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.label.len()
    }

    /// Whether most holds have the same.
    #[inline]
    pub(in crate::engine) fn is_plain(&self) -> bool {
        self.is_brief() && self.lease_ms.is_none() && self.acks.is_none()
    }

    fn is_brief(&self) -> bool {
        self.label.is_empty() && self.mode.is_brief()
    }

    /// What the hold is to keep, if that is anything.
    #[inline]
    pub(in crate::engine) fn kept(&self) -> Option<Kept> {
        let kept = || Kept {
            mode: self.mode,
            label: Bytes::from(&*self.label),
        };
        (!self.is_brief()).then(kept)
    }

    /// When the lease ends of what is granted at this moment. Of a grant that is to be acknowledged it begins with that.
    #[inline]
    pub(in crate::engine) fn lease_from(&self, since: Moment) -> Option<Moment> {
        let lease_ms = self.lease_ms.filter(|_| self.acks.is_none());
        lease_ms.map(|ms| since.after_ms(ms))
    }

    /// As servers tell each other, but for the label.
    pub fn write(&self, words: &mut Vec<Vec<u8>>) {
        pairs::push(words, MODE, mode_word(self.mode));
        if let Some(ms) = self.lease_ms {
            pairs::push(words, LEASE, pairs::number(ms));
        }
        let Attributes { reentrant, notify } = self.attributes;
        for (name, is_so) in [(REENTRANT, reentrant), (NOTIFY, notify)] {
            if is_so {
                pairs::push(words, name, pairs::yes());
            }
        }
    }

    /// Takes in one of the names that are [written](Self::write).
    pub fn read_pair(&mut self, name: &[u8], value: &[u8]) -> Pair {
        match name {
            MODE => Pair::set(&mut self.mode, read_mode(value)),
            LEASE => Pair::set(&mut self.lease_ms, read_lease(value).map(Some)),
            REENTRANT => Pair::set(&mut self.attributes.reentrant, pairs::read_yes(value)),
            NOTIFY => Pair::set(&mut self.attributes.notify, pairs::read_yes(value)),
            _ => Pair::Unknown,
        }
    }

    /// Whether something can be held on these terms: a temporary key has neither label nor lease, and is taken once.
    pub fn make_sense(&self) -> bool {
        let has_any =
            !self.label.is_empty() || self.lease_ms.is_some() || self.attributes.reentrant;
        self.mode.is_lock() || !has_any
    }
}

pub const MODE: &[u8] = b"mode";
const LEASE: &[u8] = b"lease";
pub const REENTRANT: &[u8] = b"reentrant";
pub const NOTIFY: &[u8] = b"notify";

/// `shared`, or with numbers `permits/2/3`.
pub fn mode_word(mode: Mode) -> Vec<u8> {
    let word = mode.kind().word();
    match mode {
        Mode::Permits { count, total } => format!("{word}/{count}/{total}").into_bytes(),
        _ => word.into(),
    }
}

pub fn read_mode(word: &[u8]) -> Option<Mode> {
    let mut parts = word.splitn(3, |byte| *byte == b'/');
    let kind = ModeKind::with_word(parts.next()?)?;
    let permits = match (parts.next(), parts.next()) {
        (None, _) => None,
        (Some(count), total) => {
            let total = read_number(total?, 1..=u32::MAX.into())?;
            let count = read_number(count, 1..=total)?;
            Some((count.try_into().ok()?, total.try_into().ok()?))
        }
    };
    Mode::of(kind, permits)
}

/// Milliseconds.
pub fn read_lease(word: &[u8]) -> Option<u64> {
    read_number(word, 0..=MOST_MS)
}
