//! What the server knows and does not tell by itself.
//!
//! ```text
//!   attribution.rs  whose command is this?              arguments.rs  of very many arguments
//!   cluster.rs      whose is a key?                     slots.rs      slots that go without a word
//!   epochs.rs       tokens in a cluster                 replicas.rs   who follows us, and how far
//!   rights.rs       rights that may be gone             listeners.rs  does anybody hear what we do?
//!   keepalive.rs    is the peer there?                  io_threads.rs Redis 8's I/O threads
//!   strays.rs       Valkey 8.1's databases
//! ```

pub(in crate::shell) mod arguments;
pub(in crate::shell) mod attribution;
pub(in crate::shell) mod cluster;
pub(in crate::shell) mod epochs;
pub(in crate::shell) mod io_threads;
pub(in crate::shell) mod keepalive;
pub(in crate::shell) mod listeners;
pub(in crate::shell) mod replicas;
pub(in crate::shell) mod rights;
pub(in crate::shell) mod slots;
pub(in crate::shell) mod strays;
