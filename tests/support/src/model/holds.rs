//! Who holds what: one list of holds, in the order in which they were granted.

use super::acks::Ack;
use super::changes::Pushes;
use super::command::{Label, Mode, Spot, Task, Who};
use super::entry::{Entry, Value};
use super::replies::{Kind, Loss, News, Push, Serial, Tokens};
use super::sessions::Number;
use super::totals::DIED;
use super::world::World;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub owner: Owner,
    pub label: Label,
    pub task: Task,
    pub spot: Spot,
    pub mode: Mode,
    pub reentrant: bool,
    /// Its owner asked to be told of its loss.
    pub notify: bool,
    /// How often its session had been resumed when that was last asked for.
    pub asked_in: u64,
    /// Its key goes by another name than that for which it was granted, as far as this server knows.
    pub renamed: bool,
    /// How often it was acquired in this mode.
    pub depth: u32,
    /// Below an exclusive hold: how often its owner has taken it shared, too.
    pub below: u32,
    pub serial: Serial,
    /// The same when it was granted: its token may have been raised since.
    pub granted_as: Serial,
    pub ack: Ack,
    /// When it ends by itself.
    pub ends: Option<u64>,
}

/// To whom a hold belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Connection(Who),
    Session(Number),
    /// A connection that is no more, here or on a server whose data set this one took over. The
    /// longest gone has the smallest number.
    Gone(u64),
    /// A session whose grace is over, in line with those.
    Over(u64),
}

impl Hold {
    pub fn kind(&self) -> Kind {
        self.mode.kind()
    }

    /// Its owner is no more: it refuses nobody, and ends as soon as may be.
    pub fn is_left_behind(&self) -> bool {
        matches!(self.owner, Owner::Gone(_) | Owner::Over(_))
    }

    pub fn whole_depth(&self) -> u32 {
        self.depth + self.below
    }
}

impl Mode {
    pub fn kind(self) -> Kind {
        match self {
            Mode::Temporary => Kind::Settp,
            _ => Kind::Lock,
        }
    }
}

impl World {
    pub fn holds_at(&self, spot: Spot) -> Vec<&Hold> {
        self.holds.iter().filter(|hold| hold.spot == spot).collect()
    }

    pub fn is_held(&self, spot: Spot) -> bool {
        !self.holds_at(spot).is_empty()
    }

    /// Whether somebody holds it who is no former owner.
    pub fn is_anyones(&self, spot: Spot) -> bool {
        let holds = self.holds_at(spot);
        holds.iter().any(|hold| !hold.is_left_behind())
    }

    pub fn holds_of(&self, who: Who) -> Vec<&Hold> {
        let owner = self.owner(who);
        let own = self.holds.iter().filter(|hold| hold.owner == owner);
        own.collect()
    }

    /// The keys that nobody but this connection holds.
    pub fn held_alone_by(&self, who: Who) -> Vec<Spot> {
        let is_own = |hold: &&Hold| hold.owner == Owner::Connection(who);
        let others = |spot: Spot| self.holds.iter().filter(move |hold| hold.spot == spot);
        let own = self.holds.iter().filter(is_own).map(|hold| hold.spot);
        own.filter(|spot| others(*spot).count() == 1).collect()
    }

    /// The place in the list of what this owner holds at a key.
    pub(super) fn own_hold(&self, who: Who, label: Label, spot: Spot) -> Option<usize> {
        let owner = self.owner(who);
        let mut all = self.holds.iter();
        all.position(|hold| (hold.owner, hold.label, hold.spot) == (owner, label, spot))
    }

    /// Whether those who hold a key let one more hold it in this way.
    pub(super) fn admits(&self, spot: Spot, mode: Mode) -> bool {
        let held = self.holds_at(spot);
        match mode {
            _ if held.is_empty() => true,
            Mode::Temporary | Mode::Exclusive => false,
            Mode::Shared => held.iter().all(|hold| hold.mode == Mode::Shared),
            Mode::Permits { count, total } => {
                let mut taken = count;
                for hold in held {
                    match hold.mode {
                        Mode::Permits { count, total: t } if t == total => taken += count,
                        _ => return false,
                    }
                }
                taken <= total
            }
        }
    }

    /// Something stands there that nobody holds.
    pub(super) fn is_strangers(&self, spot: Spot) -> bool {
        self.exists(spot) && !self.is_held(spot) && self.handing != Some(spot)
    }

    /// A grant is written down, and its key made where it is not there. Whoever is handed a key has
    /// it without the time to live that another gave it.
    pub(super) fn write_down(&mut self, hold: Hold, value: Value, handed: bool) {
        let (spot, is_lock) = (hold.spot, value == Value::Lock);
        self.note_next(&hold);
        self.holds.push(hold);
        match self.entry_mut(spot) {
            Some(entry) if handed || !is_lock => {
                (entry.value, entry.expires) = (value, false);
            }
            Some(_) => {}
            None => self.appear(spot, value),
        }
    }

