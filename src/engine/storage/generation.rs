//! Which of the rows that stood at one place, one after the other, an id names. Only builds with debug assertions know: there an
//! id that is used after its row was removed panics although another row stands at its place. Release builds do not pay for it.

/// How many bits of an id's number are the generation, the low ones: so ids are ordered by their places in both builds. With
/// four, one of sixteen stale ids is not noticed, and 2^22 extra records are left of the 2^26 that a hold's header can name.
pub(in crate::engine) const BITS: u32 = if cfg!(debug_assertions) { 4 } else { 0 };

/// The generation of each place, from 0 on and around.
#[derive(Default)]
pub(super) struct Generations(#[cfg(debug_assertions)] Vec<u8>);

#[cfg(debug_assertions)]
impl Generations {
    pub fn add_places(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    pub fn at(&self, place: usize) -> u32 {
        self.0[place].into()
    }

    /// The row at this place has left it.
    pub fn end(&mut self, place: usize) {
        self.0[place] = (self.0[place] + 1) % (1 << BITS);
    }
}

#[cfg(not(debug_assertions))]
impl Generations {
    pub fn add_places(&mut self, _: usize) {}

    #[inline(always)]
    pub fn at(&self, _: usize) -> u32 {
        0
    }

    #[inline(always)]
    pub fn end(&mut self, _: usize) {}
}
