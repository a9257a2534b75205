//! One request, from the call until the server has nothing left of it.

use super::{Ask, Bytes, Command, Id, Kind, Mode, Time, words};
use crate::error::Loss;
use std::time::Duration;

/// The greatest number that the server takes.
const MOST: u64 = (1 << 53) - 1;

/// Which request; later ones are greater.
pub type Rid = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not sent, or to be sent again.
    Queued,
    /// Sent and not answered, as far as is known.
    Asked,
    /// In a queue of the server.
    Waiting,
    Held,
    /// It is extended for what is left of `at_least` (P-LEAST-2).
    Extending,
    /// Released for its owner, and kept at the server for what is left of `at_least`.
    Kept,
    /// Given up or released, and not answered.
    Releasing,
}

impl Phase {
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Queued | Phase::Asked | Phase::Waiting)
    }

    /// The server may have a hold that ends with a session.
    pub fn is_hold(self) -> bool {
        matches!(
            self,
            Phase::Held | Phase::Extending | Phase::Kept | Phase::Releasing
        )
    }
}

/// A key together with an owner's label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub is_temporary: bool,
    pub key: Bytes,
    pub label: Bytes,
}

/// An extension that was called for.
#[derive(Clone, Debug)]
pub struct Extension {
    pub id: Id,
    pub lease: Duration,
    /// Keys whose answer is missing.
    pub keys: Vec<Bytes>,
    /// Which of all extensions.
    pub serial: u64,
    /// When it was sent for the first time.
    pub sent: Option<Time>,
}

#[derive(Debug)]
pub struct Request {
    pub ask: Ask,
    /// The ask's at first; those that are not lost or given back.
    pub keys: Vec<Bytes>,
    /// With SEQ, the server names the key: before that it has no place (P-TEMP-3).
    pub is_named: bool,
    pub label: Bytes,
    pub task: Option<Bytes>,
    /// All that share the hold, in the order of their calls (P-OWNER-7). Nobody, where the client found a hold of its own.
    pub ids: Vec<Id>,
    pub phase: Phase,
    pub began: Time,
    pub token: u64,
    pub granted: Option<Time>,
    pub is_given_up: bool,
    /// Its caller knows of its end, or never knew of it.
    pub is_silent: bool,
    /// A break cut off the answer to a release.
    pub was_sent_before: bool,
    /// It stood in a queue (P-ACQ-7).
    pub has_waited: bool,
    /// The server has said that it was granted, even if that is nobody's any more (P-REL-7).
    pub was_granted: bool,
    /// The last error of the server.
    pub refusal: Option<String>,
    /// The release was refused with these codes, and the caller knows of it.
    pub told_refusal: Option<String>,
    /// A loss that came before the grant (P-LOSS-5).
    pub early: Option<(Loss, Bytes)>,
    /// Since when the lease counts, and how long it is.
    pub lease: Option<(Time, Duration)>,
    /// When the server forgets what is kept.
    pub kept_until: Time,
    /// The greatest token that was known when it was sent (P-SESS-11).
    pub floor: u64,
    /// Keys of which a push said that they are lost.
    pub explained: Vec<Bytes>,
    /// Keys to release, or to extend for what is left of `at_least`, and whether that is on the wire.
    pub unsettled: Vec<(Bytes, bool)>,
    /// Those without an answer, in their order.
    pub extensions: Vec<Extension>,
    /// The token to raise to.
    pub raising: u64,
    /// Its entry among the timers.
    pub timer: Option<Time>,
}

impl Request {
    pub fn new(ask: Ask, ids: Vec<Id>, label: Bytes, task: Option<Bytes>, began: Time) -> Request {
        Request {
            keys: ask.keys.clone(),
            is_named: !is_sequence(&ask),
            label,
            task,
            ids,
            phase: Phase::Queued,
            began,
            token: 0,
            granted: None,
            is_given_up: false,
            is_silent: false,
            was_sent_before: false,
            has_waited: false,
            was_granted: false,
            refusal: None,
            told_refusal: None,
            early: None,
            lease: None,
            kept_until: Time::default(),
            floor: 0,
            explained: Vec::new(),
            unsettled: Vec::new(),
            extensions: Vec::new(),
            raising: 0,
            timer: None,
            ask,
        }
    }

    pub fn is_temporary(&self) -> bool {
        matches!(self.ask.kind, Kind::Temporary { .. })
    }

