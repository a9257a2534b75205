//! Whether the keyspace may be written now.

use crate::shell::server::{attribution, replicas};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Callback, Ctx};
use crate::shell::timer;

/// Whether a command that need not write may do so.
pub fn may_write_now(ctx: Ctx<'_>) -> bool {
    !shell().is_replica() && wants_writes(ctx)
}

/// Whether the keyspace may be written in this callback. Connections can end while a script or a
/// load goes on, and while a failover waits for the replicas.
pub fn may_write(ctx: Ctx<'_>) -> bool {
    let state = ctx.state();
    !state.in_script() && !state.loading() && wants_writes(ctx)
}

/// Has this done where it may write and replicate: not in the middle of a command that is not ours, or of what the server does by
/// itself. `call` is what the server is to call as soon as that is over. Where it does not offer that (Redis 7.0), `act` is run at
/// once if no command is executed, and otherwise the tick does it, before the server sleeps.
pub fn outside(call: Callback, act: impl FnOnce()) {
    if raw::call_after_command(call) {
        return;
    }
    match attribution::is_nobody_executing() {
        true => raw::on_our_own(act),
        false => timer::wake_promptly(),
    }
}

/// False while the server waits for a failover or a pause to be over, and while it refuses commands that write because
/// it has too few replicas (`min-replicas-to-write`): else a master that is cut off would hand keys over for ever.
pub fn wants_writes(ctx: Ctx<'_>) -> bool {
    !raw::must_not_write() && replicas::are_enough(ctx)
}
