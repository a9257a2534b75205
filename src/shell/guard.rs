//! The border to the server: no panic crosses it.
//!
//! A panic in a callback would abort the server, and the user's data with it. Here it is caught,
//! logged with its cause and shown in INFO; from then on commands are refused (what the engine
//! knows can no longer be trusted), while the release of what ended connections held goes on.
//!
//! All of them come from the server's main thread. Builds with debug assertions look at that.

use crate::shell::state;
use crate::shell::sys::main_thread::assert_main_thread;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The last panic's message and place, left here by the hook.
    static CAUSE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a callback's body; `otherwise` is what the server gets if it panics.
pub fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    assert_main_thread();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let cause = CAUSE.with_borrow_mut(Option::take);
        state::fault(&cause.unwrap_or_else(|| "a panic without a cause".to_owned()));
        otherwise
    })
}

/// Keeps the cause of a panic for the log, instead of printing it to a stream that nobody reads.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        CAUSE.with_borrow_mut(|cause| *cause = Some(info.to_string()));
    }));
}