    pub(super) fn next_serial(&mut self) -> Serial {
        self.totals.grants += 1;
        self.last_serial += 1;
        self.last_serial
    }

    /// Ends a hold; its key is handed over in the same step, or goes.
    pub(super) fn release(&mut self, at: usize) {
        let hold = self.holds.remove(at);
        let spot = hold.spot;
        if hold.ack == Ack::Pending {
            self.broken.push(hold.serial);
        }
        let former = self.handing.replace(spot);
        if self.serve(spot) {
            self.totals.handoffs += 1;
        }
        self.handing = former;
        if !self.is_held(spot) {
            self.take_out(spot);
            self.tell(self.watchers(spot, News::Deleted));
        }
    }

    /// Ends all holds of a key that went by another hand; what their owners hear.
    pub(super) fn lose(&mut self, spot: Spot, by: Option<Who>, loss: Loss) -> Pushes {
        let (lost, left) = self.holds.drain(..).partition(|hold| hold.spot == spot);
        self.holds = left;
        let lost: Vec<Hold> = lost;
        let told = lost.iter().filter_map(|hold| self.lost(hold, by, loss));
        let mut told: Pushes = told.collect();
        let pending = lost.iter().filter(|hold| hold.ack == Ack::Pending);
        let pending: Vec<Serial> = pending.map(|hold| hold.serial).collect();
        told.extend(self.lose_grants_of(&pending));
        told
    }

    /// What the owner of a hold that ends by another hand hears, if it asked for it.
    pub(super) fn lost(&mut self, hold: &Hold, by: Option<Who>, loss: Loss) -> Option<(Who, Push)> {
        let owner = self.voice(hold.owner);
        if hold.ack != Ack::Settled {
            return None;
        }
        if hold.is_left_behind() {
            self.count_end(hold);
            return None;
        }
        if owner.is_some() && by == owner {
            return None;
        }
        self.totals.lost += 1;
        self.note_ending(hold, loss.reason());
        let push = Push {
            spot: hold.spot,
            news: News::Lost(hold.kind(), loss),
            label: hold.label,
            // By the shell, which the simulation has not.
            unnamed: !self.slow
                && hold.renamed
                && owner.is_some_and(|who| self.hides(who, hold.spot)),
        };
        let is_told = hold.notify && self.hears_of(hold);
        is_told.then_some((owner?, push))
    }

    /// Puts holds, and grants that are pending, in the order of the tokens that they were granted with: of some grants the model
    /// does not know which was first.
    pub fn put_in_order(&mut self, tokens: &Tokens) {
        let token = |serial| tokens.at_least_of(serial);
        self.holds.sort_by_key(|hold| token(hold.granted_as));
        self.grants.sort_by_key(|grant| token(grant.serial));
    }

    /// The grants whose tokens can be heard of again.
    pub fn living(&self) -> Vec<Serial> {
        let holds = self.holds.iter();
        holds
            .flat_map(|hold| [hold.serial, hold.granted_as])
            .collect()
    }

    /// Whether the token of this hold is a current one.
    pub fn is_current(&self, hold: &Hold) -> bool {
        let lasts = |ends: Option<u64>| ends.is_none_or(|ends| ends > self.now);
        let is_alive = match hold.owner {
            Owner::Connection(_) => true,
            Owner::Session(number) => self.session(number).is_some_and(|its| lasts(its.ends)),
            Owner::Gone(_) | Owner::Over(_) => false,
        };
        is_alive && hold.ack == Ack::Settled && lasts(hold.ends)
    }

    // ---- leases ----

    /// The holds whose lease is over.
    pub fn due(&self) -> Vec<&Hold> {
        let is_due = |hold: &&Hold| hold.ends.is_some_and(|ends| ends <= self.now);
        self.holds.iter().filter(is_due).collect()
    }

    /// Whether it is not said which of several keys' leases ends first.
    pub fn is_order_of_leases_open(&self) -> bool {
        let due = self.due();
        let ties = |one: &Hold| {
            due.iter()
                .any(|other| other.ends == one.ends && other.spot != one.spot)
        };
        due.iter().any(|hold| ties(hold))
    }

