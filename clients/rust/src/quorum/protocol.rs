//! One lock on several independent servers: facts in, effects out.
//!
//! No server, no clock, no tasks. A caller has a connection with a session to each server, and says what comes from them; this
//! says what to ask them for, and whether the lock is held. One `Protocol` is one request for one lock, from its beginning to
//! its end. The rules:
//!
//! - The servers are asked in one fixed ascending order, and each only when those before it have granted: no client waits for a
//!   server while it has a higher one that another could need, so clients never wait for each other in a circle.
//! - A server that cannot be reached, or that refuses, is passed over. If those that are left do not suffice for a majority,
//!   everything is given back and the round begins again from the lowest server.
//! - If fewer than a majority of the servers can be reached, everything is given back at once, and nothing waits anywhere, until
//!   a majority can be reached again. Otherwise this client would keep others from a lock that it cannot have.
//! - If a hold is lost before there is a majority, everything is given back and the round begins again: to ask the lower server
//!   anew while a higher one is held would be against the order.
//! - With holds of a majority, the lock's token is the greatest of theirs, and it is written back (LOCK.RAISE) until a majority has
//!   at least this token. Only then is the lock held. Any later majority has one of these servers, so its token is greater.
//! - Who has a majority also asks the other servers, and all at once: it waits for nothing that it needs, so the order does not
//!   matter. So a lock outlives the loss of single servers, also one after the other.
//! - The lock is lost when a majority is no longer held. A hold counts until the moment up to which its connection vouches for
//!   it: [`majority_vouches`].
//!
//! What makes the count of holds right is not decided here, but is true of each server: while a client believes in a hold there,
//! nobody else is granted it. For that the hold belongs to a session whose grace is longer than the connection vouches for it
//! without an answer; the server's quarantine is as long as that, for a restart without files; and no replica takes its place.
//!
//! When you add a fact, also give it to the model (`model.rs`) and to the simulation (`simulation.rs`).

/// Which of the servers, from 0, in the order in which all clients name them.
pub type Server = usize;

/// A fencing token.
pub type Token = u64;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// The server can be asked.
    Reached(Server),
    /// The server cannot be asked for the moment. What it granted is held still: that it is lost is another fact.
    Unreached(Server),
    /// What was asked for is granted.
    Granted(Server, Token),
    /// What was asked for is not granted.
    Refused(Server),
    /// What was asked for is not granted, since to wait would never end. That is so at other servers, too.
    Deadlocked(Server),
    /// A hold is no more, or is not vouched for any more.
    Lost(Server),
    /// The hold has this token now.
    Raised(Server, Token),
    /// The hold keeps its token.
    RaiseRefused(Server),
    /// The lock is wanted no more, or is given back.
    GivenUp,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask this server for the lock. `is_needed` is whether the lock is not held without it: only then is the caller's wish not to
    /// wait to be followed.
    Ask { server: Server, is_needed: bool },
    /// Take back what this server was asked for: its place in the queue, and the hold if there is one. Nothing that the server
    /// says of it any more is a fact.
    Withdraw(Server),
    /// See that this server's hold has at least this token. If the connection breaks meanwhile, on the next one.
    Raise(Server, Token),
    /// The lock is held, with this token.
    Held(Token),
    /// The lock was held, and is lost. This is the end. What is left of it is withdrawn next, as soon as whoever was told that it
    /// is held relies on that no longer.
    Lost,
    /// So many servers refuse that there is no majority. This is the end.
    Failed,
}

/// What a server was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Hold {
    None,
    Asked,
    Held(Token),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    hold: Hold,
    is_reached: bool,
    /// It has refused what it was asked for, and is not asked again before it was reached anew.
    is_refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// No majority can be reached; nothing is asked for.
    Apart,
    /// A round: servers below this one have been asked in it, or were passed over.
    Asking(Server),
    /// A majority is held, and its token is written back.
    Raising,
    Held,
    Over,
}

