//! What goes into the core and comes out of it.

use crate::error::{Error, Loss};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A key, a label, a value.
pub type Bytes = Vec<u8>;

/// A command, as it goes over the wire.
pub type Command = Vec<Bytes>;

/// What a caller calls its request, watch or presence.
pub type Id = u64;

/// What a command and its words are made of.
pub trait Word {
    /// Its bytes.
    fn word(&self) -> Bytes;
}

impl<T: AsRef<[u8]> + ?Sized> Word for &T {
    fn word(&self) -> Bytes {
        self.as_ref().to_vec()
    }
}

impl Word for u64 {
    fn word(&self) -> Bytes {
        self.to_string().into_bytes()
    }
}

macro_rules! words {
    ($($word:expr),+ $(,)?) => { vec![$($crate::core::Word::word(&$word)),+] };
}
pub(crate) use words;

/// Both clocks at one moment: one that stands still while the machine is suspended, and one that does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Duration,
    pub boot: Duration,
}

/// Which clock runs on while the machine is suspended (P-FENCE-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BootClock {
    /// An exact one.
    #[default]
    Exact,
    /// One that is rounded to 10 ms.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no system that this runs on has only that")
    )]
    Rounded,
    /// None.
    Missing,
}

/// What a client is told once and for all.
#[derive(Clone, Debug)]
pub struct Config {
    /// For how long the server keeps a session without a connection. None is no session.
    pub grace: Option<Duration>,
    /// A shorter fence than the longest that is safe.
    pub fence: Option<Duration>,
    /// For how long work goes on after a loss.
    pub stop_within: Duration,
    /// For how long to open a connection, and to greet on it.
    pub connect_timeout: Duration,
    /// The server is reached by a Unix socket.
    pub is_unix: bool,
    /// Keys of one request are of one slot.
    pub is_cluster: bool,
    pub boot_clock: BootClock,
    /// The random number of P-RETRY-1; None is a new one for each delay.
    pub random: Option<f64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            grace: None,
            fence: None,
            stop_within: Duration::ZERO,
            connect_timeout: Duration::from_secs(5),
            is_unix: false,
            is_cluster: false,
            boot_clock: BootClock::default(),
            random: None,
        }
    }
}

/// Who else may have the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Exclusive,
    Shared,
    Permits {
        permits: u64,
        total: u64,
    },
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Lock(Mode),
    Temporary {
        value: Bytes,
        /// The server adds a number to the name.
        is_sequence: bool,
        /// It is asked for again when it has ended (P-ELECT-2).
        is_elected: bool,
    },
}

/// A request, as its caller makes it.
#[derive(Clone, Debug)]
pub struct Ask {
    pub keys: Vec<Bytes>,
    pub kind: Kind,
    /// None is a fresh label.
    pub owner: Option<Bytes>,
    /// What blocks while the request waits.
    pub task: Option<Bytes>,
    /// None is for ever, zero not at all.
    pub wait: Option<Duration>,
    pub lease: Option<Duration>,
    pub is_reentrant: bool,
    /// At a node that takes the slot over (P-CLUSTER-4).
    pub is_asking: bool,
    pub acks: Option<u64>,
    pub ack_timeout: Option<Duration>,
    pub at_least: Duration,
}

impl Ask {
    pub fn new(keys: Vec<Bytes>, kind: Kind) -> Ask {
        Ask {
            keys,
            kind,
            owner: None,
            task: None,
            wait: None,
            lease: None,
            is_reentrant: false,
            is_asking: false,
            acks: None,
            ack_timeout: None,
            at_least: Duration::ZERO,
        }
    }
}

/// What `check` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Waiting,
    Held,
    Released,
    Lost(Loss),
}

/// What a [`Watch`](crate::Watch) says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// As it was given.
    pub key: Vec<u8>,
    /// What is so from now on.
    pub change: KeyChange,
}

/// Whether a key exists, and whether that is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// The key existed when the watch began.
    Exists,
    /// It did not.
    Missing,
    /// It appeared.
    Added,
    /// It disappeared.
    Deleted,
}

impl KeyChange {
    /// Whether the key is there.
    pub fn is_there(self) -> bool {
        matches!(self, KeyChange::Exists | KeyChange::Added)
    }
}

/// The value of a temporary key, and the token with which it was made or last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Greater than that of every earlier one of the key.
    pub token: u64,
    /// None if this client may not know it.
    pub value: Option<Vec<u8>>,
}

/// The members of a prefix.
pub type Members = BTreeMap<Bytes, Member>;

/// What a watcher was told so far: at another node of a cluster it is told the difference (P-CLUSTER-7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Whether these keys are there.
    pub keys: HashMap<Bytes, bool>,
    /// None is that it was told nothing.
    pub members: Option<Members>,
}

/// What a [`Presence`](crate::Presence) says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceEvent {
    /// Its name.
    pub key: Vec<u8>,
    /// What has become of it.
    pub change: MemberChange,
}

/// What has become of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It is there.
    Added(Member),
    /// It is there with another token or value.
    Set(Member),
    /// It is gone, for this reason: the server's word, or `unknown` if that was not seen.
    Gone(String),
}

/// What the core tells its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Granted {
        id: Id,
        token: u64,
        /// Where the server made the name.
        key: Option<Bytes>,
    },
    /// The request ended without a grant.
    Refused {
        id: Id,
        error: Error,
    },
    /// The hold ended, and its owner did not end it.
    Lost {
        id: Id,
        loss: Loss,
    },
    /// The server refused the release with this error, and it is sent again.
    Releasing {
        id: Id,
        error: String,
    },
    Released {
        id: Id,
    },
    /// It was given up, and the server has nothing left of it.
    Over {
        id: Id,
    },
    Extended {
        id: Id,
    },
    NotExtended {
        id: Id,
        error: Error,
    },
    Raised {
        id: Id,
        token: u64,
    },
    NotRaised {
        id: Id,
        error: Error,
    },
    Watch {
        id: Id,
        event: WatchEvent,
    },
    Presence {
        id: Id,
        event: PresenceEvent,
    },
    /// None where nobody leads.
    Leader {
        id: Id,
        leader: Option<Member>,
    },
    /// A watch, presence or observer is over.
    Ended {
        id: Id,
        error: Error,
        told: Told,
    },
    /// The system has no clock that runs on in suspend (P-FENCE-5).
    NoBootClock,
}

/// What the core orders its shell to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Open a connection; `connected` or `unreached` follows.
    Connect,
    /// Close it, or stop opening it.
    Leave,
    /// Read and write no more, and close it after that time.
    LeaveAfter(Duration),
}