    /// Ends up to so many leases that are over, the earliest first; of equal ones first that whose
    /// key is named first. How many more it could have ended.
    pub(super) fn end_leases(&mut self, most: usize, order: &[Spot]) -> usize {
        for ended in 0..most {
            let due = self.holds.iter().enumerate();
            let due = due.filter(|(_, hold)| hold.ends.is_some_and(|ends| ends <= self.now));
            let first = due.min_by_key(|(_, hold)| {
                let place = order.iter().position(|spot| *spot == hold.spot);
                (hold.ends, place.unwrap_or(usize::MAX))
            });
            let Some((at, hold)) = first else {
                return most - ended;
            };
            let hold = hold.clone();
            let push = self.lost(&hold, None, Loss::Lease);
            self.tell(push.into_iter().collect());
            self.release(at);
        }
        0
    }

    /// Ends the leases on one key that are over, the oldest hold's first.
    pub(super) fn end_leases_at(&mut self, spot: Spot) {
        let now = self.now;
        let is_over = |hold: &Hold| hold.spot == spot && hold.ends.is_some_and(|ends| ends <= now);
        let over = self.holds.iter().filter(|hold| is_over(hold));
        let over: Vec<Hold> = over.cloned().collect();
        for hold in over {
            let push = self.lost(&hold, None, Loss::Lease);
            self.tell(push.into_iter().collect());
            let at = self.holds.iter().position(|other| *other == hold);
            at.into_iter().for_each(|at| self.release(at));
        }
    }

    // ---- what ended connections left ----

    /// Its place in the list: the longest gone owner's oldest hold.
    fn first_left_behind(&self) -> Option<usize> {
        let all = self.holds.iter().enumerate();
        let gone = all.filter_map(|(at, hold)| match hold.owner {
            Owner::Gone(since) | Owner::Over(since) => Some((since, at)),
            Owner::Connection(_) | Owner::Session(_) => None,
        });
        gone.min().map(|(_, at)| at)
    }

    pub fn is_anything_left_behind(&self) -> bool {
        self.first_left_behind().is_some()
    }

    pub(super) fn remove_left_behind(&mut self, most: usize) {
        for _ in 0..most {
            let Some(at) = self.first_left_behind() else {
                return;
            };
            let hold = self.holds[at].clone();
            self.count_end(&hold);
            self.release(at);
        }
    }

    /// The hold of an owner that is no more ends. Nobody of this server's had what one of a former server's held.
    pub(super) fn count_end(&mut self, hold: &Hold) {
        let is_inherited = hold.serial == 0;
        if !is_inherited && hold.ack == Ack::Settled {
            self.note_ending(hold, DIED);
        }
    }

    /// What is asked for anew refuses nobody because of an owner that is no more.
    pub(super) fn remove_left_at(&mut self, spot: Spot) {
        let is_left = |hold: &Hold| hold.spot == spot && hold.is_left_behind();
        while let Some(at) = self.holds.iter().position(is_left) {
            let hold = self.holds[at].clone();
            self.count_end(&hold);
            self.release(at);
        }
    }

    /// What a file says of what a session holds. That it was not acknowledged is nowhere, nor for which of its names it was
    /// granted, nor who asked to be told of its loss.
    pub(super) fn saved(&self, hold: Hold) -> Hold {
        let mut grants = self.grants.iter();
        let grant = grants.find(|grant| grant.serial == hold.serial);
        let begins = grant.and_then(|grant| grant.lease_ms);
        let ends = hold.ends.or(begins.map(|ms| self.now + ms));
        Hold {
            asked_in: 0,
            renamed: false,
            granted_as: hold.serial,
            ack: Ack::Settled,
            ends: ends.map(|ends| ends.max(self.now)),
            ..hold
        }
    }

    pub(super) fn next_gone(&mut self) -> u64 {
        self.gone += 1;
        self.gone
    }

    pub(super) fn leave_behind(&mut self, who: Who) {
        let gone = Owner::Gone(self.next_gone());
        let own = self.holds.iter_mut();
        for hold in own.filter(|hold| hold.owner == Owner::Connection(who)) {
            hold.owner = gone;
        }
        if !self.slow {
            self.serve_all();
            self.remove_left_behind(usize::MAX);
        }
    }

    /// A key that a connection of a former server held.
    pub(super) fn inherit(&mut self, spot: Spot, owner: Owner) {
        if self.is_held(spot) {
            return;
        }
        let is_lock = matches!(
            self.entry(spot),
            Some(Entry {
                value: Value::Lock,
                ..
            })
        );
        self.holds.push(Hold {
            owner,
            label: 0,
            task: 0,
            spot,
            mode: match is_lock {
                true => Mode::Exclusive,
                false => Mode::Temporary,
            },
            reentrant: false,
            notify: false,
            asked_in: 0,
            renamed: false,
            depth: 1,
            below: 0,
            serial: 0,
            granted_as: 0,
            ack: Ack::Settled,
            ends: None,
        });
    }
}
