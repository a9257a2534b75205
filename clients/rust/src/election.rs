//! Leader election: one of those who stand for it leads at a time.

use crate::error::{Error, Loss};
use crate::guard::Guard;
use crate::locks::Locks;
use std::sync::atomic::{AtomicU64, Ordering};

/// A candidate. It stands for election while [`Election::term`] is awaited, behind those who came before.
pub struct Election {
    locks: Locks,
    name: Vec<u8>,
    /// Candidates that share a connection are owners of their own.
    label: String,
}

/// The time for which a candidate leads: until it resigns, or loses the lead. Dropped, it resigns.
#[must_use = "it ends when it is dropped"]
pub struct Term {
    guard: Guard,
}

impl Election {
    pub(crate) fn new(locks: Locks, name: &[u8]) -> Election {
        static CANDIDATES: AtomicU64 = AtomicU64::new(0);
        let number = CANDIDATES.fetch_add(1, Ordering::Relaxed);
        Election {
            locks,
            name: name.to_vec(),
            label: format!("candidate-{number}"),
        }
    }

    /// Waits until this candidate leads, also while the connection is broken. If this future is dropped, it stands no more.
    ///
    /// # Errors
    /// As of [`LockRequest::acquire`](crate::LockRequest::acquire); [`Error::AskedAlready`] while this candidate leads.
    pub async fn term(&mut self) -> Result<Term, Error> {
        let lead = self.locks.lock(&self.name).owner(&self.label);
        let guard = lead.acquire().await?;
        Ok(Term { guard })
    }
}

impl Term {
    /// Greater than that of every earlier term: see [`Guard::token`].
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// As [`Guard::check`].
    ///
    /// # Errors
    /// Why this candidate leads no more.
    pub fn check(&self) -> Result<(), Loss> {
        self.guard.check()
    }

    /// As [`Guard::lost`].
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        self.guard.lost()
    }

    /// Does this while the term lasts, then resigns. When the lead is lost, the work is dropped where it waits: what it does between
    /// two awaits goes on until the second.
    ///
    /// # Errors
    /// Why the work was not finished, or the lead was lost with its last step.
    pub async fn lead<T>(self, work: impl Future<Output = T>) -> Result<T, Loss> {
        let done = tokio::select! {
            biased;
            loss = self.lost() => return Err(loss),
            done = work => done,
        };
        self.resign().await?;
        Ok(done)
    }

    /// Ends the term, so that the next candidate leads, and waits until the server has heard of it.
    ///
    /// # Errors
    /// Why it had ended before.
    pub async fn resign(self) -> Result<(), Loss> {
        self.guard.release().await
    }
}
