//! The commands that ask for keys, and those that give locks back.

use super::acks::{Ack, PendingGrant};
use super::command::{
    Acks, Ask, Command, Label, Mode, Name, Raised, Spot, Task, Wait, Who, is_notified,
};
use super::entry::Value;
use super::holds::Hold;
use super::queues::Waiter;
use super::replies::{Form, Reply, Serial};
use super::world::{Turn, World};

/// A request for keys.
struct Request {
    who: Who,
    spots: Vec<Spot>,
    mode: Mode,
    value: Value,
    label: Label,
    task: Task,
    lease_ms: Option<u64>,
    reentrant: bool,
    notify: bool,
    wait: Option<Wait>,
    acks: Option<Acks>,
    form: Form,
}

impl World {
    pub(super) fn settp(&mut self, turn: &Turn, command: &Command) -> Reply {
        let Command::Settp {
            key,
            value,
            token,
            notify,
            task,
            wait,
            acks,
        } = command
        else {
            unreachable!()
        };
        let form = match token {
            true => Form::SettpToken,
            false => Form::Settp,
        };
        let ask = Ask {
            notify: *notify,
            task: *task,
            wait: *wait,
            acks: *acks,
            ..Ask::default()
        };
        self.ask_for_temporary(turn, (*key, *value), ask, form)
    }

    pub(super) fn ask_for_temporary(
        &mut self,
        turn: &Turn,
        (key, value): (Name, u32),
        ask: Ask,
        form: Form,
    ) -> Reply {
        if turn.in_exec && ask.acks.is_some() {
            return in_transaction();
        }
        self.request(Request {
            who: turn.who,
            spots: vec![turn.spot(key)],
            mode: Mode::Temporary,
            value: Value::Text(value.to_string()),
            label: 0,
            task: ask.task.unwrap_or(0),
            lease_ms: None,
            reentrant: false,
            notify: is_notified(ask.notify, ask.wait),
            wait: ask.wait.filter(|_| !turn.in_exec),
            acks: ask.acks,
            form,
        })
    }

    pub(super) fn acquire(&mut self, turn: &Turn, keys: &[Name], mode: Mode, ask: &Ask) -> Reply {
        if turn.in_exec && ask.acks.is_some() {
            return in_transaction();
        }
        self.request(Request {
            who: turn.who,
            spots: turn.spots(keys),
            mode,
            value: Value::Lock,
            label: ask.label,
            task: ask.task.unwrap_or(ask.label),
            lease_ms: ask.lease_ms,
            reentrant: ask.reentrant,
            notify: is_notified(ask.notify, ask.wait),
            wait: ask.wait.filter(|_| !turn.in_exec),
            acks: ask.acks,
            form: Form::Lock,
        })
    }

    fn request(&mut self, request: Request) -> Reply {
        for spot in &request.spots {
            self.remove_left_at(*spot);
        }
        if request.mode != Mode::Temporary && self.is_any_no_lock(&request.spots) {
            return Reply::refused("WRONGTYPE");
        }
        match self.again(&request) {
            Ok(Some(serial)) => return Reply::Token(serial),
            Ok(None) => {}
            Err(refusal) => return refusal,
        }
        let is_free = |spot: &Spot| {
            !self.is_strangers(*spot)
                && !self.is_waited_for(*spot)
                && self.admits(*spot, request.mode)
        };
        let free = request.spots.iter().all(is_free);
        if !free && request.wait.is_none() {
            return request.form.not_granted();
        }
        self.totals.quarantined += u64::from(free && self.is_quarantined());
        if self.is_quarantined() && request.wait.is_none() {
            return Reply::refused("QUARANTINE");
        }
        let places = self
            .waiters
            .iter()
            .filter(|waiter| waiter.who == request.who);
        let places: usize = places.map(|waiter| waiter.spots.len()).sum();
        let taken = self.holds_of(request.who).len() + places;
        if taken + request.spots.len() > self.limits.keys {
            return Reply::refused("ERR too many keys");
        }
        match request.wait {
            _ if free && !self.is_quarantined() => self.grant_at_once(&request),
            Some(wait) => self.queue_up(request, wait),
            None => unreachable!(),
        }
    }

    fn is_any_no_lock(&self, spots: &[Spot]) -> bool {
        let mut entries = spots.iter().filter_map(|spot| self.entry(*spot));
        entries.any(|entry| entry.value != Value::Lock)
    }

