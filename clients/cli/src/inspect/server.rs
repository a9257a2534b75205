//! A connection for questions that are answered at once.

use super::reply::Map;
use crate::address::{self, Target};
use crate::advice;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, ParsingError,
    Pipeline, RedisError, RedisResult, ServerErrorKind, Value, cmd,
};
use std::io;
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

/// How long a server may take to accept a connection, and to answer a question to the last byte.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// So often a server refers to another one of its cluster.
pub const REFERRALS: usize = 5;

/// What is said of a server without the module.
const NO_MODULE: &str = "this server does not have the module tether";

/// Why there is no answer; the first words say of which server.
#[derive(Debug)]
pub enum Failure {
    Unreachable(String),
    NoModule(String),
    /// The server says no.
    Refused(String),
    /// The answer cannot be written.
    Output(io::Error),
    Failed(String),
}

impl Failure {
    pub fn no_module(server: &str) -> Failure {
        Failure::NoModule(advice::with(&format!("{server}: {NO_MODULE}"), "NOMODULE"))
    }

    pub fn silent(server: &str) -> Failure {
        let patience = PATIENCE.as_secs();
        Failure::Unreachable(format!("{server}: no answer within {patience} seconds"))
    }

    /// Of an answer that is not as expected.
    pub fn not_understood(server: &str, error: &ParsingError) -> Failure {
        Failure::Failed(format!("{server}: the answer is not understood: {error}"))
    }

    /// What a server said, or why it says nothing.
    pub fn of(server: &str, error: &RedisError) -> Failure {
        if error.is_timeout() {
            return Failure::silent(server);
        }
        // Of several commands at once the first that was refused.
        let refused = error.clone().into_server_errors();
        let refused = refused.as_deref().and_then(|errors| errors.first());
        let (code, detail) = match refused {
            Some((_, refused)) => (Some(refused.code()), refused.details()),
            None => (error.code(), error.detail()),
        };
        let code = match error.kind() {
            ErrorKind::AuthenticationFailed => Some("WRONGPASS"),
            _ => code,
        };
        let Some(code) = code else {
            let why = format!("{server}: {error}");
            return Failure::Unreachable(advice::with(&why, "UNREACHABLE"));
        };
        let detail = detail.unwrap_or_default();
        if detail.contains("unknown command") {
            return Failure::no_module(server);
        }
        let detail = detail.trim_start_matches(code).trim_start();
        Failure::Refused(advice::with(&format!("{server}: {code} {detail}"), code))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

/// The address of the server, or of the master that most of the Sentinels name.
pub fn locate(target: &Target) -> Result<ConnectionInfo, Failure> {
    let (url, name, sentinels) = match target {
        Target::Server(url) => (url, "", &[][..]),
        Target::Sentinels {
            master,
            name,
            sentinels,
        } => (master, name.as_str(), sentinels.as_slice()),
    };
    let address = address::of(url).map_err(|error| Failure::Failed(error.to_string()))?;
    if sentinels.is_empty() {
        return Ok(address);
    }
    let mut named: Vec<(String, u16)> = Vec::new();
    let mut failure = None;
    for sentinel in sentinels {
        match ask_sentinel(sentinel, name) {
            Ok(place) => {
                named.push(place.clone());
                let votes = named.iter().filter(|other| **other == place).count();
                if votes > sentinels.len() / 2 {
                    return Ok(address::at(&address, &place.0, place.1));
                }
            }
            Err(why) => failure = Some(why),
        }
    }
    // Of equals `max_by_key` takes the last one.
    let votes = |place: &&(String, u16)| named.iter().filter(|other| other == place).count();
    match (named.iter().rev().max_by_key(votes), failure) {
        (Some((host, port)), _) => Ok(address::at(&address, host, *port)),
        (None, Some(failure)) => Err(failure),
        (None, None) => Err(Failure::silent(name)),
    }
}

fn ask_sentinel(url: &str, master: &str) -> Result<(String, u16), Failure> {
    let address = address::of(url).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut sentinel = Server::connect(address)?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let place: Option<(String, u16)> = sentinel.ask(&question)?;
    let server = &sentinel.name;
    place.ok_or_else(|| {
        let why = format!("{server}: this Sentinel knows no master '{master}'");
        Failure::Refused(why)
    })
}

/// Every master of a cluster; outside of one the server alone, or the master that Sentinels name.
pub fn masters(target: &Target) -> Result<Vec<Server>, Failure> {
    let mut server = Server::at(target)?;
    if !server.is_cluster()? {
        return Ok(vec![server]);
    }
    let masters = server.masters()?;
    masters.into_iter().map(Server::connect).collect()
}

/// The title of the column that says of which server a line is: empty, and with that no column, where it can be of one only.
pub fn of_several(servers: &[Server]) -> &'static str {
    if servers.len() > 1 { "SERVER" } else { "" }
}

/// In a cluster, where the server refers to that has what was asked for.
pub fn referral(address: &ConnectionInfo, error: &RedisError) -> Option<ConnectionInfo> {
    let (place, _) = error.redirect_node()?;
    let is_moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
    let (host, port) = place.rsplit_once(':').filter(|_| is_moved)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(address::at_node(address, host, port.parse().ok()?))
}

/// The master of each range of slots, each once; from the answer to CLUSTER SLOTS.
fn masters_of(slots: &Value, asked: &ConnectionInfo) -> Vec<ConnectionInfo> {
    let parts = |value: &Value| match value {
        Value::Array(parts) => parts.clone(),
        _ => Vec::new(),
    };
    let mut masters: Vec<ConnectionInfo> = Vec::new();
    for range in parts(slots) {
        let master = parts(&range).get(2).map(parts).unwrap_or_default();
        let [host, Value::Int(port), ..] = master.as_slice() else {
            continue;
        };
        let host: Option<String> = redis::from_redis_value(host.clone()).unwrap_or_default();
        let Ok(port) = u16::try_from(*port) else {
            continue;
        };
        let master = address::at_node(asked, &host.unwrap_or_default(), port);
        if !masters.iter().any(|known| known.addr() == master.addr()) {
            masters.push(master);
        }
    }
    masters
}

pub struct Server {
    /// Host and port.
    pub name: String,
    address: ConnectionInfo,
    connection: MultiplexedConnection,
    /// Nothing happens but while a question is asked. It is there to the end.
    runtime: Option<Runtime>,
}

impl Server {
    pub fn at(target: &Target) -> Result<Server, Failure> {
        Server::connect(locate(target)?)
    }

