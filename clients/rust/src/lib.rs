//! Locks for Rust on Redis and Valkey with the module tether: any number of tasks on one connection.
//!
//! - locks.rs, guard.rs, temporary.rs, election.rs, watch.rs: what a program asks    callers.rs, observer.rs: who hears of what
//! - core: the rules of the client protocol, without a socket or a clock             link.rs: the shell around them
//! - cluster.rs: the connections of a client                                     testing.rs: servers for tests
//! - address.rs, socket.rs, tls.rs, resp.rs, fork.rs, clock.rs: what the shell needs  quorum: a lock on several servers
//!
#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod callers;
mod clock;
mod cluster;
mod core;
mod election;
mod error;
#[allow(unsafe_code)]
mod fork;
mod guard;
mod link;
mod locks;
mod observer;
#[cfg(feature = "quorum")]
pub mod quorum;
mod resp;
mod socket;
mod temporary;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(not(feature = "internals"))]
mod timing;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod timing;
mod tls;
mod watch;

#[cfg(feature = "internals")]
#[doc(hidden)]
pub use clock::BootTime;
pub use core::{KeyChange, Member, MemberChange, PresenceEvent, WatchEvent};
pub use election::{Election, Term};
pub use error::{Error, Loss};
pub use guard::Guard;
pub use locks::{Builder, LockRequest, Locks};
pub use observer::Observer;
#[cfg(feature = "quorum")]
pub use quorum::Quorum;
/// Of the version whose connections and commands [`Guard::run`] takes.
pub use redis;
pub use temporary::TemporaryKey;
pub use timing::Unfit;
pub use watch::{LeaderWatch, Presence, Watch};
