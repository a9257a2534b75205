//! A request until it is granted or refused.

use super::request::Rid;
use super::*;

impl Core {
    /// A new request. `id` is new, or that of a request that has ended.
    pub fn acquire(&mut self, id: Id, ask: Ask) {
        if let Err(error) = self.refusal_before_sending(&ask) {
            return self.tell(Event::Refused { id, error });
        }
        let request = self.request_of(id, ask);
        let first = |place: &Place| {
            let queue = self.places.get(place)?;
            queue.back().map(|rid| &self.requests[rid])
        };
        let others: Vec<_> = request.places().iter().filter_map(first).collect();
        let is_open = |other: &&&Request| {
            let is_ending = matches!(
                other.phase,
                Phase::Releasing | Phase::Extending | Phase::Kept
            );
            !is_ending && !other.is_given_up
        };
        if let Some(other) = others.iter().find(is_open) {
            if reenters(other, &request) {
                let (token, key) = (other.token, None);
                let base = self.find(other.ids[0]).expect("it is held");
                self.requests.get_mut(&base).expect("held").ids.push(id);
                self.ids.insert(id, base);
                return self.tell(Event::Granted { id, token, key });
            }
            // P-OWNER-3
            let error = match request.waits() {
                true => Error::Deadlock("DEADLOCK this owner has or waits for it itself".into()),
                false => Error::Taken,
            };
            return self.tell(Event::Refused { id, error });
        }
        // P-OWNER-4
        let is_left = others.iter().any(|other| other.is_left());
        if !request.waits() && (is_left || self.task_is_in_the_way(&request)) {
            let error = Error::Taken;
            return self.tell(Event::Refused { id, error });
        }
        let rid = self.add(request);
        self.need_connection();
        self.send_if_first(rid);
    }

    /// P-LEVEL-2: what is an error before anything is sent.
    fn refusal_before_sending(&self, ask: &Ask) -> Result<(), Error> {
        let refused = |text: &str| Err(Error::Refused(text.to_owned()));
        let keys: BTreeSet<_> = ask.keys.iter().collect();
        if self.is_closed {
            return Err(Error::Closed);
        }
        // P-ACQ-9
        if keys.is_empty() || keys.len() < ask.keys.len() {
            return refused("KEYS no key is named, or one of them twice");
        }
        // P-OWNER-2
        if ask
            .owner
            .as_ref()
            .is_some_and(|owner| owner.starts_with(b"."))
        {
            return refused("OWNER the name of an owner must not begin with a dot");
        }
        // P-ACKS-1
        if ask.acks.is_some() && self.config.grace.is_none() {
            return Err(Unfit::NoSession.into());
        }
        // P-LEAST-1
        let at_least = ask.at_least;
        if at_least > self.config.grace.unwrap_or_default() {
            return Err(Unfit::AtLeast { at_least }.into());
        }
        // P-CLUSTER-2
        match self.config.is_cluster && cluster::crosses_slots(ask) {
            true => Err(Error::CrossSlot),
            false => Ok(()),
        }
    }

    fn request_of(&mut self, id: Id, ask: Ask) -> Request {
        let is_temporary = matches!(ask.kind, Kind::Temporary { .. });
        let label = match &ask.owner {
            _ if is_temporary => Bytes::new(),
            Some(owner) => owner.clone(),
            None => self.fresh_label(),
        };
        // The empty label would make all of these one task (P-OWNER-6).
        let task = match &ask.task {
            None if is_temporary => Some(self.fresh_label()),
            task => task.clone(),
        };
        Request::new(ask, vec![id], label, task, self.now)
    }

    /// P-OWNER-4.
    pub(super) fn send_if_first(&mut self, rid: Rid) {
        let is_resuming = self.mine.as_ref().is_some_and(|mine| mine.is_resume);
        let Some(request) = self.requests.get(&rid) else {
            return;
        };
        if !self.is_up() || is_resuming || request.phase != Phase::Queued || self.is_closed {
            return;
        }
        let is_first = |place: &Place| self.places[place].front() == Some(&rid);
        if !request.places().iter().all(is_first) || self.task_is_in_the_way(request) {
            return;
        }
        let words = request.words(self.now);
        self.set_phase(rid, Phase::Asked);
        self.requests.get_mut(&rid).expect("just seen").floor = self.greatest;
        self.send_about(rid, words, Expect::Grant(rid));
    }

    /// To the server, the task still has a key that it released, and would wait for itself (P-OWNER-4).
    fn task_is_in_the_way(&self, request: &Request) -> bool {
        let task = request.ask.task.as_ref();
        task.is_some()
            && self.requests.values().any(|other| {
                let has_key = || request.keys.iter().any(|key| other.keys.contains(key));
                other.is_left() && other.ask.task.as_ref() == task && has_key()
            })
    }

    /// Those go on that it was in the way of.
    pub(super) fn task_goes_on(&mut self, task: &Bytes) {
        for rid in self.rids() {
            if self
                .requests
                .get(&rid)
                .is_some_and(|it| it.ask.task.as_ref() == Some(task))
            {
                self.send_if_first(rid);
            }
        }
    }