/// One request for one lock on several servers.
///
/// Invariant: in `Apart` and `Over` nothing is asked for or held; in `Asking` one server at most is asked, and it is higher than
/// all that are held; in `Raising` and `Held` a majority is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Protocol {
    places: Vec<Place>,
    phase: Phase,
    /// The lock's, once a majority is held.
    token: Token,
    /// What the model takes away to see whether it is missed.
    #[cfg(test)]
    broken: Option<Rule>,
}

/// The rules that a model can break.
#[cfg_attr(not(test), expect(dead_code, reason = "each of them holds"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// After the loss of a hold before there is a majority, all is given back.
    BeginAgain,
    /// Without reach of a majority all is given back.
    GiveBackWithoutReach,
    /// The token is written back to a majority.
    WriteBack,
    /// A hold counts only as long as it is vouched for.
    Vouched,
}

impl Protocol {
    /// Wanted, while no server is reached yet.
    pub fn new(servers: usize) -> Protocol {
        let place = Place {
            hold: Hold::None,
            is_reached: false,
            is_refused: false,
        };
        Protocol {
            places: vec![place; servers],
            phase: Phase::Apart,
            token: 0,
            #[cfg(test)]
            broken: None,
        }
    }

    /// The same without this rule.
    #[cfg(test)]
    pub fn without(mut self, rule: Option<Rule>) -> Protocol {
        self.broken = rule;
        self
    }

    /// Handles one fact and appends what is to be done. O(servers), and the servers once more for each round that begins.
    pub fn handle(&mut self, fact: Fact, effects: &mut Vec<Effect>) {
        if self.phase == Phase::Over {
            return;
        }
        match fact {
            Fact::Reached(server) => self.reached(server, effects),
            Fact::Unreached(server) => self.unreached(server, effects),
            Fact::Granted(server, token) => self.granted(server, token, effects),
            Fact::Refused(server) => self.refused(server, effects),
            Fact::Deadlocked(server) => self.deadlocked(server, effects),
            Fact::Lost(server) => self.lost(server, effects),
            Fact::Raised(server, token) => self.raised(server, token, effects),
            Fact::RaiseRefused(server) => self.raise_refused(server, effects),
            Fact::GivenUp => {
                self.give_all_back(effects);
                self.phase = Phase::Over;
            }
        }
    }

    /// Until when the lock is held, if each server vouches for its hold until the moment that this says; nothing while the lock is
    /// not held. O(servers).
    #[cfg(test)]
    pub fn held_until<T: Ord + Copy>(&self, vouched_until: impl Fn(Server) -> T) -> Option<T> {
        let held = (0..self.places.len()).filter(|server| self.is_held(*server));
        match self.phase {
            Phase::Held => majority_vouches(held.map(vouched_until), self.places.len()),
            _ => None,
        }
    }

    /// Whether the lock is held or lacks only the writing back of its token.
    #[cfg(test)]
    pub fn has_majority(&self) -> bool {
        matches!(self.phase, Phase::Raising | Phase::Held)
    }

    /// Whether it waits for a majority to be reached.
    pub fn is_apart(&self) -> bool {
        self.phase == Phase::Apart
    }

    /// Whether it is over: lost, failed or given up.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether this server's hold is one of the lock's. O(1).
    pub fn is_held(&self, server: Server) -> bool {
        matches!(self.places[server].hold, Hold::Held(_))
    }

    // ---- the facts ----

    fn reached(&mut self, server: Server, effects: &mut Vec<Effect>) {
        self.places[server].is_reached = true;
        match self.phase {
            Phase::Apart if self.has_reach() => self.begin_round(effects),
            Phase::Raising | Phase::Held => self.ask_the_others(effects),
            Phase::Apart | Phase::Asking(_) | Phase::Over => {}
        }
    }

