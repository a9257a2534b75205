//! The one place that borrows the shell's state: for the length of a closure, never across a call into the server, with one
//! exception ([`without_callbacks`]).
//!
//! Any other call into the server may call back into the module: while it reads a file it serves other clients, and removing a
//! key raises an event. State that is borrowed then cannot be accessed. So state is passed to a closure that only computes.
//! Builds with debug assertions, which the tests use, check this at every call into the server
//! ([`assert_nothing_borrowed`]); release builds rely on the `RefCell`.

#[cfg(debug_assertions)]
use crate::shell::sys::at_end::{AtEnd, at_end};
use std::cell::RefCell;

/// State that is borrowed for the length of a closure.
#[derive(Default)]
pub struct Scoped<T>(RefCell<T>);

impl<T> Scoped<T> {
    #[inline(always)]
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let inside = self.0.borrow();
        let _lent = Borrow::begins();
        look(&inside)
    }

    #[inline(always)]
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut inside = self.0.borrow_mut();
        let _lent = Borrow::begins();
        change(&mut inside)
    }

    /// For callers that may run at any point: crash reports and panic handling. `None` if already borrowed.
    pub fn try_with_mut<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut inside = self.0.try_borrow_mut().ok()?;
        let _lent = Borrow::begins();
        Some(change(&mut inside))
    }
}

/// Call before each call into the server. Costs nothing without debug assertions.
#[inline(always)]
pub fn assert_nothing_borrowed() {
    debug_assert!(
        Borrow::is_none(),
        "the server is called while something of the shell's is lent"
    );
}

/// Calls of the server by which it calls nothing of the module's: state may be borrowed meanwhile.
#[inline(always)]
pub fn without_callbacks<R>(call: impl FnOnce() -> R) -> R {
    let _end = Borrow::is_no_matter();
    call()
}

/// Marks a borrow while it lives. Counted with debug assertions only.
struct Borrow;

#[cfg(debug_assertions)]
thread_local! {
    static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(debug_assertions)]
impl Borrow {
    #[inline]
    fn begins() -> Self {
        COUNT.set(COUNT.get() + 1);
        Borrow
    }

    #[inline]
    fn is_none() -> bool {
        COUNT.get() == 0
    }

    #[inline]
    fn is_no_matter() -> AtEnd<impl FnMut()> {
        let count = COUNT.replace(0);
        at_end(move || COUNT.set(count))
    }
}

#[cfg(debug_assertions)]
impl Drop for Borrow {
    #[inline]
    fn drop(&mut self) {
        COUNT.set(COUNT.get() - 1);
    }
}

#[cfg(not(debug_assertions))]
impl Borrow {
    #[inline(always)]
    fn begins() -> Self {
        Borrow
    }

    #[inline(always)]
    fn is_none() -> bool {
        true
    }

    #[inline(always)]
    fn is_no_matter() {}
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_call_into_the_server_is_noticed_while_something_is_lent() {
        assert_nothing_borrowed();
        let number = Scoped::<u32>::default();
        number.with_mut(|number| *number = 3);
        assert_nothing_borrowed();
        assert!(
            catch_unwind(|| Scoped::<u32>::default().with(|_| assert_nothing_borrowed())).is_err()
        );
        assert!(
            catch_unwind(|| Scoped::<u32>::default().with_mut(|_| assert_nothing_borrowed()))
                .is_err()
        );
        number.with(|_| without_callbacks(assert_nothing_borrowed));
        assert!(
            catch_unwind(|| {
                let number = Scoped::<u32>::default();
                number.with(|_| {
                    without_callbacks(|| ());
                    assert_nothing_borrowed();
                });
            })
            .is_err()
        );
        // A panic ends a borrow, too.
        assert_nothing_borrowed();
        assert_eq!(number.with(|_| number.try_with_mut(|_| ())), None);
        assert_eq!(number.with(|number| *number), 3);
    }
}
