//! Asking for keys: granted at once, queued, or refused.

use crate::engine::deadlock::Verdict;
use crate::engine::effect::{Effect, Refusal, Reply, Waits};
use crate::engine::event::{Acquire, KeySnapshot};
use crate::engine::limits::MAX_DEPTH;
use crate::engine::mode::Mode;
use crate::engine::rules::grant::Making;
use crate::engine::state::holds::Grant;
use crate::engine::state::keys::Lookup;
use crate::engine::state::queues::Request;
use crate::engine::state::rows::{Client, HeldKey, Hold, Name};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, Form, Key, KeyState, Loss, Token};

/// A key of a request, with its reconciled state.
#[derive(Clone, Copy)]
pub(super) struct RequestedKey<'a> {
    key: Key<'a>,
    state: KeyState,
    lookup: Lookup,
}

/// The outcome of a request that is not refused.
pub(super) enum Outcome {
    Granted(Token),
    /// It waits for the key or for acknowledgements, and is answered later.
    Pending,
    NotGranted,
}

/// Whether a request re-enters a hold of its owner.
enum Reentry {
    /// The owner has no such hold.
    None,
    /// The hold was re-entered, with this token; or refused (`None`): not every request was reentrant.
    Answered(Option<Token>),
}

impl Engine {
    pub(in crate::engine) fn acquire(&mut self, ask: Acquire<'_>, effects: &mut Vec<Effect>) {
        let outcome = match self.find_uncontended(&ask) {
            _ if ask.form == Form::Sequence => self.make_next(&ask, effects),
            Some(asked) => self.grant_now(&ask, &[asked], effects),
            None => self.try_acquire(&ask, effects),
        };
        let reply = match outcome {
            Ok(Outcome::Granted(token)) => ask.form.granted(ask.seen[0].key.name, token),
            Ok(Outcome::Pending) if !ask.wait.is_some_and(|wait| wait.push) => {
                return effects.push(Effect::Block);
            }
            Ok(Outcome::Pending | Outcome::NotGranted) => ask.form.not_granted(),
            Err(refusal) => Reply::Refused(refusal),
        };
        effects.push(Effect::Reply(reply));
    }

