//! tether: locks that live as long as the connection that holds them, as a module for Redis and
//! Valkey.
//!
//! ```text
//!   redis-cli, any client                    tests (no server)
//!        |  RESP                                  |
//!    [ server ] --callbacks--> shell --> command --> engine
//!               <--replies, keys, pushes, timers--  effects
//! ```
//!
//! [`engine`] holds every rule: facts in, effects out. [`command`] turns bytes into typed requests, and [`wire`] what
//! comes of them into replies. `shell` is all that touches the server. Nothing points back.

pub mod command;
pub mod engine;
pub mod policy;
#[cfg(feature = "server")]
mod shell;
pub mod wire;
