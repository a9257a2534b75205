//! One request for a lock, or for several at once, and the commands that it needs.

use crate::clock::BootTime;
use crate::error::Loss;
use std::time::Duration;

/// A command's name and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command(pub Vec<Vec<u8>>);

impl Command {
    pub fn new(name: &str) -> Command {
        Command(vec![name.into()])
    }

    pub fn with(mut self, argument: impl AsRef<[u8]>) -> Command {
        self.0.push(argument.as_ref().to_vec());
        self
    }

    fn with_ms(self, time: Duration) -> Command {
        self.with(milliseconds(time).to_string())
    }
}

/// In which way a key is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Exclusive,
    Shared,
    Permits {
        permits: u64,
        total: u64,
    },
    /// As a string of this value, of the connection as a whole: without a label or a lease.
    Temporary(Vec<u8>),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// One at least; several are exclusive.
    pub keys: Vec<Vec<u8>>,
    pub label: Vec<u8>,
    pub mode: Mode,
    /// None does not wait; zero waits for as long as it takes.
    pub wait: Option<Duration>,
    pub lease: Option<Duration>,
}

impl Request {
    pub fn places(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let keys = self.keys.iter();
        keys.map(|key| (key.clone(), self.label.clone()))
    }

    pub fn is_temporary(&self) -> bool {
        matches!(self.mode, Mode::Temporary(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not sent yet: a former want of the same owner is not settled.
    Queued,
    Asked,
    Waiting,
    Held,
    Releasing,
}

pub struct Want {
    pub request: Request,
    /// None does not wait.
    pub until: Option<BootTime>,
    pub phase: Phase,
    pub token: u64,
    /// To at least which its token is to be raised.
    pub raising: Option<u64>,
    /// It was refused, and is not asked for again yet.
    pub is_raise_refused: bool,
    pub is_given_up: bool,
    /// Nobody is to hear of it any more.
    pub is_told: bool,
    /// It stood in the queue, or was to, before a connection was lost: so it goes on where a new request is refused.
    pub has_waited: bool,
    /// What the server said last, if that is not for good.
    pub refusal: Option<String>,
    /// A loss that was heard of before the grant was: a reply may come after a later push.
    pub lost_early: Option<(Vec<u8>, Loss)>,
    /// Of what takes it back.
    pub unanswered: usize,
    /// Some of that was refused, so all of it is sent again.
    pub is_refused: bool,
}

impl Want {
    pub fn new(request: Request, until: Option<BootTime>) -> Want {
        Want {
            request,
            until,
            phase: Phase::Queued,
            token: 0,
            raising: None,
            is_raise_refused: false,
            is_given_up: false,
            is_told: false,
            has_waited: false,
            refusal: None,
            lost_early: None,
            unanswered: 0,
            is_refused: false,
        }
    }

    /// Whether its owner wants it no more, so that it may ask again.
    pub fn is_leaving(&self) -> bool {
        self.is_given_up || self.phase == Phase::Releasing
    }

    /// It is asked for anew, behind those who wait.
    pub fn queue_again(&mut self) {
        self.phase = Phase::Queued;
        self.has_waited = true;
    }

    pub fn ask(&self, now: BootTime) -> Command {
        let Request { keys, mode, .. } = &self.request;
        let command = match (mode, keys.as_slice()) {
            (Mode::Temporary(value), keys) => {
                let command = keys.iter().fold(Command::new("SETTP"), Command::with);
                command.with(value).with("TOKEN")
            }
            (_, [key]) => Command::new("LOCK.ACQUIRE").with(key),
            (_, keys) => keys.iter().fold(
                Command::new("LOCK.MACQUIRE").with(keys.len().to_string()),
                Command::with,
            ),
        };
        let mut command = match mode {
            Mode::Exclusive | Mode::Temporary(_) => command,
            Mode::Shared => command.with("SHARED"),
            Mode::Permits { permits, total } => command
                .with("PERMITS")
                .with(permits.to_string())
                .with("OF")
                .with(total.to_string()),
        };
        command = self.with_owner(command).with("NOTIFY");
        if let Some(lease) = self.request.lease {
            command = command.with("LEASE").with_ms(lease);
        }
        match self.until {
            None => command,
            Some(BootTime::NEVER) => command.with("WAIT").with("0").with("PUSH"),
            // 0 is for ever, so what is over waits the shortest time that there is.
            Some(until) => command
                .with("WAIT")
                .with_ms(until.since(now).max(Duration::from_millis(1)))
                .with("PUSH"),
        }
    }

    /// Leaves the queues of all keys.
    pub fn cancel(&self) -> Command {
        self.about("LOCK.CANCEL", &self.request.keys[0])
    }

    pub fn release(&self, key: &[u8]) -> Command {
        match self.request.is_temporary() {
            true => self.about("DELTP", key),
            false => self.about("LOCK.RELEASE", key),
        }
    }

    /// Of a single lock.
    pub fn raise(&self, token: u64) -> Command {
        let command = Command::new("LOCK.RAISE").with(&self.request.keys[0]);
        self.with_owner(command.with(token.to_string()))
    }

    pub fn about(&self, command: &str, key: &[u8]) -> Command {
        self.with_owner(Command::new(command).with(key))
    }

    fn with_owner(&self, command: Command) -> Command {
        match self.request.is_temporary() {
            true => command,
            false => command.with("OWNER").with(&self.request.label),
        }
    }
}

/// Rounded up, so that nobody waits less than was asked for.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
