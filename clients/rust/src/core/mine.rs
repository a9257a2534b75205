//! LOCK.MINE: what the session has, by label and token, whatever the keys are called now (P-SESS-6).

use super::request::Rid;
use super::*;

/// An answer that may come in pages.
#[derive(Debug)]
pub struct Mine {
    /// After a resume: it decides about all requests, and none is sent before.
    pub is_resume: bool,
    /// When the first page was asked for.
    sent: Time,
    pages: usize,
    found: Vec<Found>,
    /// Why a hold is lost that it does not list.
    loss: Loss,
    /// About which holds it decides.
    about: Vec<Rid>,
}

impl Mine {
    fn new(is_resume: bool, loss: Loss, about: Vec<Rid>) -> Mine {
        Mine {
            is_resume,
            sent: Time::default(),
            pages: 0,
            found: Vec::new(),
            loss,
            about,
        }
    }

    /// About these, too.
    fn decide(&mut self, loss: Loss, about: Vec<Rid>) {
        for rid in about {
            if !self.about.contains(&rid) {
                self.about.push(rid);
                self.loss = loss.clone();
            }
        }
    }
}

/// A hold that it lists.
#[derive(Clone, Debug)]
struct Found {
    /// None where the user may not read the name.
    key: Option<Bytes>,
    is_temporary: bool,
    label: Bytes,
    token: u64,
    lease: Option<Duration>,
}

impl Found {
    /// Nothing for a request that waits or is pending (P-ACKS-2).
    fn of(entry: &Frame) -> Option<Found> {
        let bytes = |name| entry.named(name).and_then(Frame::bytes);
        let number = |name| entry.named(name).and_then(Frame::number);
        let held = bytes("state").filter(|state| *state == b"held");
        held.map(|_| Found {
            key: bytes("key").map(<[u8]>::to_vec),
            is_temporary: bytes("kind") == Some(b"temporary"),
            label: bytes("label").unwrap_or_default().to_vec(),
            token: number("token").unwrap_or(0),
            lease: number("lease-ms").map(Duration::from_millis),
        })
    }

    fn place(&self) -> Option<Place> {
        self.key.as_ref().map(|key| Place {
            is_temporary: self.is_temporary,
            key: key.clone(),
            label: self.label.clone(),
        })
    }
}

impl Core {
    pub(super) fn begin_resume(&mut self) {
        self.read_mine(Mine::new(true, Loss::Connection, self.rids()));
    }

    fn read_mine(&mut self, mine: Mine) {
        let sent = self.now;
        self.mine = Some(Mine { sent, ..mine });
        self.send(words!["LOCK.MINE"], Expect::Mine);
    }

    /// P-LOSS-4, P-REL-7: which of these are still there, and what is there that nothing claims.
    pub(super) fn look(&mut self, loss: Loss, about: Vec<Rid>) {
        let is_up = self.is_up();
        match &mut self.mine {
            None if !is_up => {}
            None => self.read_mine(Mine::new(false, loss, about)),
            Some(mine) if mine.pages == 0 => mine.decide(loss, about),
            // A page that has come already is from before.
            Some(_) => {
                let next = Mine::new(false, loss.clone(), Vec::new());
                self.next_mine.get_or_insert(next).decide(loss, about);
            }
        }
    }

    pub(super) fn mine_answered(&mut self, reply: Frame) {
        let Some(mine) = &mut self.mine else {
            return;
        };
        let (cursor, entries) = match &reply {
            Frame::Error(error) => return self.mine_refused(error),
            Frame::Array(items) => match &items[..] {
                [Frame::Bytes(cursor), Frame::Array(entries), ..] => (cursor, entries),
                _ => return self.leave(), // P-FRAME-2
            },
            _ => return self.leave(),
        };
        mine.pages += 1;
        mine.found.extend(entries.iter().filter_map(Found::of));
        if cursor != b"0" {
            return self.send(words!["LOCK.MINE", "CURSOR", cursor], Expect::Mine);
        }
        let mine = self.mine.take().expect("just seen");
        self.compare(mine);
        if let Some(next) = self.next_mine.take() {
            self.look(next.loss, next.about);
        }
    }

    fn mine_refused(&mut self, error: &str) {
        let passes = errors::is_momentary(error);
        let is_resume = self.mine.as_ref().is_some_and(|mine| mine.is_resume);
        // P-SESS-4
        if is_resume && (passes || errors::is_unwritable(error)) {
            return self.leave();
        }
        let Some(mine) = self.mine.take() else {
            return;
        };
        if is_resume {
            // P-SESS-7
            self.send(words!["SESSION.END"], Expect::Nothing);
            return self.session_is_over();
        }
        if passes {
            let (loss, held) = (mine.loss, mine.about);
            return self.try_again(Retry::Look { loss, held });
        }
        for look in [Some(mine), self.next_mine.take()].into_iter().flatten() {
            for rid in look.about {
                if self.phase(rid) == Some(Phase::Held) {
                    self.lose(rid, look.loss.clone(), &[]);
                }
            }
        }
    }

