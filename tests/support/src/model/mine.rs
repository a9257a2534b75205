//! What a connection has (LOCK.MINE): its holds and its session's, and its waits.

use super::acks::Ack;
use super::command::{LABELS, Label, Mode, Spot, Who};
use super::replies::{Reply, Serial, Tokens};
use super::sequence::bytes_of;
use super::world::World;

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub spot: Spot,
    /// Its user may not read the key.
    pub unnamed: bool,
    pub label: Label,
    pub mode: Mode,
    pub depth: u32,
    pub state: OwnState,
    pub leased: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnState {
    Held(Serial),
    /// So many replicas have acknowledged it, of so many.
    Pending(u32, u32),
    Waiting,
}

impl World {
    pub fn mine(&self, who: Who) -> Vec<Own> {
        let is_listed = |ends: Option<u64>| ends.is_none_or(|ends| ends > self.now);
        let holds = self.holds_of(who).into_iter();
        let holds = holds.filter(|hold| !hold.is_left_behind() && is_listed(hold.ends));
        let holds = holds.map(|hold| {
            let mut grants = self.grants.iter();
            let pending = grants.find(|grant| grant.serial == hold.serial);
            let pending = pending.filter(|_| hold.ack == Ack::Pending);
            Own {
                spot: hold.spot,
                unnamed: self.hides(who, hold.spot),
                label: hold.label,
                mode: hold.mode,
                depth: hold.whole_depth(),
                state: pending.map_or(OwnState::Held(hold.serial), |grant| {
                    OwnState::Pending(grant.got, grant.wanted)
                }),
                leased: hold.ends.is_some(),
            }
        });
        let waits = self.waiters.iter().filter(|waiter| waiter.who == who);
        let waits = waits.flat_map(|waiter| {
            waiter.spots.iter().map(|spot| Own {
                spot: *spot,
                unnamed: self.hides(who, *spot),
                label: waiter.label,
                mode: waiter.mode,
                depth: 0,
                state: OwnState::Waiting,
                leased: false,
            })
        });
        holds.chain(waits).collect()
    }
}

/// What an entry says besides its token.
type Line = (i64, Reply, Vec<Reply>);

impl Own {
    fn line(&self) -> (Line, Option<Serial>) {
        let name = match self.unnamed {
            true => Reply::Null,
            false => Reply::Text(bytes_of(self.spot.name).to_vec()),
        };
        let kind = match self.mode {
            Mode::Temporary => "temporary",
            _ => "lock",
        };
        let (mode, permits) = match self.mode {
            Mode::Temporary | Mode::Exclusive => ("exclusive", 0),
            Mode::Shared => ("shared", 0),
            Mode::Permits { count, .. } => ("permits", count),
        };
        let number = |number: u32| Reply::Int(number.into());
        let (state, acks, serial) = match self.state {
            OwnState::Held(serial) => ("held", Reply::Null, Some(serial)),
            OwnState::Pending(got, wanted) => {
                let acks = Reply::Array(vec![number(got), number(wanted)]);
                ("pending", acks, None)
            }
            OwnState::Waiting => ("waiting", Reply::Null, None),
        };
        let rest = vec![
            Reply::text(kind),
            Reply::Text(LABELS[self.label].to_vec()),
            Reply::text(mode),
            number(permits),
            number(self.depth),
            Reply::text(state),
            acks,
            Reply::Int(self.leased.into()),
        ];
        ((self.spot.db as i64, name, rest), serial)
    }
}

const FIELDS: [&str; 11] = [
    "db", "key", "kind", "label", "mode", "permits", "depth", "token", "state", "acks", "lease-ms",
];

/// An entry as it came, and its token.
fn read(entry: &Reply) -> Option<(Line, Option<i64>)> {
    let Reply::Array(parts) = entry else {
        return None;
    };
    let names = parts.iter().step_by(2);
    let is_so = names.eq(FIELDS.map(Reply::text).iter());
    let values: Vec<Reply> = parts.iter().skip(1).step_by(2).cloned().collect();
    let values: [Reply; FIELDS.len()] = values.try_into().ok().filter(|_| is_so)?;
    let [
        db,
        key,
        kind,
        label,
        mode,
        permits,
        depth,
        token,
        state,
        acks,
        lease,
    ] = values;
    let Reply::Int(db) = db else { return None };
    let token = match token {
        Reply::Int(token) => Some(token),
        Reply::Null => None,
        _ => return None,
    };
    let leased = Reply::Int((lease != Reply::Null).into());
    let rest = vec![kind, label, mode, permits, depth, state, acks, leased];
    Some(((db, key, rest), token))
}

/// Whether a list says the same, in whatever order.
pub(super) fn are_met_by(expected: &[Own], got: &Reply, tokens: &mut Tokens) -> bool {
    let Reply::Array(parts) = got else {
        return false;
    };
    let [Reply::Text(cursor), Reply::Array(entries)] = &parts[..] else {
        return false;
    };
    let Some(mut got) = entries.iter().map(read).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let mut expected: Vec<_> = expected.iter().map(Own::line).collect();
    // At one key tokens rise with the grants.
    let order = |(line, number): &(Line, Option<i64>)| (format!("{line:?}"), *number);
    got.sort_by_cached_key(order);
    expected.sort_by_cached_key(|(line, serial)| (format!("{line:?}"), *serial));
    let pairs = expected.iter().zip(&got);
    let mut met = cursor == b"0" && expected.len() == got.len();
    for ((expected, serial), (got, token)) in pairs {
        met = met
            && expected == got
            && match (serial, token) {
                (Some(serial), Some(token)) => tokens.is(*serial, *token),
                (None, None) => true,
                _ => false,
            };
    }
    met
}
