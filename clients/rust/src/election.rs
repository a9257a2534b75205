//! Leader election: one of those who stand for it leads at a time.

use crate::callers::{State, Step};
use crate::cluster::{Cluster, Route};
use crate::core::{Ask, Id, Kind};
use crate::error::{Error, Loss};
use crate::guard::reached;
use crate::link::Shared;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// A candidate. It stands from the first [`Election::term`] until this and its [`Term`]s are dropped: after a term that was lost or
/// resigned from, at the end of the queue.
pub struct Election {
    cluster: Arc<Cluster>,
    route: Route,
    ask: Ask,
    candidate: Option<Arc<Candidate>>,
    /// The token of its last term: each is given once.
    given: u64,
}

/// The time for which a candidate leads: until it resigns, or loses the lead. Dropped, it resigns.
#[must_use = "it ends when it is dropped"]
pub struct Term {
    candidate: Arc<Candidate>,
    token: u64,
    has_resigned: bool,
}

/// One request, which is asked for again after each term. Dropped, it stands no more.
struct Candidate {
    shared: Arc<Shared>,
    id: Id,
    state: watch::Receiver<State>,
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.shared.forget(self.id);
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.ask.keys[0]);
        f.debug_struct("Election")
            .field("name", &name)
            .field("stands", &self.candidate.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("token", &self.token)
            .field("check", &self.check())
            .finish()
    }
}

impl Election {
    pub(crate) fn new(cluster: Arc<Cluster>, name: &[u8], value: &[u8]) -> Election {
        let kind = Kind::Temporary {
            value: value.to_vec(),
            is_sequence: false,
            is_elected: true,
        };
        let ask = Ask::new(vec![name.to_vec()], kind);
        Election {
            route: Route::of(&cluster, ask.keys.first()),
            cluster,
            ask,
            candidate: None,
            given: 0,
        }
    }

    /// Waits until this candidate leads, also while no server is reached. If this future is dropped, it stands on. Each term is given
    /// once: while one lasts, this waits for the next.
    ///
    /// # Errors
    /// Why it stands no more, as of [`LockRequest::acquire`](crate::LockRequest::acquire); the next call stands again.
    /// [`Error::Deadlock`] if this client has another candidate for the name.
    pub async fn term(&mut self) -> Result<Term, Error> {
        loop {
            let candidate = match &self.candidate {
                Some(candidate) => candidate.clone(),
                None => self.stand()?,
            };
            let mut state = candidate.state.clone();
            let given = self.given;
            // One that was given up is held until the server has heard of that.
            let leads = |state: &State| matches!(state.step, Step::Held) && state.token != given;
            let is_settled = |state: &State| leads(state) || matches!(state.step, Step::Refused(_));
            let state = reached(&mut state, is_settled).await;
            let error = match state.step {
                Step::Held if leads(&state) => {
                    self.given = state.token;
                    return Ok(Term {
                        candidate,
                        token: state.token,
                        has_resigned: false,
                    });
                }
                Step::Refused(error) => error,
                _ => Error::Closed,
            };
            self.candidate = None;
            // It may stand for months.
            if !self.route.follows_at_last(&error) {
                self.route = Route::of(&self.cluster, self.ask.keys.first());
                return Err(error);
            }
        }
    }

    fn stand(&mut self) -> Result<Arc<Candidate>, Error> {
        let shared = self.route.node().clone();
        let (id, state) = shared.acquire(self.route.ask(&self.ask), self.route.hop())?;
        let candidate = Arc::new(Candidate { shared, id, state });
        self.given = 0;
        Ok(self.candidate.insert(candidate).clone())
    }
}

impl Term {
    /// Greater than that of every earlier term: see [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> u64 {
        self.token
    }

    /// As [`Guard::check`](crate::Guard::check).
    ///
    /// # Errors
    /// Why this candidate leads no more.
    pub fn check(&self) -> Result<(), Loss> {
        let Candidate { shared, id, state } = &*self.candidate;
        shared.check(*id, self.token, state)
    }

    /// As [`Guard::lost`](crate::Guard::lost).
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let mut state = self.candidate.state.clone();
        let (birth, token) = (self.candidate.shared.birth(), self.token);
        async move {
            if birth.was_before_fork() {
                return Loss::Forked;
            }
            // It may stand again meanwhile, or be refused.
            match reached(&mut state, |state| state.lost >= token).await.loss {
                Some(loss) => loss,
                None => std::future::pending().await,
            }
        }
    }

    /// Until when the server vouches for it, as that moves on with each answer.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn alive(&self) -> watch::Receiver<crate::BootTime> {
        self.candidate.shared.alive()
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
        self.check()?;
        match self.resign().await {
            Err(Error::Lost(loss)) => Err(loss),
            // The client goes on until the server has taken it.
            _ => Ok(done),
        }
    }

    /// Ends the term, so that the next candidate leads, and waits for the server's answer, as
    /// [`Guard::release`](crate::Guard::release) does.
    ///
    /// # Errors
    /// [`Error::Lost`] if it had ended before; [`Error::Refused`].
    pub async fn resign(mut self) -> Result<(), Error> {
        self.check()?;
        self.has_resigned = true;
        let Candidate { shared, id, state } = &*self.candidate;
        shared.resign(*id, self.token);
        let (mut state, token) = (state.clone(), self.token);
        let is_answered = |state: &State| state.token != token || state.step.is_release_answered();
        let state = reached(&mut state, is_answered).await;
        match state.lost >= token {
            true => Err(state.loss.map_or(Error::Closed, Error::Lost)),
            false => Ok(()),
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        if !self.has_resigned {
            self.candidate.shared.resign(self.candidate.id, self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::core::Config;
    use crate::tls::Certificates;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_candidate_follows_its_slot_however_often_that_has_moved() {
        let urls = ["redis://127.0.0.1:1".to_owned()];
        let address = Address::new(&urls, &[], &Certificates::default(), None).unwrap();
        let cluster = Cluster::new(address, Config::default(), None);
        let mut election = Election::new(cluster.clone(), b"lead", b"me");
        election.route = election.route.worn_out();
        let state = State {
            step: Step::Refused(Error::Refused("MOVED 1 127.0.0.1:2".to_owned())),
            ..State::default()
        };
        election.candidate = Some(Arc::new(Candidate {
            shared: cluster.first().clone(),
            id: 0,
            state: watch::channel(state).1,
        }));
        let term = timeout(Duration::from_millis(50), election.term()).await;
        assert!(term.is_err(), "it stands no more: {term:?}");
    }
}
