//! A connection on which the server pushes, for the commands that follow something.

use super::server::{Failure, PATIENCE, referral};
use crate::address;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, PushInfo, PushKind,
    RedisError, RedisResult, Value, cmd,
};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// How long the server may be silent until it is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(5);

pub struct Pushed {
    /// The server's host and port.
    pub name: String,
    address: ConnectionInfo,
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
    /// Asked again with each ping, since a slot that moves to another server leaves its watches behind.
    pub watch: Option<Cmd>,
}

impl Pushed {
    pub async fn connect(address: ConnectionInfo) -> Result<Pushed, Failure> {
        let name = address::name(&address);
        let client = Client::open(address.clone()).map_err(|error| Failure::of(&name, &error))?;
        let (say, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE))
            .set_push_sender(say);
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| Failure::of(&name, &error))?;
        Ok(Pushed {
            name,
            address,
            connection,
            pushes,
            watch: None,
        })
    }

    pub async fn ask<T: FromRedisValue>(&mut self, question: &Cmd) -> RedisResult<T> {
        question.query_async(&mut self.connection).await
    }

    /// Connects to where the error refers to, in a cluster. Whether it did.
    pub async fn follow(&mut self, error: &RedisError) -> Result<bool, Failure> {
        match referral(&self.address, error) {
            Some(there) => *self = Pushed::connect(there).await?,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// The next push of this kind of which `read` makes something.
    pub async fn next<T>(
        &mut self,
        kind: &str,
        read: impl Fn(&[Value]) -> Option<T>,
    ) -> Result<T, Failure> {
        let name = self.name.clone();
        let broken = || Failure::Unreachable(format!("{name}: the connection broke"));
        loop {
            let Ok(push) = timeout(SILENCE, self.pushes.recv()).await else {
                self.ping().await?;
                continue;
            };
            let push = push.filter(|push| push.kind != PushKind::Disconnection);
            let PushInfo { kind: is, data } = push.ok_or_else(broken)?;
            if is == PushKind::Other(kind.to_owned())
                && let Some(read) = read(&data)
            {
                return Ok(read);
            }
        }
    }

    /// Whether nothing more has come by now.
    pub fn is_empty(&self) -> bool {
        self.pushes.is_empty()
    }

    async fn ping(&mut self) -> Result<(), Failure> {
        let ping = cmd("PING");
        let pong = timeout(PATIENCE, ping.query_async::<()>(&mut self.connection));
        let pong = pong.await.map_err(|_| Failure::silent(&self.name))?;
        pong.map_err(|error| Failure::of(&self.name, &error))?;
        let Some(watch) = self.watch.clone() else {
            return Ok(());
        };
        let moved = self.ask::<Value>(&watch).await.err();
        match moved.and_then(|error| referral(&self.address, &error)) {
            Some(there) => Err(Failure::Unreachable(format!(
                "{}: the slot of these keys has moved to {}, and changes may have been missed",
                self.name,
                address::name(&there)
            ))),
            None => Ok(()),
        }
    }
}
