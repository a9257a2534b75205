//! Who hears of what the core tells.

use crate::core::{Ask, Bytes, Event, Id, KeyChange, Kind, Member, MemberChange, code};
use crate::core::{PresenceEvent, Referral, Told, WatchEvent};
use crate::error::{Error, Loss};
use crate::link::Hop;
use crate::observer::Observer;
use futures_util::task::AtomicWaker;
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};

/// So many events are kept that nobody reads, and one more for each key (P-WATCH-5).
const KEPT: usize = 1024;

/// What has become of a request.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub step: Step,
    /// Of the last grant.
    pub token: u64,
    /// Where the server made the name.
    pub key: Option<Bytes>,
    /// Of the last hold that was lost, and its token.
    pub loss: Option<Loss>,
    pub lost: u64,
}

#[derive(Clone, Debug, Default)]
pub enum Step {
    #[default]
    Asked,
    Held,
    Refused(Error),
    Lost,
    /// The server refused the release with this error, and it is sent again.
    Releasing(String),
    Released,
    Over,
}

impl Step {
    /// Whether the call to release it is over (P-REL-6).
    pub fn is_release_answered(&self) -> bool {
        !matches!(self, Step::Asked | Step::Held)
    }
}

/// An event of a request to one server of several.
#[cfg(feature = "quorum")]
pub type Heard = (usize, Event);

/// What is to be told to the observer of a client, and logged.
pub enum Note {
    Granted {
        key: Bytes,
        waited: Duration,
    },
    Refused {
        key: Bytes,
        error: Error,
        waited: Duration,
    },
    Released {
        key: Bytes,
        held: Duration,
    },
    Lost {
        key: Bytes,
        loss: Loss,
        held: Duration,
    },
    NotReleased {
        key: Bytes,
        error: String,
    },
    Unreachable(Error),
    Resumed,
    NoBootClock,
}

/// A caller with a request.
struct Caller {
    state: watch::Sender<State>,
    /// In the order of their answers.
    extensions: VecDeque<oneshot::Sender<Result<(), Error>>>,
    /// Of several keys the first.
    key: Bytes,
    since: Instant,
    /// It is asked for again after its end, and heard of until it is given up.
    is_elected: bool,
    may_follow: bool,
}

/// Events that somebody reads at his own pace.
pub struct Backlog<T: Pending> {
    events: VecDeque<T>,
    error: Option<Error>,
    /// What was told before that.
    pub told: Told,
    waker: Arc<AtomicWaker>,
    /// When so many are there, they are merged.
    merges_at: usize,
}

/// An event that may be left out, if others have followed.
pub trait Pending: Sized {
    type Key: Hash + Eq;

    fn key(&self) -> Self::Key;

    /// What both come to; None is nothing.
    fn and_then(self, later: Self) -> Option<Self>;
}

#[derive(Default)]
pub struct Callers {
    requests: HashMap<Id, Caller>,
    #[cfg(feature = "quorum")]
    of_several: HashMap<Id, (usize, tokio::sync::mpsc::UnboundedSender<Heard>)>,
    watches: HashMap<Id, Backlog<WatchEvent>>,
    presences: HashMap<Id, Backlog<PresenceEvent>>,
    leaders: HashMap<Id, Backlog<Leadership>>,
}

/// Who leads, or that nobody does.
pub type Leadership = Option<Member>;

impl Callers {
    pub fn expect(&mut self, id: Id, ask: &Ask, hop: Hop) -> watch::Receiver<State> {
        let (state, receiver) = watch::channel(State::default());
        let is_elected = matches!(
            ask.kind,
            Kind::Temporary {
                is_elected: true,
                ..
            }
        );
        let caller = Caller {
            state,
            extensions: VecDeque::new(),
            key: ask.keys.first().cloned().unwrap_or_default(),
            since: hop.began,
            is_elected,
            may_follow: hop.may_follow,
        };
        self.requests.insert(id, caller);
        receiver
    }

