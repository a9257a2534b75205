//! The lock, as the runner has it: a connection of its own with a session, which is resumed on a new connection when the old
//! one breaks, and pings that say until when the lock is vouched for.

use crate::address;
use crate::clock::BootTime;
use crate::timing;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, PushInfo, PushKind, RedisError, Value, cmd,
};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// How the lock is wanted.
pub struct Request {
    pub url: String,
    pub key: Vec<u8>,
    /// What stands between the key and the other words: SHARED, or PERMITS n OF m.
    pub mode: Vec<String>,
    /// None without WAIT; 0 waits for as long as it takes.
    pub wait: Option<Duration>,
    pub lease: Option<Duration>,
    /// 0 is without a session.
    pub grace: Duration,
    pub kill_after: Duration,
}

/// Why there is no lock.
#[derive(Debug)]
pub enum Refusal {
    Taken(String),
    Unreachable(String),
    /// The server says no, or does not fit.
    Refused(String),
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Refusal {
        match error.code() {
            Some("QUARANTINE") => Refusal::Taken(error.to_string()),
            Some(_) => Refusal::Refused(error.to_string()),
            None => Refusal::Unreachable(error.to_string()),
        }
    }
}

pub struct Hold {
    pub token: u64,
    /// Until when the lock is vouched for. It only grows.
    pub alive: watch::Receiver<BootTime>,
    /// Why the lock is lost, once it is.
    pub lost: watch::Receiver<Option<String>>,
    give_back: mpsc::Sender<oneshot::Sender<bool>>,
}

impl Hold {
    /// Whether it was still held.
    pub async fn release(self) -> bool {
        let (say, released) = oneshot::channel();
        if self.give_back.send(say).await.is_err() {
            return false;
        }
        released.await.unwrap_or(false)
    }
}

