//! What replicas and the append-only file are told of sessions.

use crate::command::told;
use crate::engine::SessionRecord;
use crate::shell::sys::raw::Ctx;

/// Tells replicas and the append-only file what sessions hold.
pub fn tell(ctx: Ctx<'_>, said: &SessionRecord) {
    let (command, words) = told::words_of(said);
    let db = told::db_of(said).unwrap_or_else(|| ctx.db());
    ctx.replicate_words(db, command, &words);
}
