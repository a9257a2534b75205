//! The bottom: the module API made safe, what it lacks, memory, clocks, chance.
//!
//! ```text
//!   raw/         the module API, as much of it as is used        shim.c, shim.rs  what it lacks
//!   private.rs   whether that may be called                      series.rs        on which servers it may
//!   scoped.rs    borrows that end before the server is called    alloc.rs         the server's allocator
//!   clock.rs     the time                                        secret.rs        secrets of sessions
//! ```

pub(in crate::shell) mod alloc;
pub(in crate::shell) mod clock;
pub(in crate::shell) mod private;
pub(in crate::shell) mod raw;
pub(in crate::shell) mod scoped;
pub(in crate::shell) mod secret;
pub(in crate::shell) mod series;
pub(in crate::shell) mod shim;
