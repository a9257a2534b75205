//! Replicates session records.

use crate::engine::SessionRecord;
use crate::shell::sys::raw::Ctx;

/// Replicates a session record to replicas and the append-only file.
pub fn replicate(ctx: Ctx<'_>, record: &SessionRecord) {
    let (command, words) = record.words();
    let db = record.db().unwrap_or_else(|| ctx.db());
    ctx.replicate_words(db, command, &words);
}
