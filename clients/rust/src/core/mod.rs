//! What is asked, granted and lost on one connection at a time: facts in, commands and changes out.
//!
//! No server, no clock, no tasks: callers say what came and what time it is. The rules:
//!
//! - A want is one request for a lock, or for several at once. Its owner is the connection (or its session) together with a
//!   label, so tasks share a connection, and the server sees deadlocks between them.
//! - Of one key and label one want at most is unsettled on the wire; the next is sent when the server has answered all that
//!   concerns the former. So a push needs no number to say which request it is about.
//! - A want that is given up is cancelled *and* released, in that order. Whatever the server decided before, nobody waits or
//!   holds after that. A temporary key belongs to the connection without a label, and one DELTP does both.
//! - The connection vouches for its locks until `fence` after the *sending* of the last request that was answered. From then on
//!   everything is lost, whatever arrives later.
//! - With a session, a connection on which nothing was answered for half of the fence is given up while something is held: a new
//!   one may get through where its segments do not.
//! - With a session a broken connection loses nothing by itself: on the next one each want is looked up (LOCK.CANCEL says
//!   whether an owner holds), and asked for again if it still waited.
//! - A token that a server does not raise yet (LOCK.RAISE; its clock is behind another's, or it refuses writes for a moment) is
//!   asked for again, for as long as the hold is wanted.
//! - Whatever leaves it unclear who holds what ends the connection, and with it everything.
//!
//! ```text
//!   mod.rs       what callers want, and what happens       answers.rs   what replies and pushes say
//!   want.rs      one request, and its commands             words.rs     what all of them exchange
//!   watches.rs   who watches which keys                    backlog.rs   what one of them has not read yet
//!   unclaimed.rs what the session holds unknown to us
//!   tests.rs     wants        watching.rs     watches, both against a server that a test plays; searching.rs  unclaimed holds
//! ```

mod answers;
mod backlog;
#[cfg(test)]
mod searching;
#[cfg(test)]
mod tests;
mod unclaimed;
mod want;
mod watches;
#[cfg(test)]
mod watching;
mod words;

use crate::clock::BootTime;
use crate::error::{Error, Loss};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use unclaimed::Unclaimed;
pub use want::{Command, Mode, Request};
use want::{Phase, Want};
use watches::Watches;
pub use words::{Change, Id, KeyChange, Races, Reply, Subject, Tag, WatchEvent};

/// Requests are sent so often within a fence's time that one lost moment ends nothing.
const PINGS_PER_FENCE: u32 = 4;

/// How long after its refusal a token is asked for again.
const RAISE_AGAIN: Duration = Duration::from_millis(50);

/// The state of a client's connection, and of those that follow it.
///
/// Invariant: `places` has each want under each of its keys with its label, in the order of their numbers; only the first of a
/// place may be on the wire.
pub struct Core {
    wants: BTreeMap<Id, Want>,
    places: HashMap<(Vec<u8>, Vec<u8>), VecDeque<Id>>,
    watches: Watches,
    unclaimed: Unclaimed,
    next: Id,
    /// As far as callers said.
    now: BootTime,
    out: VecDeque<(Tag, Command)>,
    changes: Vec<(Id, Change)>,
    fence: Duration,
    has_session: bool,
    is_up: bool,
    alive_until: BootTime,
    pinged_at: BootTime,
    /// When tokens that were refused are asked for again.
    raise_again_at: BootTime,
    ended: Option<Loss>,
    races: Races,
}

impl Core {
    /// With a connection that answered a request sent at this moment.
    pub fn new(sent: BootTime, fence: Duration, has_session: bool) -> Core {
        Core {
            wants: BTreeMap::new(),
            places: HashMap::new(),
            watches: Watches::default(),
            unclaimed: Unclaimed::default(),
            next: 0,
            now: sent,
            out: VecDeque::new(),
            changes: Vec::new(),
            fence,
            has_session,
            is_up: true,
            alive_until: sent + fence,
            pinged_at: sent,
            raise_again_at: BootTime::NEVER,
            ended: None,
            races: Races::default(),
        }
    }

    // ---- what callers want ----

    /// Asks for a lock, or for several at once. O(its keys).
    pub fn ask(&mut self, now: BootTime, request: Request) -> Result<Id, Error> {
        self.tick(now);
        if let Some(why) = &self.ended {
            return Err(Error::Unreachable(why.to_string()));
        }
        let places: Vec<_> = request.places().collect();
        let is_wanted = |place| self.places.get(place).and_then(VecDeque::back);
        for last in places.iter().filter_map(is_wanted) {
            if !self.wants[last].is_leaving() {
                return Err(Error::AskedAlready);
            }
        }
        let id = self.next;
        self.next += 1;
        for place in places {
            self.places.entry(place).or_default().push_back(id);
        }
        let until = request.wait.map(|wait| match wait.is_zero() {
            true => BootTime::NEVER,
            false => now + wait,
        });
        self.wants.insert(id, Want::new(request, until));
        self.send_if_first(id);
        Ok(id)
    }