/// How long to try for a first connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// One connection, what it is pushed, and its end.
struct Line {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

impl Line {
    async fn connect(url: &str, within: Duration) -> Result<Line, Refusal> {
        let client = address::of(url).and_then(Client::open);
        let client = client.map_err(|error| Refusal::Refused(error.to_string()))?;
        let (say, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(within))
            // A reply that is late is the pings' concern.
            .set_response_timeout(None)
            .set_push_sender(say);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match timeout(within, connecting).await {
            Ok(connection) => Ok(Line {
                connection: connection?,
                pushes,
            }),
            Err(_) => Err(Refusal::Unreachable("no answer in time".to_owned())),
        }
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Refusal> {
        Ok(command.query_async(&mut self.connection).await?)
    }
}

/// The lock, or why not. If this is dropped while it waits, the connection ends and the place in the queue with it.
pub async fn acquire(request: Request) -> Result<Hold, Refusal> {
    let mut line = Line::connect(&request.url, CONNECT_WITHIN).await?;
    let within = |what| timeout(CONNECT_WITHIN, what);
    let Ok(prepared) = within(Box::pin(prepare(&mut line, &request))).await else {
        return Err(Refusal::Unreachable("no answer in time".to_owned()));
    };
    let (fence, secret) = prepared?;
    let (vouch, alive) = watch::channel(BootTime::now() + fence);
    let (lose, lost) = watch::channel(None);
    let (give_back, given_back) = mpsc::channel(1);
    let mut keeper = Keeper {
        line,
        request,
        fence,
        secret,
        token: None,
        vouch,
        lose,
    };
    let token = keeper.wait().await?;
    tokio::spawn(async move {
        let reason = keeper.keep(given_back).await;
        keeper.lose.send_replace(reason);
    });
    Ok(Hold {
        token,
        alive,
        lost,
        give_back,
    })
}

/// Checks that server and times fit together, and begins a session.
async fn prepare(
    line: &mut Line,
    request: &Request,
) -> Result<(Duration, Option<String>), Refusal> {
    let server: redis::Value =
        line.ask(&cmd("LOCK.SERVER"))
            .await
            .map_err(|refusal| match refusal {
                Refusal::Refused(text) if text.contains("unknown command") => {
                    Refusal::Refused("this server does not have the module tether".to_owned())
                }
                other => other,
            })?;
    if !request.grace.is_zero() {
        let fence = timing::fence(request.grace, request.kill_after).map_err(Refusal::Refused)?;
        let mut start = cmd("SESSION.START");
        start.arg("GRACE").arg(milliseconds(request.grace));
        return Ok((fence, Some(line.ask(&start).await?)));
    }
    let peer_timeout = number_in(&server, "peer-timeout-ms").map(Duration::from_millis);
    let fence = timing::fence_without_session(peer_timeout, request.kill_after);
    Ok((fence.map_err(Refusal::Refused)?, None))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn number_in(map: &Value, name: &str) -> Option<u64> {
    let mut pairs = map.as_map_iter()?;
    let is_it = |key: &Value| matches!(key, Value::BulkString(text) if text == name.as_bytes());
    let (_, value) = pairs.find(|(key, _)| is_it(key))?;
    match value {
        Value::Int(number) => u64::try_from(*number).ok().filter(|number| *number > 0),
        _ => None,
    }
}

/// What goes on with the lock while the command runs.
struct Keeper {
    line: Line,
    request: Request,
    fence: Duration,
    secret: Option<String>,
    token: Option<u64>,
    vouch: watch::Sender<BootTime>,
    lose: watch::Sender<Option<String>>,
}

/// What a push about the lock says.
enum Push {
    Granted(u64),
    Ended(String),
    Disconnected,
    Other,
}

impl Keeper {
    fn pause(&self) -> Duration {
        self.fence / 4
    }

    fn vouch_from(&self, sent: BootTime) {
        self.vouch.send_replace(sent + self.fence);
    }

    /// Asks for the lock and waits for it as long as is wanted, while pings see to it that the server is there.
    async fn wait(&mut self) -> Result<u64, Refusal> {
        let mut acquire = cmd("LOCK.ACQUIRE");
        acquire.arg(&self.request.key).arg(&self.request.mode);
        if let Some(lease) = self.request.lease {
            acquire.arg("LEASE").arg(milliseconds(lease));
        }
        acquire.arg("NOTIFY");
        if let Some(wait) = self.request.wait {
            acquire.arg("WAIT").arg(milliseconds(wait)).arg("PUSH");
        }
        let sent = BootTime::now();
        let Ok(reply) = timeout(CONNECT_WITHIN, self.line.ask::<Option<u64>>(&acquire)).await
        else {
            return Err(Refusal::Unreachable("no answer in time".to_owned()));
        };
        let token = match (reply?, self.request.wait) {
            (Some(token), _) => token,
            (None, None) => return Err(Refusal::Taken("it is taken".to_owned())),
            (None, Some(_)) => self.wait_for_push().await?,
        };
        self.token = Some(token);
        self.vouch_from(sent);
        // A grant after a long wait begins with a promise of its own.
        let sent = BootTime::now();
        let pong = timeout(self.fence, self.line.ask::<String>(&cmd("PING"))).await;
        if let Ok(Ok(_)) = pong {
            self.vouch_from(sent);
            return Ok(token);
        }
        Err(Refusal::Unreachable("no answer in time".to_owned()))
    }

    async fn wait_for_push(&mut self) -> Result<u64, Refusal> {
        let mut ticks = interval(self.pause().max(Duration::from_secs(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                push = self.line.pushes.recv() => match meaning(push) {
                    Push::Granted(token) => return Ok(token),
                    Push::Ended(word) if word.starts_with("TIMEOUT") => {
                        return Err(Refusal::Taken("it is taken, and the time to wait is over".to_owned()));
                    }
                    Push::Ended(word) => return Err(Refusal::Refused(word)),
                    Push::Disconnected => return Err(Refusal::Unreachable("the connection broke".to_owned())),
                    Push::Other => {}
                },
                _ = ticks.tick() => {
                    // Pushes that come before the reply stay in their channel.
                    let mut connection = self.line.connection.clone();
                    let pong = timeout(CONNECT_WITHIN, cmd("PING").query_async::<String>(&mut connection)).await;
                    if !matches!(pong, Ok(Ok(_))) {
                        return Err(Refusal::Unreachable("no answer in time".to_owned()));
                    }
                }
            }
        }
    }

    /// Ends with the reason when the lock is lost, and with None when it was given back.
    async fn keep(
        &mut self,
        mut given_back: mpsc::Receiver<oneshot::Sender<bool>>,
    ) -> Option<String> {
        let mut ticks = interval(self.pause());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut connection = self.line.connection.clone();
            let question = cmd("PING");
            let ping = async {
                ticks.tick().await;
                let sent = BootTime::now();
                let pong = question.query_async::<String>(&mut connection);
                let pong = timeout(self.fence / 2, pong);
                matches!(pong.await, Ok(Ok(_))).then_some(sent)
            };
            let is_well = tokio::select! {
                push = self.line.pushes.recv() => match meaning(push) {
                    Push::Ended(word) => return Some(word),
                    Push::Disconnected => false,
                    Push::Granted(_) | Push::Other => true,
                },
                say = given_back.recv() => {
                    let released = self.give_back().await;
                    if let Some(say) = say {
                        let _ = say.send(released);
                    }
                    return None;
                }
                sent = ping => match sent {
                    Some(sent) => {
                        self.vouch_from(sent);
                        true
                    }
                    None => false,
                },
            };
            if !is_well && let Err(reason) = self.resume().await {
                return Some(reason);
            }
            if BootTime::now() >= *self.vouch.borrow() {
                return Some(SILENCE.to_owned());
            }
        }
    }

    /// Goes on with the session on a new connection, if there is one and the lock is still vouched for.
    async fn resume(&mut self) -> Result<(), String> {
        let Some(secret) = self.secret.clone() else {
            return Err("the connection broke, and there is no --grace".to_owned());
        };
        loop {
            if BootTime::now() >= *self.vouch.borrow() {
                return Err(SILENCE.to_owned());
            }
            match timeout(self.fence / 2, self.try_to_resume(&secret)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Refusal::Refused(why))) => return Err(why),
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn try_to_resume(&mut self, secret: &str) -> Result<(), Refusal> {
        let mut line = Line::connect(&self.request.url, self.fence / 2).await?;
        let sent = BootTime::now();
        let mut resume = cmd("SESSION.RESUME");
        resume.arg(secret).arg("NOTIFY");
        match line.ask::<u64>(&resume).await {
            Err(Refusal::Refused(why)) if why.contains("LOADING") => {
                return Err(Refusal::Unreachable(why));
            }
            other => other?,
        };
        let token: u64 = line.ask(cmd("LOCK.CANCEL").arg(&self.request.key)).await?;
        if Some(token) != self.token {
            return Err(Refusal::Refused(
                "it was lost while the connection was broken".to_owned(),
            ));
        }
        self.line = line;
        self.vouch_from(sent);
        Ok(())
    }

    /// Releases the lock and ends the session. Whether the lock was still held.
    async fn give_back(&mut self) -> bool {
        let mut connection = self.line.connection.clone();
        let mut release = cmd("LOCK.RELEASE");
        release.arg(&self.request.key);
        let released = timeout(self.fence, release.query_async::<u64>(&mut connection)).await;
        if self.secret.is_some() {
            let end = cmd("SESSION.END");
            let _ = timeout(self.fence, end.query_async::<u64>(&mut connection)).await;
        }
        // Not answered is not refused: then nothing says that it was lost.
        !matches!(released, Ok(Err(error)) if error.code() == Some("NOTHELD"))
    }
}

const SILENCE: &str = "the server does not answer";

fn meaning(push: Option<PushInfo>) -> Push {
    let Some(PushInfo { kind, data }) = push else {
        return Push::Disconnected;
    };
    match (kind, data.get(1)) {
        (PushKind::Disconnection, _) => Push::Disconnected,
        (PushKind::Other(name), Some(Value::BulkString(text))) if name == "lock" => {
            let text = String::from_utf8_lossy(text).into_owned();
            text.parse().map_or(Push::Ended(text), Push::Granted)
        }
        _ => Push::Other,
    }
}
