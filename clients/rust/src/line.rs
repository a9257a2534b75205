//! One connection to a server, and what it is asked first.

use crate::clock::BootTime;
use crate::core::{Command, Reply, Subject, is_for_now};
use crate::error::Error;
use crate::socket::Socket;
use crate::tls::Tls;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, PushInfo, PushKind, RedisError,
    Value, cmd,
};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// So many commands wait to be written at a time; more wait for their turn, in their order.
const COMMANDS_AT_ONCE: usize = 1024;

/// An open connection, and what it is pushed.
pub struct Line {
    pub connection: MultiplexedConnection,
    pub pushes: UnboundedReceiver<PushInfo>,
    pub driver: Driver,
    /// By a Unix socket.
    pub is_local: bool,
}

/// The task that reads and writes; the socket is closed when this is dropped.
pub struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How to speak to a server, wherever it is.
#[derive(Clone, Default)]
pub struct Manner {
    pub tls: Tls,
    /// What the connection is called in lists of clients.
    pub name: String,
}

/// What ROLE says.
pub enum Role {
    Master,
    /// Of the server at this host and port, where that is known.
    ReplicaOf(Option<(String, u16)>),
}

/// What LOCK.SERVER says.
#[derive(Debug)]
pub struct ServerFacts {
    /// It changes with each start.
    pub run_id: Vec<u8>,
    pub is_master: bool,
    /// For how long the server lets a vanished peer keep its locks; None is for ever.
    pub peer_timeout: Option<Duration>,
    /// For how long it grants nothing after a start.
    pub quarantine: Duration,
}

/// What a push says to us.
pub enum Push {
    About {
        subject: Subject,
        key: Vec<u8>,
        text: Vec<u8>,
    },
    Disconnected,
    Other,
}

impl Line {
    pub async fn connect(
        address: &ConnectionInfo,
        manner: &Manner,
        within: Duration,
    ) -> Result<Line, Error> {
        let line = timeout(within, Line::connect_at_all(address, manner));
        line.await.map_err(|_| late())?
    }

    async fn connect_at_all(address: &ConnectionInfo, manner: &Manner) -> Result<Line, Error> {
        let socket = Socket::connect(address.addr(), &manner.tls).await?;
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            // A reply that is late is the pings' concern.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(COMMANDS_AT_ONCE)
            .set_push_sender(sender);
        let settings = address.redis_settings();
        let connected = MultiplexedConnection::new_with_config(settings, socket, config).await;
        let (connection, driver) = connected.map_err(error_of)?;
        let mut line = Line {
            connection,
            pushes,
            driver: Driver(tokio::spawn(driver).abort_handle()),
            is_local: matches!(address.addr(), ConnectionAddr::Unix(_)),
        };
        let mut name = cmd("CLIENT");
        name.arg("SETNAME").arg(&manner.name);
        match line.ask(&name).await {
            // Who may not have a name does without.
            Ok(_) | Err(Error::Refused(_)) => Ok(line),
            Err(error) => Err(error),
        }
    }

    /// Whether the server is a master.
    pub async fn role(&mut self) -> Result<Role, Error> {
        let role = match self.ask(&cmd("ROLE")).await {
            Ok(Value::Array(role)) => role,
            // LOCK.SERVER may be asked by all, and does not say where the master is.
            Err(Error::Refused(error)) if error.starts_with("NOPERM") => {
                let is_master = self.server().await?.is_master;
                return Ok(match is_master {
                    true => Role::Master,
                    false => Role::ReplicaOf(None),
                });
            }
            Ok(other) => return Err(Error::Refused(format!("ROLE said {other:?}"))),
            Err(error) => return Err(error),
        };
        let master = match role.as_slice() {
            [is, ..] if is_text(is, "master") => return Ok(Role::Master),
            [_, Value::BulkString(host), Value::Int(port), ..] => {
                let host = String::from_utf8(host.clone()).ok();
                host.zip(u16::try_from(*port).ok())
            }
            _ => None,
        };
        Ok(Role::ReplicaOf(master))
    }

