//! Servers that crash, are replaced or moved: no ghosts, nothing lost of what was promised, no token twice. Each test
//! owns its servers (see `harness`).

mod acknowledged;
mod crashes;
#[cfg(target_os = "linux")]
mod guarded;
mod idle;
mod overwriting;
#[cfg(target_os = "linux")]
mod partitions;
mod releases;
mod resyncs;
mod rewriting;
mod sentinels;
mod sessions;
mod stream;
mod tokens;
mod upgrade;
mod vanishing;

use tether_testing::harness::sentinel;
use tether_testing::{grants, harness, line, load, random, survival};
