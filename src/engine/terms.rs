//! The terms of a request: mode, label and options. They move as one value from the request to its wait and its hold, and to
//! replicas and files.
//!
//! When you add one: a field of [`Terms`], of [`Kept`] if the hold needs it, and its name in [`Terms::write`] and
//! [`Terms::read_pair`] if it is replicated (see `pairs.rs`). Its option is in `command/options.rs`.

use crate::engine::mode::{Mode, ModeKind};
use crate::engine::pairs::{self, Pair, read_number};
use crate::engine::storage::bytes::Bytes;
use crate::engine::types::{AskedAcks, MAX_MS, Moment};
use std::ops::Deref;

/// The terms of a request. `L` are bytes, borrowed or owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms<L> {
    pub mode: Mode,
    /// Distinguishes owners that share one connection.
    pub label: L,
    /// Whose requests on this connection block together, see [`task`](Self::task).
    pub task: Option<L>,
    pub attributes: Attributes,
    /// Counted from the grant, or from its acknowledgement with `acks`; in a record, from when it is read.
    pub lease_ms: Option<u64>,
    /// Never with `reentrant`, and never in a record.
    pub acks: Option<AskedAcks>,
}

/// The flags of a request that its hold keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Its owner may re-enter the lock.
    pub reentrant: bool,
    /// Its owner gets LOST when it loses the hold.
    pub notify: bool,
}

/// The terms that a hold keeps outside its header. Few holds have any.
pub(in crate::engine) struct Kept {
    /// If not one of [`Mode::IN_HEADER`].
    pub mode: Mode,
    pub label: Bytes,
    pub task: Option<Bytes>,
}

impl Default for Kept {
    fn default() -> Self {
        Kept {
            mode: Mode::Exclusive,
            label: Bytes::default(),
            task: None,
        }
    }
}

impl Kept {
    /// See [`Terms::task`].
    pub fn task(&self) -> &Bytes {
        self.task.as_ref().unwrap_or(&self.label)
    }

    /// The terms as far as they are kept here.
    pub fn terms(&self) -> Terms<&[u8]> {
        Terms {
            label: &*self.label,
            task: self.task.as_deref(),
            ..Terms::of(self.mode)
        }
    }
}

impl<L: Default> Terms<L> {
    /// The terms of a request without options.
    #[inline]
    pub fn of(mode: Mode) -> Self {
        Terms {
            mode,
            label: L::default(),
            task: None,
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
            task: self.task.as_deref(),
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
            task: self.task.as_deref().map(M::from),
            attributes: self.attributes,
            lease_ms: self.lease_ms,
            acks: self.acks,
        }
    }

    /// The bytes beyond the fixed size.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.label.len() + self.task.as_deref().map_or(0, <[u8]>::len)
    }

    /// The thread of execution that asks, for the search for deadlocks: while one of its requests waits, it releases nothing. Unless
    /// given it is the label's.
    pub fn task(&self) -> &[u8] {
        self.task.as_deref().unwrap_or(&self.label)
    }

    /// The task, unless it is the label's.
    pub(in crate::engine) fn other_task(&self) -> Option<&[u8]> {
        self.task.as_deref().filter(|task| **task != *self.label)
    }

    /// Whether a hold with these terms needs no `Extra`, and no acknowledgement.
    #[inline]
    pub(in crate::engine) fn is_plain(&self) -> bool {
        self.fits_header() && self.lease_ms.is_none() && self.acks.is_none()
    }

    fn fits_header(&self) -> bool {
        let has_task = self.task.as_deref().is_some_and(|task| !task.is_empty());
        self.label.is_empty() && !has_task && self.mode.fits_header()
    }

    /// The terms that the hold must keep outside its header.
    #[inline]
    pub(in crate::engine) fn kept(&self) -> Option<Kept> {
        let kept = || Kept {
            mode: self.mode,
            label: Bytes::from(&*self.label),
            task: self.other_task().map(Bytes::from),
        };
        (!self.fits_header()).then(kept)
    }

    /// The end of the lease of a grant at this time. With ACKS the lease starts at the acknowledgement, not here.
    #[inline]
    pub(in crate::engine) fn lease_from(&self, since: Moment) -> Option<Moment> {
        let lease_ms = self.lease_ms.filter(|_| self.acks.is_none());
        lease_ms.map(|ms| since.after_ms(ms))
    }

    /// Encodes everything but the label and `acks` as pairs.
    pub fn write(&self, words: &mut Vec<Vec<u8>>) {
        pairs::push(words, MODE, mode_word(self.mode));
        if let Some(ms) = self.lease_ms {
            pairs::push(words, LEASE, pairs::number(ms));
        }
        if let Some(task) = self.other_task() {
            pairs::push(words, TASK, task.to_vec());
        }
        let Attributes { reentrant, notify } = self.attributes;
        for (name, is_so) in [(REENTRANT, reentrant), (NOTIFY, notify)] {
            if is_so {
                pairs::push(words, name, pairs::yes());
            }
        }
    }

    /// Decodes one pair of [`write`](Self::write).
    pub fn read_pair(&mut self, name: &[u8], value: &[u8]) -> Pair
    where
        L: for<'a> From<&'a [u8]>,
    {
        match name {
            MODE => Pair::set(&mut self.mode, read_mode(value)),
            TASK => Pair::set(&mut self.task, Some(Some(value.into()))),
            LEASE => Pair::set(&mut self.lease_ms, read_lease(value).map(Some)),
            REENTRANT => Pair::set(&mut self.attributes.reentrant, pairs::read_yes(value)),
            NOTIFY => Pair::set(&mut self.attributes.notify, pairs::read_yes(value)),
            _ => Pair::Unknown,
        }
    }

    /// Whether a key can be held on these terms: a temporary key has no label and no lease, and is not reentrant.
    pub fn make_sense(&self) -> bool {
        let has_any =
            !self.label.is_empty() || self.lease_ms.is_some() || self.attributes.reentrant;
        self.mode.is_lock() || !has_any
    }
}

pub const MODE: &[u8] = b"mode";
/// Without it, and to a version that skips it, the task is the label's.
const TASK: &[u8] = b"task";
const LEASE: &[u8] = b"lease";
pub const REENTRANT: &[u8] = b"reentrant";
pub const NOTIFY: &[u8] = b"notify";

/// `shared`, or `permits/2/3`: count and total.
pub fn mode_word(mode: Mode) -> Vec<u8> {
    let name = mode.kind().name();
    match mode {
        Mode::Permits { count, total } => format!("{name}/{count}/{total}").into_bytes(),
        _ => name.into(),
    }
}

pub fn read_mode(word: &[u8]) -> Option<Mode> {
    let mut parts = word.splitn(3, |byte| *byte == b'/');
    let kind = ModeKind::from_name(parts.next()?)?;
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
    read_number(word, 0..=MAX_MS)
}
