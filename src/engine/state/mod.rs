//! What the rules keep: records that point at each other, found by name, by id and by owner.
//!
//! ```text
//!   rows.rs               all of them on one page: begin there
//!   keys.rs               which keys are held, which names are watched or waited for, and in which databases
//!   clients.rs            which connections and sessions matter
//!   holds.rs, header.rs   who holds what          queues.rs    who waits for what
//!   watches.rs            who watches what        sessions.rs  which sessions there are
//!   tokens.rs             fencing tokens          timers.rs    what ends by itself, and when
//!   owner.rs              how records are found by owner       acks.rs        which grants replicas are to acknowledge
//!   wait_times.rs         how long grants were waited for
//!   renewals.rs           how far a renewal of backstops is
//! ```

pub(in crate::engine) mod acks;
pub(in crate::engine) mod clients;
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
pub(in crate::engine) mod wait_times;
pub(in crate::engine) mod watches;
