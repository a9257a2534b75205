//! Locks for Rust on Redis and Valkey with the module tether: many tasks on one connection, pure rules in `core`.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clock;
mod core;
mod error;
mod guard;
mod line;
mod link;
mod locks;
pub mod timing;

pub use clock::BootTime;
pub use error::{Error, Loss};
pub use guard::Guard;
pub use locks::{Builder, LockRequest, Locks};
