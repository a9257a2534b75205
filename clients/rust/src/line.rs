//! One connection to a server, and what it is asked first.

use crate::clock::BootTime;
use crate::core::{Command, Reply, Subject};
use crate::error::Error;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, PushInfo, PushKind, RedisError, Value, cmd,
};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// So many commands wait to be written at a time; more wait for their turn, in their order.
const COMMANDS_AT_ONCE: usize = 1024;

/// An open connection, and what it is pushed.
pub struct Line {
    pub connection: MultiplexedConnection,
    pub pushes: UnboundedReceiver<PushInfo>,
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
    pub async fn connect(address: &ConnectionInfo, within: Duration) -> Result<Line, Error> {
        let client = Client::open(address.clone()).map_err(error_of)?;
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(within))
            // A reply that is late is the pings' concern.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(COMMANDS_AT_ONCE)
            .set_push_sender(sender);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = timeout(within, connecting).await.map_err(|_| late())?;
        Ok(Line {
            connection: connection.map_err(error_of)?,
            pushes,
        })
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
        // It will answer soon, or another will.
        Some("LOADING" | "MASTERDOWN" | "READONLY") | None => Error::Unreachable(error.to_string()),
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
