//! The one place that borrows what the shell remembers: for the length of a look, never across a call into the server.
//!
//! The server may call us in the middle of whatever we have it do: while it reads a file it attends to other connections,
//! while it removes a key it tells of that. What is borrowed then cannot be entered. So what is borrowed is lent to a
//! function that thinks and does nothing else. Builds with debug assertions, with which the tests are run, hold every call
//! into the server against that ([`nothing_is_lent`]); others only look at the cell's own mark.

use std::cell::RefCell;

/// Something that is lent for the length of a look.
#[derive(Default)]
pub struct Scoped<T>(RefCell<T>);

impl<T> Scoped<T> {
    #[inline(always)]
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let inside = self.0.borrow();
        let _lent = Lent::begins();
        look(&inside)
    }

    #[inline(always)]
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut inside = self.0.borrow_mut();
        let _lent = Lent::begins();
        change(&mut inside)
    }

    /// For who may come in the middle of anything: a crash report, and what is told of a panic. None where it is lent.
    pub fn try_with_mut<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut inside = self.0.try_borrow_mut().ok()?;
        let _lent = Lent::begins();
        Some(change(&mut inside))
    }
}

/// To be called before each call into the server. Costs nothing without debug assertions.
#[inline(always)]
pub fn nothing_is_lent() {
    debug_assert!(
        Lent::is_none(),
        "the server is called while something of the shell's is lent"
    );
}

/// Something is lent as long as this is there. Counted with debug assertions only.
struct Lent;

#[cfg(debug_assertions)]
thread_local! {
    static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(debug_assertions)]
impl Lent {
    fn begins() -> Self {
        COUNT.set(COUNT.get() + 1);
        Lent
    }

    fn is_none() -> bool {
        COUNT.get() == 0
    }
}

#[cfg(debug_assertions)]
impl Drop for Lent {
    fn drop(&mut self) {
        COUNT.set(COUNT.get() - 1);
    }
}

#[cfg(not(debug_assertions))]
impl Lent {
    #[inline(always)]
    fn begins() -> Self {
        Lent
    }

    #[inline(always)]
    fn is_none() -> bool {
        true
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_call_into_the_server_is_noticed_while_something_is_lent() {
        nothing_is_lent();
        let number = Scoped::<u32>::default();
        number.with_mut(|number| *number = 3);
        nothing_is_lent();
        assert!(catch_unwind(|| Scoped::<u32>::default().with(|_| nothing_is_lent())).is_err());
        assert!(catch_unwind(|| Scoped::<u32>::default().with_mut(|_| nothing_is_lent())).is_err());
        // What is lent is given back by a panic, too.
        nothing_is_lent();
        assert_eq!(number.with(|_| number.try_with_mut(|_| ())), None);
        assert_eq!(number.with(|number| *number), 3);
    }
}
