//! `tether watch`

use super::pushed::Pushed;
use super::server::{Failure, REFERRALS, locate};
use super::{print, print_json, text};
use crate::address::Target;
use crate::guard;
use crate::options::Watch;
use crate::signals::{self, ENDS, Signals};
use redis::{ConnectionInfo, Value, cmd};
use rustix::process::Signal;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How long a command may go on after a signal has ended this.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Ends with the signal that ends this process, once that has come.
type Ended = Option<i32>;

pub fn watch(target: &Target, options: &Watch) -> Result<u8, Failure> {
    let address = locate(target)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(follow(address, options))
}

/// Ends only by a failure or a signal.
async fn follow(address: ConnectionInfo, options: &Watch) -> Result<u8, Failure> {
    let mut pushed = Pushed::connect(address).await?;
    let keys: Vec<&[u8]> = options.keys.iter().map(|key| key.as_bytes()).collect();
    let states = begin(&mut pushed, &keys).await?;
    // Without a command the signals do what they always do.
    let mut signals = match options.exec {
        Some(_) => Some(Signals::listen(ENDS)?),
        None => None,
    };
    let states = match states {
        Value::Array(states) => states,
        one => vec![one],
    };
    for (key, state) in keys.iter().zip(&states) {
        if let Some(signal) = tell(options, key, &word(state), &mut signals).await? {
            return Ok(signals::end_by(signal));
        }
    }
    loop {
        let (key, event) = tokio::select! {
            change = pushed.next("watchex", read) => change?,
            signal = next_signal(&mut signals) => return Ok(signals::end_by(signal)),
        };
        if let Some(signal) = tell(options, &key, &event, &mut signals).await? {
            return Ok(signals::end_by(signal));
        }
    }
}

/// What the keys are, at the server that has them.
async fn begin(pushed: &mut Pushed, keys: &[&[u8]]) -> Result<Value, Failure> {
    let question = cmd("WATCHEX").arg(keys).to_owned();
    let mut states = pushed.ask(&question).await;
    for _ in 0..REFERRALS {
        match &states {
            Err(error) if pushed.follow(error).await? => states = pushed.ask(&question).await,
            _ => break,
        }
    }
    let states = states.map_err(|error| Failure::of(&pushed.name, &error))?;
    // In a cluster the keys are of one slot.
    pushed.watch = keys.first().map(|key| cmd("WATCHEX").arg(key).to_owned());
    Ok(states)
}

fn word(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

/// A change: its key, and ADD or DEL.
fn read(push: &[Value]) -> Option<(Vec<u8>, String)> {
    match push {
        [Value::BulkString(key), event] => Some((key.clone(), word(event))),
        _ => None,
    }
}

async fn next_signal(signals: &mut Option<Signals>) -> i32 {
    match signals {
        Some(signals) => signals.next().await.signal,
        None => pending().await,
    }
}

async fn tell(
    options: &Watch,
    key: &[u8],
    event: &str,
    signals: &mut Option<Signals>,
) -> Result<Ended, Failure> {
    match options.json {
        true => print_json(&json!({ "key": String::from_utf8_lossy(key), "event": event }))?,
        false => print(&format!("{event} {}\n", text::shown(key)))?,
    }
    match (options.exec.as_deref(), signals) {
        (Some(command), Some(signals)) => execute(command, key, event, signals).await,
        _ => Ok(None),
    }
}

/// Runs the command to its end. A signal that ends this process is passed on to it and what it started, and then waits for it, for
/// a while.
async fn execute(
    command: &[OsString],
    key: &[u8],
    event: &str,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let [program, arguments @ ..] = command else {
        return Ok(None);
    };
    let child = Command::new(program)
        .args(arguments)
        .env("TETHER_KEY", OsStr::from_bytes(key))
        .env("TETHER_EVENT", event)
        .spawn();
    let mut child =
        child.map_err(|error| Failure::Failed(format!("{}: {error}", program.display())))?;
    let pass_on = |signal| {
        if let Some(signal) = Signal::from_named_raw(signal) {
            guard::signal_all(signal);
        }
    };
    // Even the terminal's may have come before there was a child to get them.
    let mut ended = signals.come().map(|arrived| arrived.signal).last();
    ended.iter().copied().for_each(pass_on);
    let mut ends = pin!(spawn_blocking(move || child.wait()));
    loop {
        tokio::select! {
            _ = ends.as_mut() => return Ok(ended),
            arrived = signals.next() => {
                if !arrived.by_terminal {
                    pass_on(arrived.signal);
                }
                ended.get_or_insert(arrived.signal);
            }
            () = sleep(KILL_AFTER), if ended.is_some() => guard::signal_all(Signal::KILL),
        }
    }
}
