//! How the API is called, and in whose unit of work: what each call into the server is held against.

use crate::shell::sys::at_end::{AtEnd, meanwhile};
use crate::shell::sys::raw::api_state::api_state;
use std::ffi::c_int;

/// Calls an API function that every supported server has.
macro_rules! api {
    ($name:ident $arguments:tt) => {{
        crate::shell::sys::scoped::nothing_is_lent();
        // SAFETY (with the caller's block): see "the table" in `mod.rs`.
        (redis_module::raw::$name.expect(stringify!($name)))$arguments
    }};
}
pub(in crate::shell) use api;

/// Calls a command of the server's.
macro_rules! call {
    ($($argument:expr),* $(,)?) => {{
        crate::shell::sys::raw::calls::assert_not_in_uncaused_event();
        let _calling = crate::shell::sys::raw::calls::calling();
        api!(RedisModule_Call($($argument),*))
    }};
}
pub(super) use call;

/// The same for those of `table.rs`.
macro_rules! hot {
    ($name:ident $arguments:tt) => {{
        crate::shell::sys::scoped::nothing_is_lent();
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

/// One entry for each command of a table, by its number there.
macro_rules! entries {
    [$entry:ident: $($number:literal)*] => { [$(Some($entry::<$number>)),*] };
}
pub(in crate::shell) use entries;

/// Whether the server may be told directly which connection it is to describe; see `shim::describe`.
pub fn describe_directly(yes: bool) {
    api_state().describes_directly.set(yes);
}

/// Hears of a key that the server removes by itself, perhaps in the middle of nobody's command. No command of the server's may be
/// called meanwhile, and nothing replicated: Redis 7.0 takes such a call for the outermost one, at whose end it forgets that it
/// has to replicate what it removes after that. Builds with debug assertions hold each call against that.
pub fn in_uncaused_event(hear: impl FnOnce()) {
    let _meanwhile = meanwhile(&api_state().in_uncaused_event, true);
    hear();
}

/// See [`in_uncaused_event`].
pub fn is_in_uncaused_event() -> bool {
    api_state().in_uncaused_event.get()
}

/// Whether a command is executed that we have the server call, or something within one.
#[inline(always)]
pub fn is_calling() -> bool {
    api_state().is_calling.get()
}

pub(super) fn calling() -> AtEnd<impl FnMut()> {
    meanwhile(&api_state().is_calling, true)
}

/// To be called before each command that the server is to call or replicate.
#[inline(always)]
pub(super) fn assert_not_in_uncaused_event() {
    debug_assert!(
        !is_in_uncaused_event(),
        "a command is called or replicated in the middle of what the server does by itself"
    );
}

/// Runs what the server calls for our own sake: a command of ours, a timer, or what it was asked to call once the current command
/// is over. Only there are keys written and commands replicated. In the middle of somebody else's command the server would take
/// what we write for a change by that command, and replicate it as well: a `CLIENT KILL ID 7` would end another client at each
/// replica. Builds with debug assertions hold each write against that.
pub fn in_own_execution_unit<T>(act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&api_state().in_own_execution_unit, true);
    act()
}

/// Runs a command of somebody else's in the middle of that.
pub fn in_foreign_execution_unit<T>(act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&api_state().in_own_execution_unit, false);
    act()
}

/// To be called before anything is written or replicated.
#[inline(always)]
pub(super) fn assert_own_execution_unit() {
    assert_not_in_uncaused_event();
    debug_assert!(
        api_state().in_own_execution_unit.get(),
        "a key is written or a command replicated in the middle of a command or event that is not ours"
    );
}

/// Whether the server wants no writes now (`CLIENT PAUSE`, a failover under way). A write all the
/// same would abort Redis 7.0.
pub fn must_not_write() -> bool {
    // SAFETY: the table.
    unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
}

/// The classes of keyspace events that the server publishes to clients.
pub fn published_classes() -> c_int {
    // SAFETY: the table.
    unsafe { hot!(RedisModule_GetNotifyKeyspaceEvents()) }
}
