//! Servers that crash, are replaced or moved: no ghosts, nothing lost of what was promised, no token twice. Each test
//! owns its servers (see `harness`).

#[path = "../server/harness/mod.rs"]
#[allow(dead_code, unused_imports)] // of what it offers these tests need a part
mod harness;
#[path = "../locks/line.rs"]
#[allow(dead_code)] // as above
mod line;
#[path = "../model/random.rs"]
#[allow(dead_code)] // as above
mod random;

mod crashes;
mod grants;
mod idle;
mod load;
mod overwriting;
#[cfg(target_os = "linux")]
mod partitions;
mod resyncs;
mod rewriting;
mod sentinel;
mod sentinels;
mod sessions;
