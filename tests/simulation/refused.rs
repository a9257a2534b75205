//! What comes between a wait and its grant: a server that refuses to block the connection, a right that is gone.

use tether::engine::{
    Acquire, ClientId, Db, Effect, Engine, Event, Form, Key, KeySnapshot, KeyState, Mode, Moment,
    NoRight, Refusal, Reply, Terms, Wait,
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
        .map(|(name, standing)| KeySnapshot {
            key: key(name),
            standing: *standing,
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

fn release(engine: &mut Engine, name: &str) -> Vec<Effect> {
    let event = Event::Release {
        client: OWNER,
        key: key(name),
        label: b"",
        all: true,
    };
    while let Some(doubt) = engine.doubt(&event) {
        let lost = (doubt.client == REFUSED).then_some(NoRight::Key);
        let wait = doubt.wait;
        let told = tell(engine, Event::Rights { wait, lost });
        let denied = Reply::Refused(Refusal::NoRight(NoRight::Key));
        let is_denied =
            |effect: &Effect| matches!(effect, Effect::Answer { reply, .. } if *reply == denied);
        assert_eq!(told.iter().any(is_denied), lost.is_some());
    }
    tell(engine, event)
}

#[test]
fn who_has_lost_its_right_is_passed_over_in_the_step_in_which_its_turn_would_come() {
    let engine = &mut Engine::default();
    ask(engine, OWNER, &[("a", KeyState::Absent)]);
    ask(
        engine,
        REFUSED,
        &[("a", KeyState::Lock), ("b", KeyState::Absent)],
    );
    ask(engine, BEHIND, &[("a", KeyState::Lock)]);
    assert!(!engine.has_doubts());
    assert_eq!(tell(engine, Event::RightsChanged), []);
    let served = release(engine, "a");
    let is_answer = |effect: &Effect| matches!(effect, Effect::Answer { client: BEHIND, .. });
    assert!(served.iter().any(is_answer), "{served:?}");
    let is_removal = |effect: &Effect| matches!(effect, Effect::Remove(_));
    assert!(!served.iter().any(is_removal), "{served:?}");
    assert!(!engine.has_doubts());
    assert_eq!(engine.gauges().waiters, 0);
}

/// Should the shell not ask: then its turn comes when it does.
#[test]
fn nobody_in_doubt_is_served() {
    let engine = &mut Engine::default();
    ask(engine, OWNER, &[("a", KeyState::Absent)]);
    ask(engine, BEHIND, &[("a", KeyState::Lock)]);
    tell(engine, Event::RightsChanged);
    let event = Event::Release {
        client: OWNER,
        key: key("a"),
        label: b"",
        all: true,
    };
    let is_answer = |effect: &Effect| matches!(effect, Effect::Answer { .. });
    assert!(!tell(engine, event).iter().any(is_answer));
    assert!(!tell(engine, Event::Work { steps: 9 }).iter().any(is_answer));
    assert!(engine.has_work(Moment(1)));
    let doubt = engine.doubt(&Event::Work { steps: 9 }).expect("one waits");
    assert_eq!(doubt.client, BEHIND);
    let (wait, lost) = (doubt.wait, None);
    assert_eq!(tell(engine, Event::Rights { wait, lost }), []);
    assert!(tell(engine, Event::Work { steps: 9 }).iter().any(is_answer));
}
