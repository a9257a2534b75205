//! Persistence and replication.
//!
//! ```text
//!   lock_type.rs    the data type of locks         rdb.rs     auxiliary data of RDB files
//!   stream.rs       commands of replication and AOF    aof.rs     rewritten append-only files
//!   legacy_rdb.rs   RDB files of 0.1.0             intake.rs  passes loaded data to the engine
//! ```

pub(in crate::shell) mod aof;
mod intake;
mod legacy_rdb;
pub(in crate::shell) mod lock_type;
pub(in crate::shell) mod rdb;
pub(in crate::shell) mod stream;