    /// An owner that has the lock it asks for has it one deeper, if it said each time that it may; else once is all.
    fn again(&mut self, request: &Request) -> Result<Option<Serial>, Reply> {
        for spot in &request.spots {
            if let (Mode::Permits { total, .. }, Some(hold)) =
                (request.mode, self.holds_at(*spot).first())
                && let Mode::Permits { total: t, .. } = hold.mode
                && t != total
            {
                return Err(Reply::refused("ERR the semaphore has another total"));
            }
        }
        if self.is_once(request) {
            return Err(match request.wait {
                None => request.form.not_granted(),
                Some(_) => {
                    self.totals.deadlocks_refused += 1;
                    Reply::refused("DEADLOCK this owner")
                }
            });
        }
        let own: Vec<usize> = (request.spots.iter())
            .filter_map(|spot| self.own_lock_at(request, *spot))
            .collect();
        let Some(first) = own.first().map(|at| self.holds[*at].clone()) else {
            return Ok(None);
        };
        if own.len() < request.spots.len() {
            return Err(Reply::refused("ERR this owner holds '"));
        }
        let as_one = |at: &usize| self.holds[*at].serial == first.serial;
        if !own.iter().all(as_one) {
            return Err(Reply::refused("ERR this owner holds these locks"));
        }
        let reenters = |at: &usize| self.holds[*at].mode.reenters_as(request.mode);
        if !own.iter().all(reenters) {
            return Err(Reply::refused(
                "ERR this owner holds the lock in another way",
            ));
        }
        let ends = request.lease_ms.map(|ms| self.now + ms);
        for at in own {
            self.reenter(at, request.mode, ends, request.notify);
        }
        Ok(Some(first.serial))
    }

    /// Whether the owner has one of the locks and did not say each time that it takes it again, or waits for one of the keys
    /// that it has not.
    fn is_once(&self, request: &Request) -> bool {
        request
            .spots
            .iter()
            .any(|spot| match self.own_lock_at(request, *spot) {
                Some(at) => {
                    let own = &self.holds[at];
                    !(own.reentrant && request.reentrant && own.ack == Ack::Settled)
                }
                None => {
                    let queue = self.queue(*spot);
                    let mut owners = queue.iter().map(|waiter| (waiter.who, waiter.label));
                    owners.any(|owner| owner == (request.who, request.label))
                }
            })
    }

    /// What the owner of a request for locks has of this key.
    fn own_lock_at(&self, request: &Request, spot: Spot) -> Option<usize> {
        let own = self.own_hold(request.who, request.label, spot);
        own.filter(|_| request.mode != Mode::Temporary)
    }

    pub(super) fn reenter(&mut self, at: usize, mode: Mode, ends: Option<u64>, notify: bool) {
        self.totals.reentries += 1;
        let resumed = self.resumed(self.holds[at].owner);
        let hold = &mut self.holds[at];
        if notify {
            (hold.notify, hold.asked_in) = (true, resumed);
        }
        match hold.mode == mode {
            true => hold.depth += 1,
            false => hold.below += 1,
        }
        hold.ends = ends.or(hold.ends);
    }

    fn grant_at_once(&mut self, request: &Request) -> Reply {
        if let Some(refusal) = self.why_not_acked(request.who, request.acks) {
            self.totals.unacked += 1;
            return refusal;
        }
        let serial = self.next_serial();
        for spot in &request.spots {
            let owner = self.owner(request.who);
            let hold = Hold {
                owner,
                label: request.label,
                task: request.task,
                spot: *spot,
                mode: request.mode,
                reentrant: request.reentrant,
                notify: request.notify,
                asked_in: self.resumed(owner),
                renamed: false,
                depth: 1,
                below: 0,
                serial,
                granted_as: serial,
                ack: match request.acks {
                    Some(_) => Ack::Pending,
                    None => Ack::Settled,
                },
                // That of a grant which is to be acknowledged begins with that.
                ends: match request.acks {
                    Some(_) => None,
                    None => request.lease_ms.map(|ms| self.now + ms),
                },
            };
            self.write_down(hold, request.value.clone(), false);
        }
        let Some(acks) = request.acks else {
            return request.form.granted(serial);
        };
        let push = request.wait.is_some_and(|wait| wait.push);
        self.totals.pushes_asked += u64::from(push);
        self.begin_pending(PendingGrant {
            serial,
            who: request.who,
            label: request.label,
            spot: request.spots[0],
            mode: request.mode,
            form: request.form,
            push,
            lease_ms: request.lease_ms,
            wanted: acks.replicas,
            got: 0,
            placed: false,
            ends: self.now + acks.timeout_ms,
        });
        match push {
            true => request.form.not_granted(),
            false => Reply::Blocked,
        }
    }

