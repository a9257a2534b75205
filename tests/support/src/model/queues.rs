//! Who waits for what: one list of requests, in the order in which they came. A key's queue are those
//! among them that ask for it.

use super::acks::{Ack, PendingGrant, no_acks};
use super::command::{Acks, Label, Mode, Spot, Task, Who};
use super::entry::Value;
use super::holds::Hold;
use super::replies::{Form, Heard, News, Push, Reply};
use super::world::World;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub who: Who,
    pub label: Label,
    pub task: Task,
    pub spots: Vec<Spot>,
    pub mode: Mode,
    pub reentrant: bool,
    pub notify: bool,
    pub value: Value,
    pub lease_ms: Option<u64>,
    pub acks: Option<Acks>,
    /// When its time is over.
    pub ends: Option<u64>,
    pub push: bool,
    pub form: Form,
}

impl World {
    /// Who waits for a key, in order.
    pub fn queue(&self, spot: Spot) -> Vec<&Waiter> {
        let all = self.waiters.iter();
        all.filter(|waiter| waiter.spots.contains(&spot)).collect()
    }

    pub fn is_waited_for(&self, spot: Spot) -> bool {
        !self.queue(spot).is_empty()
    }

    /// The place in the list of the wait for whose end a connection stands still.
    fn blocking(&self, who: Who) -> Option<usize> {
        let mut all = self.waiters.iter();
        all.position(|waiter| waiter.who == who && !waiter.push)
    }

    pub fn is_blocked(&self, who: Who) -> bool {
        self.blocking(who).is_some() || self.blocking_grant(who).is_some()
    }

    /// First in line for each of its keys, and all of them can be had.
    fn can_be_served(&self, waiter: &Waiter) -> bool {
        let (who, label) = (waiter.who, waiter.label);
        !self.writes_refused
            && !self.is_quarantined()
            && waiter.spots.iter().all(|spot| {
                let has_it = self.own_hold(who, label, *spot).is_some();
                let admitted = !has_it && self.admits(*spot, waiter.mode);
                let first = self.queue(*spot)[0];
                std::ptr::eq(first, waiter) && !self.is_strangers(*spot) && admitted
            })
    }

    /// Somebody who could have been served and was not.
    pub fn first_servable(&self) -> Option<&Waiter> {
        self.waiters
            .iter()
            .find(|waiter| self.can_be_served(waiter))
    }

    /// Serves a key's queue as far as that goes in one step; whether anybody was.
    pub(super) fn serve(&mut self, spot: Spot) -> bool {
        let (mut served, mut turns) = (0, 0);
        while turns < self.limits.together {
            turns += 1;
            let mut all = self.waiters.iter();
            let head = all.position(|waiter| waiter.spots.contains(&spot));
            match head {
                Some(at) if self.can_be_served(&self.waiters[at]) => {
                    served += usize::from(self.has_its_turn(at));
                }
                _ => break,
            }
        }
        served > 0
    }

    /// It is granted what it asked for, or turned away if its user may not have that any more; whether it was granted.
    fn has_its_turn(&mut self, at: usize) -> bool {
        if self.has_lost_rights(&self.waiters[at]) {
            self.turn_away(at);
            return false;
        }
        let Waiter { who, acks, .. } = self.waiters[at];
        if let Some(refusal) = self.why_not_acked(who, acks) {
            self.refuse_unacked(at, refusal);
            return false;
        }
        self.grant(at);
        true
    }

    fn turn_away(&mut self, at: usize) {
        self.totals.waits_lost += 1;
        let waiter = self.waiters.remove(at);
        if waiter.push {
            self.push_to(&waiter, News::TurnedAway(waiter.mode.kind()));
        } else {
            self.answer_late(waiter.who, Reply::refused("NOPERM"));
        }
    }