    pub fn connect(address: ConnectionInfo) -> Result<Server, Failure> {
        let name = address::name(&address);
        let client = Client::open(address.clone()).map_err(|error| Failure::of(&name, &error))?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Failed(error.to_string()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = runtime.block_on(async {
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            timeout(PATIENCE, connecting).await
        });
        let connection = connection.map_err(|_| Failure::silent(&name))?;
        let connection = connection.map_err(|error| Failure::of(&name, &error))?;
        Ok(Server {
            name,
            address,
            connection,
            runtime: Some(runtime),
        })
    }

    /// The server that has the key of this question, in a cluster too, and its answer.
    pub fn with_answer<T: FromRedisValue>(
        target: &Target,
        question: &Cmd,
    ) -> Result<(Server, T), Failure> {
        let mut server = Server::at(target)?;
        for _ in 0..REFERRALS {
            match server.answer(question)? {
                Ok(answer) => return Ok((server, answer)),
                Err(error) => match referral(&server.address, &error) {
                    Some(there) => server = Server::connect(there)?,
                    None => return Err(Failure::of(&server.name, &error)),
                },
            }
        }
        let answer = server.ask(question)?;
        Ok((server, answer))
    }

    pub fn ask<T: FromRedisValue>(&mut self, question: &Cmd) -> Result<T, Failure> {
        let answer = self.answer(question)?;
        answer.map_err(|error| Failure::of(&self.name, &error))
    }

    fn answer<T: FromRedisValue>(&mut self, question: &Cmd) -> Result<RedisResult<T>, Failure> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| Failure::silent(&self.name))?;
        Ok(runtime.block_on(question.query_async(&mut self.connection)))
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
        let runtime = self.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| Failure::silent(&self.name))?;
        let answers = runtime.block_on(all.query_async(&mut self.connection));
        answers.map_err(|error| Failure::of(&self.name, &error))
    }

    /// Whether it is a node of a cluster. HELLO needs no right.
    pub fn is_cluster(&mut self) -> Result<bool, Failure> {
        let about: Map = self.ask(&cmd("HELLO"))?;
        Ok(about.text("mode") == "cluster")
    }

    /// The masters of its cluster.
    pub fn masters(&mut self) -> Result<Vec<ConnectionInfo>, Failure> {
        let slots: Value = self.ask(cmd("CLUSTER").arg("SLOTS"))?;
        let masters = masters_of(&slots, &self.address);
        match masters.is_empty() {
            true => Ok(vec![self.address.clone()]),
            false => Ok(masters),
        }
    }

    /// Whether it says that it is one. Whoever may not ask is not told.
    pub fn is_replica(&mut self) -> Result<bool, Failure> {
        match self.ask::<Map>(&cmd("LOCK.SERVER")) {
            Ok(told) => Ok(told.text("role") == "replica"),
            Err(Failure::Refused(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// What a replica says, which cannot tell everything.
    pub fn as_replica(&mut self, note: &str) -> String {
        let info = self.info("replication").unwrap_or_default();
        let master = field(&info, "master_host").zip(field(&info, "master_port"));
        let master = master.map_or_else(
            || "its master".to_owned(),
            |(host, port)| format!("its master, {host}:{port}"),
        );
        format!(
            "{}: this server is a replica: {note}; ask {master}",
            self.name
        )
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
    fn masters_are_those_of_the_slots_each_once() {
        let asked = address::of("redis://me:secret@here:7000/").unwrap();
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, nodes: &[Value]| {
            let slots = [Value::Int(first), Value::Int(last)];
            Value::Array([&slots, nodes].concat())
        };
        let replica = node(text("replica"), 7003);
        let slots = Value::Array(vec![
            range(0, 99, &[node(text("one"), 7001), replica.clone()]),
            range(100, 199, &[node(Value::Nil, 7002), replica.clone()]),
            range(200, 299, &[node(text("?"), 7003)]),
            range(300, 399, &[node(text("one"), 7001)]),
            range(400, 499, &[]),
        ]);
        let masters = masters_of(&slots, &asked);
        let names: Vec<_> = masters.iter().map(address::name).collect();
        assert_eq!(names, ["one:7001", "here:7002", "here:7003"]);
        assert_eq!(masters[0].redis_settings().username(), Some("me"));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "# Tether\r\ntether_holds:3\r\ntether_holds_more:4\r\n\r\nurl:a:b\r\n";
        assert_eq!(field(info, "tether_holds"), Some("3"));
        assert_eq!(field(info, "url"), Some("a:b"));
        assert_eq!(field(info, "tether"), None);
    }
}
