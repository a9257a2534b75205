//! The end of a request: released, given up or lost, until the server has nothing left of it.

use super::request::Rid;
use super::*;

impl Core {
    /// The caller gives the lock back. A second call does nothing (P-REL-3).
    pub fn release(&mut self, id: Id) {
        let Some(rid) = self.find(id) else {
            return;
        };
        let now = self.now;
        let request = self.requests.get_mut(&rid).expect("just found");
        if request.phase.is_open() {
            return self.give_up_request(rid);
        }
        if request.phase != Phase::Held {
            return;
        }
        // P-OWNER-7
        if request.ids.len() > 1 {
            request.ids.retain(|other| *other != id);
            self.ids.remove(&id);
            return self.tell(Event::Released { id });
        }
        self.end_extensions(rid, &Loss::Told("released".to_owned()));
        let request = &self.requests[&rid];
        let granted = request.granted.unwrap_or_default();
        if request.ask.at_least > now.since(granted) {
            return self.keep(rid);
        }
        self.set_phase(rid, Phase::Releasing);
        self.send_releases(rid);
    }

    /// The caller stops leading, if that is still the term with this token.
    pub fn resign(&mut self, id: Id, token: u64) {
        let is_of_term = |rid: &Rid| {
            let request = &self.requests[rid];
            request.phase == Phase::Held && request.token == token
        };
        if self.find(id).filter(is_of_term).is_some() {
            self.release(id);
        }
    }

    /// The caller stops waiting, or gives back what was granted meanwhile (P-ACQ-10). A candidate stands no more.
    pub fn give_up(&mut self, id: Id) {
        // Also one whose caller was told of its end: it would stand again.
        let request = self.ids.get(&id).and_then(|rid| self.requests.get_mut(rid));
        let kind = request.map(|request| &mut request.ask.kind);
        if let Some(Kind::Temporary { is_elected, .. }) = kind {
            *is_elected = false;
        }
        let Some(rid) = self.find(id) else {
            return;
        };
        match self.requests[&rid].phase.is_open() {
            true => self.give_up_request(rid),
            false => self.release(id),
        }
    }

    pub(super) fn give_up_request(&mut self, rid: Rid) {
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        if request.is_given_up || !request.phase.is_open() {
            return;
        }
        request.is_given_up = true;
        request.refusal = None;
        let is_named = request.is_named;
        // P-REL-3
        if request.phase == Phase::Queued {
            if !request.is_silent {
                for id in request.ids.clone() {
                    self.tell(Event::Over { id });
                }
            }
            return self.end(rid);
        }
        self.set_phase(rid, Phase::Releasing);
        // Else the answer says what to release (P-TEMP-3).
        if is_named {
            self.send_releases(rid);
        }
    }

    /// P-REL-1, P-REL-2: for each key.
    pub(super) fn send_releases(&mut self, rid: Rid) {
        let request = self.requests.get_mut(&rid).expect("it is released");
        request.unsettled = request
            .keys
            .iter()
            .map(|key| (key.clone(), false))
            .collect();
        self.send_unsettled(rid);
    }

    pub(super) fn send_unsettled(&mut self, rid: Rid) {
        let is_resuming = self.mine.as_ref().is_some_and(|mine| mine.is_resume);
        if !self.is_up() || is_resuming {
            return;
        }
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        let was_sent_before = request.was_sent_before;
        let mut keys = Vec::new();
        for (key, is_on_wire) in &mut request.unsettled {
            if !std::mem::replace(is_on_wire, true) {
                keys.push(key.clone());
            }
        }
        for key in keys {
            let command = self.requests[&rid].release(&key);
            let expect = Expect::Release {
                rid,
                key,
                was_sent_before,
            };
            self.send_about(rid, command, expect);
        }
    }

    pub(super) fn release_answered(
        &mut self,
        rid: Rid,
        key: Bytes,
        was_sent_before: bool,
        reply: &Frame,
    ) {
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        let code = reply.error().map_or("", errors::code);
        // P-REL-8: the session, and with it the hold, goes on where the slot is.
        let is_held = request.was_granted && !request.explained.contains(&key);
        let has_session = self.connection.secret.is_some();
        if code == "MOVED" && has_session && is_held && !request.is_silent {
            return self.leave();
        }
        match reply.error() {
            Some(error) if !matches!(code, "NOTHELD" | "MOVED") => {
                return self.release_refused(rid, &key, error.to_owned());
            }
            _ => {}
        }
        self.connection.refused = 0;
        request.unsettled.retain(|(other, _)| *other != key);
        let is_settled = request.unsettled.is_empty();
        let was_gone = code == "NOTHELD" || request.is_temporary() && reply.number() == Some(0);
        let is_explained = request.explained.contains(&key);
        // P-REL-7
        if was_gone && request.was_granted && !is_explained && !was_sent_before {
            if !request.is_given_up && !request.is_silent {
                request.is_silent = true;
                let deleted = || Loss::Told("deleted".to_owned());
                for id in request.ids.clone() {
                    let loss = deleted();
                    self.tell(Event::Lost { id, loss });
                }
            }
            self.look(Loss::Told("deleted".to_owned()), Vec::new());
        }
        if is_settled {
            self.settle(rid);
        }
    }

