//! What is replicated of sessions.

use crate::engine::SessionRecord;
use crate::shell::sys::raw::Ctx;

/// Tells replicas and the append-only file what sessions hold.
pub fn replicate(ctx: Ctx<'_>, record: &SessionRecord) {
    let (command, words) = record.words();
    let db = record.db().unwrap_or_else(|| ctx.db());
    ctx.replicate_words(db, command, &words);
}
