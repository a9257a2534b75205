//! Waiting, locks and fencing tokens in real servers, by theme. Each test owns its server (see `harness`), so they can
//! run side by side.

mod acks;
mod cancel;
mod check;
mod crowd;
mod deadlock;
mod guard;
mod in_step;
mod inspect;
mod listing;
mod log;
mod mine;
mod modes;
mod order;
mod quarantine;
mod raise;
mod recipes;
mod replication;
mod settp_wait;
mod slices;
mod subscribed;
mod tokens;
mod why;

use tether_testing::{harness, line, random};
