//! What clients get, byte for byte but for RESP: replies, errors, pushes, reports. Depends on the engine, and on [`Host`] and
//! [`Reporter`](reports::Reporter), which the module's shell is, and the server for tests in `clients/devserver`.
//!
//! ```text
//!   host.rs       what replies are written with   refusals.rs   the texts of errors
//!   replies.rs    replies to commands             pushes.rs     what pushes say
//!   reports.rs    LOCK.INFO, LOCK.LIST, LOCK.MINE, LOCK.LOG, LOCK.WHY, SESSION.LIST and the like
//! ```

mod host;
pub mod pushes;
pub mod refusals;
pub mod replies;
pub mod reports;

pub use host::Host;
