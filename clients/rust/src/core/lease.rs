//! What changes a hold while it is held: extensions, what `at_least` keeps, greater tokens.

use super::request::Rid;
use super::*;

/// Until a token is raised again that was not raised (P-QUORUM-2).
const RAISE_AGAIN_AFTER: Duration = Duration::from_millis(50);

impl Core {
    /// The lease of a hold is this long from now on (P-LEASE-1).
    pub fn extend(&mut self, id: Id, lease: Duration) {
        let held = self
            .find(id)
            .filter(|rid| self.phase(*rid) == Some(Phase::Held));
        let Some(rid) = held else {
            let error = Error::Lost(Loss::Told("released".to_owned()));
            return self.tell(Event::NotExtended { id, error });
        };
        self.serial += 1;
        let serial = self.serial;
        let request = self.requests.get_mut(&rid).expect("just found");
        request.extensions.push(Extension {
            id,
            lease,
            keys: request.keys.clone(),
            serial,
            sent: None,
        });
        self.send_extensions(rid, serial);
    }

    /// This one and those after it.
    pub(super) fn send_extensions(&mut self, rid: Rid, from: u64) {
        let (is_up, now) = (self.is_up(), self.now);
        let Some(request) = self.requests.get_mut(&rid).filter(|_| is_up) else {
            return;
        };
        let mut sent = Vec::new();
        for it in request.extensions.iter_mut().filter(|it| it.serial >= from) {
            it.sent.get_or_insert(now);
            let keys = it.keys.iter().cloned();
            sent.extend(keys.map(|key| (key, it.lease, it.serial)));
        }
        for (key, lease, serial) in sent {
            let command = self.requests[&rid].extend(&key, lease);
            self.send_about(rid, command, Expect::Extend { rid, key, serial });
        }
        self.set_timer(rid);
    }

    pub(super) fn extension_answered(
        &mut self,
        rid: Rid,
        key: &Bytes,
        serial: u64,
        sent: Time,
        reply: &Frame,
    ) {
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        let mut extensions = request.extensions.iter_mut();
        let Some(at) = extensions.position(|it| it.serial == serial) else {
            return;
        };
        let extension = &mut request.extensions[at];
        let (id, lease) = (extension.id, extension.lease);
        match reply.error() {
            Some(error) if errors::code(error) == "NOTHELD" => self.not_held(rid, key),
            Some(error) => {
                request.extensions.remove(at);
                self.set_timer(rid);
                let error = Error::Refused(error.to_owned());
                self.tell(Event::NotExtended { id, error });
            }
            None => {
                extension.keys.retain(|other| other != key);
                if extension.keys.is_empty() {
                    request.extensions.remove(at);
                    request.lease = Some((sent, lease)); // P-LEASE-2
                    self.set_timer(rid);
                    self.tell(Event::Extended { id });
                }
            }
        }
    }

    /// P-LEAST-2: the hold is extended to the rest, and kept unseen.
    pub(super) fn keep(&mut self, rid: Rid) {
        let now = self.now;
        let request = self.requests.get_mut(&rid).expect("it is held");
        let granted = request.granted.unwrap_or_default();
        let rest = request.ask.at_least.saturating_sub(now.since(granted));
        if rest.is_zero() {
            self.set_phase(rid, Phase::Releasing);
            return self.send_releases(rid);
        }
        let keys = request.keys.clone();
        request.unsettled = keys.iter().map(|key| (key.clone(), true)).collect();
        let commands: Vec<_> = keys.iter().map(|key| request.extend(key, rest)).collect();
        self.set_phase(rid, Phase::Extending);
        if !self.is_up() {
            return;
        }
        for (command, key) in commands.into_iter().zip(keys) {
            self.send_about(rid, command, Expect::Keep { rid, key, rest });
        }
    }

    pub(super) fn keep_answered(&mut self, rid: Rid, key: &Bytes, until: Time, reply: &Frame) {
        let request = self.requests.get_mut(&rid);
        let Some(request) = request.filter(|it| it.phase == Phase::Extending) else {
            return;
        };
        match reply.error() {
            Some(error) if errors::code(error) == "NOTHELD" => self.not_held(rid, key),
            // P-REL-5
            Some(error) => {
                self.tell_releasing(rid, error);
                self.try_again(Retry::Keep(rid));
            }
            None => {
                request.unsettled.retain(|(other, _)| other != key);
                if !request.unsettled.is_empty() {
                    return;
                }
                request.kept_until = until;
                let ids = request.ids.clone();
                self.set_phase(rid, Phase::Kept);
                for id in ids {
                    self.tell(Event::Released { id });
                }
            }
        }
    }

    /// No push said that it is lost: its key was renamed (P-LEASE-3).
    fn not_held(&mut self, rid: Rid, key: &Bytes) {
        let deleted = Loss::Told("deleted".to_owned());
        self.lose(rid, deleted.clone(), std::slice::from_ref(key));
        self.look(deleted, Vec::new());
    }

    /// P-QUORUM-2.
    #[cfg(any(test, feature = "quorum"))]
    pub fn raise(&mut self, id: Id, token: u64) {
        if let Some(rid) = self.find(id) {
            self.requests.get_mut(&rid).expect("just found").raising = token;
            self.send_raise(rid, token);
        }
    }

    pub(super) fn send_raise(&mut self, rid: Rid, token: u64) {
        let request = self.requests.get(&rid).filter(|_| self.is_up());
        let is_wanted = |it: &&Request| it.phase == Phase::Held && it.raising == token;
        if let Some(request) = request.filter(is_wanted) {
            let key = &request.keys[0];
            let command = words!["LOCK.RAISE", key, token, "OWNER", &request.label];
            self.send(command, Expect::Raise { rid, token });
        }
    }

    pub(super) fn raise_answered(&mut self, rid: Rid, token: u64, reply: &Frame) {
        let request = self.requests.get_mut(&rid);
        let Some(request) = request.filter(|it| it.phase == Phase::Held) else {
            return;
        };
        let is_current = request.raising == token;
        let ids = request.ids.clone();
        match reply {
            Frame::Error(error) if errors::code(error) == "NOTHELD" => {
                let key = request.keys[0].clone();
                self.not_held(rid, &key);
            }
            Frame::Error(error) => {
                let is_final = errors::code(error) == "NOPERM" || errors::is_unknown_command(error);
                if is_final {
                    for id in ids {
                        let error = Error::Refused(error.clone());
                        self.tell(Event::NotRaised { id, error });
                    }
                } else if is_current {
                    let at = self.now + RAISE_AGAIN_AFTER;
                    self.connection.retry_at.get_or_insert(at);
                    self.connection.retries.push(Retry::Raise { rid, token });
                }
            }
            reply => {
                let token = reply.number().unwrap_or(token);
                request.token = token;
                request.raising = 0;
                self.greatest = self.greatest.max(token);
                for id in ids {
                    self.tell(Event::Raised { id, token });
                }
            }
        }
    }
}
