//! A hold's header: 64 bits, since there can be millions.
//!
//! From the low bit: mode (2 bits; 3: the mode is in the extra record), attributes (2), id of the extra record or 0 (26; see
//! [`limits`](crate::engine::limits)), start of the hold (34; [`Since`]).

use crate::engine::mode::Mode;
use crate::engine::state::rows::{Extra, Header};
use crate::engine::storage::arena::Id;
use crate::engine::storage::generation;
use crate::engine::terms::Attributes;
use crate::engine::types::{Moment, Since};

const _: () = assert!(Header::SINCE_AT + Since::BITS == u64::BITS);
// The number of each extra record fits its bits.
const _: () = assert!(Header::MAX_EXTRAS < 1 << (Header::EXTRA_BITS - generation::BITS));

impl Header {
    const MODE: u64 = 0b11;
    const REENTRANT: u64 = 0b100;
    const NOTIFY: u64 = 0b1000;
    const EXTRA_BITS: u32 = 26;
    const EXTRA_AT: u32 = 4;
    const SINCE_AT: u32 = Self::EXTRA_AT + Self::EXTRA_BITS;
    /// Extra records that have an id. (Two chunks less: the last one may be partly used.)
    pub const MAX_EXTRAS: usize = (1 << (Self::EXTRA_BITS - generation::BITS)) - 1024;

    pub fn new(mode: Mode, attributes: Attributes, since: Moment) -> Self {
        let reentrant = u64::from(attributes.reentrant) * Self::REENTRANT;
        let notify = u64::from(attributes.notify) * Self::NOTIFY;
        let since = Since::at(since).0 << Self::SINCE_AT;
        Header(since | reentrant | notify | Self::bits(mode))
    }

    pub fn attributes(self) -> Attributes {
        Attributes {
            reentrant: self.0 & Self::REENTRANT != 0,
            notify: self.0 & Self::NOTIFY != 0,
        }
    }

    pub fn set_notify(&mut self) {
        self.0 |= Self::NOTIFY;
    }

    fn bits(mode: Mode) -> u64 {
        (mode.kind() as u64).min(Mode::IN_HEADER.len() as u64)
    }

    /// None if it is in the extra record.
    #[inline]
    pub fn mode(self) -> Option<Mode> {
        let place = (self.0 & Self::MODE) as usize;
        Mode::IN_HEADER.get(place).copied()
    }

    pub fn set_mode(&mut self, mode: Mode) {
        self.0 = (self.0 & !Self::MODE) | Self::bits(mode);
    }

    #[inline]
    pub fn is_temporary(self) -> bool {
        self.0 & Self::MODE == Self::bits(Mode::Temporary)
    }

    pub fn extra(self) -> Option<Id<Extra>> {
        let number = (self.0 >> Self::EXTRA_AT) & ((1 << Self::EXTRA_BITS) - 1);
        Id::of_number(number as u32)
    }

    /// Sets the extra record of a header without one.
    pub fn set_extra(&mut self, extra: Id<Extra>) {
        let number = u64::from(extra.number());
        assert!(number >> Self::EXTRA_BITS == 0, "fewer than 2^26 extras");
        self.0 |= number << Self::EXTRA_AT;
    }

    pub fn since(self) -> Since {
        Since(self.0 >> Self::SINCE_AT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::state::rows::Hold;

    #[test]
    fn a_header_is_small_and_keeps_its_fields() {
        assert_eq!(size_of::<Option<Hold>>(), 40);
        let (count, total) = (2, 3);
        let permits = Mode::Permits { count, total };
        for mode in Mode::IN_HEADER.into_iter().chain([permits]) {
            let kept = (mode != permits).then_some(mode);
            for (reentrant, notify) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let attributes = Attributes { reentrant, notify };
                let mut header = Header::new(Mode::Exclusive, attributes, Moment(7_000_000));
                header.set_mode(mode);
                assert!(header.mode() == kept && header.extra().is_none());
                assert_eq!(header.is_temporary(), mode == Mode::Temporary);
                let extra = Id::of_number((1 << Header::EXTRA_BITS) - 1).unwrap();
                header.set_extra(extra);
                assert!(header.mode() == kept && header.extra() == Some(extra));
                assert_eq!(header.attributes(), attributes);
                assert_eq!(header.since().held_ms(Moment(8_000_999)), 1000);
                header.set_notify();
                let notify = true;
                assert_eq!(header.attributes(), Attributes { reentrant, notify });
                assert!(header.mode() == kept && header.extra() == Some(extra));
            }
        }
    }

    #[test]
    fn the_age_of_a_hold_survives_the_wrap_of_its_start() {
        let wrap = Since::WRAP_MS;
        let year_ms = 365 * 86_400_000;
        assert!(wrap > year_ms);
        for begin in [0, 1, 1_000_007, wrap - 1, wrap, wrap + 5, 7 * wrap] {
            let begin = Moment::default().after_ms(begin);
            for passed in [0, 1, 1_000, 1_001, wrap - 2] {
                let header = Header::new(Mode::Shared, Attributes::default(), begin);
                let held = header.since().held_ms(begin.after_ms(passed));
                assert!(held == passed || held + 1 == passed, "{held} of {passed}");
            }
        }
    }
}
