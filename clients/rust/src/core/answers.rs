//! What replies and pushes say.

use super::refusals::{is_elsewhere, is_for_now, is_not_held, is_unwritable, refusal};
use super::want::Phase;
use super::{Change, Core, Id, RAISE_AGAIN, Reply, Subject, Tag};
use crate::clock::BootTime;
use crate::error::{Error, Loss};

/// LOCK.CANCEL's replies that are no token.
const NEITHER: u64 = 0;
const WAITED: u64 = 1;

impl Core {
    /// A command was answered that was sent at this moment. What comes after the fence has fallen counts for nothing.
    pub fn replied(&mut self, now: BootTime, sent: BootTime, tag: Tag, reply: Reply) {
        self.tick(now);
        if self.ended.is_some() {
            return;
        }
        self.vouch_from(sent);
        let Some((tag, reply)) = self.unless_put_off(tag, reply) else {
            return;
        };
        match tag {
            Tag::Asked(id) => self.asked(id, reply),
            Tag::Cancelled(id) => self.cancelled(id, reply),
            Tag::Released(id) => self.released(id, reply),
            Tag::Raised(id) => self.raised(id, reply),
            Tag::Looked(id, key, reason) => self.looked(id, &key, reason, reply),
            Tag::Resumed(id) => self.found(id, reply),
            Tag::Watched(key) => self.watched(&key, reply),
            Tag::Unwatched(key) => self.unwatched(&key),
            Tag::Search(step) => self.searched(step, reply),
            Tag::Ping => self.search_the_rest(),
        }
    }

    /// A push came: what it is about, the key, and the rest.
    pub fn pushed(&mut self, now: BootTime, subject: Subject, key: &[u8], text: &[u8]) {
        self.tick(now);
        if self.ended.is_some() {
            return;
        }
        let is_temporary = match subject {
            Subject::Watch => return self.key_changed(key, text),
            Subject::TemporaryKey => true,
            Subject::Lock => false,
        };
        let (word, rest) = split(text);
        let (said, label) = match word {
            b"LOST" | b"FAILED" => outcome(rest),
            _ => (String::new(), rest),
        };
        let place = (key.to_vec(), label.to_vec());
        let first = self.places.get(&place).and_then(|ids| ids.front().copied());
        let first = first.filter(|id| self.wants[id].request.is_temporary() == is_temporary);
        // The session goes on where the master is.
        let is_demoted = word == b"LOST" && said == "demoted" || said == "UNBLOCKED";
        if is_demoted && self.goes_on {
            self.is_misplaced = true;
        }
        match (word, first) {
            (b"LOST", _) if self.is_misplaced && self.has_session => {}
            (b"FAILED", Some(id)) if self.is_misplaced => self.queue_elsewhere(id),
            (b"LOST", Some(id)) => self.told_lost(id, key, Loss::Told(said)),
            (b"LOST", None) => self.look_at_all(is_temporary, label, &Loss::Told(said)),
            (b"TIMEOUT", Some(id)) => self.not_granted(id, Error::Taken),
            (b"FAILED", Some(id)) => self.not_granted(id, Error::Refused(said)),
            (token, Some(id)) => {
                let token = std::str::from_utf8(token).ok().and_then(|n| n.parse().ok());
                if let Some(token) = token {
                    self.grant(id, token);
                }
            }
            (_, None) => {}
        }
    }

