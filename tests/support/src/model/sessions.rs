//! Sessions: owners that outlive their connection for a moment.

use super::command::Who;
use super::holds::{Hold, Owner};
use super::replies::{Loss, Reply};
use super::world::World;

/// Sessions are numbered as they are started.
pub type Number = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub number: Number,
    pub grace_ms: u64,
    /// The connection that has it.
    pub attached: Option<Who>,
    /// When its grace is over; nobody has it.
    pub ends: Option<u64>,
    /// How often it was resumed by another connection.
    pub resumed: u64,
    /// Its connection is told of the loss of all that former ones asked to be told of.
    pub hears_all: bool,
}

impl World {
    pub fn session_of(&self, who: Who) -> Option<&Session> {
        let mut all = self.sessions.iter();
        all.find(|session| session.attached == Some(who))
    }

    pub fn session(&self, number: Number) -> Option<&Session> {
        let mut all = self.sessions.iter();
        all.find(|session| session.number == number)
    }

    /// To whom belongs what this connection is granted.
    pub fn owner(&self, who: Who) -> Owner {
        let session = self.session_of(who);
        session.map_or(Owner::Connection(who), |session| {
            Owner::Session(session.number)
        })
    }

    /// The connection that hears what an owner is told.
    pub fn voice(&self, owner: Owner) -> Option<Who> {
        match owner {
            Owner::Connection(who) => Some(who),
            Owner::Session(number) => self.session(number)?.attached,
            Owner::Gone(_) | Owner::Over(_) => None,
        }
    }

    /// What stands against this connection's having a session from now on.
    fn has_something(&self, who: Who) -> Option<Reply> {
        if self.session_of(who).is_some() {
            return Some(Reply::refused("ERR this connection has a session already"));
        }
        let holds = !self.holds_of(who).is_empty();
        holds.then(|| Reply::refused("ERR this connection holds keys already"))
    }

    pub(super) fn start_session(&mut self, who: Who, grace_ms: u64) -> Reply {
        if let Some(refusal) = self.has_something(who) {
            return refusal;
        }
        let number = self.started;
        self.started += 1;
        self.sessions.push(Session {
            number,
            grace_ms,
            attached: Some(who),
            ends: None,
            resumed: 0,
            hears_all: true,
        });
        Reply::Secret(number)
    }

    /// How often a session was resumed; of others' 0.
    pub(super) fn resumed(&self, owner: Owner) -> u64 {
        match owner {
            Owner::Session(number) => self.session(number).map_or(0, |session| session.resumed),
            _ => 0,
        }
    }

    /// Whether the connection that an owner speaks by asked to be told of the loss of a hold: itself, or with the
    /// session of which former ones did.
    pub(super) fn hears_of(&self, hold: &Hold) -> bool {
        match hold.owner {
            Owner::Session(number) => self
                .session(number)
                .is_some_and(|session| session.hears_all || hold.asked_in == session.resumed),
            _ => true,
        }
    }

    pub(super) fn resume(&mut self, who: Who, number: Number, notify: bool) -> Reply {
        let kept = |world: &World| Reply::Int(world.holds_of(who).len() as i64);
        if self.owner(who) == Owner::Session(number) {
            let mut all = self.sessions.iter_mut();
            let own = all.find(|session| session.number == number);
            own.expect("it has one").hears_all |= notify;
            return kept(self);
        }
        if let Some(refusal) = self.has_something(who) {
            return refusal;
        }
        if self.waiters.iter().any(|waiter| waiter.who == who) {
            return Reply::refused("ERR this connection waits for keys");
        }
        let now = self.now;
        let mut all = self.sessions.iter_mut();
        let found = all.find(|session| session.number == number);
        let Some(session) = found.filter(|session| session.ends.is_none_or(|end| end > now)) else {
            return Reply::refused("NOSESSION");
        };
        let former = session.attached;
        let is_new = former.is_none();
        // What is not acknowledged yet is told to whom it was asked for, who has it no more.
        former
            .into_iter()
            .for_each(|former| self.withdraw_of(former));
        let mut all = self.sessions.iter_mut();
        let session = all.find(|session| session.number == number);
        let session = session.expect("it was just found");
        (session.attached, session.ends) = (Some(who), None);
        session.resumed += 1;
        session.hears_all = notify;
        if !self.holds_of(who).is_empty() {
            self.totals.resumed += u64::from(is_new);
            self.totals.moved += u64::from(!is_new);
        }
        kept(self)
    }

    pub(super) fn end_session(&mut self, who: Who) -> Reply {
        let Owner::Session(number) = self.owner(who) else {
            return Reply::refused("NOSESSION");
        };
        let count = self.holds_of(who).len();
        self.release_all_of(number);
        Reply::Int(count as i64)
    }