    fn compare(&mut self, mine: Mine) {
        let mut claimed: HashMap<Rid, Vec<Found>> = HashMap::new();
        let mut unclaimed = Vec::new();
        let mut owners: HashMap<(bool, &[u8]), Vec<Rid>> = HashMap::new();
        for (rid, request) in &self.requests {
            let owner = (request.is_temporary(), &request.label[..]);
            owners.entry(owner).or_default().push(*rid);
        }
        for found in mine.found {
            let owned = owners.get(&(found.is_temporary, &found.label[..]));
            let mut owned = owned.into_iter().flatten();
            match owned.find(|rid| claims(&self.requests[rid], &found)) {
                Some(rid) => claimed.entry(*rid).or_default().push(found),
                None => unclaimed.push(found),
            }
        }
        for rid in mine.about {
            let found = claimed.remove(&rid).unwrap_or_default();
            match self.phase(rid) {
                Some(Phase::Held | Phase::Kept | Phase::Extending) => {
                    self.compare_hold(rid, &found, &mine.loss);
                }
                Some(Phase::Asked) if mine.is_resume => {
                    self.compare_request(rid, found, mine.sent);
                }
                // What SEQ made for it has no name here (P-TEMP-3).
                Some(Phase::Releasing) if mine.is_resume && !self.requests[&rid].is_named => {
                    self.settle(rid);
                }
                _ => {}
            }
        }
        for found in unclaimed {
            // The page may be older than a request that is there now; after a resume none is sent before the last page.
            let place = found.place().filter(|_| !mine.is_resume);
            if place.is_none_or(|place| !self.places.contains_key(&place)) {
                self.release_unclaimed(found);
            }
        }
        if mine.is_resume {
            self.go_on_after_resume();
        }
    }

    fn go_on_after_resume(&mut self) {
        for rid in self.rids() {
            if self.phase(rid) == Some(Phase::Extending) {
                self.keep(rid);
            }
            self.send_extensions(rid, 0);
            self.send_if_first(rid);
            self.send_unsettled(rid);
            self.send_raise_again(rid);
        }
    }

    fn send_raise_again(&mut self, rid: Rid) {
        let raising = self.requests.get(&rid).map(|request| request.raising);
        if let Some(token @ 1..) = raising {
            self.send_raise(rid, token);
        }
    }

    fn compare_hold(&mut self, rid: Rid, found: &[Found], loss: &Loss) {
        let request = &self.requests[&rid];
        if found.len() >= request.keys.len() {
            return;
        }
        if request.phase == Phase::Kept {
            return self.end(rid);
        }
        let is_there = |key: &Bytes| found.iter().any(|it| it.key.as_ref() == Some(key));
        let gone: Vec<_> = request
            .keys
            .iter()
            .filter(|key| !is_there(key))
            .cloned()
            .collect();
        self.lose(rid, loss.clone(), &gone);
    }

    /// A request whose answer the break cut off: granted, or sent again.
    fn compare_request(&mut self, rid: Rid, found: Vec<Found>, sent: Time) {
        let request = self.requests.get_mut(&rid).expect("just seen");
        if request.is_given_up {
            return;
        }
        if found.len() == request.keys.len() {
            let left = found.iter().filter_map(|it| it.lease).min();
            return self.grant(rid, found[0].token, sent, left);
        }
        request.has_waited = true;
        self.set_phase(rid, Phase::Queued);
        for found in found {
            self.release_unclaimed(found);
        }
    }

    /// As a request of nobody's, that was given up.
    fn release_unclaimed(&mut self, found: Found) {
        // One whose name its user may not read ends with the session.
        let Some(key) = found.key else {
            return;
        };
        let kind = match found.is_temporary {
            true => Kind::Temporary {
                value: Bytes::new(),
                is_sequence: false,
                is_elected: false,
            },
            false => Kind::Lock(Mode::Exclusive),
        };
        let ask = Ask::new(vec![key], kind);
        let mut request = Request::new(ask, Vec::new(), found.label, None, self.now);
        request.is_silent = true;
        request.is_given_up = true;
        request.phase = Phase::Releasing;
        let place = request.places().remove(0);
        let rid = self.add(request);
        // Before those who ask for the place.
        if let Some(queue) = self.places.get_mut(&place) {
            queue.rotate_right(1);
        }
        self.send_releases(rid);
    }
}

/// Whether this hold is that of the request.
fn claims(request: &Request, found: &Found) -> bool {
    let is_named = found
        .key
        .as_ref()
        .is_some_and(|key| request.is_named && request.keys.contains(key));
    match request.phase {
        Phase::Held | Phase::Kept | Phase::Extending => request.token == found.token,
        Phase::Releasing => is_named,
        // P-SESS-11
        Phase::Asked | Phase::Waiting => is_named && found.token > request.floor,
        Phase::Queued => false,
    }
}
