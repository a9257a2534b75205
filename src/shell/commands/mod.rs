//! Commands and settings: arguments in, replies out.
//!
//! ```text
//!   entry.rs     a command becomes an event   places.rs     its keys and their slots
//!   register.rs  command registration         guarded.rs    LOCK.CHECK, LOCK.GUARD
//!   inspect.rs   what reports say of the server   info.rs   INFO tether
//!   settings.rs  tether.*                     operators.rs  who may run SESSION.LIST, SESSION.KILL
//!   sequence.rs  the name that SETTP ... SEQ makes
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
