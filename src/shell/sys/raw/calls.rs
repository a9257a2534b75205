//! Macros for API calls, and the checks of each call: nothing is borrowed, and writes happen only in the module's own
//! execution unit.

use crate::shell::sys::at_end::{AtEnd, meanwhile};
use crate::shell::sys::raw::api_state::api_state;
use std::ffi::c_int;

/// Calls an API function that every supported server has.
macro_rules! api {
    ($name:ident $arguments:tt) => {{
        crate::shell::sys::scoped::assert_nothing_borrowed();
        // SAFETY (with the caller's block): see "the table" in `mod.rs`.
        (redis_module::raw::$name.expect(stringify!($name)))$arguments
    }};
}
pub(in crate::shell) use api;

/// The same for the functions in `table.rs`.
macro_rules! hot {
    ($name:ident $arguments:tt) => {{
        crate::shell::sys::scoped::assert_nothing_borrowed();
        (crate::shell::sys::raw::api_state::api_state().hot.$name)$arguments
    }};
}
pub(super) use hot;

/// Whether the server has an API function that came after Redis 7.0.
macro_rules! have {
    ($name:ident) => {{
        // SAFETY: a read of a pointer that nobody writes any more, see "the table" in `mod.rs`.
        let function = unsafe { redis_module::raw::$name };
        function.is_some()
    }};
}
pub(in crate::shell) use have;

/// The entry points of a table of so many commands, by index.
macro_rules! entries {
    ($entry:ident, $count:expr) => {
        entries!(@ $entry, $count;
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $entry:ident, $count:expr; $($number:literal)*) => {{
        const COUNT: usize = $count;
        // Those of no command are the first one's again, and not used.
        const ALL: &[c::RedisModuleCmdFunc] =
            &[$(Some($entry::<{ if $number < COUNT { $number } else { 0 } }>)),*];
        let mut entries = [ALL[0]; COUNT];
        let mut at = 0;
        while at < COUNT {
            entries[at] = ALL[at];
            at += 1;
        }
        entries
    }};
}
pub(in crate::shell) use entries;

/// Sets whether clients are described by the private function; see `shim::describe`.
pub fn describe_directly(yes: bool) {
    api_state().describes_directly.set(yes);
}

/// Handles a key that the server removes by itself, perhaps outside of any command. No server command may be called
/// meanwhile, and nothing replicated: Redis 7.0 takes such a call for the outermost one, and at its end drops the pending
/// replication of keys that it removes next. Builds with debug assertions check each call.
pub fn in_uncaused_event(hear: impl FnOnce()) {
    let _meanwhile = meanwhile(&api_state().in_uncaused_event, true);
    hear();
}

/// See [`in_uncaused_event`].
pub fn is_in_uncaused_event() -> bool {
    api_state().in_uncaused_event.get()
}

/// Whether the module is calling a server command, possibly a nested one.
#[inline(always)]
pub fn is_calling() -> bool {
    api_state().is_calling.get()
}

pub(super) fn calling() -> AtEnd<impl FnMut()> {
    meanwhile(&api_state().is_calling, true)
}

/// Call before each server command that is called or replicated.
#[inline(always)]
pub(super) fn assert_not_in_uncaused_event() {
    debug_assert!(
        !is_in_uncaused_event(),
        "a command is called or replicated in the middle of what the server does by itself"
    );
}

/// Runs work in the module's own execution unit: one of its commands, a timer, or a callback that it requested for after
/// the current command. Only there may keys be written and commands replicated. In the middle of another command the server
/// would take the module's writes for that command's, and replicate that command as well: a `CLIENT KILL ID 7` would kill
/// another client on each replica. Builds with debug assertions check each write.
pub fn in_own_execution_unit<T>(act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&api_state().in_own_execution_unit, true);
    act()
}

/// Runs another command from within that unit.
pub fn in_foreign_execution_unit<T>(act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&api_state().in_own_execution_unit, false);
    act()
}

/// Call before each write or replicated command.
#[inline(always)]
pub(super) fn assert_own_execution_unit() {
    assert_not_in_uncaused_event();
    debug_assert!(
        api_state().in_own_execution_unit.get(),
        "a key is written or a command replicated in the middle of a command or event that is not ours"
    );
}

/// Whether the server pauses writes (`CLIENT PAUSE`, a failover). A write would abort Redis 7.0.
pub fn must_not_write() -> bool {
    // SAFETY: the table.
    unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
}

/// The classes of keyspace events that the server publishes to clients.
pub fn published_classes() -> c_int {
    // SAFETY: the table.
    unsafe { hot!(RedisModule_GetNotifyKeyspaceEvents()) }
}