    /// P-ACQ-3.
    pub(super) fn request_answered(&mut self, rid: Rid, sent: Time, reply: Frame) {
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        request.was_granted |= reply.number().is_some_and(|number| number > 1);
        let is_released = request.phase == Phase::Releasing;
        if request.phase != Phase::Asked && (!is_released || request.is_named) {
            return;
        }
        let reply = match reply {
            Frame::Array(items) => match <[Frame; 2]>::try_from(items) {
                Ok([Frame::Bytes(name), token]) => {
                    self.name(rid, name);
                    token
                }
                _ => return self.leave(), // P-FRAME-2
            },
            _ if is_released => return self.settle(rid),
            reply => reply,
        };
        if is_released {
            return self.send_releases(rid);
        }
        match reply {
            Frame::Error(error) => self.request_refused(rid, error),
            Frame::Null => self.not_granted_yet(rid),
            Frame::Int(0) if self.requests[&rid].is_temporary() => self.not_granted_yet(rid),
            Frame::Int(token) => {
                self.grant(rid, u64::try_from(token).unwrap_or(0), sent, None);
            }
            _ => self.leave(), // P-FRAME-2
        }
    }

    /// P-TEMP-3: the server made the name.
    fn name(&mut self, rid: Rid, name: Bytes) {
        let request = self.requests.get_mut(&rid).expect("just seen");
        let place = request.place(&name);
        request.keys = vec![name];
        request.is_named = true;
        self.places.entry(place).or_default().push_front(rid);
    }

    fn not_granted_yet(&mut self, rid: Rid) {
        let request = self.requests.get_mut(&rid).expect("just seen");
        if !request.waits() && request.ask.acks.is_none() {
            return self.fail(rid, None, Some(Error::Taken));
        }
        request.has_waited = true;
        request.refusal = None;
        self.set_phase(rid, Phase::Waiting);
    }

    /// The server's error, in a reply or in `FAILED` (P-ACQ-4).
    pub(super) fn request_refused(&mut self, rid: Rid, error: String) {
        let request = self.requests.get_mut(&rid).expect("just seen");
        // P-ACQ-6, P-ACQ-7
        let passes =
            errors::is_momentary(&error) || errors::is_unwritable(&error) && request.has_waited;
        if passes && request.waits() {
            request.refusal = Some(error);
            self.set_phase(rid, Phase::Queued);
            return self.try_again(Retry::Ask(rid));
        }
        // It overtook a release that was refused (P-OWNER-4).
        let request = &self.requests[&rid];
        let overtook = errors::code(&error) == "DEADLOCK" && request.waits();
        if overtook && self.task_is_in_the_way(request) {
            return self.set_phase(rid, Phase::Queued);
        }
        let error = match errors::code(&error) {
            "DEADLOCK" => Error::Deadlock(error),
            "QUARANTINE" => Error::Quarantine(error),
            _ => Error::Refused(error),
        };
        self.fail(rid, None, Some(error));
    }

    /// Its lease runs since then, when so much of it was left: all, unless LOCK.MINE says how much.
    pub(super) fn grant(&mut self, rid: Rid, token: u64, since: Time, left: Option<Duration>) {
        let now = self.now;
        let request = self.requests.get_mut(&rid).expect("just seen");
        request.token = token;
        request.granted = Some(now);
        request.was_granted = true;
        request.refusal = None;
        // P-LEASE-2
        request.lease = left.or(request.ask.lease).map(|lease| (since, lease));
        let early = request.early.take();
        let key = request.is_sequence().then(|| request.keys[0].clone());
        let id = request.ids.first().copied();
        self.greatest = self.greatest.max(token);
        self.set_phase(rid, Phase::Held);
        self.connection.refused = 0;
        if let Some(id) = id {
            self.tell(Event::Granted { id, token, key });
        }
        if let Some((loss, key)) = early {
            self.lose(rid, loss, &[key]);
        }
    }

    /// P-ACQ-5.
    pub(super) fn wait_is_over(&mut self, rid: Rid) {
        let is_up = self.is_up();
        let request = self.requests.get_mut(&rid).expect("it has a timer");
        let error = match (request.phase, request.refusal.take()) {
            (Phase::Waiting, _) if is_up => Error::Taken,
            (_, Some(refusal)) => Error::Refused(refusal),
            (Phase::Queued, None) if is_up => Error::Taken,
            _ => match &self.connection.trouble {
                Some(Error::Unreachable(why)) => {
                    Error::Unreachable(format!("no answer in time: {why}"))
                }
                _ => Error::late(),
            },
        };
        request.is_silent = true;
        let ids = request.ids.clone();
        for id in ids {
            let error = error.clone();
            self.tell(Event::Refused { id, error });
        }
        self.give_up_request(rid);
    }

    /// It ends: lost for this reason if it was held, else with this error.
    pub(super) fn fail(&mut self, rid: Rid, loss: Option<Loss>, error: Option<Error>) {
        let Some(request) = self.requests.get(&rid) else {
            return;
        };
        let (phase, is_known) = (request.phase, !request.is_silent && !request.is_given_up);
        match (&loss, error) {
            (Some(loss), _) if phase == Phase::Held => self.tell_lost(rid, loss),
            (_, Some(error)) if is_known && phase.is_open() => {
                for id in request.ids.clone() {
                    let error = error.clone();
                    self.tell(Event::Refused { id, error });
                }
            }
            _ if !phase.is_open() && phase != Phase::Held => {
                return self.settle(rid);
            }
            _ => {}
        }
        match loss {
            Some(_) => self.end_or_stand_again(rid),
            None => self.end(rid),
        }
    }
}

/// P-OWNER-7.
fn reenters(held: &Request, asked: &Request) -> bool {
    let is_named = asked.ask.is_reentrant && asked.ask.owner.is_some() && held.ask.is_reentrant;
    let is_same = held.keys == asked.keys && held.ask.kind == asked.ask.kind;
    held.phase == Phase::Held && is_named && is_same
}
