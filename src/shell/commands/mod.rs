//! Commands and settings: arguments in, replies out.
//!
//! ```text
//!   entry.rs     a command becomes an event   places.rs     its keys and their slots
//!   register.rs  command registration         guarded.rs    LOCK.CHECK, LOCK.GUARD
//!   inspect.rs   LOCK.INFO, LOCK.LIST, ...    info.rs       INFO tether
//!   settings.rs  tether.*                     operators.rs  SESSION.LIST
//!   why.rs       LOCK.WHY                     sequence.rs   the name that SETTP ... SEQ makes
//! ```

pub(in crate::shell) mod entry;
pub(in crate::shell) mod guarded;
pub(in crate::shell) mod info;
pub(in crate::shell) mod inspect;
pub(in crate::shell) mod operators;
pub(in crate::shell) mod places;
pub(in crate::shell) mod register;
mod sequence;
pub(in crate::shell) mod settings;
pub(in crate::shell) mod why;
