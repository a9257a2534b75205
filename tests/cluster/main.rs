//! Clusters of real servers: commands find their key's server, slots move and servers are replaced while keys are
//! held, watched and waited for. Each test owns its servers (see `harness`).

mod atomic;
mod backstop;
mod campaign;
mod down;
mod failover;
#[path = "../failover/grants.rs"]
mod grants;
#[path = "../server/harness/mod.rs"]
#[allow(dead_code, unused_imports)] // of what it offers these tests need a part
mod harness;
#[path = "../locks/line.rs"]
#[allow(dead_code)] // as above
mod line;
#[path = "../failover/load.rs"]
mod load;
mod locks;
mod matrix;
mod moving;
mod nodes;
#[path = "../model/random.rs"]
#[allow(dead_code)] // as above
mod random;
mod resharding;
mod routing;
mod running;
mod tokens;
