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
//! - A core that *goes on* outlives its connection and its session. What is held is lost with them; what is waited for is asked
//!   for on the next connection, and watched anew. Its time to wait is its own, whether there is a server or not.
//! - A server that says that it is no master any more is left for the one that is, with the session.
//! - What the server will not take back for a moment is sent again until it does, and nothing else is lost by that.
//! - Whatever leaves it unclear who holds what ends the connection, and with it everything.
//!
//! ```text
//!   mod.rs       what callers want, and what happens       answers.rs   what replies and pushes say
//!   want.rs      one request, and its commands             words.rs     what all of them exchange
//!   watches.rs   who watches which keys                    backlog.rs   what one of them has not read yet
//!   unclaimed.rs what the session holds unknown to us       refusals.rs  what errors mean, and what is sent again
//!   tests.rs     wants        watching.rs     watches, both against a server that a test plays; searching.rs  unclaimed holds;
//!   enduring.rs  connections that break, servers that are no masters any more, and what they refuse for a moment
//! ```

mod answers;
mod backlog;
#[cfg(test)]
mod enduring;
mod refusals;
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
use refusals::Retries;
pub use refusals::{is_for_now, is_unwritable};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
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

/// The server tells when a time to wait is over. It has so much longer for that, before this ends the wait itself.
const SERVERS_WORD: Duration = Duration::from_millis(100);

