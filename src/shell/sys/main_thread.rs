//! State that only the server's main thread accesses.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Set once, at load. Access costs nothing: it happens dozens of times per command.
pub struct MainThread<T>(OnceCell<T>);

// SAFETY: the server calls a module's commands, events, timers and settings from its main thread
// only, and nothing here starts a thread. Who may be called from another one asks `is_main_thread` first. Tests do not touch
// this state.
unsafe impl<T> Sync for MainThread<T> {}

/// The thread in which the module was loaded: the server's main one.
static MAIN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// The id of the current thread. Allocates nothing, so it may be called in a crash.
#[inline]
fn this_thread() -> usize {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Whether this is the main thread. Only crash reports come from other threads.
#[inline]
pub fn is_main_thread() -> bool {
    MAIN_THREAD.load(Ordering::Relaxed) == this_thread()
}

/// Aborts the server if a callback runs in another thread (only with debug assertions): continuing would corrupt state
/// silently.
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

    /// Once, at load, before any callback is registered.
    pub fn begin(&self, value: T) {
        MAIN_THREAD.store(this_thread(), Ordering::Relaxed);
        let _ = self.0.set(value);
    }

    /// Not checked in release builds.
    #[inline(always)]
    pub fn get(&self) -> &T {
        let value = self.0.get();
        debug_assert!(value.is_some() && is_main_thread());
        // SAFETY: `begin` was called when the module was loaded, before the server was told of anything of ours.
        unsafe { value.unwrap_unchecked() }
    }
}