    /// The fast path: a single key that does not exist and has no record can be granted without further checks.
    pub(super) fn find_uncontended<'a>(&self, ask: &Acquire<'a>) -> Option<RequestedKey<'a>> {
        let &[KeySnapshot { key, state }] = ask.seen else {
            return None;
        };
        if state.is_present() || self.is_quarantined() {
            return None;
        }
        let lookup = self.keys.lookup(key);
        let asked = RequestedKey { key, state, lookup };
        (lookup.held.is_none() && lookup.name.is_none()).then_some(asked)
    }

    fn try_acquire(
        &mut self,
        ask: &Acquire<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        let mut asked = ask
            .seen
            .iter()
            .map(|seen| self.observe(*seen, effects))
            .collect::<Few<_>>();
        self.reconcile(ask, &mut asked, effects);
        let wrong = |asked: &RequestedKey<'_>| asked.state == KeyState::Other;
        if ask.terms.mode.is_lock() && asked.iter().any(wrong) {
            return Err(Refusal::WrongType);
        }
        if let Reentry::Answered(token) = self.re_enter(ask, &asked, effects)? {
            return Ok(token.map_or(Outcome::NotGranted, Outcome::Granted));
        }
        let free = asked
            .iter()
            .all(|asked| self.is_free(asked, ask.terms.mode));
        if !free && ask.wait.is_none() {
            return Ok(Outcome::NotGranted);
        }
        let free = free && !self.is_quarantined();
        if !free && ask.wait.is_none() {
            let left_ms = self.quarantine_left_ms(self.now);
            return Err(Refusal::Quarantine { left_ms });
        }
        match free {
            true => self.grant_now(ask, &asked, effects),
            false => self
                .try_enqueue(ask, &asked, effects)
                .map(|()| Outcome::Pending),
        }
    }

    /// The caller's record, if the request is within its limits. A flush may have freed some: they are swept first.
    fn admit_request(
        &mut self,
        ask: &Acquire<'_>,
        is_plain: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Id<Client>, Refusal> {
        let client = self.client_record(ask.client, effects);
        let wanted = ask.seen.len();
        if self.check_capacity(client, wanted).is_err() {
            self.sweep_holds_of(self.clients.owner(client), effects);
            self.check_capacity(client, wanted)?;
        }
        // A plain temporary key never needs one.
        if !is_plain && (ask.terms.mode.is_lock() || !ask.terms.is_plain()) {
            self.check_extras(ask.seen.len())?;
        }
        Ok(client)
    }

    /// Appends the request to the queue of each key, unless that would close a cycle.
    fn try_enqueue(
        &mut self,
        ask: &Acquire<'_>,
        asked: &[RequestedKey<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        // A waiter may need an `Extra` when it is granted.
        let client = self.admit_request(ask, false, effects)?;
        if ask.terms.acks.is_some() && self.clients[client].session().is_none() {
            return Err(Refusal::AcksWithoutSession);
        }
        let wait = ask.wait.expect("what is not free is waited for");
        let add = |asked: &RequestedKey<'_>| {
            let RequestedKey { key, state, lookup } = *asked;
            self.keys.get_or_insert_name(lookup, key, state)
        };
        let names: Few<_> = asked.iter().map(add).collect();
        let request = Request {
            client,
            terms: ask.terms,
            value: ask.value,
            since: self.now,
            deadline: wait.limit_ms.map(|ms| self.now.after_ms(ms)),
            reply_to: ask.reply_to(),
        };
        let waiter = self.enqueue(&names, &request);
        let verdict = self.find_cycle(waiter);
        self.totals.deadlock_searches_cut += u64::from(matches!(verdict, Verdict::Cut));
        if let Verdict::Cycle(cycle) = verdict {
            self.dequeue(waiter);
            let refusal = self.cycle_refusal(cycle, ask);
            for name in &*names {
                self.keys.remove_name_if_unreferenced(*name);
            }
            self.totals.deadlocks_refused += 1;
            return Err(refusal);
        }
        if self.is_quarantined() {
            // No release will serve them; the end of the quarantine does.
            names.iter().for_each(|name| self.mark_ready(*name));
            self.forget_unawaited();
        }
        self.track_disconnect(client, effects);
        Ok(())
    }

    /// Records the state that the shell saw, and ends holds that it contradicts (another module can delete a key without an
    /// event; a lock can be overwritten).
    pub(super) fn observe<'a>(
        &mut self,
        seen: KeySnapshot<'a>,
        effects: &mut Vec<Effect>,
    ) -> RequestedKey<'a> {
        let KeySnapshot { key, state } = seen;
        let mut lookup = self.keys.lookup(key);
        if let Some(name) = lookup.name {
            self.see(name, state, effects);
        }
        if let Some(held) = lookup.held
            && !self.keys[held].held().matches_state(state)
        {
            let why = state.loss_or(Loss::Deleted);
            self.lose(held, Cause::Server, why, effects);
            lookup.held = None;
        }
        RequestedKey { key, state, lookup }
    }

    /// Ends the caller's expired leases and the orphaned holds of these keys, then re-reads each key's state: releasing one key can
    /// hand another to a multi-key waiter.
    fn reconcile(
        &mut self,
        ask: &Acquire<'_>,
        asked: &mut [RequestedKey<'_>],
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_anything_orphaned() && !self.is_any_lease_over() {
            return;
        }
        for asked in asked.iter_mut() {
            if self.keys.find_held(asked.key).is_some() {
                // The key is deleted with its last hold.
                asked.state = KeyState::Absent;
                self.end_own_lease(ask.client, asked.key, ask.terms.label, effects);
            }
            self.release_orphaned(asked.key, effects);
        }
        for asked in asked.iter_mut() {
            asked.lookup = self.keys.lookup(asked.key);
            if let Some(held) = asked.lookup.held {
                asked.state = self.keys[held].held().key_state();
            }
        }
    }

    /// Re-enters a hold of the owner, if both requests were reentrant. Refuses an owner that already waits for one of the keys.
    fn re_enter(
        &mut self,
        ask: &Acquire<'_>,
        asked: &[RequestedKey<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<Reentry, Refusal> {
        let client = self.clients.find(ask.client);
        let mut held = Vec::new();
        let mut refused = None;
        for Lookup {
            held: key, name, ..
        } in asked.iter().map(|asked| asked.lookup)
        {
            let total = key.and_then(|key| self.mismatched_total(key, ask.terms.mode));
            if let Some(total) = total {
                return Err(Refusal::OtherTotal { total });
            }
            let Some(client) = client else { continue };
            let own = key.and_then(|key| self.own_lock(key, client, ask));
            held.extend(own);
            refused = refused.or_else(|| self.reentry_refusal(name, own, client, ask));
        }
        match (refused, held.first()) {
            (Some(_), _) if ask.wait.is_none() => Ok(Reentry::Answered(None)),
            (Some(refused), _) => {
                self.totals.deadlocks_refused += 1;
                Err(refused)
            }
            (None, Some(_)) => {
                let token = self.reenter(ask, held, effects)?;
                Ok(Reentry::Answered(Some(token)))
            }
            (None, None) => Ok(Reentry::None),
        }
    }

    /// The hold of a lock request's owner on this key.
    fn own_lock(
        &self,
        key: Id<HeldKey>,
        client: Id<Client>,
        ask: &Acquire<'_>,
    ) -> Option<Id<Hold>> {
        if !ask.terms.mode.is_lock() {
            return None;
        }
        let owner = self.clients.owner(client);
        self.holds.find(&self.keys, key, owner, ask.terms.label)
    }

    /// Why the owner, which has the hold `own` or waits at this name, may not acquire the key again; none if it may.
    fn reentry_refusal(
        &self,
        name: Option<Id<Name>>,
        own: Option<Id<Hold>>,
        client: Id<Client>,
        ask: &Acquire<'_>,
    ) -> Option<Refusal> {
        let Some(own) = own else {
            let name = name.filter(|_| self.clients[client].wait_count > 0);
            let wait = name.and_then(|name| {
                let label = ask.terms.label;
                self.queues.find_pushed(name, client, label)
            });
            return wait.map(|_| Refusal::WaitsForIt);
        };
        let of = self.holds[own].header.attributes();
        let may_again = of.reentrant && ask.terms.attributes.reentrant && self.is_settled(own);
        (!may_again).then_some(Refusal::Reentry)
    }

    fn reenter(
        &mut self,
        ask: &Acquire<'_>,
        held: Vec<Id<Hold>>,
        effects: &mut Vec<Effect>,
    ) -> Result<Token, Refusal> {
        let first = held[0];
        let token = self.holds[first].token;
        if held.len() < ask.seen.len() {
            let key = self.keys.key_of(self.holds[first].key).to_owned();
            return Err(Refusal::HeldAlready { key });
        }
        // The reply has one token, which must be that of each key.
        if held.iter().any(|id| self.holds[*id].token != token) {
            return Err(Refusal::HeldApart);
        }
        for id in &held {
            if !self.holds.mode(*id).reenters_as(ask.terms.mode) {
                return Err(Refusal::HeldOtherwise);
            }
            if self.holds.depth(*id) >= MAX_DEPTH {
                return Err(Refusal::TooDeep { limit: MAX_DEPTH });
            }
        }
        self.check_extras_of(&held)?;
        for id in held {
            self.re_enter_hold(id, &ask.terms, effects);
        }
        Ok(token)
    }

    /// The refusal of a request that would close this cycle; blocking behind another label of its own connection has its own, unless
    /// it would be refused with PUSH, too.
    fn cycle_refusal(&self, mut cycle: Vec<Waits>, ask: &Acquire<'_>) -> Refusal {
        let blocks = ask.wait.is_some_and(|wait| !wait.push);
        let is_own = |seen: &KeySnapshot<'_>| {
            let own = self.hold_by(ask.client, seen.key, ask.terms.label);
            own.is_some() || self.is_held_alone_by_task(ask, seen.key)
        };
        let is_alone = matches!(&*cycle, [link] if link.client == ask.client);
        match blocks && is_alone && !ask.seen.iter().any(is_own) {
            true => Refusal::Standstill(Box::new(cycle.swap_remove(0))),
            false => Refusal::Deadlock { cycle },
        }
    }

    /// Whether a request's own task holds a key that nobody can share with it.
    fn is_held_alone_by_task(&self, ask: &Acquire<'_>, key: Key<'_>) -> bool {
        let Some(client) = self.clients.find(ask.client) else {
            return false;
        };
        let key = self.keys.find_held(key);
        let hold = key.and_then(|key| self.keys[key].holds.head());
        hold.is_some_and(|hold| {
            self.holds[hold].client == self.clients.owner(client)
                && !self.holds.mode(hold).admits_others()
                && self.holds.task(hold) == ask.terms.task()
        })
    }

    fn mismatched_total(&self, key: Id<HeldKey>, mode: Mode) -> Option<u32> {
        let Mode::Permits { total: asked, .. } = mode else {
            return None;
        };
        self.holds
            .total(&self.keys, key)
            .filter(|total| *total != asked)
    }

    /// Whether the key can be granted at once: nobody waits for it, and its holders admit the request.
    fn is_free(&self, asked: &RequestedKey<'_>, mode: Mode) -> bool {
        let Lookup { held, name, .. } = asked.lookup;
        let is_awaited = name.is_some_and(|name| !self.keys[name].queue.is_empty());
        !is_awaited
            && match held {
                Some(key) => self.holds.admit(&self.keys, key, mode),
                None => asked.state != KeyState::Other,
            }
    }

    /// Grants all keys of a request; they are free.
    pub(super) fn grant_now(
        &mut self,
        ask: &Acquire<'_>,
        asked: &[RequestedKey<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        let client = self.admit_request(ask, ask.terms.is_plain(), effects)?;
        if let Some(refusal) = ask
            .terms
            .acks
            .and_then(|acks| self.why_not_acked(client, acks))
        {
            return Err(refusal);
        }
        let token = self.next_token(effects);
        let grant = Grant {
            client: self.clients.owner(client),
            terms: ask.terms,
            token,
            since: self.now,
        };
        if let Some(acks) = ask.terms.acks {
            let key = asked[0].key.to_owned();
            self.begin_pending(&grant, acks, ask.reply_to(), key, effects);
        }
        for asked in asked {
            let key = self.keys.get_or_insert_held(asked.lookup, asked.key);
            let making = match ask.in_command {
                true => Making::InCommand,
                false => Making::ByName(ask.value.into()),
            };
            self.grant_key(key, asked.lookup.name, &grant, making, None, effects);
        }
        self.track_disconnect(client, effects);
        Ok(match ask.terms.acks {
            Some(_) => Outcome::Pending,
            None => Outcome::Granted(token),
        })
    }
}
