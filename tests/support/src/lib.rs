//! What the tests in `tests/` and the benchmarks stand on.
//!
//! ```text
//!   harness/     a server of one's own, a client that sees every byte, and waiting with deadlines
//!   resp/        the servers' protocol
//!   model/       what the module ought to do, as simply as it can be said
//!   transcript/  sessions of redis-cli that a document shows, run again
//!   line.rs      who holds, who stands in line
//!   load.rs      clients at work while masters are replaced    grants.rs   what they were told
//!   survival.rs  sessions whose master is killed in the moment of a grant, and which grants the next one knows
//!   grammar.rs   commands at random, as a server describes its own
//!   random.rs    a seed, and all that follows from it
//!   shared.rs    memory that several processes share
//!   process.rs   what the standard library cannot ask of processes
//! ```

pub mod grammar;
pub mod grants;
pub mod harness;
pub mod line;
pub mod load;
pub mod model;
pub mod process;
pub mod random;
pub mod resp;
pub mod shared;
pub mod survival;
pub mod transcript;

use std::path::Path;

/// The project's folder.
pub fn project() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tests/support is in it")
}
