//! Pushes that wait.

use crate::engine::{ClientId, Push};
use std::collections::VecDeque;

/// Pushes that wait, in order. Once one waits, all later ones do.
#[derive(Default)]
pub struct Outbox {
    pub waiting: VecDeque<(Vec<ClientId>, Push)>,
    /// A flush was seen that may not have been answered yet.
    pub flushing: bool,
    /// What is told now is to wait for the end of the command in hand, or for the beginning of the next one.
    pub holding: bool,
    /// What is told now comes from the middle of a command of the server's.
    pub in_event: bool,
    /// Some of those that wait tell of a grant that came in the middle of a transaction.
    pub grants_in_exec: bool,
    /// Pushes to connections that wait for the answer to their own flush.
    pub kept_back: Vec<(ClientId, Push)>,
}