    /// It is wanted no more: it leaves the queue, and is given back if it is granted meanwhile. No change follows but the last.
    pub fn give_up(&mut self, now: BootTime, id: Id) {
        self.tick(now);
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        match want.phase {
            Phase::Queued => self.finish(id, Change::Over),
            Phase::Asked | Phase::Waiting => {
                want.is_given_up = true;
                self.send_withdrawal(id);
            }
            Phase::Held => self.release(now, id),
            Phase::Releasing => {}
        }
    }

    /// Gives it back; it is over with the server's answer.
    pub fn release(&mut self, now: BootTime, id: Id) {
        self.tick(now);
        if let Some(want) = self.wants.get_mut(&id)
            && want.phase == Phase::Held
        {
            want.phase = Phase::Releasing;
            self.send_releases(id);
        }
    }

    /// Raises the token of a hold of a single lock to at least this one, also on a connection that follows.
    pub fn raise(&mut self, now: BootTime, id: Id, token: u64) {
        self.tick(now);
        if let Some(want) = self.wants.get_mut(&id)
            && want.phase == Phase::Held
        {
            want.raising = Some(token);
            self.send_raise(id);
        }
    }

    // ---- what happens ----

    /// The connection broke.
    pub fn broke(&mut self, now: BootTime) {
        self.out.clear();
        self.is_up = false;
        match self.has_session {
            true => self.tick(now),
            false => self.end(Loss::Connection),
        }
    }

    /// A new connection has the session; it answered a request that was sent at this moment.
    pub fn resumed(&mut self, now: BootTime, sent: BootTime) {
        self.tick(now);
        if self.ended.is_some() {
            return;
        }
        self.is_up = true;
        self.vouch_from(sent);
        for id in self.wants.keys().copied().collect::<Vec<_>>() {
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            want.unanswered_releases = 0;
            match want.phase {
                Phase::Queued => {}
                Phase::Held => {
                    self.look(id, &Loss::Connection);
                    self.send_raise(id);
                }
                Phase::Asked | Phase::Waiting if !want.is_given_up => {
                    let command = want.cancel();
                    self.send(Tag::Resumed(id), command);
                }
                Phase::Asked | Phase::Waiting | Phase::Releasing => {
                    want.is_given_up = true;
                    self.send_withdrawal(id);
                }
            }
        }
        self.watch_anew();
        self.search_anew();
    }

    /// Looks at the time: a ping when one is due, and the end of everything when the fence falls.
    pub fn tick(&mut self, now: BootTime) {
        self.now = self.now.max(now);
        if self.ended.is_some() {
            return;
        }
        if now >= self.raise_again_at {
            self.raise_again();
        }
        if now >= self.alive_until {
            self.end(Loss::Silence);
        } else if self.is_up && now >= self.ping_at() {
            self.pinged_at = now;
            self.send(Tag::Ping, Command::new("PING"));
        }
    }

    /// Everything ends, for this reason: what is held is lost, what is asked for is not granted.
    pub fn end(&mut self, why: Loss) {
        if self.ended.is_some() {
            return;
        }
        self.out.clear();
        self.places.clear();
        for (id, want) in std::mem::take(&mut self.wants) {
            let change = match want.phase {
                Phase::Held | Phase::Releasing => Change::Lost(why.clone()),
                _ => Change::Refused(Error::Unreachable(why.to_string())),
            };
            self.changes.push((id, change));
        }
        self.end_watches(&why);
        self.ended = Some(why);
    }

    // ---- what callers must do and may know ----

    /// The commands to send, in this order, each once.
    pub fn out(&mut self) -> Vec<(Tag, Command)> {
        self.out.drain(..).collect()
    }

    pub fn changes(&mut self) -> Vec<(Id, Change)> {
        std::mem::take(&mut self.changes)
    }

    /// Whether to try another connection, since this one is silent. O(wants), while it is.
    pub fn is_stuck(&self) -> bool {
        let is_held = |want: &Want| matches!(want.phase, Phase::Held | Phase::Releasing);
        self.has_session
            && self.is_up
            && self.now + self.fence / 2 >= self.alive_until
            && self.wants.values().any(is_held)
    }

    /// When to look at the time next.
    pub fn next_tick(&self) -> BootTime {
        match self.is_up {
            true => {
                let next = self.ping_at().min(self.raise_again_at);
                next.min(self.alive_until)
            }
            false => self.alive_until,
        }
    }

