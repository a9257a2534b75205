//! The module in real servers, by theme. Each test owns its server (see `harness`), so they can run side by side.

mod harness;

mod info;
mod limits;
mod many;
mod memory;
mod peers;
mod rights;
mod settp;
mod slow;
mod threads;
mod watchex;