    fn refuse_unacked(&mut self, at: usize, refusal: Reply) {
        self.totals.unacked += 1;
        let waiter = self.waiters.remove(at);
        let kind = waiter.mode.kind();
        match (waiter.push, waiter.acks) {
            (false, _) => self.answer_late(waiter.who, refusal),
            (true, Some(acks)) if refusal != Reply::refused("NOSESSION") => {
                let news = News::NotAcknowledged(kind, 0, acks.replicas);
                self.push_to(&waiter, news);
            }
            (true, _) => self.push_to(&waiter, News::Sessionless(kind)),
        }
    }

    /// Serves whoever can be, in an order that is not said.
    pub(super) fn serve_all(&mut self) {
        let outer = self.gathered.replace(Vec::new());
        assert!(outer.is_none());
        loop {
            let mut all = self.waiters.iter();
            let Some(at) = all.position(|waiter| self.can_be_served(waiter)) else {
                break;
            };
            self.has_its_turn(at);
        }
        let pushes = self.gathered.take().unwrap_or_default();
        self.tell(pushes);
    }

    fn grant(&mut self, at: usize) {
        let waiter = self.waiters.remove(at);
        let (who, label) = (waiter.who, waiter.label);
        let lease_ms = waiter.lease_ms.filter(|_| waiter.acks.is_none());
        let ends = lease_ms.map(|ms| self.now + ms);
        let serial = self.next_serial();
        for spot in &waiter.spots {
            let owner = self.owner(who);
            let hold = Hold {
                owner,
                label,
                task: waiter.task,
                spot: *spot,
                mode: waiter.mode,
                reentrant: waiter.reentrant,
                notify: waiter.notify,
                asked_in: self.resumed(owner),
                renamed: false,
                depth: 1,
                below: 0,
                serial,
                granted_as: serial,
                ack: match waiter.acks {
                    Some(_) => Ack::Pending,
                    None => Ack::Settled,
                },
                ends,
            };
            // Beside others the lock is theirs as it is; what nobody holds any more is handed over.
            let handed = !self.is_anyones(*spot);
            self.write_down(hold, waiter.value.clone(), handed);
        }
        if let Some(acks) = waiter.acks {
            self.begin_pending(PendingGrant {
                serial,
                who,
                label,
                spot: waiter.spots[0],
                mode: waiter.mode,
                form: waiter.form,
                push: waiter.push,
                lease_ms: waiter.lease_ms,
                wanted: acks.replicas,
                got: 0,
                placed: false,
                ends: self.now + acks.timeout_ms,
            });
            return;
        }
        if waiter.push {
            let news = News::Granted(waiter.mode.kind(), serial);
            self.push_to(&waiter, news);
        } else {
            self.answer_late(who, waiter.form.granted(serial));
            self.just_granted[who] = Some(serial);
        }
    }

    fn push_to(&mut self, waiter: &Waiter, news: News) {
        self.totals.pushes_told += 1;
        let spot = waiter.spots[0];
        let label = waiter.label;
        let push = Push {
            spot,
            news,
            label,
            unnamed: false,
        };
        self.tell(vec![(waiter.who, push)]);
    }

    pub(super) fn answer_late(&mut self, who: Who, reply: Reply) {
        if self.is_swallowed(who) {
            return;
        }
        self.heard[who].push(Heard::Reply {
            reply,
            settles: Vec::new(),
            late: true,
        });
    }

    // ---- waits that end ----

    /// Ends the waits whose time is over.
    pub(super) fn end_waits(&mut self) {
        let now = self.now;
        let is_over = |waiter: &Waiter| waiter.ends.is_some_and(|ends| ends <= now);
        while let Some(at) = self.waiters.iter().position(is_over) {
            self.totals.timeouts += 1;
            let waiter = self.waiters.remove(at);
            if waiter.push {
                self.push_to(&waiter, News::TimedOut(waiter.mode.kind()));
            } else {
                self.answer_late(waiter.who, waiter.form.not_granted());
            }
        }
    }

