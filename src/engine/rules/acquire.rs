//! Asking for keys: granted at once, queued, or refused.

use crate::engine::deadlock::Verdict;
use crate::engine::effect::{Effect, Refusal, Reply, Waits};
use crate::engine::event::{Acquire, KeySnapshot};
use crate::engine::limits::{LOOKS_PER_COMMAND, MOST_DEPTH};
use crate::engine::mode::Mode;
use crate::engine::rules::grant::Making;
use crate::engine::state::holds::Grant;
use crate::engine::state::keys::Spot;
use crate::engine::state::queues::Request;
use crate::engine::state::rows::{Asker, Client, HeldKey, Hold, Name};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, Key, KeyState, Loss, Token};

/// A key that is asked for, once what stands there is reconciled.
#[derive(Clone, Copy)]
struct Asked<'a> {
    key: Key<'a>,
    standing: KeyState,
    spot: Spot,
}

/// What becomes of a request that is not refused.
enum Outcome {
    Granted(Token),
    /// It waits for its turn, or is granted once it is acknowledged: it is answered later.
    Comes,
    Not,
}

/// What a request is to the holds and waits that its owner has.
enum Reentry {
    /// There is nothing of that.
    No,
    /// The hold was re-entered, with this token; or not, since not every request asked for that.
    Answered(Option<Token>),
}

impl Engine {
    pub(in crate::engine) fn acquire(&mut self, ask: Acquire<'_>, effects: &mut Vec<Effect>) {
        let outcome = match self.look_for_unknown(&ask) {
            Some(asked) => self.grant_now(&ask, &[asked], effects),
            None => self.try_acquire(&ask, effects),
        };
        let reply = match outcome {
            Ok(Outcome::Granted(token)) => ask.form.granted(token),
            Ok(Outcome::Comes) if !ask.wait.is_some_and(|wait| wait.push) => {
                return effects.push(Effect::Block);
            }
            Ok(Outcome::Comes | Outcome::Not) => ask.form.not_granted(),
            Err(refusal) => Reply::Refused(refusal),
        };
        effects.push(Effect::Reply(reply));
    }

