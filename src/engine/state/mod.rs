//! The tables: records linked to each other, with indexes by name, id, owner and task.
//!
//! ```text
//!   rows.rs               all rows on one page: begin there
//!   keys.rs               held keys, names that are watched or waited for, spaces and databases
//!   clients.rs            connections and sessions
//!   holds.rs, header.rs   holds                   queues.rs    wait queues
//!   watches.rs            watches                 sessions.rs  what only sessions have
//!   tokens.rs             fencing tokens          timers.rs    deadlines
//!   task.rs               hash key of a task      acks.rs      grants that wait for acknowledgements
//!   durations.rs          histogram of durations
//!   renewals.rs           cursor of the TTL backstop's refresh
//!   prefixes.rs           watches of temporary keys by prefix
//! ```

pub(in crate::engine) mod acks;
pub(in crate::engine) mod clients;
pub(in crate::engine) mod durations;
pub(in crate::engine) mod header;
pub(in crate::engine) mod holds;
pub(in crate::engine) mod keys;
pub(in crate::engine) mod prefixes;
pub(in crate::engine) mod queues;
pub(in crate::engine) mod renewals;
pub(in crate::engine) mod rows;
pub(in crate::engine) mod sessions;
pub(in crate::engine) mod task;
pub(in crate::engine) mod timers;
pub(in crate::engine) mod tokens;
pub(in crate::engine) mod watches;
