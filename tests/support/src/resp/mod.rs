//! The servers' protocol, RESP2 and RESP3: one reading of it for tests and benchmarks.
//!
//! ```text
//!   words.rs       commands, and how they go over the wire
//!   frame.rs       what a server sends, as values    reader.rs   how these are read
//!   arrival.rs     replies, and pushes among them
//!   connection.rs  for benchmarks: counts frames instead of looking at them (tests have `harness::Client`)
//! ```

mod arrival;
mod connection;
mod frame;
mod reader;
mod words;

pub use arrival::{Arrival, push, reply, sentence};
pub use connection::Connection;
pub use frame::{Frame, array, bulk, int, null, ok, simple};
pub use reader::{Unread, length, parse};
pub use words::{Words, encode, spelled};
