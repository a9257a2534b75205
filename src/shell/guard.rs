//! Keeps panics from reaching the server.
//!
//! A panic in a callback would abort the server, and lose the user's data. Here it is caught, logged with its cause and
//! shown in INFO. From then on commands are refused, since the engine's state can no longer be trusted, while holds of
//! disconnected clients are still released.
//!
//! All callbacks run in the server's main thread. Builds with debug assertions check that.

use crate::shell::state;
use crate::shell::sys::main_thread::assert_main_thread;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The last panic's message and location, set by the hook.
    static CAUSE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a callback's body; returns `otherwise` if it panics.
pub fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    assert_main_thread();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let cause = CAUSE.with_borrow_mut(Option::take);
        state::fault(&cause.unwrap_or_else(|| "a panic without a cause".to_owned()));
        otherwise
    })
}

/// Keeps a panic's message for the log instead of printing it to stderr.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        CAUSE.with_borrow_mut(|cause| *cause = Some(info.to_string()));
    }));
}