    pub fn alive_until(&self) -> BootTime {
        self.alive_until
    }

    /// Whether there is a connection.
    pub fn is_up(&self) -> bool {
        self.is_up && self.ended.is_none()
    }

    pub fn ended(&self) -> Option<&Loss> {
        self.ended.as_ref()
    }

    /// Whether nobody waits or holds, as far as answers have come.
    pub fn is_idle(&self) -> bool {
        self.wants.is_empty()
    }

    pub fn races(&self) -> Races {
        self.races
    }

    // ---- what follows ----

    fn ping_at(&self) -> BootTime {
        self.pinged_at + self.fence / PINGS_PER_FENCE
    }

    fn vouch_from(&mut self, sent: BootTime) {
        self.alive_until = self.alive_until.max(sent + self.fence);
    }

    fn send(&mut self, tag: Tag, command: Command) {
        if self.is_up {
            self.out.push_back((tag, command));
        }
    }

    /// Sends the request once no other want stands before it.
    fn send_if_first(&mut self, id: Id) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        let is_first = |place| self.places[&place].front() == Some(&id);
        if want.phase == Phase::Queued && want.request.places().all(is_first) {
            want.phase = Phase::Asked;
            let command = want.ask(self.now);
            self.send(Tag::Asked(id), command);
        }
    }

    fn send_withdrawal(&mut self, id: Id) {
        let want = &self.wants[&id];
        // DELTP leaves the queue as well.
        if !want.request.is_temporary() {
            let command = want.cancel();
            self.send(Tag::Cancelled, command);
        }
        self.send_releases(id);
    }

    fn send_releases(&mut self, id: Id) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        want.unanswered_releases = want.request.keys.len();
        let commands: Vec<_> = want.request.keys.iter().map(|k| want.release(k)).collect();
        for command in commands {
            self.send(Tag::Released(id), command);
        }
    }

    fn send_raise(&mut self, id: Id) {
        let want = &self.wants[&id];
        if let Some(token) = want.raising {
            let command = want.raise(token);
            self.send(Tag::Raised(id), command);
        }
    }

    /// O(wants), for those whose token was refused.
    fn raise_again(&mut self) {
        self.raise_again_at = BootTime::NEVER;
        let refused = self.wants.iter_mut().filter_map(|(id, want)| {
            let was_refused = std::mem::take(&mut want.is_raise_refused);
            (was_refused && want.phase == Phase::Held).then_some(*id)
        });
        for id in refused.collect::<Vec<_>>() {
            self.send_raise(id);
        }
    }

    /// Asks whether it is still held; if not, it is lost for this reason.
    fn look(&mut self, id: Id, reason: &Loss) {
        let want = &self.wants[&id];
        let looks = want.request.keys.iter().map(|key| {
            let tag = Tag::Looked(id, key.clone(), reason.clone());
            (tag, want.about("LOCK.CANCEL", key))
        });
        for (tag, command) in looks.collect::<Vec<_>>() {
            self.send(tag, command);
        }
    }

    fn grant(&mut self, id: Id, token: u64) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        if want.is_given_up || !matches!(want.phase, Phase::Asked | Phase::Waiting) {
            return; // It is given back already, or was granted by a push.
        }
        want.phase = Phase::Held;
        want.token = token;
        let lost = want.lost_early.take();
        self.changes.push((id, Change::Granted(token)));
        if let Some((key, reason)) = lost {
            self.lose(id, &key, reason);
        }
    }

    /// It is not held any more, for it lost this key; the others are given back.
    fn lose(&mut self, id: Id, lost: &[u8], reason: Loss) {
        let want = &self.wants[&id];
        if want.phase == Phase::Held {
            let others = want.request.keys.iter().filter(|key| *key != lost);
            for command in others.map(|key| want.release(key)).collect::<Vec<_>>() {
                self.send(Tag::GivenBack, command);
            }
        }
        self.finish(id, Change::Lost(reason));
    }

    /// It is settled: the server has nothing more to say of it, and the next of its owner may ask.
    fn finish(&mut self, id: Id, change: Change) {
        let Some(want) = self.wants.remove(&id) else {
            return;
        };
        self.changes.push((id, change));
        let mut next = Vec::new();
        for place in want.request.places() {
            let Some(ids) = self.places.get_mut(&place) else {
                continue;
            };
            ids.retain(|other| *other != id);
            match ids.front() {
                Some(first) => next.push(*first),
                None => {
                    self.places.remove(&place);
                }
            }
        }
        for id in next {
            self.send_if_first(id);
        }
    }
}