    fn queue_up(&mut self, request: Request, wait: Wait) -> Reply {
        if request.acks.is_some() && self.session_of(request.who).is_none() {
            return Reply::refused("NOSESSION");
        }
        self.waiters.push(Waiter {
            who: request.who,
            label: request.label,
            task: request.task,
            spots: request.spots,
            mode: request.mode,
            reentrant: request.reentrant,
            notify: request.notify,
            value: request.value,
            lease_ms: request.lease_ms,
            acks: request.acks,
            ends: (wait.limit_ms > 0).then(|| self.now + wait.limit_ms),
            push: wait.push,
            form: request.form,
        });
        let newest = self.waiters.len() - 1;
        if self.closes_cycle(newest) {
            self.waiters.pop();
            self.totals.deadlocks_refused += 1;
            return Reply::refused("DEADLOCK");
        }
        if !wait.push && self.is_subscribed(request.who) && !self.blocks_subscribed {
            self.waiters.pop();
            return Reply::refused("ERR this server blocks no client");
        }
        self.totals.pushes_asked += u64::from(wait.push);
        match wait.push {
            true => request.form.not_granted(),
            false => Reply::Blocked,
        }
    }

    pub(super) fn release_lock(
        &mut self,
        turn: &Turn,
        key: Name,
        label: Label,
        all: bool,
    ) -> Reply {
        let gave_up = all && self.give_up_lock(turn, key, label);
        let Some(at) = self.own_lock(turn.who, label, turn.spot(key)) else {
            return match gave_up {
                true => Reply::Int(0),
                false => Reply::refused("NOTHELD"),
            };
        };
        let hold = &mut self.holds[at];
        let left = if all { 0 } else { hold.whole_depth() - 1 };
        if left == 0 {
            self.release(at);
        } else if hold.depth > 1 {
            hold.depth -= 1;
        } else {
            (hold.mode, hold.depth, hold.below) = (Mode::Shared, left, 0);
            self.serve(turn.spot(key));
        }
        Reply::Int(left.into())
    }

    /// Whether it waited for the lock, or for the acknowledgement of its grant.
    fn give_up_lock(&mut self, turn: &Turn, key: Name, label: Label) -> bool {
        let spot = turn.spot(key);
        let is_lock = |waiter: &Waiter| waiter.label == label && waiter.mode != Mode::Temporary;
        let waited = self.give_up(turn.who, spot, is_lock);
        self.totals.cancels += u64::from(waited);
        let own = self.own_hold(turn.who, label, spot);
        let lock = own.filter(|at| self.holds[*at].mode != Mode::Temporary);
        match lock {
            Some(at) if self.give_up_pending(turn.who, label, spot) => {
                self.release(at);
                true
            }
            _ => waited,
        }
    }

    pub(super) fn extend(&mut self, turn: &Turn, key: Name, label: Label, lease_ms: u64) -> Reply {
        let Some(at) = self.own_lock(turn.who, label, turn.spot(key)) else {
            return Reply::refused("NOTHELD");
        };
        self.holds[at].ends = Some(self.now + lease_ms);
        Reply::Int(1)
    }

    /// A raised token is that of no other hold, before or after.
    pub(super) fn raise(&mut self, turn: &Turn, key: Name, label: Label, to: Raised) -> Reply {
        let Some(at) = self.settled_hold(turn.who, label, turn.spot(key)) else {
            return Reply::refused("NOTHELD");
        };
        match to {
            Raised::Least => {}
            Raised::Above(_) => {
                self.totals.raises += 1;
                self.last_serial += 1;
                self.holds[at].serial = self.last_serial;
            }
            Raised::TooFar => return Reply::refused("ERR the token is more than a second ahead"),
        }
        Reply::Token(self.holds[at].serial)
    }

    /// What an owner holds, and was told of.
    fn settled_hold(&mut self, who: Who, label: Label, spot: Spot) -> Option<usize> {
        let own = self.own_hold(who, label, spot);
        own.filter(|at| self.holds[*at].ack == Ack::Settled)
    }

    fn own_lock(&mut self, who: Who, label: Label, spot: Spot) -> Option<usize> {
        let at = self.settled_hold(who, label, spot)?;
        (self.holds[at].mode != Mode::Temporary).then_some(at)
    }
}

fn in_transaction() -> Reply {
    Reply::refused("ERR option ACKS cannot be used in a transaction")
}
