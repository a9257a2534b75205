//! Keys that live as long as the connection.

use crate::cluster::Cluster;
use crate::core::{Ask, Kind};
use crate::error::Error;
use crate::guard::{Attempt, Guard};
use crate::locks::shown;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A string key that lives as long as its [`Guard`] and the connection (or session): anybody can read it. Nothing is asked before
/// [`TemporaryKey::acquire`].
///
/// Its owner is the client as a whole, so of tasks that share one a single one can have the key or ask for it.
#[derive(Clone)]
#[must_use = "nothing is asked before `acquire`"]
pub struct TemporaryKey {
    cluster: Arc<Cluster>,
    ask: Ask,
}

/// Without the value.
impl fmt::Debug for TemporaryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemporaryKey")
            .field("keys", &shown(&self.ask.keys))
            .finish_non_exhaustive()
    }
}

impl TemporaryKey {
    pub(crate) fn new(cluster: Arc<Cluster>, key: &[u8], value: &[u8]) -> TemporaryKey {
        let kind = Kind::Temporary {
            value: value.to_vec(),
            is_sequence: false,
            is_elected: false,
        };
        let ask = Ask::new(vec![key.to_vec()], kind);
        TemporaryKey { cluster, ask }
    }

    /// Wait for so long at most until the key is gone. Default: for as long as it takes.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.ask.wait = (!wait.is_zero()).then_some(wait);
        self
    }

    /// Do not wait.
    pub fn no_wait(mut self) -> Self {
        self.ask.wait = Some(Duration::ZERO);
        self
    }

    /// The server adds a number to the name, greater than all before: see [`Guard::keys`]. It never waits.
    pub fn sequence(mut self) -> Self {
        if let Kind::Temporary { is_sequence, .. } = &mut self.ask.kind {
            *is_sequence = true;
        }
        self
    }

    /// As [`LockRequest::acks`](crate::LockRequest::acks).
    pub fn acks(mut self, replicas: u64) -> Self {
        self.ask.acks = Some(replicas);
        self
    }

    /// Makes the key, once it does not exist. If this future is dropped, its place in the queue is given up, and a key that was made
    /// meanwhile is deleted. O(1).
    ///
    /// # Errors
    /// As of [`LockRequest::acquire`](crate::LockRequest::acquire); [`Error::Deadlock`] (or [`Error::Taken`] if it does not wait) if
    /// this client has the key or asks for it.
    pub fn acquire(&self) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        Attempt::of(&self.cluster, &self.ask)
    }
}
