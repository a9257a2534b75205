//! What the module has to find out about the server.
//!
//! ```text
//!   attribution.rs    which client is executing       lookup.rs      a key's state
//!   cluster.rs        which node owns a slot          private.rs     may private functions be called
//!   writes.rs         may the keyspace be written     replicas.rs    replicas, and how far they are
//!   epochs.rs         tokens in a cluster             listeners.rs   do other modules listen
//!   rights.rs         ACL checks of waiters           client_db.rs   a fault of Valkey
//!   keepalive.rs      detection of vanished peers     io_threads.rs  Redis 8's I/O threads
//!   subscriptions.rs  subscriptions to the server's events      program.rs  the server's build id
//! ```

pub(in crate::shell) mod attribution;
pub(in crate::shell) mod client_db;
pub(in crate::shell) mod cluster;
pub(in crate::shell) mod epochs;
pub(in crate::shell) mod io_threads;
pub(in crate::shell) mod keepalive;
pub(in crate::shell) mod listeners;
pub(in crate::shell) mod lookup;
pub(in crate::shell) mod private;
pub(in crate::shell) mod program;
pub(in crate::shell) mod replicas;
pub(in crate::shell) mod rights;
pub(in crate::shell) mod subscriptions;
pub(in crate::shell) mod writes;
