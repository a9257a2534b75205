//! A lock that is held, and a request on its way to be.

use crate::callers::{State, Step};
use crate::cluster::{Cluster, Route};
use crate::core::{Ask, Bytes, Id, is_momentary, is_unwritable};
use crate::error::{Error, Loss};
use crate::link::Shared;
use crate::locks::shown;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, FromRedisValue, RedisResult};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A request that is given up when it is dropped.
pub struct Attempt {
    shared: Arc<Shared>,
    id: Id,
    keys: Vec<Bytes>,
    state: watch::Receiver<State>,
    is_settled: bool,
}

impl Attempt {
    /// Asks when it is first polled, and goes where it is referred to.
    pub fn of(
        cluster: &Arc<Cluster>,
        ask: &Ask,
    ) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        let (cluster, ask) = (cluster.clone(), ask.clone());
        async move {
            let mut route = Route::of(&cluster, ask.keys.first());
            loop {
                match Attempt::new(&route, &ask)?.granted().await {
                    Err(error) if route.follows(&error) => {}
                    granted => return granted,
                }
            }
        }
    }

    fn new(route: &Route, ask: &Ask) -> Result<Attempt, Error> {
        let shared = route.node().clone();
        let keys = ask.keys.clone();
        let (id, state) = shared.acquire(route.ask(ask), route.hop())?;
        Ok(Attempt {
            shared,
            id,
            keys,
            state,
            is_settled: false,
        })
    }

    async fn granted(mut self) -> Result<Guard, Error> {
        let is_settled = |state: &State| !matches!(state.step, Step::Asked);
        let state = reached(&mut self.state, is_settled).await;
        self.is_settled = true;
        match state.step {
            Step::Refused(error) => Err(error),
            Step::Held | Step::Lost => Ok(Guard {
                shared: self.shared.clone(),
                id: self.id,
                keys: state.key.map_or_else(|| self.keys.clone(), |key| vec![key]),
                token: state.token,
                state: self.state.clone(),
                is_released: false,
            }),
            _ => Err(Error::Closed),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_settled {
            self.shared.forget(self.id);
        }
    }
}

/// A lock that is held. Dropped, it is released, without anybody waiting for the server's answer: the release is written at once if
/// the socket takes it, also at the end of `main`.
#[must_use = "it is released when it is dropped"]
pub struct Guard {
    shared: Arc<Shared>,
    id: Id,
    keys: Vec<Bytes>,
    token: u64,
    state: watch::Receiver<State>,
    is_released: bool,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("keys", &shown(&self.keys))
            .field("token", &self.token)
            .field("check", &self.check())
            .finish()
    }
}

impl Guard {
    /// The fencing token: greater than that of every earlier grant. Send it along with each write to what the lock protects.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// What is held: the keys that were named, or that which the server made a [sequence](crate::TemporaryKey::sequence) of.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Whether the lock is held, as far as can be known here: without asking the server. O(1).
    ///
    /// # Errors
    /// Why it is lost.
    pub fn check(&self) -> Result<(), Loss> {
        self.shared.check(self.id, self.token, &self.state)
    }

    /// Asks the server whether it knows the lock as held, by any connection to it. A round trip for each key.
    ///
    /// # Errors
    /// That of the server, with the code `STALE` where the lock is held no more; or the connection's.
    pub async fn check_server(&self, connection: &mut impl ConnectionLike) -> RedisResult<()> {
        for key in &self.keys {
            let mut check = redis::cmd("LOCK.CHECK");
            check.arg(key).arg(self.token);
            check.exec_async(connection).await?;
        }
        Ok(())
    }

    /// Runs a command on a connection to the same server, such as one of a pool for data, only while the server knows the lock as
    /// held: in one step, so that a holder that was stopped cannot write after the next one has begun (`LOCK.GUARD`). If the lock is
    /// lost already, as far as is known here, nothing is sent.
    ///
    /// The command is sent once: after an error of the connection it may have been run.
    ///
    /// # Errors
    /// `STALE` if the lock is lost, and nothing was run; or the command's own.
    pub async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        command: &Cmd,
    ) -> RedisResult<T> {
        if let Err(loss) = self.check() {
            let error = format!("the lock is lost: {loss}");
            return Err(redis::make_extension_error("STALE".to_owned(), Some(error)));
        }
        self.guarded(command).query_async(connection).await
    }

    /// The same as a command, for pipelines and transactions.
    pub fn guarded(&self, command: &Cmd) -> Cmd {
        let mut guarded = redis::cmd("LOCK.GUARD");
        guarded.arg(&self.keys[0]).arg(self.token);
        for argument in command.args_iter() {
            match argument {
                Arg::Simple(bytes) => guarded.arg(bytes),
                // A cursor at its beginning.
                _ => guarded.arg(0),
            };
        }
        guarded
    }

    /// The lease is this long from now on. If the connection breaks meanwhile, this waits for the next one where there is a session.
    ///
    /// # Errors
    /// [`Error::Lost`], or [`Error::Refused`] with the server's error, and the lock is held still.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.check()?;
        let extended = self.shared.extend(self.id, lease);
        // Nobody answers where it ended meanwhile.
        extended.await.unwrap_or_else(|_| Ok(self.check()?))
    }

    /// Ends when the lock is lost, with the reason. While it is held, and once it was released, this waits. It does not keep the
    /// lock.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let mut state = self.state.clone();
        let (birth, token) = (self.shared.birth(), self.token);
        async move {
            if birth.was_before_fork() {
                return Loss::Forked;
            }
            let is_lost = |state: &State| state.token != token || matches!(state.step, Step::Lost);
            let state = reached(&mut state, is_lost).await;
            match state.loss {
                Some(loss) if is_lost_since(&state, token) => loss,
                _ => std::future::pending().await,
            }
        }
    }

    /// Until when the server vouches for it, as that moves on with each answer.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn alive(&self) -> watch::Receiver<crate::BootTime> {
        self.shared.alive()
    }

    /// Gives it back, and waits for the server's answer. Where the server cannot take it for a moment (it is busy, or lacks replicas),
    /// or where the connection breaks, the client goes on until it has, and this does not wait for that.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was not held any more; [`Error::Refused`] if the server refuses for good, for example since a right was
    /// taken away: the client tries again all the same.
    pub async fn release(mut self) -> Result<(), Error> {
        if self.shared.is_of_parent() {
            return Err(Error::Forked);
        }
        self.is_released = true;
        self.shared.release(self.id);
        let mut state = self.state.clone();
        let token = self.token;
        let is_answered = |state: &State| state.token != token || state.step.is_release_answered();
        let state = reached(&mut state, is_answered).await;
        match state.step {
            Step::Lost => Err(state.loss.map_or(Error::Closed, Error::Lost)),
            Step::Releasing(error) if !is_momentary(&error) && !is_unwritable(&error) => {
                Err(Error::Refused(error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_released {
            self.shared.release(self.id);
        }
    }
}

/// Whether the loss that it tells is that of the hold with this token.
fn is_lost_since(state: &State, token: u64) -> bool {
    state.token != token || matches!(state.step, Step::Lost)
}

/// The state once it is so, or the last one.
pub async fn reached(state: &mut watch::Receiver<State>, is_it: impl Fn(&State) -> bool) -> State {
    // An error is that nothing will change any more.
    let _ = state.wait_for(|state| is_it(state)).await;
    state.borrow().clone()
}
