//! A lock that is held, and a request on its way to be.

use crate::clock::BootTime;
use crate::core::{Change, Id, Request};
use crate::error::{Error, Loss};
use crate::link::{Shared, State};
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, FromRedisValue, RedisResult};
use std::sync::Arc;
use tokio::sync::watch;

/// A request that is given up when it is dropped.
pub struct Attempt {
    shared: Arc<Shared>,
    id: Id,
    /// Of several keys one: they share the token.
    key: Vec<u8>,
    state: watch::Receiver<State>,
    is_settled: bool,
}

impl Attempt {
    pub fn new(shared: Arc<Shared>, request: Request) -> Result<Attempt, Error> {
        let key = request.keys.first().cloned().unwrap_or_default();
        let (id, state) = shared.ask(request)?;
        Ok(Attempt {
            shared,
            id,
            key,
            state,
            is_settled: false,
        })
    }

    pub async fn granted(mut self) -> Result<Guard, Error> {
        let change = reached(&mut self.state, Option::is_some).await;
        self.is_settled = true;
        match change {
            Some(Change::Granted(token)) => Ok(Guard {
                shared: self.shared.clone(),
                id: self.id,
                key: self.key.clone(),
                token,
                state: self.state.clone(),
            }),
            Some(Change::Refused(error)) => Err(error),
            Some(Change::Lost(loss)) => Err(Error::Lost(loss)),
            Some(
                Change::Raised(_)
                | Change::RaiseRefused(_)
                | Change::RaiseDelayed(_)
                | Change::Over,
            )
            | None => Err(Error::Unreachable("it was closed".to_owned())),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_settled {
            self.shared.give_up(self.id);
        }
    }
}

/// A lock that is held. Dropped, it is released, without anybody waiting for the server's answer.
#[must_use = "it is released when it is dropped"]
pub struct Guard {
    shared: Arc<Shared>,
    id: Id,
    key: Vec<u8>,
    token: u64,
    state: watch::Receiver<State>,
}

impl Guard {
    /// The fencing token: greater than that of every earlier grant. Send it along with each write to what the lock protects.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the lock is held, as far as can be known here: without asking the server. O(1).
    ///
    /// # Errors
    /// Why it is lost.
    pub fn check(&self) -> Result<(), Loss> {
        if self.shared.is_of_parent() {
            return Err(Loss::Forked);
        }
        // First, since this waits while a loss is on its way to the guards: of those that are lost at once none says otherwise.
        let alive_until = self.shared.with_core(|core| core.alive_until());
        if let Some(Change::Lost(loss)) = &*self.state.borrow() {
            return Err(loss.clone());
        }
        match BootTime::now() < alive_until {
            true => Ok(()),
            false => Err(Loss::Silence),
        }
    }

    /// Asks the server whether it knows the lock as held, by any connection to it. One round trip.
    ///
    /// # Errors
    /// That of the server, with the code `STALE` where the lock is held no more; or the connection's.
    pub async fn check_server(&self, connection: &mut impl ConnectionLike) -> RedisResult<()> {
        let mut check = redis::cmd("LOCK.CHECK");
        check.arg(&self.key).arg(self.token);
        check.exec_async(connection).await
    }

    /// Runs a command on a connection to the same server, such as one of a pool for data, only while the server knows the lock as
    /// held: in one step, so that a holder that was stopped cannot write after the next one has begun (`LOCK.GUARD`).
    ///
    /// # Errors
    /// `STALE` as above, and nothing was run; or the command's own.
    pub async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        command: &Cmd,
    ) -> RedisResult<T> {
        self.guarded(command).query_async(connection).await
    }

    /// The same as a command, for pipelines and transactions.
    pub fn guarded(&self, command: &Cmd) -> Cmd {
        let mut guarded = redis::cmd("LOCK.GUARD");
        guarded.arg(&self.key).arg(self.token);
        for argument in command.args_iter() {
            match argument {
                Arg::Simple(bytes) => guarded.arg(bytes),
                // A cursor at its beginning.
                _ => guarded.arg(0),
            };
        }
        guarded
    }

    /// Ends when the lock is lost, with the reason. While it is held, and once it was released, this waits. It does not keep the
    /// lock.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let mut state = self.state.clone();
        let birth = self.shared.birth();
        async move {
            if birth.was_before_fork() {
                return Loss::Forked;
            }
            let is_lost = |state: &State| matches!(state, Some(Change::Lost(_)));
            match reached(&mut state, is_lost).await {
                Some(Change::Lost(loss)) => loss,
                _ => std::future::pending().await,
            }
        }
    }

    /// Gives it back, and waits until the server has taken it, which it may refuse to for a moment (without enough replicas, say).
    ///
    /// # Errors
    /// Why it was not held any more.
    pub async fn release(self) -> Result<(), Loss> {
        if self.shared.is_of_parent() {
            return Err(Loss::Forked);
        }
        self.shared.release(self.id);
        let mut state = self.state.clone();
        let is_last = |state: &State| state.as_ref().is_none_or(Change::is_last);
        match reached(&mut state, is_last).await {
            Some(Change::Lost(loss)) => Err(loss),
            _ => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.release(self.id);
    }
}

/// The state once it is so, or the last one.
async fn reached(state: &mut watch::Receiver<State>, is_it: impl Fn(&State) -> bool) -> State {
    // An error is that nothing will change any more.
    let _ = state.wait_for(|state| is_it(state)).await;
    state.borrow().clone()
}