    /// P-REL-5.
    fn release_refused(&mut self, rid: Rid, key: &[u8], error: String) {
        let request = self.requests.get_mut(&rid).expect("just seen");
        for (other, is_on_wire) in &mut request.unsettled {
            *is_on_wire &= other != key;
        }
        request.refusal = Some(error.clone());
        self.tell_releasing(rid, &error);
        // P-OWNER-4: who does not wait does not wait for this either.
        for place in self.requests[&rid].places() {
            for other in self.places.get(&place).cloned().unwrap_or_default() {
                let it = &self.requests[&other];
                if other != rid && it.phase == Phase::Queued && !it.waits() {
                    self.fail(other, None, Some(Error::Taken));
                }
            }
        }
        self.try_again(Retry::Release(rid));
    }

    /// Once for each code.
    pub(super) fn tell_releasing(&mut self, rid: Rid, error: &str) {
        let request = self.requests.get_mut(&rid).expect("just seen");
        let code = errors::code(error);
        if request.is_silent || request.told_refusal.as_deref() == Some(code) {
            return;
        }
        request.told_refusal = Some(code.to_owned());
        for id in request.ids.clone() {
            let error = error.to_owned();
            self.tell(Event::Releasing { id, error });
        }
    }

    /// The server has nothing left of it.
    pub(super) fn settle(&mut self, rid: Rid) {
        let Some(request) = self.requests.get(&rid) else {
            return;
        };
        if !request.is_silent && request.phase != Phase::Kept {
            let is_given_up = request.is_given_up;
            for id in request.ids.clone() {
                self.tell(match is_given_up {
                    true => Event::Over { id },
                    false => Event::Released { id },
                });
            }
        }
        self.end_or_stand_again(rid);
    }

    // ---- losses ----

    /// These keys are gone, so all of it is lost; the others are given back (P-LOSS-3).
    pub(super) fn lose(&mut self, rid: Rid, loss: Loss, gone: &[Bytes]) {
        self.tell_lost(rid, &loss);
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        let (left, lost) = std::mem::take(&mut request.keys)
            .into_iter()
            .partition(|key| !gone.contains(key));
        request.keys = left;
        let lost: Vec<Bytes> = lost;
        let is_all = request.keys.is_empty();
        if is_all {
            // Its places go with its end.
            request.keys = lost;
            return self.end_or_stand_again(rid);
        }
        let places: Vec<_> = lost.iter().map(|key| request.place(key)).collect();
        let again = self.stands_again(rid);
        let request = self.requests.get_mut(&rid).expect("just seen");
        request.is_silent = true;
        request.is_given_up = true;
        self.set_phase(rid, Phase::Releasing);
        for place in places {
            self.leave_place(rid, &place);
        }
        self.send_releases(rid);
        // Behind what it gives back.
        if let Some((id, ask)) = again {
            self.acquire(id, ask);
        }
    }

    /// P-OWNER-8: to each of its callers.
    pub(super) fn tell_lost(&mut self, rid: Rid, loss: &Loss) {
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        if request.is_silent {
            return;
        }
        let is_hold = matches!(
            request.phase,
            Phase::Held | Phase::Extending | Phase::Releasing
        );
        let ids = if is_hold {
            request.ids.clone()
        } else {
            Vec::new()
        };
        for id in ids {
            let loss = loss.clone();
            self.tell(Event::Lost { id, loss });
        }
        self.end_extensions(rid, loss);
    }

    /// P-LEASE-1: none of them is answered any more.
    fn end_extensions(&mut self, rid: Rid, loss: &Loss) {
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        for Extension { id, .. } in std::mem::take(&mut request.extensions) {
            let error = Error::Lost(loss.clone());
            self.tell(Event::NotExtended { id, error });
        }
    }

    pub(super) fn explain(&mut self, rid: Rid, keys: Vec<Bytes>) {
        if let Some(request) = self.requests.get_mut(&rid) {
            request.explained.extend(keys);
        }
    }
}
