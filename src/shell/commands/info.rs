//! `INFO tether`.

use crate::engine::{Engine, Loss};
use crate::policy::release;
use crate::shell::guard::guard;
use crate::shell::state::shell;
use crate::shell::sys::main_thread::is_main_thread;
use crate::shell::sys::raw::{Ctx, api, c_string};
use redis_module::raw as c;
use std::ffi::{CStr, c_int};
use std::ptr::null;

/// Registers the section. Once, at load.
pub fn register(ctx: Ctx<'_>) {
    // SAFETY: the table, the context.
    unsafe {
        api!(RedisModule_RegisterInfoFunc(
            ctx.as_ptr(),
            Some(write_section)
        ))
    };
}

unsafe extern "C" fn write_section(info: *mut c::RedisModuleInfoCtx, _for_crash_report: c_int) {
    // A crash report may come from another thread.
    if !is_main_thread() {
        return;
    }
    guard((), || {
        let shell = shell();
        // A crash report may come while the state is borrowed.
        let numbers = shell.engine.try_with_mut(|engine| numbers(engine));
        let fault = shell.fault.try_with_mut(|fault| fault.clone());
        let (Some(numbers), Some(fault)) = (numbers, fault) else {
            return;
        };
        // SAFETY: the table; the server's argument. No name: the section is named after the module.
        unsafe { api!(RedisModule_InfoAddSection(info, null())) };
        for (name, value) in numbers {
            // SAFETY: as above; the name is copied.
            unsafe {
                api!(RedisModule_InfoAddFieldULongLong(
                    info,
                    name.as_ptr(),
                    value
                ))
            };
        }
        let private = shell.server.get().private.map(|private| private.word());
        let program = shell.program.try_with_mut(|program| program.clone());
        let texts = [
            (c"version", Some(release::VERSION.to_owned())),
            (c"commit", Some(release::COMMIT.to_owned())),
            (c"private_functions", private.map(str::to_owned)),
            (c"server_build_id", program.flatten()),
            (
                c"fault",
                fault.map(|cause| cause.replace(['\r', '\n'], " ")),
            ),
        ];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            let text = c_string(&text);
            // SAFETY: as above; name and value are copied.
            unsafe {
                api!(RedisModule_InfoAddFieldCString(
                    info,
                    name.as_ptr(),
                    text.as_ptr()
                ));
            }
        }
    });
}

/// The counter of each reason, in the order of `Loss::ALL`.
const LOST: [&CStr; Loss::ALL.len()] = [
    c"lost_lease",
    c"lost_deleted",
    c"lost_expired",
    c"lost_evicted",
    c"lost_flushed",
    c"lost_overwritten",
    c"lost_moved",
    c"lost_demoted",
    c"lost_ended",
    c"lost_died",
    c"lost_killed",
];

/// The fields, in their order.
fn numbers(engine: &Engine) -> Vec<(&'static CStr, u64)> {
    let (gauges, totals) = (engine.gauges(), engine.totals());
    let mut numbers = vec![
        (c"temporary_keys", gauges.temporary_keys as u64),
        (c"holds", gauges.holds as u64),
        (c"grants_pending", gauges.grants_pending as u64),
        (c"waiters", gauges.waiters as u64),
        (c"watches", gauges.watches as u64),
        (c"watched_keys", gauges.watched_keys as u64),
        (c"sessions_attached", gauges.sessions_attached as u64),
        (c"sessions_detached", gauges.sessions_detached as u64),
        (c"pushes_sent", shell().pushes_sent.get()),
        (c"grants_total", totals.grants),
        (c"handoffs_total", totals.handoffs),
        (
            c"keys_removed_by_disconnect",
            totals.keys_removed_by_disconnect,
        ),
        (c"timeouts_total", totals.timeouts),
        (c"grants_withdrawn", totals.grants_withdrawn),
        (c"deadlocks_refused", totals.deadlocks_refused),
        (c"deadlock_searches_cut", totals.deadlock_searches_cut),
        (c"lost_total", totals.lost),
        (c"wait_usec_p50", engine.wait_quantile_us(0.5)),
        (c"wait_usec_p99", engine.wait_quantile_us(0.99)),
        (c"last_token", engine.last_token().0),
        (c"records_refused", shell().refused.get()),
    ];
    let lost = LOST.iter().copied().zip(totals.lost_by);
    numbers.extend(lost);
    numbers
}
