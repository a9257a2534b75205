//! Read-only reports.
//!
//! ```text
//!   inspection.rs   LOCK.INFO, LOCK.LIST     memory.rs    MEMORY USAGE
//!   sessions.rs     SESSION.LIST             current.rs   LOCK.GUARD
//!   why.rs          LOCK.WHY                mine.rs      LOCK.MINE
//!   survey.rs       INFO
//! ```

pub(in crate::engine) mod current;
pub(in crate::engine) mod inspection;
pub(in crate::engine) mod memory;
pub(in crate::engine) mod mine;
pub(in crate::engine) mod sessions;
pub(in crate::engine) mod survey;
pub(in crate::engine) mod why;
