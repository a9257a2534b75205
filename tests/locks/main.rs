//! Waiting, locks and fencing tokens in real servers, by theme. Each test owns its server (see `harness`), so they can
//! run side by side.

#[path = "../server/harness/mod.rs"]
#[allow(dead_code, unused_imports)] // of what it offers these tests need a part
mod harness;

mod cancel;
mod crowd;
mod deadlock;
mod in_step;
mod inspect;
mod line;
mod listing;
mod modes;
mod order;
mod quarantine;
mod replication;
mod settp_wait;
mod slices;
mod subscribed;
mod tokens;
