//! Grants that replicas are to acknowledge (`ACKS`) before their owners are told of them.
//!
//! The holds of such a grant are pending, and become their owner's with the acknowledgement. Otherwise the grant is withdrawn:
//! its owner is told so, and its holds end as soon as the keyspace may be written.

use super::changes::Pushes;
use super::command::{Acks, Label, Mode, Spot, Who};
use super::holds::{Hold, Owner};
use super::replies::{Form, News, Push, Reply, Serial};
use super::world::World;

/// What a hold is to the acknowledgements of its grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// It is its owner's.
    #[default]
    Settled,
    Pending,
    /// Its owner was told that it has not got it.
    Withdrawn,
}

/// A grant that waits for acknowledgements. Its connection is there, and speaks for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingGrant {
    pub serial: Serial,
    pub who: Who,
    pub label: Label,
    /// The first key, as it was asked for.
    pub spot: Spot,
    pub mode: Mode,
    pub form: Form,
    pub push: bool,
    /// The lease that begins with the acknowledgement.
    pub lease_ms: Option<u64>,
    pub wanted: u32,
    pub got: u32,
    /// It is known how far replicas must have come.
    pub placed: bool,
    /// When it is withdrawn.
    pub ends: u64,
}

impl World {
    /// Why a request cannot be granted now, if it is to be acknowledged.
    pub(super) fn why_not_acked(&self, who: Who, acks: Option<Acks>) -> Option<Reply> {
        let wanted = acks?.replicas;
        match self.session_of(who) {
            None => Some(Reply::refused("NOSESSION")),
            Some(_) => (wanted > self.replicas).then(|| no_acks(0, wanted)),
        }
    }

    pub(super) fn begin_pending(&mut self, grant: PendingGrant) {
        self.grants.push(grant);
    }

    /// The place in the list of the grant for which a connection stands still.
    pub fn blocking_grant(&self, who: Who) -> Option<usize> {
        let mut all = self.grants.iter();
        all.position(|grant| grant.who == who && !grant.push)
    }

    /// All that was replicated so far ends here.
    pub(super) fn propagated(&mut self) {
        self.grants.iter_mut().for_each(|grant| grant.placed = true);
    }

    /// So many replicas have acknowledged it.
    pub(super) fn acknowledged(&mut self, at: usize, replicas: u32) {
        if replicas < self.grants[at].wanted {
            self.grants[at].got = replicas;
            return;
        }
        self.totals.acknowledged += 1;
        let grant = self.grants.remove(at);
        let ends = grant.lease_ms.map(|ms| self.now + ms);
        for hold in self.holds.iter_mut().filter(|hold| grant.is_of(hold)) {
            (hold.ack, hold.ends) = (Ack::Settled, ends);
        }
        if grant.push {
            let news = News::Granted(grant.mode.kind(), grant.serial);
            let push = self.outcome_of(&grant, news);
            self.tell(vec![push]);
        } else {
            self.answer_late(grant.who, grant.form.granted(grant.serial));
            self.just_granted[grant.who] = Some(grant.serial);
        }
    }

    /// So many replicas are connected.
    pub(super) fn count_replicas(&mut self, replicas: u32) {
        self.replicas = replicas;
        self.withdraw_all(|grant| grant.wanted > replicas);
    }

    /// Those of which a hold has ended.
    pub(super) fn withdraw_broken(&mut self) {
        let broken = std::mem::take(&mut self.broken);
        self.withdraw_all(|grant| broken.contains(&grant.serial));
    }

    /// Those of a connection that speaks for their owner no longer.
    pub(super) fn withdraw_of(&mut self, who: Who) {
        self.withdraw_all(|grant| grant.who == who);
    }

    /// Those whose time is over, in the order of these times.
    pub(super) fn withdraw_due(&mut self) {
        let mut pushes = Vec::new();
        loop {
            let all = self.grants.iter().enumerate();
            let due = all.filter(|(_, grant)| grant.ends <= self.now);
            let Some((at, _)) = due.min_by_key(|(at, grant)| (grant.ends, *at)) else {
                break;
            };
            pushes.extend(self.withdraw(at));
        }
        self.tell(pushes);
    }

    pub(super) fn withdraw_all(&mut self, is_meant: impl Fn(&PendingGrant) -> bool) {
        let mut pushes = Vec::new();
        while let Some(at) = self.grants.iter().position(&is_meant) {
            pushes.extend(self.withdraw(at));
        }
        self.tell(pushes);
    }

    /// Its connection is told so.
    fn withdraw(&mut self, at: usize) -> Pushes {
        let grant = self.take_back_grant(at);
        let (got, wanted) = (grant.got, grant.wanted);
        if grant.push {
            let news = News::NotAcknowledged(grant.mode.kind(), got, wanted);
            return vec![self.outcome_of(&grant, news)];
        }
        self.answer_late(grant.who, no_acks(got, wanted));
        Vec::new()
    }

    /// Withdraws a grant without a word.
    pub(super) fn take_back_grant(&mut self, at: usize) -> PendingGrant {
        self.totals.withdrawn += 1;
        let grant = self.grants.remove(at);
        self.orphan(|hold| grant.is_of(hold));
        grant
    }

