//! What a server tells of a key when it is asked, against the world.

use crate::harness::{Client, Frame, bulk, encode, int, null};
use crate::model::command::{DATABASES, LABELS, Mode, Name, Spot, Who};
use crate::model::holds::{Hold, Owner};
use crate::model::queues::Waiter;
use crate::model::replies::Tokens;
use crate::model::sequence::{bytes_of, is_known, last_made};
use crate::model::world::World;
use crate::trial::USED_NAMES;

pub struct KeySnapshot {
    pub spot: Spot,
    pub exists: bool,
    expires: bool,
    /// `LOCK.INFO`
    info: Frame,
}

/// Looks at all keys of all databases; of those that sequences have made, at these and the last ones.
pub fn at_all(observer: &mut Client, made: &[Spot]) -> Vec<KeySnapshot> {
    const LAST: usize = 4;
    let mut names: Vec<Name> = (0..USED_NAMES).chain(last_made(LAST)).collect();
    // What one is called that this step has made is heard of after this.
    names.extend(
        made.iter()
            .map(|spot| spot.name)
            .filter(|name| is_known(*name)),
    );
    names.sort_unstable();
    names.dedup();
    let mut bytes = Vec::new();
    for db in 0..DATABASES {
        bytes.extend(encode(["SELECT", &db.to_string()]));
        for name in names.iter().map(|name| bytes_of(*name)) {
            bytes.extend(encode([b"PTTL".as_slice(), name]));
            bytes.extend(encode([b"LOCK.INFO".as_slice(), name]));
        }
    }
    observer.send_bytes(&bytes);
    let mut seen = Vec::new();
    for db in 0..DATABASES {
        observer.read_reply();
        for name in names.iter().copied() {
            let spot = Spot { db, name };
            let (ttl, info) = (observer.read_reply(), observer.read_reply());
            let (exists, expires) = (ttl != int(-2), ttl.number() >= 0);
            seen.push(KeySnapshot {
                spot,
                exists,
                expires,
                info,
            });
        }
    }
    seen
}

impl KeySnapshot {
    /// `ids` are those of the connections in each place.
    pub fn compare(&self, world: &World, ids: &[i64], tokens: &mut Tokens) -> Result<(), String> {
        let spot = self.spot;
        let entry = world.entry(spot);
        let (exists, expires) = (entry.is_some(), entry.is_some_and(|entry| entry.expires));
        if (self.exists, self.expires) != (exists, expires) {
            return Err(format!(
                "{spot:?} exists {}, with a time to live {}, and not {exists}, {expires}",
                self.exists, self.expires
            ));
        }
        let (mut held, queue) = (world.holds_at(spot), world.queue(spot));
        let met = match &self.info {
            Frame::Null => held.is_empty() && queue.is_empty(),
            Frame::Array(info) => {
                held.sort_by_key(|hold| hold.serial);
                self.is_met(info, (world, &held), &queue, ids, tokens)
            }
            _ => false,
        };
        match met {
            true => Ok(()),
            false => Err(format!(
                "of {spot:?} is said {:?}\n  and not {held:?}, {queue:?}, ids {ids:?}",
                self.info
            )),
        }
    }

    fn is_met(
        &self,
        info: &[Frame],
        (world, held): (&World, &[&Hold]),
        queue: &[&Waiter],
        ids: &[i64],
        tokens: &mut Tokens,
    ) -> bool {
        let Some(first) = held.first().map(|hold| hold.mode) else {
            return self.is_queue(info, queue, ids) && !queue.is_empty();
        };
        let total = match first {
            Mode::Permits { total, .. } => int(total.into()),
            _ => null(),
        };
        let holders = info[7].items();
        let mut holders: Vec<Vec<Frame>> = holders.iter().map(Frame::items).collect();
        // At one key tokens rise with the grants.
        holders.sort_by_key(|holder| holder[11].number());
        let is_held = |(hold, holder): (&&Hold, &Vec<Frame>)| {
            let token = holder[11].number();
            is_holder(hold, holder, (world, ids)) && tokens.is(hold.serial, token)
        };
        info[1] == bulk(word(first))
            && info[3] == total
            && self.is_queue(info, queue, ids)
            && holders.len() == held.len()
            && held.iter().zip(&holders).all(is_held)
    }

    fn is_queue(&self, info: &[Frame], queue: &[&Waiter], ids: &[i64]) -> bool {
        let waiters = info[11].items();
        let is_next = |(waiter, said): (&&Waiter, &Frame)| {
            let said = said.items();
            said[1] == int(ids[waiter.who])
                && said[7] == label(waiter.label)
                && said[9] == bulk(word(waiter.mode))
        };
        waiters.len() == queue.len() && queue.iter().zip(&waiters).all(is_next)
    }
}

fn is_holder(hold: &Hold, said: &[Frame], (world, ids): (&World, &[i64])) -> bool {
    let voice = world.voice(hold.owner);
    let id = voice.map_or(0, |who: Who| ids[who]);
    let session = match (hold.owner, voice) {
        (Owner::Session(_), Some(_)) => bulk("attached"),
        (Owner::Session(_), None) => bulk("detached"),
        _ => null(),
    };
    let permits = match hold.mode {
        Mode::Permits { count, .. } => count,
        _ => 0,
    };
    !hold.is_left_behind()
        && (&said[1], &said[21]) == (&int(id), &session)
        && said[9] == label(hold.label)
        && said[13] == int(permits.into())
        && said[15] == int(hold.whole_depth().into())
        && (said[19] == null()) == hold.ends.is_none()
}

fn label(label: usize) -> Frame {
    Frame::Bulk(LABELS[label].to_vec())
}

pub fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Temporary => "temporary-key",
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permits { .. } => "permits",
    }
}
