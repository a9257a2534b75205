//! How records stand in memory. Nothing here knows a rule.
//!
//! ```text
//!   arena.rs   records with small, reusable ids    chain.rs     lists whose links stand in the records
//!   index.rs   records found by what they say      overflow.rs  one of very many at one key
//!   generation.rs   of the records at one place, one after the other, which one an id names
//!   few.rs, bytes.rs   what needs no memory of its own while it is small
//! ```

pub(in crate::engine) mod arena;
pub(in crate::engine) mod bytes;
pub(in crate::engine) mod chain;
pub(in crate::engine) mod few;
pub(in crate::engine) mod generation;
pub(in crate::engine) mod index;
pub(in crate::engine) mod overflow;