    /// The one key that is asked for, if it is not there and nobody knows it: then it can be had, and there is nothing else to
    /// ask. Mostly that is so.
    fn look_for_unknown<'a>(&self, ask: &Acquire<'a>) -> Option<Asked<'a>> {
        let &[KeySnapshot { key, standing }] = ask.seen else {
            return None;
        };
        if standing.is_present() || self.is_quarantined() {
            return None;
        }
        let spot = self.keys.spot(key);
        let asked = Asked {
            key,
            standing,
            spot,
        };
        (spot.held.is_none() && spot.name.is_none()).then_some(asked)
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
        let wrong = |asked: &Asked<'_>| asked.standing == KeyState::Other;
        if ask.terms.mode.is_lock() && asked.iter().any(wrong) {
            return Err(Refusal::WrongType);
        }
        if let Reentry::Answered(token) = self.re_enter(ask, &asked, effects)? {
            return Ok(token.map_or(Outcome::Not, Outcome::Granted));
        }
        let free = asked
            .iter()
            .all(|asked| self.is_free(asked, ask.terms.mode));
        if !free && ask.wait.is_none() {
            return Ok(Outcome::Not);
        }
        let free = free && !self.is_quarantined();
        if !free && ask.wait.is_none() {
            let left_ms = self.quarantine_left_ms(self.now);
            return Err(Refusal::Quarantine { left_ms });
        }
        match free {
            true => self.grant_now(ask, &asked, effects),
            false => self.line_up(ask, &asked, effects).map(|()| Outcome::Comes),
        }
    }

    /// The caller's record, if it may hold or wait for what it asks for.
    fn admit(
        &mut self,
        ask: &Acquire<'_>,
        is_plain: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Id<Client>, Refusal> {
        let client = self.attend(ask.client, effects);
        let wanted = ask.seen.len();
        if self.check_room(client, wanted).is_err() {
            self.sweep_holds_of(self.clients.owner(client), effects);
            self.check_room(client, wanted)?;
        }
        if ask.terms.mode.is_lock() && !is_plain {
            self.check_extras(ask.seen.len())?;
        }
        Ok(client)
    }

    /// Takes the last place in the queue of each of these keys, unless who has them would then wait for the caller.
    fn line_up(
        &mut self,
        ask: &Acquire<'_>,
        asked: &[Asked<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        // Whoever waits may come to have what plain holds have not.
        let client = self.admit(ask, false, effects)?;
        if ask.terms.acks.is_some() && self.clients[client].session.is_none() {
            return Err(Refusal::AcksWithoutSession);
        }
        let wait = ask.wait.expect("what is not free is waited for");
        let add = |asked: &Asked<'_>| {
            let Asked { key, standing, .. } = *asked;
            self.keys.find_or_add_name(key, standing)
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
        let verdict = self.circle_of(waiter);
        self.totals.deadlock_searches_cut += u64::from(matches!(verdict, Verdict::Cut));
        if let Verdict::Circle(cycle) = verdict {
            self.dequeue(waiter);
            let refusal = self.why_stuck(cycle, ask);
            for name in &*names {
                self.keys.remove_name_if_idle(*name);
            }
            self.totals.deadlocks_refused += 1;
            return Err(refusal);
        }
        if self.is_quarantined() {
            // Nobody's end will have them served: the quarantine's does.
            names.iter().for_each(|name| self.make_ready(*name));
            self.forget_unawaited();
        }
        self.guard(client, effects);
        Ok(())
    }

    /// Observes what the look shows, and ends holds of what is no longer there (another module can
    /// take a key away without an event; a lock can be overwritten).
    fn observe<'a>(&mut self, seen: KeySnapshot<'a>, effects: &mut Vec<Effect>) -> Asked<'a> {
        let KeySnapshot { key, standing } = seen;
        let mut spot = self.keys.spot(key);
        if let Some(name) = spot.name {
            self.set_standing(name, standing, effects);
        }
        if let Some(held) = spot.held
            && !self.keys[held].held().stand_as(standing)
        {
            let why = standing.loss_or(Loss::Deleted);
            self.lose(held, Cause::Server, why, effects);
            spot.held = None;
        }
        Asked {
            key,
            standing,
            spot,
        }
    }

    /// Ends what is over of the caller's and what ended connections left at these keys, and says what stands there then: each can have
    /// been handed over after the look at it, to somebody who waited for several.
    fn reconcile(&mut self, ask: &Acquire<'_>, asked: &mut [Asked<'_>], effects: &mut Vec<Effect>) {
        if !self.is_anything_orphaned() && asked.len() == 1 && !self.is_any_lease_over() {
            return;
        }
        let mut looks = LOOKS_PER_COMMAND;
        for asked in asked.iter_mut() {
            if self.keys.find_held(asked.key).is_some() {
                // It goes with its last hold.
                asked.standing = KeyState::Absent;
                self.end_own_lease(ask.client, asked.key, ask.terms.label, effects);
            }
            self.release_orphaned(asked.key, &mut looks, effects);
        }
        for asked in asked.iter_mut() {
            asked.spot = self.keys.spot(asked.key);
            if let Some(held) = asked.spot.held {
                asked.standing = self.keys[held].held().stands();
            }
        }
    }

    /// Re-enters a hold that the owner already has, if both requests asked for that. Who waits for one of the keys does not ask
    /// for it again.
    fn re_enter(
        &mut self,
        ask: &Acquire<'_>,
        asked: &[Asked<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<Reentry, Refusal> {
        let client = self.clients.find(ask.client);
        let mut held = Vec::new();
        let mut refused = None;
        for Spot {
            held: key, name, ..
        } in asked.iter().map(|asked| asked.spot)
        {
            let total = key.and_then(|key| self.other_total(key, ask.terms.mode));
            if let Some(total) = total {
                return Err(Refusal::OtherTotal { total });
            }
            let Some(client) = client else { continue };
            let own = key.and_then(|key| self.own_lock(key, client, ask));
            held.extend(own);
            refused = refused.or_else(|| self.why_once(name, own, client, ask));
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
            (None, None) => Ok(Reentry::No),
        }
    }

    /// What the owner of a request for a lock holds of this key.
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

    /// Why the owner of a request, which holds a key by `own` or waits for it at this name, may not ask for it again, if so.
    fn why_once(
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
        // The reply has one token, and each key must be held with it.
        if held.iter().any(|id| self.holds[*id].token != token) {
            return Err(Refusal::HeldApart);
        }
        for id in &held {
            if !self.holds.mode(*id).reenters_as(ask.terms.mode) {
                return Err(Refusal::HeldOtherwise);
            }
            if self.holds.depth(*id) >= MOST_DEPTH {
                return Err(Refusal::TooDeep { limit: MOST_DEPTH });
            }
        }
        self.check_extras_of(&held)?;
        for id in held {
            self.re_enter_hold(id, &ask.terms, effects);
        }
        Ok(token)
    }

    /// Why a request is refused that would close this cycle, and stands in no queue any more. One that would block
    /// behind another label of its own connection is told so.
    fn why_stuck(&self, mut cycle: Vec<Waits>, ask: &Acquire<'_>) -> Refusal {
        let stands_still = ask.wait.is_some_and(|wait| !wait.push);
        let is_own = |seen: &KeySnapshot<'_>| {
            let own = self.hold_by(ask.client, seen.key, ask.terms.label);
            own.is_some()
        };
        let is_alone = matches!(&*cycle, [link] if link.client == ask.client);
        match stands_still && is_alone && !ask.seen.iter().any(is_own) {
            true => Refusal::Standstill(Box::new(cycle.swap_remove(0))),
            false => Refusal::Deadlock { cycle },
        }
    }

    fn other_total(&self, key: Id<HeldKey>, mode: Mode) -> Option<u32> {
        let Mode::Permits { total: asked, .. } = mode else {
            return None;
        };
        self.holds.total(key).filter(|total| *total != asked)
    }

    /// Whether a newcomer can have the key now.
    fn is_free(&self, asked: &Asked<'_>, mode: Mode) -> bool {
        let Spot { held, name, .. } = asked.spot;
        let is_awaited = name.is_some_and(|name| !self.keys[name].queue.is_empty());
        !is_awaited
            && match held {
                Some(key) => self.holds.admit(&self.keys, key, mode),
                None => asked.standing != KeyState::Other,
            }
    }

    /// Grants what can be had.
    fn grant_now(
        &mut self,
        ask: &Acquire<'_>,
        asked: &[Asked<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        let client = self.admit(ask, ask.terms.is_plain(), effects)?;
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
            let asker = Asker {
                reply_to: ask.reply_to(),
                key: asked[0].key.to_owned(),
                label: ask.terms.label.into(),
            };
            self.begin_pending(token, acks, (asker, ask.terms.lease_ms), effects);
        }
        for asked in asked {
            let key = self.keys.hold(asked.spot, asked.key);
            let making = match ask.in_command {
                true => Making::InCommand,
                false => Making::ByName(ask.value.into()),
            };
            self.grant_key(key, asked.spot.name, &grant, making, None, effects);
        }
        self.guard(client, effects);
        Ok(match ask.terms.acks {
            Some(_) => Outcome::Comes,
            None => Outcome::Granted(token),
        })
    }
}
