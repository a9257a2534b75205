//! Cleanup at the end of a scope, also after a panic. All temporary state is reset by this.

use std::cell::Cell;

/// Runs a closure on drop.
#[must_use = "it is done at once otherwise"]
pub struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    #[inline(always)]
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs `act` at the end of the scope. It must not panic: a panic may be unwinding the scope.
#[inline(always)]
pub fn at_end<F: FnMut()>(act: F) -> AtEnd<F> {
    AtEnd(act)
}

/// Sets a cell until the end of the scope, then restores its previous value.
#[inline(always)]
pub fn meanwhile<T: Copy>(cell: &Cell<T>, value: T) -> AtEnd<impl FnMut()> {
    let former = cell.replace(value);
    at_end(move || cell.set(former))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_leaves_nothing_behind() {
        let cell = Cell::new(1);
        let act = AssertUnwindSafe(|| {
            let _two = meanwhile(&cell, 2);
            {
                let _three = meanwhile(&cell, 3);
                assert_eq!(cell.get(), 3);
            }
            assert_eq!(cell.get(), 2);
            panic!("in the middle");
        });
        assert!(catch_unwind(act).is_err());
        assert_eq!(cell.get(), 1);
    }
}