    /// What must be known of the server before it is relied on.
    pub async fn server(&mut self) -> Result<ServerFacts, Error> {
        let server = self.ask(&cmd("LOCK.SERVER")).await;
        let server = server.map_err(|error| match error {
            Error::Refused(text) if text.contains("unknown command") => Error::NoModule,
            other => other,
        })?;
        let named = |name: &str| {
            let mut pairs = server.as_map_iter().into_iter().flatten();
            pairs
                .find(|(is, _)| **is == text(name))
                .map(|(_, value)| value)
        };
        let time = |name: &str| match named(name) {
            Some(Value::Int(ms)) => Duration::from_millis(u64::try_from(*ms).unwrap_or(0)),
            _ => Duration::ZERO,
        };
        let bytes = |name: &str| match named(name) {
            Some(Value::BulkString(bytes)) => bytes.clone(),
            _ => Vec::new(),
        };
        Ok(ServerFacts {
            run_id: bytes("run-id"),
            is_master: bytes("role") == b"master",
            peer_timeout: Some(time("peer-timeout-ms")).filter(|time| !time.is_zero()),
            quarantine: time("quarantine-ms"),
        })
    }

    /// Begins a session; its secret.
    pub async fn start_session(&mut self, grace: Duration) -> Result<String, Error> {
        let mut start = cmd("SESSION.START");
        start.arg("GRACE").arg(grace.as_millis().to_string());
        match self.ask(&start).await? {
            Value::BulkString(secret) => Ok(String::from_utf8_lossy(&secret).into_owned()),
            other => Err(Error::Refused(format!("SESSION.START said {other:?}"))),
        }
    }

    /// Goes on with a session; when that was asked.
    pub async fn resume_session(&mut self, secret: &str) -> Result<BootTime, Error> {
        let sent = BootTime::now();
        self.ask(cmd("SESSION.RESUME").arg(secret).arg("NOTIFY"))
            .await
            .map(|_| sent)
    }

    /// Ends what may be left of a session that is relied on no more, on a connection without one.
    pub async fn end_former_session(&mut self, secret: &str) -> Result<(), Error> {
        match self.resume_session(secret).await {
            Ok(_) => self.ask(&cmd("SESSION.END")).await.map(|_| ()),
            Err(Error::Refused(error)) if error.starts_with("NOSESSION") => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn ask(&mut self, command: &Cmd) -> Result<Value, Error> {
        ask(&mut self.connection, command).await
    }
}

pub async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, Error> {
    let answered = connection.send_packed_command(command).await;
    answered.and_then(Value::extract_error).map_err(error_of)
}

/// Sends a command and waits for the answer; None where the connection broke.
pub async fn answer(mut connection: MultiplexedConnection, command: Command) -> Option<Reply> {
    let mut packed = Cmd::new();
    for word in &command.0 {
        packed.arg(word);
    }
    let answered = connection.send_packed_command(&packed).await;
    match answered.and_then(Value::extract_error) {
        Ok(value) => Some(reply_of(value)),
        Err(error) if error.code().is_some() => Some(Reply::Error(text_of(&error))),
        Err(_) => None,
    }
}

fn reply_of(value: Value) -> Reply {
    let all = |values: Vec<Value>| values.into_iter().map(reply_of).collect();
    match value {
        Value::Int(number) => u64::try_from(number).map_or(Reply::Other, Reply::Number),
        Value::Nil => Reply::Null,
        Value::BulkString(text) => Reply::Text(text),
        Value::Array(values) => Reply::Many(all(values)),
        Value::Map(pairs) => Reply::Many(all(pairs
            .into_iter()
            .flat_map(<[Value; 2]>::from)
            .collect())),
        _ => Reply::Other,
    }
}

/// What a push means; None is the end of the channel.
pub fn meaning(push: Option<PushInfo>) -> Push {
    let Some(PushInfo { kind, data }) = push else {
        return Push::Disconnected;
    };
    let PushKind::Other(name) = kind else {
        return match kind {
            PushKind::Disconnection => Push::Disconnected,
            _ => Push::Other,
        };
    };
    let subject = match name.as_str() {
        "lock" => Subject::Lock,
        "settp" => Subject::TemporaryKey,
        "watchex" => Subject::Watch,
        _ => return Push::Other,
    };
    match <[Value; 2]>::try_from(data) {
        Ok([Value::BulkString(key), Value::BulkString(text)]) => Push::About { subject, key, text },
        _ => Push::Other,
    }
}

pub fn late() -> Error {
    Error::Unreachable("no answer in time".to_owned())
}

pub fn error_of(error: RedisError) -> Error {
    match error.code() {
        None => Error::Unreachable(error.to_string()),
        // Another will answer, or this one soon.
        Some(code) if code == "READONLY" || is_for_now(code) => Error::Unreachable(text_of(&error)),
        Some(_) => Error::Refused(text_of(&error)),
    }
}

/// As the server wrote it, with the code in front.
fn text_of(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

fn text(name: &str) -> Value {
    Value::BulkString(name.into())
}

fn is_text(value: &Value, text: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == text.as_bytes(),
        Value::SimpleString(said) => said == text,
        _ => false,
    }
}