    #[cfg(feature = "quorum")]
    pub fn expect_one_of(
        &mut self,
        id: Id,
        server: usize,
        heard: tokio::sync::mpsc::UnboundedSender<Heard>,
    ) {
        self.of_several.insert(id, (server, heard));
    }

    pub fn expect_extension(&mut self, id: Id, sender: oneshot::Sender<Result<(), Error>>) {
        if let Some(caller) = self.requests.get_mut(&id) {
            caller.extensions.push_back(sender);
        }
    }

    pub fn expect_watch(&mut self, id: Id) -> Arc<AtomicWaker> {
        Backlog::begin(&mut self.watches, id)
    }

    pub fn expect_presence(&mut self, id: Id) -> Arc<AtomicWaker> {
        Backlog::begin(&mut self.presences, id)
    }

    pub fn expect_leader(&mut self, id: Id) -> Arc<AtomicWaker> {
        Backlog::begin(&mut self.leaders, id)
    }

    pub fn watches(&mut self) -> &mut HashMap<Id, Backlog<WatchEvent>> {
        &mut self.watches
    }

    pub fn presences(&mut self) -> &mut HashMap<Id, Backlog<PresenceEvent>> {
        &mut self.presences
    }

    pub fn leaders(&mut self) -> &mut HashMap<Id, Backlog<Leadership>> {
        &mut self.leaders
    }

    /// Nobody is told of this request any more.
    pub fn forget(&mut self, id: Id) {
        self.requests.remove(&id);
    }

    /// Nothing follows.
    pub fn close(&mut self) {
        self.requests.clear();
        #[cfg(feature = "quorum")]
        self.of_several.clear();
    }

    pub fn hear(&mut self, events: Vec<Event>, notes: &mut Vec<Note>) {
        for event in events {
            match event {
                Event::Watch { id, event } => Backlog::push(&mut self.watches, id, event),
                Event::Presence { id, event } => Backlog::push(&mut self.presences, id, event),
                Event::Leader { id, leader } => Backlog::push(&mut self.leaders, id, leader),
                Event::Ended { id, error, told } => {
                    Backlog::end(&mut self.watches, id, &error, &told);
                    Backlog::end(&mut self.presences, id, &error, &told);
                    Backlog::end(&mut self.leaders, id, &error, &told);
                }
                Event::NoBootClock => notes.push(Note::NoBootClock),
                event => self.hear_of_request(event, notes),
            }
        }
    }

    fn hear_of_request(&mut self, event: Event, notes: &mut Vec<Note>) {
        let Some(id) = event.id() else {
            return;
        };
        #[cfg(feature = "quorum")]
        if let Some((server, heard)) = self.of_several.get(&id) {
            let is_last = event.is_last();
            // Nobody may be left to hear it.
            let _ = heard.send((*server, event));
            if is_last {
                self.of_several.remove(&id);
            }
            return;
        }
        let Entry::Occupied(mut caller) = self.requests.entry(id) else {
            return;
        };
        let is_last = event.is_last() && !caller.get().is_elected;
        caller.get_mut().hear(event, notes);
        if is_last {
            caller.remove();
        }
    }
}

impl Caller {
    fn hear(&mut self, event: Event, notes: &mut Vec<Note>) {
        let (key, time) = (self.key.clone(), self.since.elapsed());
        match event {
            Event::Granted {
                token, key: name, ..
            } => {
                self.since = Instant::now();
                notes.push(Note::Granted { key, waited: time });
                self.state.send_modify(|state| {
                    state.step = Step::Held;
                    state.token = token;
                    state.key = name;
                });
            }
            Event::Refused { error, .. } => {
                let waited = time;
                let follows = self.may_follow && is_referral(&error);
                if !follows {
                    notes.push(Note::Refused {
                        key,
                        error: error.clone(),
                        waited,
                    });
                }
                self.step(Step::Refused(error));
            }
            Event::Lost { loss, .. } => {
                self.since = Instant::now();
                notes.push(Note::Lost {
                    key,
                    loss: loss.clone(),
                    held: time,
                });
                self.state.send_modify(|state| {
                    state.step = Step::Lost;
                    state.loss = Some(loss);
                    state.lost = state.token;
                });
            }
            Event::Releasing { error, .. } => {
                notes.push(Note::NotReleased {
                    key,
                    error: error.clone(),
                });
                self.step(Step::Releasing(error));
            }
            Event::Released { .. } => {
                self.since = Instant::now();
                notes.push(Note::Released { key, held: time });
                self.step(Step::Released);
            }
            Event::Over { .. } => self.step(Step::Over),
            Event::Extended { .. } => self.extended(Ok(())),
            Event::NotExtended { error, .. } => self.extended(Err(error)),
            _ => {}
        }
    }