    fn asked(&mut self, id: Id, reply: Reply) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        if want.is_given_up || want.phase != Phase::Asked {
            return; // The answers to what was sent since then settle it; or a push was faster.
        }
        match reply {
            // SETTP says 0 where LOCK.ACQUIRE says null; no token is 0.
            Reply::Null | Reply::Number(0) if want.until.is_some() => {
                want.phase = Phase::Waiting;
                want.has_waited = true;
                want.refusal = None;
            }
            Reply::Null | Reply::Number(0) => self.finish(id, Change::Refused(Error::Taken)),
            Reply::Number(token) => self.grant(id, token),
            Reply::Text(_) | Reply::Many(_) | Reply::Other => self.end(Loss::Connection),
            Reply::Error(error) if self.goes_on && is_elsewhere(&error) => {
                self.is_misplaced = true;
                want.queue_again();
            }
            // What was let in once is not sent away for what passes.
            Reply::Error(error)
                if self.goes_on
                    && want.until.is_some()
                    && (is_for_now(&error) || want.has_waited && is_unwritable(&error)) =>
            {
                want.phase = Phase::Queued;
                want.refusal = Some(error);
                self.try_again(Tag::Asked(id));
            }
            Reply::Error(error) => self.finish(id, Change::Refused(refusal(error))),
        }
    }

    /// The server that is no master any more ended its wait.
    fn queue_elsewhere(&mut self, id: Id) {
        if let Some(want) = self.wants.get_mut(&id)
            && !want.is_given_up
            && matches!(want.phase, Phase::Asked | Phase::Waiting)
        {
            want.queue_again();
        }
    }

    fn not_granted(&mut self, id: Id, error: Error) {
        let want = &self.wants[&id];
        if !want.is_given_up && matches!(want.phase, Phase::Asked | Phase::Waiting) {
            self.finish(id, Change::Refused(error));
        }
    }

    fn cancelled(&mut self, id: Id, reply: Reply) {
        match &reply {
            Reply::Number(NEITHER | WAITED) => self.races.cancel_first += 1,
            Reply::Number(_) => self.races.grant_first += 1,
            Reply::Error(error) => self.not_taken_back(id, error),
            _ => return self.end(Loss::Connection),
        }
        self.one_taken_back(id);
    }

    fn released(&mut self, id: Id, reply: Reply) {
        let Some(want) = self.wants.get(&id) else {
            return;
        };
        let is_given_up = want.is_given_up;
        // DELTP says how many keys there were to give back.
        let is_temporary = want.request.is_temporary();
        let deleted = || Change::Lost(Loss::Told("deleted".to_owned()));
        match &reply {
            Reply::Number(0) if is_temporary && is_given_up => self.races.cancel_first += 1,
            Reply::Number(_) if is_temporary && is_given_up => self.races.grant_first += 1,
            Reply::Number(0) if is_temporary => self.tell(id, deleted()),
            Reply::Error(error) if !is_not_held(error) => self.not_taken_back(id, error),
            // The push that says why may be on its way to nobody: the hold was not asked to NOTIFY by this name.
            Reply::Error(_) if !is_given_up => self.tell(id, deleted()),
            _ => {}
        }
        self.one_taken_back(id);
    }

    /// What is to be taken back was not: it is sent again, with all that belongs to it. If that is not for a moment, somebody is
    /// told.
    fn not_taken_back(&mut self, id: Id, error: &str) {
        if let Some(want) = self.wants.get_mut(&id) {
            want.is_refused = true;
        }
        if self.goes_on && is_elsewhere(error) {
            self.is_misplaced = true;
        } else if !is_for_now(error) && !is_unwritable(error) {
            self.tell(id, Change::Lost(Loss::Unreleased(error.to_owned())));
        }
    }

    fn one_taken_back(&mut self, id: Id) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        want.unanswered = want.unanswered.saturating_sub(1);
        match (want.unanswered, want.is_refused) {
            (0, true) => self.try_again(Tag::Released(id)),
            (0, false) => {
                self.retries.succeeded();
                self.finish(id, Change::Over);
            }
            _ => {}
        }
    }

    fn raised(&mut self, id: Id, reply: Reply) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        if want.phase != Phase::Held || want.raising.is_none() {
            return;
        }
        match reply {
            Reply::Number(token) => {
                want.token = token;
                want.raising = None;
                self.changes.push((id, Change::Raised(token)));
            }
            Reply::Error(error) if is_not_held(&error) => {
                let key = want.request.keys[0].clone();
                self.lose(id, &key, Loss::Told("deleted".to_owned()));
            }
            Reply::Error(error) if is_for_good(&error) => {
                want.raising = None;
                let change = Change::RaiseRefused(Error::Refused(error));
                self.changes.push((id, change));
            }
            Reply::Error(error) => {
                want.is_raise_refused = true;
                let again_at = self.now + RAISE_AGAIN;
                self.raise_again_at = self.raise_again_at.min(again_at);
                let change = Change::RaiseDelayed(Error::Refused(error));
                self.changes.push((id, change));
            }
            _ => self.end(Loss::Connection),
        }
    }

    fn told_lost(&mut self, id: Id, key: &[u8], reason: Loss) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        match want.phase {
            Phase::Held | Phase::Releasing if !want.is_given_up => self.lose(id, key, reason),
            Phase::Asked | Phase::Waiting => want.lost_early = Some((key.to_vec(), reason)),
            _ => {}
        }
    }

    /// A push has a name that nobody holds: the key was renamed since. It may be each of this label's.
    fn look_at_all(&mut self, is_temporary: bool, label: &[u8], reason: &Loss) {
        let held = self.wants.iter().filter(|(_, want)| {
            want.phase == Phase::Held
                && want.request.is_temporary() == is_temporary
                && want.request.label == label
        });
        for id in held.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.look(id, reason);
        }
    }

    fn looked(&mut self, id: Id, key: &[u8], reason: Loss, reply: Reply) {
        let Some(want) = self.wants.get(&id) else {
            return;
        };
        // It may be raised already, and the reply have been lost with a connection.
        let is_held = |token| token == want.token || want.raising == Some(token);
        let is_held = matches!(reply, Reply::Number(token) if is_held(token));
        if want.phase == Phase::Held && !is_held {
            self.lose(id, key, reason);
        }
    }

    /// After a break: whether it was granted before; else it is asked for again.
    fn found(&mut self, id: Id, reply: Reply) {
        let Some(want) = self.wants.get_mut(&id) else {
            return;
        };
        if want.is_given_up || !matches!(want.phase, Phase::Asked | Phase::Waiting) {
            return;
        }
        match reply {
            Reply::Number(NEITHER | WAITED) => {
                want.queue_again();
                self.send_if_first(id);
            }
            Reply::Number(token) => self.grant(id, token),
            Reply::Error(error) => self.finish(id, Change::Refused(refusal(error))),
            _ => self.end(Loss::Connection),
        }
    }
}

/// Whether a refusal stays one, however often it is asked again.
fn is_for_good(error: &str) -> bool {
    error.starts_with("NOPERM") || error.starts_with("ERR unknown command")
}

/// What stands behind LOST or FAILED, and the label behind that. A redirection is three words.
fn outcome(text: &[u8]) -> (String, &[u8]) {
    let (code, mut label) = split(text);
    if code == b"MOVED" || code == b"ASK" {
        label = split(split(label).1).1;
    }
    let said = text.strip_suffix(label).unwrap_or(text);
    let said = String::from_utf8_lossy(said).trim_end().to_owned();
    (said, label)
}

/// What stands before the first space, and after it.
fn split(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b' ') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}
