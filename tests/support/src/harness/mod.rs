//! What the themed tests stand on: a server of their own, a client that sees every byte, and waiting with deadlines.

mod certificates;
mod client;
#[cfg(target_os = "linux")]
mod clock;
mod link;
mod listing;
mod losses;
#[cfg(target_os = "linux")]
pub mod namespace;
mod ports;
mod programs;
mod quick;
mod reset;
pub mod sentinel;
mod server;
mod tap;
mod view;
mod wait;

pub use crate::resp::{
    Arrival, Frame, Unread, array, bulk, encode, int, null, ok, parse, push, reply, simple,
};
pub use certificates::Certificates;
pub use client::Client;
#[cfg(target_os = "linux")]
pub use clock::Clock;
pub use link::Link;
pub use listing::lock_list;
pub use losses::losses;
pub use ports::{free_port, free_ports};
pub use programs::{
    Posing, WITHOUT_MODULE, built, copy_of_server, module, redis_cli, replace, server_binary,
};
pub use quick::io_threads;
pub use server::{Server, eventually_gone};
pub use tap::Tap;
pub use view::{Members, View};
pub use wait::{
    eventually, eventually_equal, eventually_within, in_time, lapse, one_at_a_time, patience, say,
};
