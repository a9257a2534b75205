//! What the themed tests stand on: a server of their own, a client that sees every byte, and waiting with deadlines.

mod arrival;
mod client;
mod frame;
mod listing;
#[cfg(target_os = "linux")]
pub mod namespace;
mod ports;
mod programs;
mod server;
mod wait;
mod wire;
mod words;

pub use arrival::{Arrival, push, reply};
pub use client::Client;
pub use frame::{Frame, Unread, array, bulk, int, null, ok, parse, simple};
pub use listing::lock_list;
pub use ports::free_port;
pub use programs::{WITHOUT_MODULE, module, server_binary};
pub use server::{Server, eventually_gone};
pub use wait::{
    eventually, eventually_equal, eventually_within, in_time, lapse, one_at_a_time, say,
};
pub use words::{encode, losses};
