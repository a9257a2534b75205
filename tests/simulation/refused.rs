//! What comes between a wait and its grant: a server that refuses to block the connection, a right that is gone.

use std::cell::Cell;
use std::rc::Rc;
use tether::engine::{
    Acquire, ClientId, Db, Effect, Engine, Event, Form, Key, KeySnapshot, KeyState, Limits, Mode,
    Moment, NoRight, Refusal, Reply, Terms, Wait,
};

const OWNER: ClientId = ClientId(1);
const REFUSED: ClientId = ClientId(2);
const BEHIND: ClientId = ClientId(3);

fn key(name: &str) -> Key<'_> {
    let (db, name) = (Db(0), name.as_bytes());
    Key { db, name }
}

fn tell(engine: &mut Engine, event: Event<'_>) -> Vec<Effect> {
    let mut effects = Vec::new();
    engine.handle(Moment(1), event, &mut effects);
    engine.check_invariants();
    effects
}

fn ask(engine: &mut Engine, client: ClientId, keys: &[(&str, KeyState)]) -> Vec<Effect> {
    let seen: Vec<_> = keys
        .iter()
        .map(|(name, state)| KeySnapshot {
            key: key(name),
            state: *state,
        })
        .collect();
    let ask = Acquire {
        client,
        seen: &seen,
        terms: Terms::of(Mode::Exclusive),
        value: b"",
        wait: Some(Wait {
            limit_ms: Some(1000),
            push: false,
        }),
        form: Form::Lock,
        in_command: false,
    };
    tell(engine, Event::Acquire(ask))
}

#[test]
fn a_wait_that_cannot_block_is_withdrawn() {
    let engine = &mut Engine::default();
    ask(engine, OWNER, &[("a", KeyState::Absent)]);
    let both = [("a", KeyState::Lock), ("b", KeyState::Absent)];
    assert!(ask(engine, REFUSED, &both).contains(&Effect::Block));
    assert!(ask(engine, BEHIND, &[("b", KeyState::Absent)]).contains(&Effect::Block));
    let client = REFUSED;
    let told = tell(engine, Event::BlockRefused { client });
    assert_eq!(told, [Effect::Reply(Reply::Refused(Refusal::CannotBlock))]);
    assert_eq!(engine.gauges().waiters, 1);
    // Who stood behind it is served.
    let served = tell(engine, Event::Work { steps: 9 });
    let is_answer = |effect: &Effect| matches!(effect, Effect::Answer { client: BEHIND, .. });
    assert!(served.iter().any(is_answer), "{served:?}");
    // It is in no one's way, and may ask again.
    assert!(ask(engine, REFUSED, &[("a", KeyState::Lock)]).contains(&Effect::Block));
}

/// From now on `REFUSED` has lost its right. How often that was asked.
fn refuse(engine: &mut Engine) -> Rc<Cell<usize>> {
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    engine.check_rights_by(Box::new(move |client, form, since, keys| {
        assert_eq!((form, since), (Form::Lock, Moment(1)));
        assert!(keys.count() > 0);
        count.set(count.get() + 1);
        (client == REFUSED).then_some(NoRight::Key)
    }));
    asked
}

fn answers(effects: &[Effect]) -> Vec<(ClientId, bool)> {
    let answers = effects.iter().filter_map(|effect| match effect {
        Effect::Answer { client, reply, .. } => Some((client, reply)),
        _ => None,
    });
    let denied = Reply::Refused(Refusal::NoRight(NoRight::Key));
    let answers = answers.map(|(client, reply)| (*client, *reply != denied));
    answers.collect()
}

fn release(engine: &mut Engine, name: &str) -> Vec<Effect> {
    let event = Event::Release {
        client: OWNER,
        key: key(name),
        label: b"",
        all: true,
    };
    tell(engine, event)
}

#[test]
fn who_has_lost_its_right_is_passed_over_in_the_step_in_which_its_turn_would_come() {
    for several in [false, true] {
        let engine = &mut Engine::default();
        ask(engine, OWNER, &[("a", KeyState::Absent)]);
        let names = [("a", KeyState::Lock), ("b", KeyState::Absent)];
        ask(engine, REFUSED, &names[..1 + usize::from(several)]);
        ask(engine, BEHIND, &[("a", KeyState::Lock)]);
        let asked = refuse(engine);
        let event = Event::Extend {
            client: OWNER,
            key: key("a"),
            label: b"",
            lease_ms: 10,
        };
        assert_eq!(answers(&tell(engine, event)), []);
        assert_eq!(asked.get(), 0, "it is nobody's turn");
        let served = release(engine, "a");
        assert_eq!(answers(&served), [(REFUSED, false), (BEHIND, true)]);
        let is_removal = |effect: &Effect| matches!(effect, Effect::Remove(_));
        assert!(!served.iter().any(is_removal), "{served:?}");
        assert_eq!(engine.gauges().waiters, 0);
        assert_eq!(engine.totals().handoffs, 1);
    }
}

#[test]
fn of_very_many_who_have_lost_their_rights_few_are_refused_by_one_event() {
    const MANY: u64 = 1000;
    const KEYS: usize = 10;
    const STEPS: usize = 200;
    /// What a budget is for, and one at each key that is freed.
    const MOST: usize = STEPS / 4 + KEYS;
    let engine = &mut Engine::default();
    engine.set_limits(Limits {
        steps_per_event: STEPS,
        ..Limits::default()
    });
    let names: Vec<String> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    for name in &names {
        ask(engine, OWNER, &[(name, KeyState::Absent)]);
    }
    engine.check_rights_by(Box::new(|client, _, _, _| {
        (client != OWNER).then_some(NoRight::Key)
    }));
    for number in 0..MANY {
        let name = &*names[number as usize % names.len()];
        ask(engine, ClientId(10 + number), &[(name, KeyState::Lock)]);
    }
    let mut refused = answers(&release(engine, &names[0])).len();
    assert!((1..=MOST).contains(&refused), "{refused} at once");
    let client = OWNER;
    tell(engine, Event::Ended { client });
    for steps in [1, STEPS].into_iter().cycle() {
        if !engine.has_work(Moment(1)) {
            break;
        }
        let now = answers(&tell(engine, Event::Work { steps })).len();
        assert!((1..=MOST).contains(&now), "{now} at once");
        refused += now;
    }
    assert_eq!((refused as u64, engine.gauges().waiters), (MANY, 0));
}

/// Who asks for several keys costs as much as if it asked for each.
#[test]
fn of_those_who_ask_for_several_keys_fewer_are_refused_at_once() {
    const STEPS: usize = 200;
    const KEYS: usize = 10;
    let refused_at_once = |keys: usize| {
        let engine = &mut Engine::default();
        engine.set_limits(Limits {
            steps_per_event: STEPS,
            ..Limits::default()
        });
        ask(engine, OWNER, &[("0", KeyState::Absent)]);
        let names: Vec<String> = (0..keys).map(|number| number.to_string()).collect();
        let state = |at: usize| [KeyState::Lock, KeyState::Absent][usize::from(at > 0)];
        let seen = names.iter().enumerate();
        let seen: Vec<_> = seen.map(|(at, name)| (&**name, state(at))).collect();
        for number in 0..STEPS as u64 {
            ask(engine, ClientId(10 + number), &seen);
        }
        engine.check_rights_by(Box::new(|_, _, _, _| Some(NoRight::Key)));
        answers(&release(engine, "0")).len()
    };
    let (one, several) = (refused_at_once(1), refused_at_once(KEYS));
    assert!(
        several > 0 && several <= one / KEYS + 1,
        "{several} and {one}"
    );
}
