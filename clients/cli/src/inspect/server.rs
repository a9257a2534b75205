//! A connection for questions that are answered at once.

use super::reply::Map;
use crate::address;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, Pipeline, RedisError, cmd,
};
use std::io;
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

/// How long a server may take to accept a connection, and to answer a question to the last byte.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What is said of a server without the module.
pub const NO_MODULE: &str = "this server does not have the module tether";

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    Unreachable(String),
    /// The server says no.
    Refused(String),
    /// The answer cannot be written.
    Output(io::Error),
    Failed(String),
}

impl Failure {
    pub fn no_module() -> Failure {
        Failure::Refused(NO_MODULE.to_owned())
    }

    pub fn silent() -> Failure {
        Failure::Unreachable("the server does not answer".to_owned())
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Failure {
        match error.code() {
            Some(_) if error.to_string().contains("unknown command") => Failure::no_module(),
            Some(_) => Failure::Refused(error.to_string()),
            None => Failure::Unreachable(error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

pub struct Server {
    connection: MultiplexedConnection,
    /// Nothing happens but while a question is asked. It is there to the end.
    runtime: Option<Runtime>,
}

impl Server {
    pub fn at(url: &str) -> Result<Server, Failure> {
        let address = address::of(url).map_err(|error| Failure::Refused(error.to_string()))?;
        Server::connect(address)
    }

    pub fn connect(address: ConnectionInfo) -> Result<Server, Failure> {
        let client = Client::open(address).map_err(|error| Failure::Refused(error.to_string()))?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Failed(error.to_string()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = runtime.block_on(async {
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            timeout(PATIENCE, connecting).await
        });
        let connection = connection.map_err(|_| Failure::silent())??;
        let runtime = Some(runtime);
        Ok(Server {
            connection,
            runtime,
        })
    }

    pub fn ask<T: FromRedisValue>(&mut self, question: &Cmd) -> Result<T, Failure> {
        let runtime = self.runtime.as_ref().ok_or_else(Failure::silent)?;
        Ok(runtime.block_on(question.query_async(&mut self.connection))?)
    }

    /// The answers to several questions that are asked at once, in their order.
    pub fn ask_all<T: FromRedisValue>(
        &mut self,
        questions: impl IntoIterator<Item = Cmd>,
    ) -> Result<Vec<T>, Failure> {
        let mut all = Pipeline::new();
        for question in questions {
            all.add_command(question);
        }
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let runtime = self.runtime.as_ref().ok_or_else(Failure::silent)?;
        Ok(runtime.block_on(all.query_async(&mut self.connection))?)
    }

    /// Whether it says that it is one. Whoever may not ask is not told.
    pub fn is_replica(&mut self) -> Result<bool, Failure> {
        match self.ask::<Map>(&cmd("LOCK.SERVER")) {
            Ok(told) => Ok(told.text("role") == "replica"),
            Err(Failure::Refused(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// A section of INFO, as it is.
    pub fn info(&mut self, section: &str) -> Result<String, Failure> {
        self.ask(cmd("INFO").arg(section))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Without waiting for a name server that does not answer.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The value of a field of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(field, value)| (field == name).then(|| value.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "# Tether\r\ntether_holds:3\r\ntether_holds_more:4\r\n\r\nurl:a:b\r\n";
        assert_eq!(field(info, "tether_holds"), Some("3"));
        assert_eq!(field(info, "url"), Some("a:b"));
        assert_eq!(field(info, "tether"), None);
    }
}
