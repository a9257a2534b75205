//! What the shell decides about its server, without one: plain types that remember and decide, while `shell` asks and acts.
//!
//! ```text
//!   server.rs       what differs between servers      attribution.rs  whose command ended a key
//!   slots.rs        whose a slot is                   recheck.rs      keys that are to be looked at again
//!   rights.rs       rights that may have changed      blocked.rs      what became of each blocked client
//!   outbox.rs       pushes that wait, and how much    io_threads.rs   clients that are kept from I/O threads
//!   release.rs      which tether this is, and which one wrote what it reads
//!   losses.rs       the log of lost holds
//! ```

pub mod attribution;
pub mod blocked;
pub mod io_threads;
pub mod losses;
pub mod outbox;
pub mod recheck;
pub mod release;
pub mod rights;
pub mod server;
pub mod slots;
