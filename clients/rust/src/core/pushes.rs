//! What the server says of requests without being asked.

use super::request::Rid;
use super::*;

impl Core {
    pub(super) fn pushed(&mut self, push: &[Frame]) {
        let [Some(kind), Some(key), Some(text)] = [0, 1, 2].map(|at| push.get(at)?.bytes()) else {
            return; // P-FRAME-4
        };
        match kind {
            b"lock" => self.request_pushed(false, key, text),
            b"settp" => self.request_pushed(true, key, text),
            b"watchex" => self.key_changed(key, text),
            b"watchtp" => self.member_changed(key, text),
            _ => {}
        }
    }

    fn request_pushed(&mut self, is_temporary: bool, key: &[u8], text: &[u8]) {
        let (word, tail) = split(text);
        let (said, label) = match word {
            b"LOST" | b"FAILED" => split_label(tail),
            _ => (String::new(), tail),
        };
        let place = Place {
            is_temporary,
            key: key.to_vec(),
            label: label.to_vec(),
        };
        let first = self
            .places
            .get(&place)
            .and_then(|queue| queue.front())
            .copied();
        if word == b"LOST" {
            return self.told_lost(first, &place, said);
        }
        let Some(rid) = first else {
            return;
        };
        let token = std::str::from_utf8(word)
            .ok()
            .and_then(|word| word.parse().ok());
        let request = self.requests.get_mut(&rid).expect("it has a place");
        request.was_granted |= token.is_some();
        let is_wanted = matches!(request.phase, Phase::Asked | Phase::Waiting);
        // P-REL-4
        if !is_wanted || request.is_given_up {
            return;
        }
        match (word, token) {
            (b"TIMEOUT", _) => self.fail(rid, None, Some(Error::Taken)),
            (b"FAILED", _) if said == "UNBLOCKED" => {
                self.set_phase(rid, Phase::Asked);
                self.demoted();
            }
            (b"FAILED", _) => self.request_refused(rid, said),
            (_, Some(token)) => self.grant(rid, token, self.now, None),
            _ => {}
        }
    }

    fn told_lost(&mut self, rid: Option<Rid>, place: &Place, reason: String) {
        let has_session = self.connection.secret.is_some();
        match reason.as_str() {
            "demoted" => return self.demoted(), // P-LOSS-7
            "ended" if has_session => return self.session_was_ended(),
            _ => {}
        }
        let loss = Loss::Told(reason);
        let Some(rid) = rid else {
            return self.lost_under_another_name(place, loss);
        };
        let request = self.requests.get_mut(&rid).expect("it has a place");
        request.explained.push(place.key.clone());
        match request.phase {
            // P-LOSS-5
            phase if phase.is_open() => {
                if !request.is_given_up {
                    request.early = Some((loss, place.key.clone()));
                }
            }
            Phase::Kept => self.end(rid),
            // P-LOSS-6
            Phase::Releasing if !request.is_given_up => {
                self.tell_lost(rid, &loss);
                if let Some(request) = self.requests.get_mut(&rid) {
                    request.is_silent = true;
                }
            }
            Phase::Releasing => {}
            _ => self.lose(rid, loss, std::slice::from_ref(&place.key)),
        }
    }

    /// P-LOSS-4: the key was renamed since.
    fn lost_under_another_name(&mut self, place: &Place, loss: Loss) {
        let is_it = |request: &Request| {
            request.phase == Phase::Held
                && request.is_temporary() == place.is_temporary
                && request.label == place.label
        };
        let held = self.requests.iter().filter(|(_, request)| is_it(request));
        let held: Vec<_> = held.map(|(rid, _)| *rid).collect();
        match held[..] {
            [] => {}
            [rid] if !place.is_temporary && self.requests[&rid].ask.owner.is_none() => {
                let keys = self.requests[&rid].keys.clone();
                let gone = if keys.len() == 1 { keys } else { Vec::new() };
                self.lose(rid, loss, &gone);
            }
            _ => self.look(loss, held),
        }
    }
}

/// The first word, and what follows the space after it.
pub fn split(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b' ') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

/// A reason or error of so many words as it has, and the label, which may have spaces.
fn split_label(text: &[u8]) -> (String, &[u8]) {
    let words = match split(text).0 {
        b"MOVED" | b"ASK" => 3,
        b"NOACKS" => 4,
        _ => 1,
    };
    let mut label = text;
    for _ in 0..words {
        label = split(label).1;
    }
    let said = &text[..text.len() - label.len()];
    (String::from_utf8_lossy(said).trim_end().to_owned(), label)
}
