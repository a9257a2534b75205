//! Containers for the tables in `state/`. They know no rule.
//!
//! Small methods are `#[inline]`. A release build would inline them anyway, but builds for tests, which have many codegen units and
//! no LTO, would not: the simulation would take a quarter longer.
//!
//! ```text
//!   arena.rs       records with 4-byte ids           chain.rs      intrusive lists
//!   generation.rs  detects stale ids in debug builds
//!   index.rs       hash index of ids                 overflow.rs   hash index for the tail of long lists
//!   few.rs         list with inline capacity         bytes.rs      byte string with inline capacity
//!   sorted.rs      ids in the order of names
//! ```

pub(in crate::engine) mod arena;
pub(in crate::engine) mod bytes;
pub(in crate::engine) mod chain;
pub(in crate::engine) mod few;
pub(in crate::engine) mod generation;
pub(in crate::engine) mod index;
pub(in crate::engine) mod overflow;
pub(in crate::engine) mod sorted;
