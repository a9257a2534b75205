//! `tether watch`

use super::server::{Failure, PATIENCE};
use super::{print, text};
use crate::address;
use crate::options::Watch;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value, cmd};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

/// How long the server may be silent until it is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(5);

pub fn watch(url: &str, options: &Watch) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(follow(url, options))
}

/// Ends only by a failure.
async fn follow(url: &str, options: &Watch) -> Result<u8, Failure> {
    let client = address::of(url).and_then(Client::open);
    let client = client.map_err(|error| Failure::Refused(error.to_string()))?;
    let (say, mut pushes) = unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
        .set_push_sender(say);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let keys: Vec<&[u8]> = options.keys.iter().map(|key| key.as_bytes()).collect();
    let states: Value = cmd("WATCHEX")
        .arg(&keys)
        .query_async(&mut connection)
        .await?;
    let states = match states {
        Value::Array(states) => states,
        one => vec![one],
    };
    for (key, state) in keys.iter().zip(&states) {
        tell(options, key, &word(state))?;
    }
    loop {
        let change = tokio::select! {
            change = next(&mut pushes) => Some(change?),
            () = sleep(SILENCE) => None,
        };
        match change {
            Some((key, event)) => tell(options, &key, &event)?,
            None => {
                let ping = cmd("PING");
                let pong = timeout(PATIENCE, ping.query_async::<()>(&mut connection));
                pong.await.map_err(|_| silent())??;
            }
        }
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

/// The next change: its key, and ADD or DEL.
async fn next(pushes: &mut UnboundedReceiver<PushInfo>) -> Result<(Vec<u8>, String), Failure> {
    loop {
        let push = pushes.recv().await;
        let Some(PushInfo { kind, data }) = push else {
            return Err(broken());
        };
        match (kind, data.as_slice()) {
            (PushKind::Disconnection, _) => return Err(broken()),
            (PushKind::Other(name), [Value::BulkString(key), event]) if name == "watchex" => {
                return Ok((key.clone(), word(event)));
            }
            _ => {}
        }
    }
}

fn silent() -> Failure {
    Failure::Unreachable("the server does not answer".to_owned())
}

fn broken() -> Failure {
    Failure::Unreachable("the connection broke".to_owned())
}

fn tell(options: &Watch, key: &[u8], event: &str) -> Result<(), Failure> {
    print(&if options.json {
        let line = json!({ "key": String::from_utf8_lossy(key), "event": event });
        format!("{line}\n")
    } else {
        format!("{event} {}\n", text::shown(key))
    })?;
    let Some([program, arguments @ ..]) = options.exec.as_deref() else {
        return Ok(());
    };
    let status = Command::new(program)
        .args(arguments)
        .env("TETHER_KEY", OsStr::from_bytes(key))
        .env("TETHER_EVENT", event)
        .status();
    match status {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::Failed(format!("{}: {error}", program.display()))),
    }
}
