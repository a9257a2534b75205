//! The module's one command filter, registered on first need: it sees each command before execution.

use crate::engine::Event;
use crate::shell::bridge::tell::handle;
use crate::shell::guard::guard;
use crate::shell::server::{attribution, cluster, io_threads, rights};
use crate::shell::state::shell;
use crate::shell::sys::main_thread::assert_main_thread;
use crate::shell::sys::raw;
use redis_module::raw as c;

pub unsafe extern "C" fn on_command(filter: *mut c::RedisModuleCommandFilterCtx) {
    assert_main_thread();
    let shell = shell();
    // No guard: nothing here can panic, and this runs for every command. The module's own calls have no connection, so skip
    // them.
    if !raw::is_calling() {
        // SAFETY: the server's argument, for the length of this call.
        unsafe {
            rights::on_filtered_command(filter);
            attribution::on_filtered_command(filter);
        }
    }
    if shell.filters_slots.get() || shell.filters_tracking.get() {
        // SAFETY: the caller.
        unsafe { on_command_that_may_matter(filter) };
    }
}

/// For slots and tracking. Apart from the rest, which runs for every command also where these are of no interest.
///
/// # Safety
/// As for [`on_command`].
#[inline(never)]
unsafe fn on_command_that_may_matter(filter: *mut c::RedisModuleCommandFilterCtx) {
    let shell = shell();
    guard((), || {
        if shell.filters_slots.get() {
            // SAFETY: the caller.
            unsafe { cluster::on_filtered_command(filter) };
        }
        if !shell.filters_tracking.get() {
            return;
        }
        // SAFETY: as above.
        let ended = unsafe { io_threads::on_filtered_command(filter) };
        if let Some((ctx, client)) = ended {
            handle(ctx, Event::Ended { client });
        }
    });
}
