//! The one filter of commands: each command is seen here before it is executed, as soon as anybody needs that.

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
    // No guard: there is nothing in these that can panic, and this runs for every command. What we ask the server ourselves has
    // no connection.
    if !raw::is_calling() {
        // SAFETY: the server's argument, for the length of this call.
        unsafe {
            rights::note(filter);
            attribution::note(filter);
        }
    }
    if !shell.notices_slots.get() && !shell.notices_tracking.get() {
        return;
    }
    guard((), || {
        if shell.notices_slots.get() {
            // SAFETY: as above.
            unsafe { cluster::notice(filter) };
        }
        if !shell.notices_tracking.get() {
            return;
        }
        // SAFETY: as above.
        let ended = unsafe { io_threads::notice(filter) };
        if let Some((ctx, client)) = ended {
            handle(ctx, Event::Ended { client });
        }
    });
}