    fn unreached(&mut self, server: Server, effects: &mut Vec<Effect>) {
        let place = &mut self.places[server];
        place.is_reached = false;
        place.is_refused = false;
        if place.hold == Hold::Asked {
            place.hold = Hold::None;
            effects.push(Effect::Withdraw(server));
        }
        self.go_on(effects);
    }

    fn granted(&mut self, server: Server, token: Token, effects: &mut Vec<Effect>) {
        if self.places[server].hold != Hold::Asked {
            return;
        }
        self.places[server].hold = Hold::Held(token);
        match self.phase {
            Phase::Raising | Phase::Held => {
                self.raise(server, effects);
                self.count_raised(effects);
            }
            Phase::Apart | Phase::Asking(_) | Phase::Over => self.go_on(effects),
        }
    }

    fn refused(&mut self, server: Server, effects: &mut Vec<Effect>) {
        let place = &mut self.places[server];
        if place.hold == Hold::Asked {
            place.hold = Hold::None;
            place.is_refused = true;
            self.go_on(effects);
        }
    }

    fn deadlocked(&mut self, server: Server, effects: &mut Vec<Effect>) {
        match self.phase {
            // It waits for nothing that it needs.
            Phase::Raising | Phase::Held => self.refused(server, effects),
            _ if self.places[server].hold == Hold::Asked => self.fail(effects),
            _ => {}
        }
    }

    fn lost(&mut self, server: Server, effects: &mut Vec<Effect>) {
        if !self.is_held(server) {
            return;
        }
        self.places[server].hold = Hold::None;
        let has_majority = self.held() >= self.majority();
        match self.phase {
            Phase::Held if !has_majority => {
                effects.push(Effect::Lost);
                self.give_all_back(effects);
                self.phase = Phase::Over;
            }
            Phase::Raising | Phase::Held if has_majority => self.ask_the_others(effects),
            _ if self.is_broken(Rule::BeginAgain) => {
                self.phase = Phase::Asking(0);
                self.go_on(effects);
            }
            _ => {
                self.give_all_back(effects);
                self.begin_round(effects);
            }
        }
    }

    fn raised(&mut self, server: Server, token: Token, effects: &mut Vec<Effect>) {
        if let Hold::Held(now) = &mut self.places[server].hold {
            *now = token.max(*now);
            self.count_raised(effects);
        }
    }

    /// It counts as a hold; but if the token cannot be had on a majority, nothing can.
    fn raise_refused(&mut self, server: Server, effects: &mut Vec<Effect>) {
        self.places[server].is_refused = true;
        if self.phase == Phase::Raising {
            let can_be = |place: &&Place| match place.hold {
                Hold::Held(token) => token >= self.token || !place.is_refused,
                Hold::Asked => true,
                Hold::None => false,
            };
            if self.places.iter().filter(can_be).count() < self.majority() {
                self.fail(effects);
            }
        }
    }

    // ---- what follows ----

    /// Begins a round from the lowest server, or waits for a majority to be reached. Nothing is held.
    fn begin_round(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Asking(0);
        self.go_on(effects);
    }

    /// Looks what is next in a round.
    fn go_on(&mut self, effects: &mut Vec<Effect>) {
        while let Phase::Asking(next) = self.phase {
            if self.held() >= self.majority() {
                return self.begin_raising(effects);
            }
            if !self.has_reach() && !self.is_broken(Rule::GiveBackWithoutReach) {
                self.give_all_back(effects);
                self.phase = Phase::Apart;
                return;
            }
            let is_asked = |place: &Place| place.hold == Hold::Asked;
            let asked = self.places.iter().filter(|place| is_asked(place)).count();
            let mut open = (next..self.places.len()).filter(|server| self.is_open(*server));
            let (first, more) = (open.next(), open.count());
            let possible = self.held() + asked + usize::from(first.is_some()) + more;
            match first {
                _ if possible < self.majority() => {
                    if self.is_broken(Rule::GiveBackWithoutReach) {
                        return;
                    }
                    self.give_all_back(effects);
                    let usable = (0..self.places.len()).filter(|server| self.is_open(*server));
                    if usable.count() < self.majority() {
                        return self.fail(effects);
                    }
                    self.phase = Phase::Asking(0);
                }
                Some(server) if asked == 0 => {
                    self.phase = Phase::Asking(server + 1);
                    return self.ask(server, true, effects);
                }
                _ => return,
            }
        }
    }

