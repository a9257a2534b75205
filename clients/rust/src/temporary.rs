//! Keys that live as long as the connection.

use crate::core::{Mode, Request};
use crate::error::Error;
use crate::guard::{Attempt, Guard};
use crate::link::Shared;
use std::sync::Arc;
use std::time::Duration;

/// A string key that lives as long as its [`Guard`] and the connection (or session): anybody can read it. Nothing is asked before
/// [`TemporaryKey::acquire`].
///
/// Its owner is the connection as a whole, so of tasks that share one a single one can have the key or ask for it.
#[must_use = "nothing is asked before `acquire`"]
pub struct TemporaryKey {
    shared: Arc<Shared>,
    request: Request,
}

impl TemporaryKey {
    pub(crate) fn new(shared: Arc<Shared>, key: &[u8], value: &[u8]) -> TemporaryKey {
        let request = Request {
            keys: vec![key.to_vec()],
            label: Vec::new(),
            mode: Mode::Temporary(value.to_vec()),
            wait: Some(Duration::ZERO),
            lease: None,
        };
        TemporaryKey { shared, request }
    }

    /// Wait for so long at most until the key is gone. Default: for as long as it takes.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = (!wait.is_zero()).then_some(wait);
        self
    }

    /// Do not wait.
    pub fn no_wait(mut self) -> Self {
        self.request.wait = None;
        self
    }

    /// Makes the key, once it does not exist. If this future is dropped, its place in the queue is given up, and a key that was made
    /// meanwhile is deleted. O(1).
    ///
    /// # Errors
    /// As of [`LockRequest::acquire`](crate::LockRequest::acquire); [`Error::AskedAlready`] if another task of this connection has
    /// the key or asks for it.
    pub async fn acquire(self) -> Result<Guard, Error> {
        Attempt::new(self.shared, self.request)?.granted().await
    }
}
