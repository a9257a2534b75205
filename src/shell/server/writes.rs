//! Whether the keyspace may be written now.

use crate::shell::callbacks::call_after_command;
use crate::shell::server::{attribution, replicas};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Job};
use crate::shell::timer;

/// Whether a read-only command may write in passing.
pub fn may_write_now(ctx: Ctx<'_>) -> bool {
    !shell().is_replica() && accepts_writes(ctx)
}

/// Whether this callback may write the keyspace. Clients can disconnect during a script or a load, or while a failover
/// waits for replicas.
pub fn may_write(ctx: Ctx<'_>) -> bool {
    let state = ctx.state();
    !state.in_script() && !state.loading() && accepts_writes(ctx)
}

/// Does a job where it may write and replicate: not in the middle of another command or of the server's own work, but as soon
/// as that is over. Where the server has no such callback (Redis 7.0), now if no command is executing; otherwise the tick does
/// the work, before the server sleeps.
pub fn run_outside_command(ctx: Ctx<'_>, job: Job) {
    if call_after_command(job) {
        return;
    }
    match attribution::is_no_client_executing() {
        true => raw::in_own_execution_unit(|| job(ctx)),
        false => timer::wake_promptly(),
    }
}

/// False during a failover or a pause, and while the server refuses writes for lack of replicas (`min-replicas-to-write`):
/// otherwise an isolated master would keep granting keys.
pub fn accepts_writes(ctx: Ctx<'_>) -> bool {
    !raw::must_not_write() && replicas::has_enough(ctx)
}
