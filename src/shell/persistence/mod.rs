//! What outlives the process, or goes to another.
//!
//! ```text
//!   lock_type.rs   the type of lock keys        rdb.rs   what RDB files say beside the keys
//!   stream.rs      what replicas and append-only files are told     aof.rs   append-only files that are rewritten
//!   former.rs      RDB files of 0.1.0               intake.rs   what is told is given to the engine
//! ```

pub(in crate::shell) mod aof;
mod former;
mod intake;
pub(in crate::shell) mod lock_type;
pub(in crate::shell) mod rdb;
pub(in crate::shell) mod stream;