    /// A session is no more: what it held is handed on.
    fn release_all_of(&mut self, number: Number) {
        // What its connection is handed now is that one's own.
        self.sessions.retain(|session| session.number != number);
        let its = Owner::Session(number);
        while let Some(at) = self.holds.iter().position(|hold| hold.owner == its) {
            self.release(at);
        }
    }

    /// Somebody ends a session, whose owners lose all that it holds.
    pub(super) fn kill_session(&mut self, number: Number) -> Reply {
        let now = self.now;
        let lives = |end: Option<u64>| end.is_none_or(|end| end > now);
        if !self.session(number).is_some_and(|its| lives(its.ends)) {
            return Reply::refused("NOSESSION");
        }
        let its = Owner::Session(number);
        let held: Vec<Hold> = self
            .holds
            .iter()
            .filter(|hold| hold.owner == its)
            .cloned()
            .collect();
        let pushes = held
            .iter()
            .filter_map(|hold| self.lost(hold, None, Loss::Ended));
        let pushes: Vec<_> = pushes.collect();
        self.tell(pushes);
        self.totals.sessions_killed += u64::from(!held.is_empty());
        self.release_all_of(number);
        Reply::Int(held.len() as i64)
    }

    /// A connection lets go of its session.
    pub(super) fn detach_session(&mut self, who: Who) -> Reply {
        if self.session_of(who).is_none() {
            return Reply::refused("NOSESSION");
        }
        self.withdraw_of(who);
        let count = self.holds_of(who).len();
        self.detach(who);
        self.totals.let_go += u64::from(count > 0);
        Reply::Int(count as i64)
    }

    /// The end of a connection: the grace of its session begins.
    pub(super) fn detach(&mut self, who: Who) {
        let now = self.now;
        let its = |session: &&mut Session| session.attached == Some(who);
        if let Some(session) = self.sessions.iter_mut().find(its) {
            (session.attached, session.ends) = (None, Some(now + session.grace_ms));
        }
    }

    /// Data were loaded: each connection goes on with its session as if it had resumed it, and all other graces begin anew.
    pub(super) fn go_on_with_sessions(&mut self) {
        for session in &mut self.sessions {
            match session.attached {
                Some(_) => session.resumed += 1,
                None => session.ends = Some(self.now + session.grace_ms),
            }
        }
    }

    /// Whether it would not be said whose grace is over first if that were so now, and this one had gone.
    pub(super) fn is_order_of_graces_open_after_load(&self, goes: Option<Who>) -> bool {
        let gone = |who: Who| goes == Some(who);
        let detached = self.sessions.iter();
        let detached = detached.filter(|session| session.attached.is_none_or(gone));
        let mut graces: Vec<u64> = detached.map(|session| session.grace_ms).collect();
        graces.sort_unstable();
        graces.windows(2).any(|two| two[0] == two[1])
    }

    /// The first session whose grace is over.
    fn first_over(&self) -> Option<Number> {
        let all = self.sessions.iter();
        let ends = all.filter_map(|session| Some((session.ends?, session.number)));
        let over = ends.filter(|(end, _)| *end <= self.now);
        over.min().map(|(_, number)| number)
    }

    pub fn is_any_grace_over(&self) -> bool {
        self.first_over().is_some()
    }

    /// Ends up to so many sessions whose grace is over, the earliest first. What they hold goes as that of connections
    /// which ended. How many more it could have ended.
    pub(super) fn end_graces(&mut self, most: usize) -> usize {
        for ended in 0..most {
            let Some(number) = self.first_over() else {
                return most - ended;
            };
            self.sessions.retain(|session| session.number != number);
            let over = Owner::Over(self.next_gone());
            let all = self.holds.iter_mut();
            let own = all.filter(|hold| hold.owner == Owner::Session(number));
            let count = own.map(|hold| hold.owner = over).count();
            self.totals.graces_over += u64::from(count > 0);
        }
        0
    }

    /// Whether it would not be said whose grace is over first if these connections ended now.
    pub(super) fn is_order_of_graces_open(&self, dying: impl Iterator<Item = Who>) -> bool {
        let mut dying: Vec<Who> = dying.collect();
        dying.sort_unstable();
        dying.dedup();
        let graces = dying.into_iter().filter_map(|who| self.session_of(who));
        let new = graces.map(|session| self.now + session.grace_ms);
        let new: Vec<u64> = new.collect();
        let mut all: Vec<u64> = self.sessions.iter().filter_map(|s| s.ends).collect();
        all.extend(&new);
        let ties = |end: &&u64| all.iter().filter(|other| other == end).count() > 1;
        new.iter().any(|end| ties(&end))
    }
}
