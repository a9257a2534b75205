//! A connection for questions that are answered at once.

use crate::address;
use redis::{Client, Cmd, Connection, ConnectionInfo, FromRedisValue, Pipeline, RedisError, cmd};
use std::io;
use std::time::Duration;

/// How long a server may take to accept a connection, and to answer a question.
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
    connection: Connection,
}

impl Server {
    pub fn at(url: &str) -> Result<Server, Failure> {
        let address = address::of(url).map_err(|error| Failure::Refused(error.to_string()))?;
        Server::connect(address)
    }

    pub fn connect(address: ConnectionInfo) -> Result<Server, Failure> {
        let client = Client::open(address).map_err(|error| Failure::Refused(error.to_string()))?;
        let connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(Server { connection })
    }

    pub fn ask<T: FromRedisValue>(&mut self, question: &Cmd) -> Result<T, Failure> {
        Ok(question.query(&mut self.connection)?)
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
        Ok(all.query(&mut self.connection)?)
    }

    /// A section of INFO, as it is.
    pub fn info(&mut self, section: &str) -> Result<String, Failure> {
        self.ask(cmd("INFO").arg(section))
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
