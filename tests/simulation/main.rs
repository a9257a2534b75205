//! The engine against a naive model, without a server.
//!
//! `machine.rs` stands where the server and the shell stand: it turns what a step does into the
//! facts that a server would send (`keyspace.rs`, `words.rs`), has the engine's orders carried out on a keyspace in memory, and
//! notes who hears what. After each step `trial.rs` holds all of that against the model's word.
//!
//! A failure prints the seed and the shortest history that fails. `TETHER_SEED` and `TETHER_STEPS`
//! choose other worlds; `ledger.rs` keeps what was found.

mod commands;
mod compare;
mod disowned;
mod exhaustive;
mod flushes;
mod former;
mod keyspace;
mod ledger;
mod limits;
mod listing;
mod log;
mod machine;
mod mine;
mod prefixes;
mod questions;
mod random_worlds;
mod refused;
mod renewals;
mod session_records;
mod sessions;
mod slices;
mod trial;
mod twins;
mod users;
mod words;

use tether_testing::{model, random};