    pub fn is_sequence(&self) -> bool {
        is_sequence(&self.ask)
    }

    pub fn is_elected(&self) -> bool {
        matches!(
            self.ask.kind,
            Kind::Temporary {
                is_elected: true,
                ..
            }
        )
    }

    /// SEQ never waits (P-TEMP-3).
    pub fn wait(&self) -> Option<Duration> {
        if self.is_sequence() {
            return Some(Duration::ZERO);
        }
        self.ask.wait
    }

    pub fn waits(&self) -> bool {
        self.wait() != Some(Duration::ZERO)
    }

    pub fn place(&self, key: &[u8]) -> Place {
        Place {
            is_temporary: self.is_temporary(),
            key: key.to_vec(),
            label: self.label.clone(),
        }
    }

    pub fn places(&self) -> Vec<Place> {
        let keys = self.keys.iter().filter(|_| self.is_named);
        keys.map(|key| self.place(key)).collect()
    }

    /// Its caller has released it, and the server has it still (P-OWNER-4).
    pub fn is_left(&self) -> bool {
        match self.phase {
            Phase::Extending | Phase::Kept => true,
            Phase::Releasing => self.refusal.is_some(),
            _ => false,
        }
    }

    /// When the lease ends; each extension that was sent may have been carried out (P-LEASE-2).
    pub fn lease_ends_at(&self) -> Option<Time> {
        let sent = |it: &Extension| it.sent.map(|sent| sent + it.lease);
        let extended = self.extensions.iter().filter_map(sent);
        let granted = self.lease.map(|(from, lease)| from + lease);
        extended.chain(granted).min()
    }

    /// P-REL-1.
    pub fn release(&self, key: &[u8]) -> Command {
        match self.is_temporary() {
            true => words!["DELTP", key],
            false => words!["LOCK.RELEASE", key, "OWNER", &self.label, "ALL"],
        }
    }

    pub fn extend(&self, key: &[u8], lease: Duration) -> Command {
        let ms = milliseconds(lease);
        words!["LOCK.EXTEND", key, ms, "OWNER", &self.label]
    }

    /// P-ACQ-1, P-TEMP-1.
    pub fn words(&self, now: Time) -> Command {
        let mut words = match &self.ask.kind {
            Kind::Temporary { value, .. } => {
                let answer = if self.is_sequence() { "SEQ" } else { "TOKEN" };
                words!["SETTP", &self.keys[0], value, answer]
            }
            Kind::Lock(mode) => self.words_of_lock(*mode),
        };
        if let Some(task) = &self.task {
            words.extend(words!["TASK", task]);
        }
        words.extend(words!["NOTIFY"]);
        if let Some(lease) = self.ask.lease {
            words.extend(words!["LEASE", milliseconds(lease)]);
        }
        // The server would block the connection for ACKS without WAIT and PUSH (P-ACKS-1).
        if self.waits() || self.ask.acks.is_some() {
            let left = |wait: Duration| milliseconds(wait.saturating_sub(now.since(self.began)));
            words.extend(words!["WAIT", self.wait().map_or(0, left), "PUSH"]);
        }
        if let Some(acks) = self.ask.acks {
            words.extend(words!["ACKS", acks]);
        }
        if let Some(timeout) = self.ask.ack_timeout.filter(|_| self.ask.acks.is_some()) {
            words.extend(words!["ACKTIMEOUT", milliseconds(timeout)]);
        }
        words
    }

    fn words_of_lock(&self, mode: Mode) -> Command {
        let mut words = match &self.keys[..] {
            [key] => words!["LOCK.ACQUIRE", key],
            keys => {
                let mut words = words!["LOCK.MACQUIRE", keys.len() as u64];
                words.extend(keys.iter().cloned());
                words
            }
        };
        match mode {
            Mode::Exclusive => {}
            Mode::Shared => words.extend(words!["SHARED"]),
            Mode::Permits { permits, total } => {
                words.extend(words!["PERMITS", permits, "OF", total]);
            }
        }
        words.extend(words!["OWNER", &self.label]);
        words
    }
}

fn is_sequence(ask: &Ask) -> bool {
    matches!(
        ask.kind,
        Kind::Temporary {
            is_sequence: true,
            ..
        }
    )
}

/// Rounded up, and never 0, which is for ever (P-ACQ-2).
fn milliseconds(time: Duration) -> u64 {
    let ms = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).unwrap_or(MOST).clamp(1, MOST)
}