    fn step(&self, step: Step) {
        self.state.send_modify(|state| state.step = step);
    }

    fn extended(&mut self, result: Result<(), Error>) {
        if let Some(sender) = self.extensions.pop_front() {
            // Nobody may wait for it any more.
            let _ = sender.send(result);
        }
    }
}

/// Whether another node of a cluster is asked.
fn is_referral(error: &Error) -> bool {
    matches!(error, Error::Refused(error) if Referral::of(error).is_some())
}

impl Event {
    /// Of a request.
    pub fn id(&self) -> Option<Id> {
        match self {
            Event::Granted { id, .. }
            | Event::Refused { id, .. }
            | Event::Lost { id, .. }
            | Event::Releasing { id, .. }
            | Event::Released { id }
            | Event::Over { id }
            | Event::Extended { id }
            | Event::NotExtended { id, .. }
            | Event::Raised { id, .. }
            | Event::NotRaised { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// Whether no other event of the request follows, but that it was not extended.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Event::Refused { .. }
                | Event::Lost { .. }
                | Event::Released { .. }
                | Event::Over { .. }
        )
    }
}

impl<T: Pending> Backlog<T> {
    fn begin(all: &mut HashMap<Id, Backlog<T>>, id: Id) -> Arc<AtomicWaker> {
        let waker = Arc::new(AtomicWaker::new());
        let backlog = Backlog {
            events: VecDeque::new(),
            error: None,
            told: Told::default(),
            waker: waker.clone(),
            merges_at: KEPT,
        };
        all.insert(id, backlog);
        waker
    }

    fn push(all: &mut HashMap<Id, Backlog<T>>, id: Id, event: T) {
        let Some(backlog) = all.get_mut(&id) else {
            return;
        };
        backlog.events.push_back(event);
        if backlog.events.len() >= backlog.merges_at {
            backlog.merge();
        }
        backlog.waker.wake();
    }

    /// Of each key at most one event is left.
    fn merge(&mut self) {
        let mut order = Vec::new();
        let mut of_key: HashMap<T::Key, usize> = HashMap::new();
        for event in self.events.drain(..) {
            match of_key.entry(event.key()) {
                Entry::Vacant(place) => {
                    place.insert(order.len());
                    order.push(Some(event));
                }
                Entry::Occupied(place) => {
                    let former: &mut Option<T> = &mut order[*place.get()];
                    *former = match former.take() {
                        Some(former) => former.and_then(event),
                        None => Some(event),
                    };
                }
            }
        }
        self.events = order.into_iter().flatten().collect();
        self.merges_at = KEPT + self.events.len();
    }

    fn end(all: &mut HashMap<Id, Backlog<T>>, id: Id, error: &Error, told: &Told) {
        if let Some(backlog) = all.get_mut(&id) {
            backlog.told = told.clone();
            backlog.error = Some(error.clone());
            backlog.waker.wake();
        }
    }

    /// What comes next; the error at the end, each time.
    pub fn next(&mut self) -> Option<Result<T, Error>> {
        let event = self.events.pop_front().map(Ok);
        event.or_else(|| self.error.clone().map(Err))
    }
}

impl Pending for WatchEvent {
    type Key = Bytes;

    fn key(&self) -> Bytes {
        self.key.clone()
    }

