//! Rights are looked at before an event is told by which somebody's turn may come.

use crate::engine::Event;
use crate::shell::bridge::dispatch::handle;
use crate::shell::server::rights;
use crate::shell::state::shell;
use crate::shell::sys::at_end::at_end;
use crate::shell::sys::raw::Ctx;
use std::cell::Cell;

/// Looks at the rights of those whose turn may come by this event, before it is told.
#[cold]
pub fn look(ctx: Ctx<'_>, event: &Event<'_>) {
    /// Whoever comes after so many is served a little later.
    const MOST: usize = 64;
    let noted = &shell().rights;
    if noted.begin_look(ctx.state().in_exec()) {
        handle(ctx, Event::RightsChanged);
    }
    // Where a panic ends the look, not everybody was looked at.
    let has_doubts = Cell::new(true);
    let _end = at_end(|| noted.end_look(has_doubts.get()));
    for _ in 0..MOST {
        let Some(doubt) = shell().engine.with(|engine| engine.doubt(event)) else {
            break;
        };
        let (wait, lost) = (doubt.wait, rights::lost(ctx, &doubt));
        handle(ctx, Event::Rights { wait, lost });
    }
    has_doubts.set(shell().engine.with(|engine| engine.has_doubts()));
}
