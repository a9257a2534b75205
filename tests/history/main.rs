//! Random histories on a real server, against the model that the simulation uses.
//!
//! After every step of a history everyone has heard what the model says, in its order, and nothing
//! else; the same keys exist, LOCK.LOG tells the same of each hold that was lost, and INFO counts the same. The server and its configuration come from
//! the integration tests' harness (TETHER_SERVER, TETHER_MODULE). `TETHER_SEED` and `TETHER_STEPS`
//! choose other histories; a failure prints the seed and the shortest history that fails.

mod acts;
mod ledger;
mod log;
mod look;
mod players;
mod random_histories;
mod trial;
mod wire;

use tether_testing::{harness, model, random};
