//! Asking for keys: granted at once, queued, or refused.

use crate::engine::Engine;
use crate::engine::deadlock::Verdict;
use crate::engine::effect::{Effect, Loss, Refusal, Reply, Waits};
use crate::engine::event::{Acquire, Hand, Seen, Standing};
use crate::engine::mode::{Attributes, Mode};
use crate::engine::rules::lifecycle::LOOKS;
use crate::engine::state::clients::Client;
use crate::engine::state::hold::MOST_DEPTH;
use crate::engine::state::holds::{Grant, Hold};
use crate::engine::state::keys::{KeyRecord, Spot};
use crate::engine::state::queues::{Request, Sort};
use crate::engine::state::tokens::Token;
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::types::{ClientId, Key};

/// A key that is asked for, once what stands there is put right.
#[derive(Clone, Copy)]
struct Asked<'a> {
    key: Key<'a>,
    standing: Standing,
    spot: Spot,
}

/// How a request stands to what its owner has or waits for.
enum Again {
    /// There is nothing of that.
    No,
    /// It is taken once more, with this token; or not, since that was not asked for each time.
    Answered(Option<Token>),
}

impl Engine {
    pub(in crate::engine) fn acquire(&mut self, ask: Acquire<'_>, effects: &mut Vec<Effect>) {
        if let Some(token) = self.grant_unknown(&ask, effects) {
            return effects.push(Effect::Reply(ask.form.granted(token)));
        }
        let reply = match self.try_acquire(ask, effects) {
            Ok(Some(token)) => ask.form.granted(token),
            Ok(None) if ask.wait.is_some_and(|wait| !wait.push) => {
                return effects.push(Effect::Block);
            }
            Ok(None) => ask.form.not_granted(),
            Err(refusal) => Reply::Refused(refusal),
        };
        effects.push(Effect::Reply(reply));
    }

