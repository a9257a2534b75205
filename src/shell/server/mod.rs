//! What the server knows and does not tell by itself.
//!
//! ```text
//!   attribution.rs  whose command is this?              look.rs       what stands at a key?
//!   cluster.rs      whose is a key?                     private.rs    may its own functions be called?
//!   writes.rs       may we write now?                   replicas.rs   who follows us, and how far
//!   epochs.rs       tokens in a cluster                 listeners.rs  does anybody hear what we do?
//!   rights.rs       rights that may be gone             strays.rs     Valkey 8.1's databases
//!   keepalive.rs    is the peer there?            io_threads.rs   Redis 8's I/O threads
//!   subscriptions.rs   what the server is asked to tell, each thing once
//! ```

pub(in crate::shell) mod attribution;
pub(in crate::shell) mod cluster;
pub(in crate::shell) mod epochs;
pub(in crate::shell) mod io_threads;
pub(in crate::shell) mod keepalive;
pub(in crate::shell) mod listeners;
pub(in crate::shell) mod look;
pub(in crate::shell) mod private;
pub(in crate::shell) mod replicas;
pub(in crate::shell) mod rights;
pub(in crate::shell) mod strays;
pub(in crate::shell) mod subscriptions;
pub(in crate::shell) mod writes;
