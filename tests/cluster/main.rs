//! Clusters of real servers: commands find their key's server, slots move and servers are replaced while keys are
//! held, watched and waited for. Each test owns its servers (see `harness`).

mod acknowledged;
#[cfg(target_os = "linux")]
mod ahead;
mod atomic;
mod backstop;
mod campaign;
mod down;
mod failover;
mod guarded;
mod locks;
mod matrix;
mod moving;
mod nodes;
mod prefixes;
mod resharding;
mod routing;
mod running;
mod threads;
mod tokens;

use tether_testing::{grants, harness, line, load, random, survival};
