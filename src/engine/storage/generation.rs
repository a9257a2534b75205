//! Generations of slots. With debug assertions, the use of an id after its record was removed panics, even if another record is
//! in its slot. Release builds have no generations.

/// The low bits of an id's number that are its generation, so ids are ordered by slot in both builds. With four bits, one in
/// sixteen stale ids is not detected, and a hold's header can refer to 2^22 extra records instead of 2^26.
pub(in crate::engine) const BITS: u32 = if cfg!(debug_assertions) { 4 } else { 0 };

/// The generation of each slot; it wraps around.
#[derive(Default)]
pub(super) struct Generations(#[cfg(debug_assertions)] Vec<u8>);

#[cfg(debug_assertions)]
impl Generations {
    pub fn add_slots(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    #[inline]
    pub fn at(&self, slot: usize) -> u32 {
        self.0[slot].into()
    }

    /// The slot's record was removed.
    #[inline]
    pub fn end(&mut self, slot: usize) {
        self.0[slot] = (self.0[slot] + 1) % (1 << BITS);
    }
}

#[cfg(not(debug_assertions))]
impl Generations {
    pub fn add_slots(&mut self, _: usize) {}

    #[inline(always)]
    pub fn at(&self, _: usize) -> u32 {
        0
    }

    #[inline(always)]
    pub fn end(&mut self, _: usize) {}
}
