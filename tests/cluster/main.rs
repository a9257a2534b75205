//! Clusters of real servers: commands find their key's server, slots move and servers are replaced while keys are
//! held, watched and waited for. Each test owns its servers (see `harness`).

mod atomic;
mod backstop;
mod failover;
#[path = "../server/harness/mod.rs"]
#[allow(dead_code, unused_imports)] // of what it offers these tests need a part
mod harness;
#[path = "../locks/line.rs"]
#[allow(dead_code)] // as above
mod line;
mod locks;
mod moving;
mod nodes;
mod resharding;
mod routing;
mod running;
