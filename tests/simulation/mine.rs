//! LOCK.MINE: each owner's list agrees with the model after every step, and what stays is on one of its pages.

use crate::model::command::{LABELS, Mode as Way, Who};
use crate::model::mine::OwnState;
use crate::random::Random;
use crate::trial::Trial;
use crate::words::key_of;
use std::collections::BTreeSet;
use tether::engine::{
    Acquire, ClientId, Db, Engine, Event, Form, Key, KeySnapshot, KeyState, Mode, Moment, Own,
    Terms, Wait,
};

/// Fails unless a connection's list says what the model says of it.
pub fn compare(trial: &Trial, who: Who) -> Result<(), String> {
    let Some(client) = trial.machine.id(who) else {
        return Ok(());
    };
    let (engine, now) = (&trial.machine.engine, trial.machine.now);
    let mut got = Vec::new();
    let mut cursor = 0;
    loop {
        let (next, page) = engine.mine(now, client, cursor, 2);
        if page.len() > 2 {
            return Err(format!("a page of {} entries", page.len()));
        }
        got.extend(page.iter().map(line));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    got.sort();
    let mut expected = expected(trial, who);
    expected.sort();
    match got == expected {
        true => Ok(()),
        false => Err(format!("{who} has {got:?}, and not {expected:?}")),
    }
}

type Line = (
    usize,
    Vec<u8>,
    Vec<u8>,
    bool,
    u32,
    &'static str,
    Option<(u32, u32)>,
);

fn line(own: &Own) -> Line {
    let state = match (own.token, own.acks) {
        (Some(_), _) => "held",
        (None, Some(_)) => "pending",
        (None, None) => "waiting",
    };
    let is_lock = own.terms.mode != Mode::Temporary;
    let (key, label) = (own.key.name.to_vec(), own.terms.label.to_vec());
    let db = own.key.db.0 as usize;
    (db, key, label, is_lock, own.depth, state, own.acks)
}

fn expected(trial: &Trial, who: Who) -> Vec<Line> {
    let own = trial.world.mine(who).into_iter();
    let line = own.map(|own| {
        let (state, acks) = match own.state {
            OwnState::Held(_) => ("held", None),
            OwnState::Pending(got, wanted) => ("pending", Some((got, wanted))),
            OwnState::Waiting => ("waiting", None),
        };
        let key = key_of(own.spot.db, own.spot.name);
        let (name, label) = (key.name.to_vec(), LABELS[own.label].to_vec());
        let is_lock = own.mode != Way::Temporary;
        (own.spot.db, name, label, is_lock, own.depth, state, acks)
    });
    line.collect()
}

/// Takes a key that may be anybody's, or waits for it.
fn take(engine: &mut Engine, now: Moment, who: u64, name: &[u8]) {
    let key = Key { db: Db(0), name };
    let is_held = engine.look_up(key).flatten().is_some();
    let state = if is_held {
        KeyState::Lock
    } else {
        KeyState::Absent
    };
    let wait = Some(Wait {
        limit_ms: None,
        push: true,
    });
    let acquire = Event::Acquire(Acquire {
        client: ClientId(who),
        seen: &[KeySnapshot { key, state }],
        terms: Terms::of(Mode::Exclusive),
        value: b"",
        wait,
        form: Form::Lock,
        in_command: true,
    });
    engine.handle(now, acquire, &mut Vec::new());
}

#[test]
fn what_stays_is_on_a_page_while_all_else_comes_and_goes() {
    for seed in 0..300 {
        let (mut random, mut engine) = (Random::new(seed), Engine::default());
        let stay: BTreeSet<Vec<u8>> = (0..30).map(|n| format!("stays:{n}").into_bytes()).collect();
        for (number, name) in stay.iter().enumerate() {
            // It waits for every third.
            if number % 3 == 0 {
                take(&mut engine, Moment(1), 2, name);
            }
            take(&mut engine, Moment(2), 1, name);
        }
        let (mut met, mut cursor) = (BTreeSet::new(), 0);
        for time in 3.. {
            let most = 1 + random.below(9);
            let (next, page) = engine.mine(Moment(time), ClientId(1), cursor, most);
            met.extend(page.iter().map(|own| own.key.name.to_vec()));
            cursor = next;
            if cursor == 0 || time > 2000 {
                break;
            }
            for _ in 0..random.below(4) {
                let name = format!("comes:{}", random.below(40)).into_bytes();
                let who = 1 + random.below(2) as u64;
                match random.below(2) {
                    0 => take(&mut engine, Moment(time), who, &name),
                    _ => {
                        let (key, label) = (
                            Key {
                                db: Db(0),
                                name: &name,
                            },
                            b"",
                        );
                        let release = Event::Release {
                            client: ClientId(who),
                            key,
                            label,
                            all: true,
                        };
                        engine.handle(Moment(time), release, &mut Vec::new());
                    }
                }
            }
        }
        assert!(cursor == 0 && met.is_superset(&stay), "{seed}");
        engine.check_invariants();
    }
}
