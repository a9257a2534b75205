//! The module in real servers, by theme. Each test owns its server (see `harness`), so they can run side by side.

mod bystanders;
#[cfg(target_os = "linux")]
mod clock;
mod crash;
mod damaged;
mod faulty;
mod formats;
mod in_step;
mod info;
mod limits;
mod loading;
mod many;
mod memory;
mod outbox;
mod own_del;
mod peers;
mod postponed;
mod private;
mod renamed;
mod rights;
mod selected;
mod settp;
mod slow;
mod swapped;
mod taken_away;
mod threads;
mod unloaded;
mod watchex;
mod watchtp;

use tether_testing::{harness, line};
