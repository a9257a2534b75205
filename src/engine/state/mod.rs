//! What the rules keep: records that point at each other, found by name, by id and by owner.
//!
//! ```text
//!   rows.rs               all of them on one page: begin there
//!   keys.rs, clients.rs   one record for each key and each connection that matter
//!   holds.rs, header.rs   who holds what          queues.rs    who waits for what
//!   watches.rs            who watches what        sessions.rs  which sessions there are
//!   tokens.rs             fencing tokens          timers.rs    what ends by itself, and when
//!   owner.rs              how records are found by owner       acks.rs        which grants replicas are to acknowledge
//!   wait_times.rs         how long grants were waited for
//!   flushes.rs            flushes that are still being done    unseen.rs      keys to look at after an exchange
//!   renewals.rs           how far a renewal of backstops is
//! ```

pub(in crate::engine) mod acks;
pub(in crate::engine) mod clients;
pub(in crate::engine) mod flushes;
pub(in crate::engine) mod header;
pub(in crate::engine) mod holds;
pub(in crate::engine) mod keys;
pub(in crate::engine) mod owner;
pub(in crate::engine) mod queues;
pub(in crate::engine) mod renewals;
pub(in crate::engine) mod rows;
pub(in crate::engine) mod sessions;
pub(in crate::engine) mod timers;
pub(in crate::engine) mod tokens;
pub(in crate::engine) mod unseen;
pub(in crate::engine) mod wait_times;
pub(in crate::engine) mod watches;
