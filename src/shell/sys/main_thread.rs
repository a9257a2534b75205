//! What only the server's main thread enters.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Made once, at load; then had in no time, some dozen times with each command.
pub struct MainThread<T>(OnceCell<T>);

// SAFETY: the server calls a module's commands, events, timers and settings from its main thread
// only, and nothing here starts a thread. Who may be called from another one asks `is_main_thread` first. Tests do not touch
// this state.
unsafe impl<T> Sync for MainThread<T> {}

/// The thread in which the module was loaded: the server's main one.
static MAIN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// A thread's number in the system. To ask for it allocates nothing, so that it may be done in a crash.
fn this_thread() -> usize {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Whether what stands here may be entered. Only a crash report comes from other threads.
pub fn is_main_thread() -> bool {
    MAIN_THREAD.load(Ordering::Relaxed) == this_thread()
}

/// Ends the server where a callback comes from another thread, in builds with debug assertions: to go on there would do harm that
/// shows later, or never.
#[inline(always)]
pub fn assert_main_thread() {
    if cfg!(debug_assertions) && !is_main_thread() {
        eprintln!("tether: the server calls in a thread of its own");
        std::process::abort();
    }
}

impl<T> MainThread<T> {
    pub const fn new() -> Self {
        MainThread(OnceCell::new())
    }

    /// Once, at load, before the server is told of anything of ours.
    pub fn begin(&self, value: T) {
        MAIN_THREAD.store(this_thread(), Ordering::Relaxed);
        let _ = self.0.set(value);
    }

    /// It is not looked every time whether it is there.
    #[inline(always)]
    pub fn get(&self) -> &T {
        let value = self.0.get();
        debug_assert!(value.is_some() && is_main_thread());
        // SAFETY: `begin` was called when the module was loaded, before the server was told of anything of ours.
        unsafe { value.unwrap_unchecked() }
    }
}
