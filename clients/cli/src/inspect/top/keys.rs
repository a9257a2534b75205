//! The busiest keys of a database.
//!
//! What a look costs the server has a bound, however many keys are held: LOCK.LIST looks at [`LISTED`] keys in steps of [`STEP`],
//! LOCK.INFO shows the first holder and waiter of a few hundred, LOCK.WHY those that are shown. If there are more keys, the next
//! look goes on where this one ended, and the busiest that were found so far are looked at again each time.

use crate::inspect::reply::Map;
use crate::inspect::server::{Failure, Server};
use crate::options::Order;
use redis::{Value, cmd};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// So many keys are looked at in a step, so that no step keeps the server.
const STEP: usize = 1000;
/// After so many keys a look asks for no more.
const LISTED: usize = 10_000;
/// So many keys with the most waiters, and as many of those that are held for the longest time, are looked at closely.
const CLOSELY: usize = 100;

pub struct BusyKey {
    pub name: Vec<u8>,
    pub kind: String,
    pub waiters: i64,
    /// How long the first in line has waited.
    pub waiting_ms: Option<i64>,
    pub holders: i64,
    /// The oldest, as LOCK.INFO shows it.
    pub holder: Option<Map>,
    /// How long it has said nothing, and what it waits for itself. Known of what is shown.
    pub idle_ms: Option<i64>,
    pub waits_for: Value,
}

impl BusyKey {
    pub fn held_ms(&self) -> Option<i64> {
        self.holder.as_ref()?.number("held-ms")
    }

    /// The greatest is the busiest.
    fn rank(&self, order: Order) -> [i64; 3] {
        let (waiting, held) = (self.waiting_ms.unwrap_or(-1), self.held_ms().unwrap_or(-1));
        match order {
            Order::Waiters => [self.waiters, waiting, held],
            Order::Waiting => [waiting, self.waiters, held],
            Order::Held => [held, self.waiters, waiting],
        }
    }
}

pub struct Sample {
    /// The busiest first.
    pub busiest: Vec<BusyKey>,
    pub listed: usize,
    pub is_complete: bool,
}

#[derive(Default)]
pub struct Sampler {
    /// Where the next look goes on; empty for the beginning.
    cursor: String,
    /// What was busy when it was last looked at.
    kept: HashSet<Vec<u8>>,
}

/// What LOCK.LIST says of a key.
struct Listed {
    waiters: i64,
    held_ms: i64,
}

impl Sampler {
    /// The `count` busiest keys of those that fit the pattern, if there is one; it is always the same.
    pub fn look(
        &mut self,
        server: &mut Server,
        order: Order,
        pattern: &[u8],
        count: usize,
    ) -> Result<Sample, Failure> {
        let begins = self.cursor.is_empty();
        let listed = self.list(server, pattern)?;
        let is_complete = begins && self.cursor.is_empty();
        let mut names = candidates(&listed);
        if !is_complete {
            names.extend(self.kept.drain());
        }
        let mut busiest = look_closely(server, names)?;
        busiest.sort_by(|one, other| {
            let busier = other.rank(order).cmp(&one.rank(order));
            busier.then_with(|| one.name.cmp(&other.name))
        });
        busiest.truncate(CLOSELY);
        self.kept = busiest.iter().map(|key| key.name.clone()).collect();
        busiest.truncate(count);
        find_causes(server, &mut busiest)?;
        Ok(Sample {
            busiest,
            listed: listed.len(),
            is_complete,
        })
    }

    /// Some keys from where the last look ended.
    fn list(
        &mut self,
        server: &mut Server,
        pattern: &[u8],
    ) -> Result<HashMap<Vec<u8>, Listed>, Failure> {
        let mut listed = HashMap::new();
        for _ in 0..LISTED / STEP {
            let from = if self.cursor.is_empty() {
                "0"
            } else {
                &self.cursor
            };
            let mut question = cmd("LOCK.LIST");
            question.arg(from).arg("COUNT").arg(STEP);
            if !pattern.is_empty() {
                question.arg("MATCH").arg(pattern);
            }
            let (next, keys): (String, Vec<Map>) = server.ask(&question)?;
            for key in keys {
                if let Value::BulkString(name) = key.get("key") {
                    let number = |name| key.number(name).unwrap_or(-1);
                    let (waiters, held_ms) = (number("waiters"), number("oldest-hold-ms"));
                    listed.insert(name.clone(), Listed { waiters, held_ms });
                }
            }
            self.cursor = if next == "0" { String::new() } else { next };
            if self.cursor.is_empty() {
                break;
            }
        }
        Ok(listed)
    }
}

/// Those with the most waiters, and those that are held for the longest time.
fn candidates(listed: &HashMap<Vec<u8>, Listed>) -> HashSet<Vec<u8>> {
    let mut keys: Vec<_> = listed.iter().collect();
    let mut names = HashSet::new();
    keys.sort_by_key(|(_, key)| Reverse((key.waiters, key.held_ms)));
    names.extend(keys.iter().take(CLOSELY).map(|(name, _)| (*name).clone()));
    keys.sort_by_key(|(_, key)| Reverse(key.held_ms));
    names.extend(keys.iter().take(CLOSELY).map(|(name, _)| (*name).clone()));
    names
}

/// Leaves out what nobody holds or waits for any more.
fn look_closely(server: &mut Server, names: HashSet<Vec<u8>>) -> Result<Vec<BusyKey>, Failure> {
    let names: Vec<_> = names.into_iter().collect();
    let question = |name: &Vec<u8>| cmd("LOCK.INFO").arg(name).arg("COUNT").arg(1).to_owned();
    let answers: Vec<Option<Map>> = server.ask_all(names.iter().map(question))?;
    let mut keys = Vec::with_capacity(names.len());
    for (name, info) in names.into_iter().zip(answers) {
        let Some(info) = info else { continue };
        let first = info.maps("waiters", &server.name)?.into_iter().next();
        keys.push(BusyKey {
            name,
            kind: info.text("kind"),
            waiters: info.number("waiter-count").unwrap_or(0),
            waiting_ms: first.and_then(|waiter| waiter.number("waiting-ms")),
            holders: info.number("holder-count").unwrap_or(0),
            holder: info.maps("holders", &server.name)?.into_iter().next(),
            idle_ms: None,
            waits_for: Value::Nil,
        });
    }
    Ok(keys)
}

/// What LOCK.INFO does not say of the holders.
fn find_causes(server: &mut Server, keys: &mut [BusyKey]) -> Result<(), Failure> {
    let question = |key: &BusyKey| cmd("LOCK.WHY").arg(&key.name).to_owned();
    let answers: Vec<Vec<Map>> = server.ask_all(keys.iter().map(question))?;
    for (key, steps) in keys.iter_mut().zip(answers) {
        let token = |map: &Map| map.number("token");
        let held = key.holder.as_ref().and_then(token);
        let is_it = |step: &&Map| held.is_some() && token(step) == held;
        if let Some(step) = steps.iter().find(is_it) {
            key.idle_ms = step.number("idle-ms");
            key.waits_for = step.get("waits-for").clone();
        }
    }
    Ok(())
}