/// The state of a client's connection, and of those that follow it.
///
/// Invariant: `places` has each want under each of its keys with its label, in the order of their numbers; only the first of a
/// place may be on the wire.
pub struct Core {
    wants: BTreeMap<Id, Want>,
    places: HashMap<(Vec<u8>, Vec<u8>), VecDeque<Id>>,
    watches: Watches,
    unclaimed: Unclaimed,
    retries: Retries,
    /// When to end a wait, if the server has not; of those that have a time.
    deadlines: BTreeSet<(BootTime, Id)>,
    next: Id,
    /// As far as callers said.
    now: BootTime,
    out: VecDeque<(Tag, Command)>,
    changes: Vec<(Id, Change)>,
    fence: Duration,
    has_session: bool,
    /// It outlives its connection and its session.
    goes_on: bool,
    is_up: bool,
    /// Nothing is held any more, and nothing is relied on, until there is another connection.
    is_adrift: bool,
    /// The server is no master any more.
    is_misplaced: bool,
    /// Why there was no other connection when one was last tried.
    why_down: Option<Error>,
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
            retries: Retries::default(),
            deadlines: BTreeSet::new(),
            next: 0,
            now: sent,
            out: VecDeque::new(),
            changes: Vec::new(),
            fence,
            has_session,
            goes_on: false,
            is_up: true,
            is_adrift: false,
            is_misplaced: false,
            why_down: None,
            alive_until: sent + fence,
            pinged_at: sent,
            raise_again_at: BootTime::NEVER,
            ended: None,
            races: Races::default(),
        }
    }

    /// The same, outliving that connection.
    pub fn going_on(mut self) -> Core {
        self.goes_on = true;
        self
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
        if let Some(until) = until.filter(|until| *until != BootTime::NEVER) {
            self.deadlines.insert((until + SERVERS_WORD, id));
        }
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
            _ if want.is_given_up => {}
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
            want.unanswered = 0;
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

    /// The connection broke, or was left.
    pub fn broke(&mut self, now: BootTime) {
        self.out.clear();
        self.retries = Retries::default();
        self.is_up = false;
        self.is_misplaced = false;
        self.why_down = Some(Error::Unreachable(Loss::Connection.to_string()));
        match self.has_session {
            true => self.tick(now),
            false => self.lose_all(&Loss::Connection),
        }
    }

    /// There is no other connection yet, for this reason: who does not wait is told; if the server is there and refuses, so is who
    /// waits. O(wants).
    pub fn not_reached(&mut self, now: BootTime, why: &Error) {
        self.tick(now);
        let is_away = matches!(why, Error::Unreachable(_));
        for id in self.ids() {
            let is_queued = |want: &Want| want.phase == Phase::Queued;
            let want = self.wants.get(&id).filter(|want| is_queued(want));
            if want.is_some_and(|want| want.until.is_none() || !is_away) {
                self.finish(id, Change::Refused(why.clone()));
            }
        }
        self.why_down = Some(why.clone());
    }

    /// A new connection has the session; it answered a request that was sent at this moment. Not if the fence has fallen before:
    /// then it is still down.
    pub fn resumed(&mut self, now: BootTime, sent: BootTime) {
        self.tick(now);
        if self.ended.is_some() || self.is_adrift {
            return;
        }
        self.is_up = true;
        self.why_down = None;
        self.vouch_from(sent);
        for id in self.ids() {
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            want.unanswered = 0;
            match want.phase {
                Phase::Queued => self.send_if_first(id),
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

    /// A new connection that has nothing of the former one, perhaps with a session of its own: what was held is lost, what is
    /// waited for is asked for here.
    pub fn renewed(&mut self, now: BootTime, sent: BootTime, fence: Duration, has_session: bool) {
        self.tick(now);
        self.lose_all(&Loss::Connection);
        if self.ended.is_some() {
            return;
        }
        self.is_adrift = false;
        self.is_up = true;
        self.why_down = None;
        self.fence = fence;
        self.has_session = has_session;
        self.alive_until = sent + fence;
        self.pinged_at = sent;
        self.unclaimed = Unclaimed::default();
        for id in self.ids() {
            self.send_if_first(id);
        }
        self.watch_anew();
    }

    /// Looks at the time: waits that are over, what is to be sent again, a ping when one is due, and the fence.
    pub fn tick(&mut self, now: BootTime) {
        self.now = self.now.max(now);
        if self.ended.is_some() {
            return;
        }
        if now >= self.raise_again_at {
            self.raise_again();
        }
        while let Some((at, id)) = self.deadlines.first().copied()
            && at <= now
        {
            self.deadlines.remove(&(at, id));
            self.end_wait(id);
        }
        if now >= self.alive_until {
            self.lose_all(&Loss::Silence);
        } else if self.is_up {
            self.send_again();
            if now >= self.ping_at() {
                self.pinged_at = now;
                self.send(Tag::Ping, Command::new("PING"));
            }
        }
    }

    /// The session is gone, or the connection without one: what is held is lost. If this core goes on, nothing else is; but who
    /// does not wait hears of it.
    pub fn lose_all(&mut self, why: &Loss) {
        if !self.goes_on {
            return self.end(why.clone());
        }
        if self.is_adrift || self.ended.is_some() {
            return;
        }
        self.is_adrift = true;
        self.is_up = false;
        self.out.clear();
        self.retries = Retries::default();
        for id in self.ids() {
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            match want.phase {
                Phase::Held | Phase::Releasing => self.finish(id, Change::Lost(why.clone())),
                _ if want.is_given_up => self.finish(id, Change::Over),
                Phase::Asked if want.until.is_none() => {
                    let why = Error::Unreachable(why.to_string());
                    self.finish(id, Change::Refused(why));
                }
                Phase::Queued | Phase::Asked | Phase::Waiting => {
                    want.queue_again();
                    want.lost_early = None;
                }
            }
        }
        self.why_down = Some(Error::Unreachable(why.to_string()));
    }

    /// Everything ends, for this reason: what is held is lost, what is asked for is not granted.
    pub fn end(&mut self, why: Loss) {
        if self.ended.is_some() {
            return;
        }
        self.out.clear();
        self.places.clear();
        self.deadlines.clear();
        for (id, want) in std::mem::take(&mut self.wants) {
            let change = match want.phase {
                Phase::Held | Phase::Releasing => Change::Lost(why.clone()),
                _ => Change::Refused(Error::Unreachable(why.to_string())),
            };
            if !want.is_told {
                self.changes.push((id, change));
            }
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

    /// Whether to leave this connection for another one: it is silent while something is held, nothing on it is relied on any
    /// more, or the server is no master any more. O(wants), while it is silent.
    pub fn is_stuck(&self) -> bool {
        if self.is_misplaced || self.is_adrift {
            return true;
        }
        let is_held = |want: &Want| matches!(want.phase, Phase::Held | Phase::Releasing);
        self.has_session
            && self.is_up
            && self.now + self.fence / 2 >= self.alive_until
            && self.wants.values().any(is_held)
    }

    /// When to look at the time next.
    pub fn next_tick(&self) -> BootTime {
        let deadline = self
            .deadlines
            .first()
            .map_or(BootTime::NEVER, |(at, _)| *at);
        match (self.is_adrift, self.is_up) {
            (true, _) => deadline,
            (false, false) => deadline.min(self.alive_until),
            (false, true) => {
                let first = self.ping_at().min(self.retries.due());
                let first = first.min(self.raise_again_at);
                deadline.min(self.alive_until).min(first)
            }
        }
    }

    pub fn alive_until(&self) -> BootTime {
        self.alive_until
    }

    /// Whether there is a connection.
    pub fn is_up(&self) -> bool {
        self.is_up && self.ended.is_none()
    }

    /// Why there is no connection, if there is none.
    pub fn trouble(&self) -> Option<&Error> {
        self.why_down.as_ref()
    }

    /// Whether there is a session that is relied on.
    pub fn has_session(&self) -> bool {
        self.has_session && !self.is_adrift
    }

    /// Whether somebody relies on a hold.
    pub fn is_relied_on(&self) -> bool {
        self.wants.values().any(|want| want.phase == Phase::Held)
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

    fn ids(&self) -> Vec<Id> {
        self.wants.keys().copied().collect()
    }

    /// The time to wait is over, by the clock here.
    fn end_wait(&mut self, id: Id) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        if want.is_given_up || matches!(want.phase, Phase::Held | Phase::Releasing) {
            return;
        }
        let down = || Error::Unreachable("there is no connection".to_owned());
        let error = match (want.refusal.take(), want.phase) {
            (Some(refusal), _) => Error::Refused(refusal),
            _ if !self.is_up => self.why_down.clone().unwrap_or_else(down),
            (None, Phase::Asked) => Error::Unreachable("no answer in time".to_owned()),
            (None, _) => Error::Taken,
        };
        self.tell(id, Change::Refused(error));
        match self.wants[&id].phase {
            Phase::Queued => self.finish(id, Change::Over),
            _ => {
                if let Some(want) = self.wants.get_mut(&id) {
                    want.is_given_up = true;
                }
                self.send_withdrawal(id);
            }
        }
    }

    /// Sends the request once no other want stands before it.
    fn send_if_first(&mut self, id: Id) {
        if !self.is_up {
            return;
        }
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
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        want.unanswered = 0;
        // DELTP leaves the queue as well.
        if !want.request.is_temporary() {
            want.unanswered = 1;
            let command = want.cancel();
            self.send(Tag::Cancelled(id), command);
        }
        self.send_releases(id);
    }

    fn send_releases(&mut self, id: Id) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        want.is_refused = false;
        want.unanswered += want.request.keys.len();
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
        let until = want.until;
        want.token = token;
        let lost = want.lost_early.take();
        self.forget_deadline(id, until);
        self.changes.push((id, Change::Granted(token)));
        if let Some((key, reason)) = lost {
            self.lose(id, &key, reason);
        }
    }

    /// It is not held any more, for it lost this key; the others are given back.
    fn lose(&mut self, id: Id, lost: &[u8], reason: Loss) {
        self.tell(id, Change::Lost(reason));
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        let is_releasing = want.phase == Phase::Releasing;
        want.phase = Phase::Releasing;
        want.is_given_up = true;
        if is_releasing {
            return; // The answers that are on their way settle it.
        }
        want.unanswered = 0;
        want.request.keys.retain(|key| key != lost);
        let place = (lost.to_vec(), want.request.label.clone());
        let is_all = want.request.keys.is_empty();
        self.leave_places(id, [place]);
        match is_all {
            true => self.finish(id, Change::Over),
            false => self.send_releases(id),
        }
    }

    /// Says what has become of a want, unless its last word was said.
    fn tell(&mut self, id: Id, change: Change) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        if !want.is_told {
            want.is_told = change.is_last();
            self.changes.push((id, change));
        }
    }

    /// It is settled: the server has nothing more to say of it, and the next of its owner may ask.
    fn finish(&mut self, id: Id, change: Change) {
        self.tell(id, change);
        if let Some(want) = self.wants.remove(&id) {
            self.forget_deadline(id, want.until);
            self.leave_places(id, want.request.places());
        }
    }

    fn forget_deadline(&mut self, id: Id, until: Option<BootTime>) {
        if let Some(until) = until {
            self.deadlines.remove(&(until + SERVERS_WORD, id));
        }
    }

    fn leave_places(&mut self, id: Id, places: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) {
        let mut next = Vec::new();
        for place in places {
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
