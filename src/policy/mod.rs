//! What the shell decides without calling the server: plain types that keep state and decide, while `shell` queries and
//! acts.
//!
//! ```text
//!   server.rs       differences between servers       attribution.rs  which client is executing
//!   slots.rs        owners of slots                   recheck.rs      queue of keys to look up again
//!   rights.rs       when ACL checks are due           blocked.rs      blocked clients and their answers
//!   outbox.rs       queued pushes and their limits    io_threads.rs   clients kept in the main thread
//!   release.rs      versions of tether: this one, and those that wrote its input
//!   losses.rs       the log of lost holds           program.rs      build ids, and those that have qualified
//!   pages.rs        how long a page of WATCHTP may be
//! ```

pub mod attribution;
pub mod blocked;
pub mod io_threads;
pub mod losses;
pub mod outbox;
pub mod pages;
pub mod program;
pub mod recheck;
pub mod release;
pub mod rights;
pub mod server;
pub mod slots;
