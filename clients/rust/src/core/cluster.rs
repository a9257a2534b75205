//! Clusters: which slot a key is in, what is of several, and where an error of a node refers to.

use super::*;

/// Where a node refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    pub slot: u16,
    /// An empty one is that of the node (P-CLUSTER-3).
    pub host: String,
    pub port: u16,
    /// For this request alone (P-CLUSTER-4).
    pub is_ask: bool,
}

impl Referral {
    /// That of a server's error.
    pub fn of(error: &str) -> Option<Referral> {
        let mut words = error.split(' ');
        let is_ask = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // A server says so where it knows no name of the node.
        let host = if host == "?" { "" } else { host };
        Some(Referral {
            slot,
            host: host.to_owned(),
            port: port.parse().ok()?,
            is_ask,
        })
    }
}

impl Core {
    /// P-CLUSTER-2, of what was asked for before the first node had said that it is one.
    pub(super) fn refuse_what_crosses_slots(&mut self) {
        for rid in self.rids() {
            let ask = self.requests.get(&rid).map(|request| &request.ask);
            if ask.is_some_and(crosses_slots) {
                self.fail(rid, None, Some(Error::CrossSlot));
            }
        }
        for id in self.watches.crossing() {
            self.unwatch(id);
            self.refuse_watch(id, Error::CrossSlot);
        }
        for id in self.presences.crossing() {
            self.end_presence(id);
            self.refuse_watch(id, Error::CrossSlot);
        }
    }
}

/// Whether its keys, or the names that a sequence may have, are of several slots.
pub(super) fn crosses_slots(ask: &Ask) -> bool {
    match ask.kind {
        Kind::Temporary {
            is_sequence: true, ..
        } => !ask.keys.iter().all(|prefix| has_hash_tag(prefix)),
        _ => !are_of_one_slot(&ask.keys),
    }
}

pub(super) fn are_of_one_slot(keys: &[Bytes]) -> bool {
    let mut slots = keys.iter().map(|key| slot(key));
    let first = slots.next();
    slots.all(|slot| Some(slot) == first)
}

/// Whether all keys that begin so are of one slot.
pub(super) fn has_hash_tag(prefix: &[u8]) -> bool {
    hash_tag(prefix).is_some()
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let begin = key.iter().position(|byte| *byte == b'{')? + 1;
    let end = key[begin..].iter().position(|byte| *byte == b'}')?;
    (end > 0).then(|| &key[begin..begin + end])
}

/// The slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it (P-CLUSTER-2).
pub fn slot(key: &[u8]) -> u16 {
    let shift = |crc: u16, _| match crc & 0x8000 {
        0 => crc << 1,
        _ => crc << 1 ^ 0x1021,
    };
    let add = |crc, byte: &u8| (0..8).fold(crc ^ u16::from(*byte) << 8, shift);
    hash_tag(key).unwrap_or(key).iter().fold(0, add) % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_referral_has_a_slot_and_a_place() {
        let referral = |slot, host: &str, is_ask| {
            let host = host.to_owned();
            let port = 6381;
            Some(Referral {
                slot,
                host,
                port,
                is_ask,
            })
        };
        for (error, is) in [
            (
                "MOVED 3999 10.0.0.1:6381",
                referral(3999, "10.0.0.1", false),
            ),
            ("ASK 7 [2001:db8::1]:6381", referral(7, "2001:db8::1", true)),
            (
                "MOVED 0 2001:db8::1:6381",
                referral(0, "2001:db8::1", false),
            ),
            ("MOVED 16383 :6381", referral(16383, "", false)),
            // Where names are preferred, and that of the node is not known.
            ("MOVED 16383 ?:6381", referral(16383, "", false)),
            ("MOVED 12", None),
            ("MOVED x host:1", None),
            ("MOVED 12 host:none", None),
            ("ERR MOVED 12 host:1", None),
        ] {
            assert_eq!(Referral::of(error), is, "{error}");
        }
    }

    #[test]
    fn a_key_has_the_slot_that_servers_give_it() {
        for (key, is) in [
            ("123456789", 12739),
            ("{123456789}x", 12739),
            ("foo{}{bar}", 8363),
        ] {
            assert_eq!(slot(key.as_bytes()), is, "{key}");
        }
    }
}
