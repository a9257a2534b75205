//! `INFO tether`: the names are those of the metrics of `tether metrics`, so they end as Prometheus wants it.

use crate::engine::{Durations, Engine, Loss, Survey, Surveyed};
use crate::policy::release;
use crate::shell::guard::guard;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::main_thread::is_main_thread;
use crate::shell::sys::raw::{Ctx, api, c_string};
use redis_module::raw as c;
use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::fmt::Write;
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
        let Some(fields) = fields() else { return };
        // SAFETY: the table; the server's argument. No name: the section is named after the module.
        unsafe { api!(RedisModule_InfoAddSection(info, null())) };
        for (name, value) in fields {
            let text = c_string(&value);
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

type Field = (&'static CStr, Cow<'static, str>);

/// The fields, in their order. None if a crash report comes while the state is borrowed.
fn fields() -> Option<Vec<Field>> {
    let shell = shell();
    let look = |engine: &mut Engine| {
        let survey = |survey: &mut Survey| of_engine(engine, survey);
        shell.survey.try_with_mut(survey)
    };
    let mut fields = shell.engine.try_with_mut(look)??;
    let fault = shell.fault.try_with_mut(|fault| fault.clone())?;
    let pushes = shell
        .outbox
        .try_with_mut(|outbox| (outbox.len(), outbox.dropped()))?;
    let program = shell.program.try_with_mut(|program| program.clone())?;
    let server = shell.server.get();
    let number = |number: u64| Some(Cow::Owned(number.to_string()));
    let others = [
        (c"pushes_sent_total", number(shell.pushes_sent.get())),
        (c"pushes_dropped_total", number(pushes.1)),
        (c"pushes_waiting", number(pushes.0 as u64)),
        (c"records_refused_total", number(shell.refused.get())),
        (c"version", Some(release::VERSION.into())),
        (c"commit", Some(release::COMMIT.into())),
        (
            c"server",
            server.version.map(|version| version.to_string().into()),
        ),
        (
            c"private_functions",
            server.private.map(|private| private.word().into()),
        ),
        (c"server_build_id", program.map(Cow::Owned)),
        (
            c"fault",
            fault.map(|cause| cause.replace(['\r', '\n'], " ").into()),
        ),
    ];
    let others = others.into_iter();
    fields.extend(others.filter_map(|(name, value)| Some((name, value?))));
    Some(fields)
}

/// The counter of each reason, in the order of `Loss::ALL`.
const LOST: [&CStr; Loss::ALL.len()] = [
    c"lost_lease_total",
    c"lost_deleted_total",
    c"lost_expired_total",
    c"lost_evicted_total",
    c"lost_flushed_total",
    c"lost_overwritten_total",
    c"lost_moved_total",
    c"lost_demoted_total",
    c"lost_ended_total",
    c"lost_died_total",
    c"lost_killed_total",
    c"lost_promoted_total",
];

fn of_engine(engine: &Engine, survey: &mut Survey) -> Vec<Field> {
    let now = clock::now();
    let (gauges, totals) = (engine.gauges(), engine.totals());
    let Surveyed {
        oldest_wait_ms,
        oldest_hold_ms,
        longest_queue,
    } = engine.survey(survey, now);
    let quarantine_left_ms = engine.quarantine_left_ms(now);
    let number = |number: u64| number.to_string();
    let mut fields = vec![
        (c"held_keys", number(gauges.held_keys as u64)),
        (c"temporary_keys", number(gauges.temporary_keys as u64)),
        (c"holds", number(gauges.holds as u64)),
        (c"grants_pending", number(gauges.grants_pending as u64)),
        (c"waiters", number(gauges.waiters as u64)),
        (c"longest_queue", number(longest_queue.into())),
        (c"oldest_waiter_seconds", seconds(oldest_wait_ms * 1000)),
        (c"oldest_hold_seconds", seconds(oldest_hold_ms * 1000)),
        (c"watches", number(gauges.watches as u64)),
        (c"watched_keys", number(gauges.watched_keys as u64)),
        (
            c"sessions_attached",
            number(gauges.sessions_attached as u64),
        ),
        (
            c"sessions_detached",
            number(gauges.sessions_detached as u64),
        ),
        (
            c"quarantine_left_seconds",
            seconds(quarantine_left_ms * 1000),
        ),
        (c"last_token", number(engine.last_token().0)),
        (c"grants_total", number(totals.grants)),
        (c"handoffs_total", number(totals.handoffs)),
        (c"timeouts_total", number(totals.timeouts)),
        (
            c"removed_by_disconnect_total",
            number(totals.removed_by_disconnect()),
        ),
        (c"grants_withdrawn_total", number(totals.grants_withdrawn)),
        (c"deadlocks_refused_total", number(totals.deadlocks_refused)),
        (
            c"deadlock_searches_cut_total",
            number(totals.deadlock_searches_cut),
        ),
        (c"lost_total", number(totals.lost())),
    ];
    let lost = LOST.into_iter().zip(totals.lost_by.map(number));
    fields.extend(lost);
    let (waits, holds) = (engine.wait_times(), engine.hold_times());
    fields.extend([
        (c"wait_seconds_bucket", buckets(waits)),
        (c"wait_seconds_sum", seconds(waits.sum_us())),
        (c"wait_seconds_count", number(waits.count())),
        (c"hold_seconds_bucket", buckets(holds)),
        (c"hold_seconds_sum", seconds(holds.sum_us())),
        (c"hold_seconds_count", number(holds.count())),
    ]);
    let owned = |(name, value)| (name, Cow::Owned(value));
    fields.into_iter().map(owned).collect()
}

/// `0.001=3,0.005=4,+Inf=4`: cumulative, by upper bound in seconds.
fn buckets(durations: &Durations) -> String {
    let mut text = String::new();
    for (bound, count) in durations.cumulative() {
        let comma = if text.is_empty() { "" } else { "," };
        let bound = bound.map_or("+Inf".to_owned(), seconds);
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{bound}={count}");
    }
    text
}

/// Without zeros at the end: `0.001`, `3600`.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_no_zeros_at_the_end() {
        let times = [0, 1, 1000, 1_500_000, 86_400_000_000, u64::MAX];
        let expected = [
            "0",
            "0.000001",
            "0.001",
            "1.5",
            "86400",
            "18446744073709.551615",
        ];
        assert_eq!(times.map(seconds), expected);
    }
}
