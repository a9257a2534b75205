//! A key that is here, though its slot is another server's: who holds it has lost it, and nobody waits for it here.

use tether::engine::{
    Acquire, Attributes, ClientId, Db, Effect, Engine, Event, Form, Key, KeySnapshot, KeyState,
    Loss, Mode, Moment, News, Wait,
};

const KEY: Key<'static> = Key {
    db: Db(0),
    name: b"a",
};

fn tell(engine: &mut Engine, event: Event<'_>) -> Vec<Effect> {
    let mut effects = Vec::new();
    engine.handle(Moment::default(), event, &mut effects);
    engine.check_invariants();
    effects
}

fn acquire(engine: &mut Engine, client: u64, mode: Mode, standing: KeyState) -> Vec<Effect> {
    let seen = [KeySnapshot { key: KEY, standing }];
    let wait = Some(Wait {
        limit_ms: None,
        push: true,
    });
    let ask = Acquire {
        client: ClientId(client),
        seen: &seen,
        mode,
        attributes: Attributes {
            notify: true,
            ..Attributes::default()
        },
        value: b"v",
        label: b"",
        lease_ms: None,
        wait,
        acks: None,
        form: Form::Settp,
        in_command: true,
    };
    tell(engine, Event::Acquire(ask))
}

#[test]
fn whoever_holds_or_waits_is_told_and_the_key_is_removed() {
    for (mode, stands, waits, holders) in [
        (Mode::Temporary, KeyState::Other, Mode::Temporary, 1),
        (Mode::Shared, KeyState::Lock, Mode::Exclusive, 3),
    ] {
        let mut engine = Engine::default();
        acquire(&mut engine, 1, mode, KeyState::Absent);
        for client in 2..=holders {
            acquire(&mut engine, client, mode, stands);
        }
        for client in 10..12 {
            acquire(&mut engine, client, waits, stands);
        }
        let effects = tell(&mut engine, Event::Disowned { key: KEY });
        let pushes = effects.iter().filter_map(|effect| match effect {
            Effect::Push { to, push } => Some((to[0].0, push.news().clone())),
            _ => None,
        });
        let (lost, late): (Vec<_>, Vec<_>) =
            pushes.partition(|(_, news)| matches!(news, News::Lost(_, Loss::Moved, _)));
        let ids = |told: Vec<(u64, News)>| told.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert!(
            late.iter()
                .all(|(_, news)| matches!(news, News::Failed(..)))
        );
        assert_eq!(ids(late), [10, 11]);
        assert_eq!(ids(lost), (1..=holders).collect::<Vec<_>>());
        let removed =
            |effect: &&Effect| matches!(effect, Effect::Remove(key) if key.as_key() == KEY);
        assert_eq!(effects.iter().filter(removed).count(), 1);
        let granted = tell(&mut engine, Event::Work { most: 10 });
        assert_eq!(granted, [], "nobody is");
        assert!(engine.is_idle());
    }
}