    fn begin_raising(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Raising;
        self.token = self
            .places
            .iter()
            .filter_map(Place::token)
            .max()
            .unwrap_or(0);
        for server in 0..self.places.len() {
            self.raise(server, effects);
        }
        self.ask_the_others(effects);
        self.count_raised(effects);
    }

    /// Writes the lock's token back to this server, if it is held there with a lower one.
    fn raise(&self, server: Server, effects: &mut Vec<Effect>) {
        let token = self.places[server].token();
        if token.is_some_and(|token| token < self.token) {
            effects.push(Effect::Raise(server, self.token));
        }
    }

    fn count_raised(&mut self, effects: &mut Vec<Effect>) {
        let tokens = self.places.iter().filter_map(Place::token);
        let raised = tokens.filter(|token| *token >= self.token).count();
        let is_enough = raised >= self.majority() || self.is_broken(Rule::WriteBack);
        if self.phase == Phase::Raising && is_enough {
            self.phase = Phase::Held;
            effects.push(Effect::Held(self.token));
        }
    }

    fn ask_the_others(&mut self, effects: &mut Vec<Effect>) {
        for server in 0..self.places.len() {
            if self.is_open(server) {
                self.ask(server, false, effects);
            }
        }
    }

    fn ask(&mut self, server: Server, is_needed: bool, effects: &mut Vec<Effect>) {
        self.places[server].hold = Hold::Asked;
        effects.push(Effect::Ask { server, is_needed });
    }

    fn give_all_back(&mut self, effects: &mut Vec<Effect>) {
        for (server, place) in self.places.iter_mut().enumerate() {
            if std::mem::replace(&mut place.hold, Hold::None) != Hold::None {
                effects.push(Effect::Withdraw(server));
            }
        }
    }

    fn fail(&mut self, effects: &mut Vec<Effect>) {
        self.give_all_back(effects);
        effects.push(Effect::Failed);
        self.phase = Phase::Over;
    }

    // ---- what is so ----

    fn majority(&self) -> usize {
        majority(self.places.len())
    }

    fn held(&self) -> usize {
        self.places.iter().filter_map(Place::token).count()
    }

    fn has_reach(&self) -> bool {
        let reached = self.places.iter().filter(|place| place.is_reached);
        reached.count() >= self.majority()
    }

    /// Whether it can be asked now.
    fn is_open(&self, server: Server) -> bool {
        let place = &self.places[server];
        place.hold == Hold::None && place.is_reached && !place.is_refused
    }

    #[cfg(test)]
    fn is_broken(&self, rule: Rule) -> bool {
        self.broken == Some(rule)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "the tests' has one")]
    fn is_broken(&self, _: Rule) -> bool {
        false
    }
}

/// How many of so many servers are a majority.
pub fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// Until when a majority of so many servers vouches for a lock, of which those that it is held on vouch until these moments; nothing
/// if they are no majority. O(servers).
pub fn majority_vouches<T: Ord + Copy>(
    until: impl Iterator<Item = T>,
    servers: usize,
) -> Option<T> {
    let mut until: Vec<T> = until.collect();
    until.sort_unstable();
    // So many vouch for at least as long.
    let at = until.len().checked_sub(majority(servers))?;
    until.get(at).copied()
}

impl Place {
    fn token(&self) -> Option<Token> {
        match self.hold {
            Hold::Held(token) => Some(token),
            Hold::None | Hold::Asked => None,
        }
    }
}
