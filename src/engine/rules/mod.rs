//! The rules: what follows from each fact. They read and change what `state` keeps, and append to the list of effects.
//!
//! ```text
//!   acquire.rs     asking for keys                serve.rs    handing them over to who waits
//!   grant.rs       what follows from a grant, either way         sequence.rs  keys that are named after their token
//!   requests.rs    the other commands             keyspace.rs what happened to keys
//!   lifecycle.rs   connections, waits and leases that end     sessions.rs  sessions that come and go
//!   replication.rs what servers tell each other   renewals.rs the time that temporary keys live in a cluster
//!   quarantine.rs  the time after a start in which nothing is granted
//!   rights.rs      rights that may be gone since somebody began to wait
//!   notify.rs      who is told of a loss          sweep.rs    flushes, exchanges of databases, and what follows in slices
//!   acks.rs        grants that replicas are to acknowledge
//!   admission.rs   who wants more than there can be             epochs.rs   epochs of tokens, and the clock
//!   presence.rs    temporary keys that come, change and go, for who watches their prefix
//! ```

pub(in crate::engine) mod acks;
pub(in crate::engine) mod acquire;
pub(in crate::engine) mod admission;
pub(in crate::engine) mod epochs;
pub(in crate::engine) mod grant;
pub(in crate::engine) mod keyspace;
pub(in crate::engine) mod lifecycle;
pub(in crate::engine) mod notify;
pub(in crate::engine) mod presence;
pub(in crate::engine) mod quarantine;
pub(in crate::engine) mod renewals;
pub(in crate::engine) mod replication;
pub(in crate::engine) mod requests;
pub(in crate::engine) mod rights;
pub(in crate::engine) mod sequence;
pub(in crate::engine) mod serve;
pub(in crate::engine) mod sessions;
pub(in crate::engine) mod sweep;
