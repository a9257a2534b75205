//! What the server knows and does not tell by itself.
//!
//! ```text
//!   attribution.rs  whose command is this?              arguments.rs  of very many arguments
//!   cluster.rs      whose is a key?                     look.rs       what stands at a key?
//!   writes.rs       may we write now?                   private.rs    may its own functions be called?
//!   epochs.rs       tokens in a cluster                 replicas.rs   who follows us, and how far
//!   rights.rs       rights that may be gone             listeners.rs  does anybody hear what we do?
//!   keepalive.rs    is the peer there?                  strays.rs     Valkey 8.1's databases
//! ```

pub(in crate::shell) mod arguments;
pub(in crate::shell) mod attribution;
pub(in crate::shell) mod cluster;
pub(in crate::shell) mod epochs;
pub(in crate::shell) mod keepalive;
pub(in crate::shell) mod listeners;
pub(in crate::shell) mod look;
pub(in crate::shell) mod private;
pub(in crate::shell) mod replicas;
pub(in crate::shell) mod rights;
pub(in crate::shell) mod strays;
pub(in crate::shell) mod writes;