    fn and_then(self, later: WatchEvent) -> Option<WatchEvent> {
        let change = match (self.change, later.change.is_there()) {
            (KeyChange::Exists | KeyChange::Missing, true) => KeyChange::Exists,
            (KeyChange::Exists | KeyChange::Missing, false) => KeyChange::Missing,
            (KeyChange::Added | KeyChange::Deleted, _) => return None,
        };
        Some(WatchEvent { change, ..self })
    }
}

impl Pending for PresenceEvent {
    type Key = Bytes;

    fn key(&self) -> Bytes {
        self.key.clone()
    }

    fn and_then(self, later: PresenceEvent) -> Option<PresenceEvent> {
        let change = match (self.change, later.change) {
            (MemberChange::Added(_), MemberChange::Gone(_)) => return None,
            (MemberChange::Added(_), MemberChange::Set(member)) => MemberChange::Added(member),
            (MemberChange::Gone(_), MemberChange::Added(member)) => MemberChange::Set(member),
            (_, later) => later,
        };
        let key = self.key;
        Some(PresenceEvent { key, change })
    }
}

impl Pending for Leadership {
    type Key = ();

    fn key(&self) {}

    fn and_then(self, later: Leadership) -> Option<Leadership> {
        Some(later)
    }
}

impl Note {
    /// To the log, and to the observer.
    pub fn tell(self, observer: Option<&dyn Observer>) {
        self.log();
        let Some(observer) = observer else {
            return;
        };
        match self {
            Note::Granted { key, waited } => observer.granted(&key, waited),
            Note::Refused { key, error, waited } => observer.refused(&key, &error, waited),
            Note::Released { key, held } => observer.released(&key, held),
            Note::Lost { key, loss, held } => observer.lost(&key, &loss, held),
            Note::NotReleased { key, error } => observer.not_released(&key, code(&error)),
            Note::Unreachable(error) => observer.unreachable(&error),
            Note::Resumed => observer.resumed(),
            Note::NoBootClock => observer.no_boot_clock(),
        }
    }

    fn log(&self) {
        match self {
            Note::Granted { key, waited } => {
                debug!(key = %shown(key), ?waited, "granted");
            }
            Note::Refused { key, error, waited } => {
                debug!(key = %shown(key), ?waited, %error, "refused");
            }
            Note::Released { key, held } => debug!(key = %shown(key), ?held, "released"),
            Note::Lost { key, loss, held } => {
                warn!(key = %shown(key), ?held, reason = loss.reason(), "lost");
            }
            Note::NotReleased { key, error } => {
                warn!(key = %shown(key), error, "the server refused a release, which is sent again");
            }
            Note::Unreachable(error) => warn!(%error, "no connection"),
            Note::Resumed => info!("the session went on on a new connection"),
            Note::NoBootClock => warn!(
                "this system has no clock that goes on in suspend: after a suspend, a lock may be given to another while this program believes in it"
            ),
        }
    }
}

fn shown(key: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &str, change: KeyChange) -> WatchEvent {
        let key = key.into();
        WatchEvent { key, change }
    }

    /// P-WATCH-5.
    #[test]
    fn of_a_key_that_nobody_reads_the_last_state_is_kept() {
        use KeyChange::{Added, Deleted, Exists, Missing};
        for (changes, last) in [(10_001, true), (10_000, false)] {
            let mut all = HashMap::new();
            Backlog::begin(&mut all, 1);
            for (key, change) in [("k", Missing), ("l", Exists)] {
                Backlog::push(&mut all, 1, event(key, change));
            }
            for at in 0..changes {
                let change = if at % 2 == 0 { Added } else { Deleted };
                Backlog::push(&mut all, 1, event("k", change));
            }
            let backlog = all.get_mut(&1).unwrap();
            assert!(backlog.events.len() <= KEPT + 2);
            let (mut is_there, mut count) = (None, 0);
            while let Some(Ok(WatchEvent { key, change })) = backlog.next() {
                if key == b"k" {
                    let turns = is_there.is_none_or(|is_there| is_there != change.is_there());
                    assert!(turns, "{change:?} after {is_there:?}");
                    is_there = Some(change.is_there());
                }
                count += 1;
            }
            assert!(is_there == Some(last) && count > 0);
        }
    }
}
