//! Locks for Rust on Redis and Valkey with the module tether: many tasks on one connection, pure rules in `core`.
//!
#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod backoff;
mod clock;
mod core;
mod election;
mod error;
#[allow(unsafe_code)]
mod fork;
mod guard;
mod incoming;
mod line;
mod link;
mod locks;
pub mod quorum;
mod socket;
mod temporary;
mod terms;
pub mod timing;
mod tls;
mod watch;

pub use clock::BootTime;
pub use core::{KeyChange, WatchEvent};
pub use election::{Election, Term};
pub use error::{Error, Loss};
pub use guard::Guard;
pub use locks::{Builder, LockRequest, Locks};
pub use quorum::Quorum;
/// Of the version whose connections and commands [`Guard::run`] takes.
pub use redis;
pub use temporary::TemporaryKey;
pub use watch::Watch;