    /// `CLIENT UNBLOCK`: whether there was somebody to unblock.
    pub(super) fn unblock(&mut self, who: Who, error: bool) -> Reply {
        if let Some(at) = self.blocking_grant(who) {
            let grant = self.take_back_grant(at);
            let reply = match error {
                true => Reply::refused("UNBLOCKED"),
                false => no_acks(grant.got, grant.wanted),
            };
            self.answer_late(who, reply);
            return Reply::Int(1);
        }
        let Some(at) = self.blocking(who) else {
            return Reply::Int(0);
        };
        let waiter = self.waiters.remove(at);
        let reply = match error {
            true => Reply::refused("UNBLOCKED"),
            false => waiter.form.not_granted(),
        };
        self.answer_late(who, reply);
        Reply::Int(1)
    }

    /// A connection gives up those of its places in a key's queue that are meant; whether it had any.
    pub(super) fn give_up(
        &mut self,
        who: Who,
        spot: Spot,
        is_meant: impl Fn(&Waiter) -> bool,
    ) -> bool {
        let before = self.waiters.len();
        let pushed = |world: &World| world.waiters.iter().filter(|its| its.push).count();
        let pushed_before = pushed(self);
        self.waiters.retain(|waiter| {
            waiter.who != who || !waiter.spots.contains(&spot) || !is_meant(waiter)
        });
        self.totals.pushes_given_up += (pushed_before - pushed(self)) as u64;
        self.waiters.len() < before
    }

    /// What a connection was granted, and never heard of, ends as soon as may be.
    pub(super) fn take_back(&mut self, who: Who) {
        let serial = self.just_granted[who].take();
        let owner = self.owner(who);
        self.orphan(|hold| hold.owner == owner && Some(hold.serial) == serial);
    }

    // ---- time ----

    pub(super) fn pass(&mut self, ms: u64) {
        self.now += ms;
        if !self.is_quarantined() {
            self.quarantine_ends = None;
        }
        let outer = self.gathered.replace(Vec::new());
        assert!(outer.is_none());
        self.withdraw_due();
        self.end_waits();
        let pushes = self.gathered.take().unwrap_or_default();
        self.tell(pushes);
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.quarantine_ends.is_some_and(|ends| ends > self.now)
    }

    /// When the next wait, lease or grace ends, or the quarantine.
    pub fn next_end(&self) -> Option<u64> {
        let waits = self.waiters.iter().filter_map(|waiter| waiter.ends);
        let leases = self.holds.iter().filter_map(|hold| hold.ends);
        let graces = self.sessions.iter().filter_map(|session| session.ends);
        let quarantine = self.quarantine_ends;
        let acks = self.grants.iter().map(|grant| grant.ends);
        waits
            .chain(leases)
            .chain(acks)
            .chain(graces)
            .chain(quarantine)
            .min()
    }

    /// The keyspace may be written.
    pub(super) fn work(&mut self, most: usize, order: &[Spot]) {
        let left = self.end_leases(most, order);
        self.serve_all();
        // Each kind has a step at least.
        let left = self.end_graces(left.max(1));
        self.remove_left_behind(left.max(1));
    }

    /// What a server does by itself after each step: it serves who can be, and what ends within a
    /// moment ends.
    pub(super) fn settle(&mut self) {
        const MOMENT_MS: u64 = 100;
        self.serve_all();
        // Of a step's own: locks that it has restored.
        self.remove_left_behind(usize::MAX);
        loop {
            self.serve_all();
            let soon = self.now + MOMENT_MS;
            if self.next_end().is_none_or(|end| end > soon) {
                return;
            }
            self.pass(MOMENT_MS);
            // What ends at the same moment does so in an order that is not said.
            let outer = self.gathered.replace(Vec::new());
            assert!(outer.is_none());
            self.end_leases(usize::MAX, &[]);
            self.end_graces(usize::MAX);
            self.remove_left_behind(usize::MAX);
            let pushes = self.gathered.take().unwrap_or_default();
            self.tell(pushes);
        }
    }
}
