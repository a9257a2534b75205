//! Very many who go together and are served in slices.

use super::*;
use crate::model::around::Around;
use crate::model::command::{Ask, Command, Mode as Asked, Wait as Waits};
use crate::model::generate::Scope;
use crate::model::step::{Ending, Step};
use crate::model::world::{Limits, World};
use crate::random::{self, Random};
use crate::trial::Trial;

#[test]
fn of_very_many_readers_who_wait_together_further_ones_follow_in_slices_and_nobody_passes_them() {
    let mut server = Server::default();
    server.acquire(1, "k");
    for number in 0..LEASES {
        let label = number.to_string();
        let what = What {
            mode: Mode::Shared,
            label: label.as_bytes(),
            lease_ms: None,
            waits: true,
        };
        server.request(2, "k", what);
    }
    server.wait(3, "k", b"");
    let granted = |orders: &[Effect]| {
        let pushes = orders.iter();
        pushes
            .filter(|order| matches!(order, Effect::Push { .. }))
            .count()
    };
    let orders = server.tell(Event::Release {
        client: ClientId(1),
        key: key("k"),
        label: b"",
        all: false,
    });
    let mut served = granted(&orders);
    assert!((1..LEASES / 4).contains(&served), "{served} in one command");
    assert_eq!(server.held(), served);
    let refused = server.share(4, b"", None);
    assert!(
        matches!(refused[..], [.., Effect::Reply(Reply::Null)]),
        "who comes now is behind them: {refused:?}"
    );
    let mut slices = 0;
    while server.engine.has_work(server.now) {
        let orders = server.tell(Event::Work { steps: 64 });
        assert!(granted(&orders) <= 64, "{} in one slice", granted(&orders));
        served += granted(&orders);
        slices += 1;
    }
    assert!(slices > 0);
    assert_eq!((served, server.held()), (LEASES, LEASES));
    assert_eq!(server.engine.gauges().waiters, 1, "the writer");
    server.engine.check_invariants();
}

#[test]
fn who_is_let_in_later_than_others_still_has_a_place_to_give_up() {
    let mut server = Server::default();
    server.acquire(1, "k");
    for number in 0..LEASES {
        let label = number.to_string();
        let what = What {
            mode: Mode::Permits {
                count: 1,
                total: LEASES as u32,
            },
            label: label.as_bytes(),
            lease_ms: None,
            waits: true,
        };
        server.request(2, "k", what);
    }
    server.tell(Event::Release {
        client: ClientId(1),
        key: key("k"),
        label: b"",
        all: false,
    });
    let last = (LEASES - 1).to_string();
    let orders = server.tell(Event::Cancel {
        client: ClientId(2),
        key: key("k"),
        label: last.as_bytes(),
    });
    assert_eq!(orders, [Effect::Reply(Reply::Integer(1))]);
    while server.engine.has_work(server.now) {
        server.tell(Event::Work { steps: 64 });
    }
    assert_eq!(server.held(), LEASES - 1);
    assert_eq!(server.engine.gauges().waiters, 0);
    server.engine.check_invariants();
}

const PLACES: usize = 10;

/// Mostly somebody asks for one of two keys, or releases what it has.
fn step(random: &mut Random, world: &World) -> Step {
    let who = random.below(PLACES);
    if world.client(who).is_none() {
        let resp3 = random.per_mille(500);
        return Step::Connect { who, resp3 };
    }
    let key = random.below(2);
    let held = world.holds_of(who);
    let command = match random.below(20) {
        0 => return Step::Work { most: 64 },
        1 if random.per_mille(300) => {
            let how = Ending::Close;
            return Step::End { who, how };
        }
        2 => Command::Cancel { key, label: 0 },
        3..12 if !held.is_empty() => {
            let hold = random.pick(&held);
            let (key, label, all) = (hold.spot.name, hold.label, true);
            Command::Release { key, label, all }
        }
        _ => {
            let permits = Asked::Permits { count: 1, total: 9 };
            let modes = [(6, Asked::Exclusive), (3, [Asked::Shared, permits][key])];
            let wait = Waits {
                limit_ms: 0,
                push: random.per_mille(700),
            };
            let ask = Ask {
                label: 0,
                task: None,
                lease_ms: None,
                reentrant: false,
                notify: false,
                wait: Some(wait),
                acks: None,
            };
            let mode = random.weighted(&modes);
            Command::Acquire { key, mode, ask }
        }
    };
    Step::Run { who, command }
}

#[test]
fn in_a_crowd_who_goes_together_is_served_in_order_however_few_at_once() {
    const STEPS: usize = 1_000;
    let worlds = random::steps(40_000).div_ceil(STEPS) as u64;
    let first = random::seed();
    let mut later = 0;
    for seed in first..first + worlds {
        let mut random = Random::new(seed);
        let limits = Limits {
            together: 1 + (seed % 3) as usize,
            ..Limits::ROOMY
        };
        let scope = Scope {
            places: PLACES,
            names: 2,
            server: false,
            locks: 0,
            sessions: 0,
            meetings: 0,
            quiet: 0,
            around: Around::default(),
        };
        let mut trial = Trial::new(scope, limits, 7).with_twins();
        let mut taken = Vec::new();
        for _ in 0..STEPS {
            let step = step(&mut random, &trial.world);
            taken.push(step.clone());
            let tried = trial.take(&step);
            let last = &taken[taken.len().saturating_sub(30)..];
            tried.unwrap_or_else(|what| panic!("TETHER_SEED={seed}: {what}\n{last:#?}"));
            later += usize::from(trial.world.first_servable().is_some());
        }
        let finished = trial.finish();
        finished.unwrap_or_else(|what| panic!("TETHER_SEED={seed}, at the end: {what}"));
    }
    println!("after {later} steps somebody was to be served later");
    let least = worlds as usize * STEPS / 1000;
    assert!(
        later > least,
        "worlds in which nothing happens prove nothing"
    );
}
