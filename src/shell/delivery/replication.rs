//! What is replicated of sessions.

use crate::command::session_records;
use crate::engine::SessionRecord;
use crate::shell::sys::raw::Ctx;

/// Tells replicas and the append-only file what sessions hold.
pub fn replicate(ctx: Ctx<'_>, record: &SessionRecord) {
    let (command, words) = session_records::words_of(record);
    let db = session_records::db_of(record).unwrap_or_else(|| ctx.db());
    ctx.replicate_words(db, command, &words);
}
