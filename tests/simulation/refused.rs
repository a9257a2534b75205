//! A server that refuses to block a connection after the engine has said that it is to wait.

use tether::engine::{
    Acquire, Attributes, ClientId, Db, Effect, Engine, Event, Form, Key, Mode, Moment, Refusal,
    Reply, Seen, Standing, Wait,
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

fn ask(engine: &mut Engine, client: ClientId, keys: &[(&str, Standing)]) -> Vec<Effect> {
    let seen: Vec<_> = keys
        .iter()
        .map(|(name, standing)| Seen {
            key: key(name),
            standing: *standing,
        })
        .collect();
    let ask = Acquire {
        client,
        seen: &seen,
        mode: Mode::Exclusive,
        attributes: Attributes::default(),
        value: b"",
        label: b"",
        lease_ms: None,
        wait: Some(Wait {
            limit_ms: Some(1000),
            push: false,
        }),
        form: Form::Lock,
        in_hand: false,
    };
    tell(engine, Event::Acquire(ask))
}

#[test]
fn a_wait_that_cannot_block_is_withdrawn() {
    let engine = &mut Engine::default();
    ask(engine, OWNER, &[("a", Standing::Absent)]);
    let both = [("a", Standing::Lock), ("b", Standing::Absent)];
    assert!(ask(engine, REFUSED, &both).contains(&Effect::Block));
    assert!(ask(engine, BEHIND, &[("b", Standing::Absent)]).contains(&Effect::Block));
    let client = REFUSED;
    let told = tell(engine, Event::BlockRefused { client });
    assert_eq!(told, [Effect::Reply(Reply::Refused(Refusal::CannotBlock))]);
    assert_eq!(engine.gauges().waiters, 1);
    // Who stood behind it is served.
    let served = tell(engine, Event::Work { most: 9 });
    let is_answer = |effect: &Effect| matches!(effect, Effect::Answer { client: BEHIND, .. });
    assert!(served.iter().any(is_answer), "{served:?}");
    // It is in no one's way, and may ask again.
    assert!(ask(engine, REFUSED, &[("a", Standing::Lock)]).contains(&Effect::Block));
}
