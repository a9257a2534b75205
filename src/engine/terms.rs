//! On what terms a key is asked for, and held from then on. They move whole: from the request to its wait and its hold, and to
//! whoever goes on after this server.
//!
//! When you add one: a field of [`Terms`], of [`Kept`] if the hold is to keep it, and its words if other servers are to know
//! it. Its option is read in `command/options.rs`, and told to clients in `command/table.rs`.

use crate::engine::mode::{Mode, ModeKind};
use crate::engine::storage::bytes::Bytes;
use crate::engine::types::{AskedAcks, MOST_MS, Moment};
use std::ops::{Deref, RangeInclusive};

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

    /// As servers tell each other: the label, the mode, and the lease.
    pub fn words(&self) -> [Vec<u8>; 3] {
        let lease = |ms: u64| ms.to_string().into_bytes();
        let lease = self.lease_ms.map_or(NO_LEASE.to_vec(), lease);
        [self.label.to_vec(), mode_word(self.mode), lease]
    }

    /// What is told besides where it is so: a word each.
    pub fn marks(&self) -> impl Iterator<Item = Vec<u8>> {
        let is_so = [self.attributes.reentrant, self.attributes.notify];
        let marks = [REENTRANT, NOTIFY].into_iter().zip(is_so);
        let marks = marks.filter(|(_, is_so)| *is_so);
        marks.map(|(mark, _)| mark.to_vec())
    }
}

impl<L> Terms<L>
where
    L: Default + for<'a> From<&'a [u8]>,
{
    /// Understands what [`words`](Self::words) are. Nothing where they make no sense.
    pub fn read([label, mode, lease]: [&[u8]; 3]) -> Option<Self> {
        let mode = read_mode(mode)?;
        // A temporary key has neither.
        let has_any = !label.is_empty() || lease != NO_LEASE;
        if has_any && !mode.is_lock() {
            return None;
        }
        Some(Terms {
            label: label.into(),
            lease_ms: match lease {
                NO_LEASE => None,
                lease => Some(read_number(lease, 0..=MOST_MS)?),
            },
            ..Terms::of(mode)
        })
    }

    /// Takes in one of [`marks`](Self::marks), each once. Nothing where it makes no sense.
    pub fn read_mark(&mut self, word: &[u8]) -> Option<()> {
        let mark = match word {
            REENTRANT if self.mode.is_lock() => &mut self.attributes.reentrant,
            NOTIFY => &mut self.attributes.notify,
            _ => return None,
        };
        (!std::mem::replace(mark, true)).then_some(())
    }
}

const NO_LEASE: &[u8] = b"-";
const REENTRANT: &[u8] = b"reentrant";
const NOTIFY: &[u8] = b"notify";

/// No terms have more marks.
pub const MOST_MARKS: usize = 2;

/// `shared`, or with numbers `permits/2/3`.
fn mode_word(mode: Mode) -> Vec<u8> {
    let word = mode.kind().word();
    match mode {
        Mode::Permits { count, total } => format!("{word}/{count}/{total}").into_bytes(),
        _ => word.into(),
    }
}

fn read_mode(word: &[u8]) -> Option<Mode> {
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

/// A plain decimal number.
pub fn read_number(word: &[u8], range: RangeInclusive<u64>) -> Option<u64> {
    let digits = word.iter().map(|c| c.wrapping_sub(b'0'));
    let mut number: u64 = 0;
    for digit in digits {
        let digit = (digit <= 9).then_some(u64::from(digit))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    (!word.is_empty() && range.contains(&number)).then_some(number)
}