    /// What an owner was never told that it has is from now on as if that were no more.
    pub(super) fn orphan(&mut self, is_meant: impl Fn(&Hold) -> bool) {
        let gone = Owner::Gone(self.next_gone());
        for hold in self.holds.iter_mut().filter(|hold| is_meant(hold)) {
            (hold.owner, hold.ack) = (gone, Ack::Withdrawn);
        }
    }

    /// An owner gives up what it was granted and not told of: to it this was a wait. Whether it was such.
    pub(super) fn give_up_pending(&mut self, who: Who, label: Label, spot: Spot) -> bool {
        let own = self.own_hold(who, label, spot);
        let serial = own.map(|at| self.holds[at].serial);
        let mut all = self.grants.iter();
        let Some(at) = all.position(|grant| Some(grant.serial) == serial) else {
            return false;
        };
        self.totals.pushes_given_up += u64::from(self.grants[at].push);
        self.take_back_grant(at);
        true
    }

    /// What became of the rest of the grants of which these holds were, now that these have ended by another hand.
    pub(super) fn lose_grants_of(&mut self, serials: &[Serial]) -> Pushes {
        let mut pushes = Vec::new();
        let mut lost = self.grants.iter().map(|grant| grant.serial);
        let lost: Vec<Serial> = lost.by_ref().filter(|its| serials.contains(its)).collect();
        for serial in lost {
            let mut all = self.grants.iter();
            if let Some(at) = all.position(|grant| grant.serial == serial) {
                pushes.extend(self.withdraw(at));
            }
        }
        pushes
    }

    /// Keys go by other names from now on: who waits for the acknowledgement of one is told so under its old name.
    pub(super) fn withdraw_all_that_go(&mut self, goes: impl Fn(Spot) -> bool) -> Pushes {
        let its = |hold: &&Hold| hold.ack == Ack::Pending && goes(hold.spot);
        let pending = self.holds.iter().filter(its);
        let pending: Vec<Serial> = pending.map(|hold| hold.serial).collect();
        self.lose_grants_of(&pending)
    }

    fn outcome_of(&mut self, grant: &PendingGrant, news: News) -> (Who, Push) {
        self.totals.pushes_told += 1;
        let push = Push {
            spot: grant.spot,
            news,
            label: grant.label,
            unnamed: false,
        };
        (grant.who, push)
    }

    /// What a connection hears when its server becomes a replica: how many of its requests with PUSH fail, how many of those
    /// since they were not acknowledged, and how many holds it loses.
    pub fn outcomes_of_demotion(&self, who: Who) -> [usize; 3] {
        let waits = self.waiters.iter();
        let waits = waits.filter(|waiter| waiter.who == who && waiter.push);
        let grants = self.grants.iter();
        let pending = grants.filter(|grant| grant.who == who && grant.push);
        let is_told = |hold: &&Hold| {
            let is_its = self.voice(hold.owner) == Some(who);
            is_its && hold.ack == Ack::Settled && hold.notify && self.hears_of(hold)
        };
        let lost = self.holds.iter().filter(is_told);
        let pending = pending.count();
        [waits.count() + pending, pending, lost.count()]
    }

    /// A pending hold has a grant, and that a connection that speaks for its owner, which is told of it in time.
    pub(super) fn check_grants(&self) -> Result<(), String> {
        for grant in &self.grants {
            let its = self.holds.iter().filter(|hold| grant.is_of(hold));
            let its: Vec<_> = its.collect();
            let owner = self.owner(grant.who);
            let is_right = |hold: &&Hold| {
                hold.ack == Ack::Pending && hold.owner == owner && hold.ends.is_none()
            };
            let in_time = grant.ends > self.now && grant.got < grant.wanted;
            let there = self.session_of(grant.who).is_some() && grant.wanted <= self.replicas;
            if its.is_empty() || !its.iter().all(is_right) || !in_time || !there {
                return Err(format!("{grant:?} cannot be pending, with {its:?}"));
            }
        }
        let of_a_grant = |hold: &&Hold| {
            let mut grants = self.grants.iter();
            hold.ack != Ack::Pending || grants.any(|grant| grant.is_of(hold))
        };
        if let Some(hold) = self.holds.iter().find(|hold| !of_a_grant(hold)) {
            return Err(format!("{hold:?} is pending for ever"));
        }
        let waits = self.waiters.iter().filter(|waiter| waiter.push).count();
        let pending = self.grants.iter().filter(|grant| grant.push).count();
        let totals = &self.totals;
        let ended = totals.pushes_told + totals.pushes_given_up;
        match totals.pushes_asked == ended + (waits + pending) as u64 {
            true => Ok(()),
            false => Err(format!("not each request is told one outcome: {totals:?}")),
        }
    }
}

impl PendingGrant {
    fn is_of(&self, hold: &super::holds::Hold) -> bool {
        hold.serial == self.serial
    }
}

pub fn no_acks(got: u32, wanted: u32) -> Reply {
    Reply::refused(&format!("NOACKS {got} of {wanted}"))
}