    /// The token, or none if the request waits or is turned down.
    fn try_acquire(
        &mut self,
        ask: Acquire<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Token>, Refusal> {
        let mut asked = Few::of(ask.seen, |seen| self.take_in(*seen, effects));
        if self.clients.is_anyone_ended()
            || matches!(asked, Few::Many(_))
            || self.is_any_lease_over()
        {
            self.put_right(&ask, &mut asked, effects);
        }
        let wrong = |asked: &Asked<'_>| asked.standing == Standing::Other;
        if ask.mode.is_lock() && asked.iter().any(wrong) {
            return Err(Refusal::WrongType);
        }
        if let Again::Answered(token) = self.again(&ask, &asked, effects)? {
            return Ok(token);
        }
        let free = asked.iter().all(|asked| self.is_free(asked, ask.mode));
        if !free && ask.wait.is_none() {
            return Ok(None);
        }
        let free = free && !self.is_quarantined();
        if !free && ask.wait.is_none() {
            let left_ms = self.quarantine_left_ms(self.now);
            return Err(Refusal::Quarantine { left_ms });
        }
        let client = self.attend(ask.client, effects);
        self.check_room(client, ask.seen.len())?;
        if ask.mode.is_lock() && !(free && ask.is_plain()) {
            self.check_extras(ask.seen.len())?;
        }
        if free {
            return Ok(Some(self.grant_now(client, &ask, &asked, effects)));
        }
        let wait = ask.wait.expect("what is not free is waited for");
        let keys = Few::of(&asked, |asked| self.fill(asked));
        let request = Request {
            client,
            label: ask.label,
            mode: ask.mode,
            attributes: ask.attributes,
            value: ask.value,
            lease_ms: ask.lease_ms,
            since: self.now,
            deadline: wait.limit_ms.map(|ms| self.now.after_ms(ms)),
            push: wait.push,
            form: ask.form,
        };
        let waiter = self.enqueue(&keys, &request);
        let verdict = self.circle_of(waiter);
        self.totals.deadlock_searches_cut += u64::from(matches!(verdict, Verdict::Cut));
        if let Verdict::Circle(circle) = verdict {
            self.dequeue(waiter);
            let refusal = self.why_stuck(circle, &ask, &keys);
            for key in &*keys {
                self.keys.remove_if_idle(*key);
            }
            self.totals.deadlocks_refused += 1;
            return Err(refusal);
        }
        if self.is_quarantined() {
            // Nobody's end will have them served: the quarantine's does.
            keys.iter().for_each(|key| self.make_ready(*key));
            self.forget_unawaited();
        }
        self.guard(client, effects);
        Ok(None)
    }

    /// Takes in what the look shows, and ends holds of what is no longer there (another module can
    /// take a key away without an event; a lock can be overwritten).
    fn take_in<'a>(&mut self, seen: Seen<'a>, effects: &mut Vec<Effect>) -> Asked<'a> {
        let Seen { key, standing } = seen;
        let mut spot = self.keys.spot(key);
        if let Some(known) = spot.found {
            self.keys[known].set_stands(standing);
            let hold = self.keys[known].holds.head();
            if hold.is_some_and(|hold| !self.holds.mode(hold).stands_as(standing)) {
                let why = standing.loss_or(Loss::Deleted);
                self.lose(known, Hand::Nobody, why, effects);
                spot = self.keys.spot(key);
            }
        }
        Asked {
            key,
            standing,
            spot,
        }
    }

    /// Ends what is over of the caller's and what ended connections left at these keys, and says what stands there then: each can have
    /// been handed over after the look at it, to somebody who waited for several.
    fn put_right(
        &mut self,
        ask: &Acquire<'_>,
        asked: &mut Few<Asked<'_>>,
        effects: &mut Vec<Effect>,
    ) {
        let mut looks = LOOKS;
        for asked in asked.iter_mut() {
            if let Some(known) = self.keys.find(asked.key) {
                // It goes with its last hold.
                if !self.keys[known].holds.is_empty() {
                    asked.standing = Standing::Absent;
                }
                self.end_own_lease(ask.client, known, ask.label, effects);
            }
            if let Some(known) = self.keys.find(asked.key) {
                self.release_left_behind(known, &mut looks, effects);
            }
        }
        for asked in asked.iter_mut() {
            asked.spot = self.keys.spot(asked.key);
            if let Some(known) = asked.spot.found {
                asked.standing = self.keys[known].stands();
            }
        }
    }

    /// A hold that the owner has already is deepened, if that was asked for each time.
    fn again(
        &mut self,
        ask: &Acquire<'_>,
        asked: &[Asked<'_>],
        effects: &mut Vec<Effect>,
    ) -> Result<Again, Refusal> {
        if !ask.mode.is_lock() {
            return Ok(Again::No);
        }
        let client = self.clients.find(ask.client);
        let mut held = Vec::new();
        let mut is_once = false;
        for key in asked.iter().filter_map(|asked| asked.spot.found) {
            if let Some(total) = self.other_total(key, ask.mode) {
                return Err(Refusal::OtherTotal { total });
            }
            let Some(client) = client else { continue };
            is_once |= self.is_once(key, client, ask);
            let owner = self.clients.owner(client);
            held.extend(self.holds.find(&self.keys, key, owner, ask.label));
        }
        match held.first() {
            _ if is_once && ask.wait.is_none() => Ok(Again::Answered(None)),
            _ if is_once => {
                self.totals.deadlocks_refused += 1;
                Err(Refusal::Reentry)
            }
            Some(_) => {
                let token = self.deepen(ask, held, effects)?;
                Ok(Again::Answered(Some(token)))
            }
            None => Ok(Again::No),
        }
    }

    /// Whether the owner of a request has this key or waits for it, and may not take it again.
    fn is_once(&self, key: Id<KeyRecord>, client: Id<Client>, ask: &Acquire<'_>) -> bool {
        let may_not = |of: Attributes| !(of.reentrant && ask.attributes.reentrant);
        let waits = match ask.attributes.reentrant {
            true => Sort::ONCE,
            false => Sort::ALL,
        };
        let owner = self.clients.owner(client);
        let held = self.holds.find(&self.keys, key, owner, ask.label);
        held.is_some_and(|hold| may_not(self.holds[hold].nature.attributes()))
            || self.clients[client].wait_count > 0
                && self
                    .queues
                    .find_pushed(key, client, ask.label, waits)
                    .is_some()
    }

    fn deepen(
        &mut self,
        ask: &Acquire<'_>,
        held: Vec<Id<Hold>>,
        effects: &mut Vec<Effect>,
    ) -> Result<Token, Refusal> {
        let first = held[0];
        let token = self.holds[first].token;
        let as_one = held.iter().all(|id| self.holds[*id].token == token);
        if held.len() < ask.seen.len() || !as_one {
            let key = self.keys[self.holds[first].key].key().to_owned();
            return Err(Refusal::HeldAlready { key });
        }
        for id in &held {
            if !self.holds.mode(*id).deepens_as(ask.mode) {
                return Err(Refusal::HeldOtherwise);
            }
            if self.holds.depth(*id) >= MOST_DEPTH {
                return Err(Refusal::TooDeep { limit: MOST_DEPTH });
            }
        }
        self.check_extras_of(&held)?;
        let lease = ask.lease_ms.map(|ms| self.now.after_ms(ms));
        for id in held {
            self.holds.deepen(id, ask.mode);
            self.deepen_notice(id, ask.attributes.notify);
            if lease.is_some() {
                self.holds.set_lease(id, lease);
            }
            self.tell_held(id, effects);
        }
        Ok(token)
    }

    /// Why a request is refused that would close this circle, and stands in no queue any more. One that would stand still
    /// behind another label of its own connection is told so.
    fn why_stuck(
        &self,
        mut circle: Vec<Waits>,
        ask: &Acquire<'_>,
        keys: &[Id<KeyRecord>],
    ) -> Refusal {
        let stands_still = ask.wait.is_some_and(|wait| !wait.push);
        let is_own = |key: &Id<KeyRecord>, client| {
            let owner = self.clients.owner(client);
            self.holds
                .find(&self.keys, *key, owner, ask.label)
                .is_some()
                || self
                    .queues
                    .find_pushed(*key, client, ask.label, Sort::ALL)
                    .is_some()
        };
        let is_alone = matches!(&*circle, [link] if link.client == ask.client);
        match self.clients.find(ask.client) {
            Some(client)
                if stands_still && is_alone && !keys.iter().any(|key| is_own(key, client)) =>
            {
                Refusal::Standstill(Box::new(circle.swap_remove(0)))
            }
            _ => Refusal::Deadlock { circle },
        }
    }

    fn other_total(&self, key: Id<KeyRecord>, mode: Mode) -> Option<u32> {
        let first = self.keys[key].holds.head()?;
        match (self.holds.mode(first), mode) {
            (Mode::Permits { total, .. }, Mode::Permits { total: asked, .. }) => {
                (total != asked).then_some(total)
            }
            _ => None,
        }
    }

    /// Whether a newcomer can have the key now.
    fn is_free(&self, asked: &Asked<'_>, mode: Mode) -> bool {
        let Some(key) = asked.spot.found else {
            return asked.standing != Standing::Other;
        };
        let record = &self.keys[key];
        !record.is_taken_by_a_stranger()
            && record.queue.is_empty()
            && self.holds.admit(&self.keys, key, mode)
    }

    fn fill(&mut self, asked: &Asked<'_>) -> Id<KeyRecord> {
        self.keys.fill(asked.spot, asked.key, asked.standing)
    }

    fn grant_now(
        &mut self,
        client: Id<Client>,
        ask: &Acquire<'_>,
        asked: &[Asked<'_>],
        effects: &mut Vec<Effect>,
    ) -> Token {
        let token = self.next_token(effects);
        let lease = ask.lease_ms.map(|ms| self.now.after_ms(ms));
        let grant = Grant {
            client: self.clients.owner(client),
            label: ask.label,
            mode: ask.mode,
            attributes: ask.attributes,
            token,
            since: self.now,
            lease,
        };
        for asked in asked {
            let key = self.fill(asked);
            let (hold, stood) = self.write_down(key, &grant);
            if !ask.mode.is_lock() || stood != Standing::Lock {
                self.keys[key].set_timed(false);
                effects.push(ask.make(asked.key));
            }
            self.tell_held(hold, effects);
            self.back_up(key, effects);
            self.set_present(key, true, effects);
        }
        self.guard(client, effects);
        token
    }

    /// A grant's token. The first of an epoch is made known, so that whoever goes on after this
    /// server (itself started again, a replica) begins above it.
    pub(in crate::engine) fn next_token(&mut self, effects: &mut Vec<Effect>) -> Token {
        self.totals.grants += 1;
        self.take_token(effects)
    }

    /// A number that is nobody else's, ever.
    pub(in crate::engine) fn take_token(&mut self, effects: &mut Vec<Effect>) -> Token {
        let token = self.tokens.next();
        if self.tokens.mark_told() {
            effects.push(Effect::TellToken(token));
        }
        token
    }

    /// Writes a grant down and says what stood at its key.
    pub(in crate::engine) fn write_down(
        &mut self,
        key: Id<KeyRecord>,
        grant: &Grant<'_>,
    ) -> (Id<Hold>, Standing) {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        let hold = self.holds.add(keys, clients, key, grant);
        let record = &mut self.keys[key];
        let stood = record.stands();
        record.set_stands(grant.mode.stands());
        (hold, stood)
    }

    /// The caller's record.
    pub(in crate::engine) fn attend(
        &mut self,
        caller: ClientId,
        effects: &mut Vec<Effect>,
    ) -> Id<Client> {
        let (client, made) = self.clients.find_or_add(caller);
        if made {
            effects.push(Effect::Attend(caller));
        }
        client
    }

    pub(in crate::engine) fn guard(&mut self, client: Id<Client>, effects: &mut Vec<Effect>) {
        let record = &mut self.clients[client];
        if !std::mem::replace(&mut record.guarded, true) {
            effects.push(Effect::Guard(record.id));
        }
    }
}
