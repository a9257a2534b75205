//! A key that is here, though its slot is another server's: who holds it has lost it, and nobody waits for it here.

use tether::engine::{
    Acquire, Attributes, Cause, ClientId, Db, Effect, Engine, Event, Form, Key, KeySnapshot,
    KeyState, Loss, Mode, Moment, News, Terms, Wait,
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

fn acquire(engine: &mut Engine, client: u64, mode: Mode, state: KeyState) -> Vec<Effect> {
    let seen = [KeySnapshot { key: KEY, state }];
    let wait = Some(Wait {
        limit_ms: None,
        push: true,
    });
    let ask = Acquire {
        client: ClientId(client),
        seen: &seen,
        terms: Terms {
            attributes: Attributes {
                notify: true,
                ..Attributes::default()
            },
            ..Terms::of(mode)
        },
        value: b"v",
        wait,
        form: Form::Settp,
        in_command: true,
    };
    tell(engine, Event::Acquire(ask))
}

/// A fact between a key's two names that may be about its owner, or the end of what was told: what went along is lost, and the
/// key is nobody's at its new name.
#[test]
fn what_is_lost_between_two_names_is_told_and_its_key_removed() {
    let between = [
        Event::UnwatchAll {
            client: ClientId(9),
        },
        Event::Ended {
            client: ClientId(9),
        },
        Event::Lapse { steps: 1 },
    ];
    for (mode, stands) in [
        (Mode::Temporary, KeyState::Other),
        (Mode::Exclusive, KeyState::Lock),
    ] {
        for event in between {
            let (mut engine, mut effects) = (Engine::default(), Vec::new());
            engine.set_logs_losses(true);
            acquire(&mut engine, 1, mode, KeyState::Absent);
            acquire(&mut engine, 2, mode, stands);
            let now = Moment::default();
            engine.handle(now, Event::MovedFrom { key: KEY }, &mut effects);
            assert!(engine.has_key_in_transit());
            effects.clear();
            engine.handle(now, event, &mut effects);
            let is_loss = |effect: &Effect| match effect {
                Effect::Push { to, push } => {
                    let is_it = matches!(push.news(), News::Lost(_, Loss::Deleted, _));
                    is_it && push.key.as_key() == KEY && *to == [ClientId(1)]
                }
                _ => false,
            };
            assert!(effects.iter().any(is_loss), "{event:?}: {effects:?}");
            assert_eq!(engine.totals().lost_by_living_owners(), 1);
            let key = Key { name: b"b", ..KEY };
            let by = Cause::Server;
            tell(&mut engine, Event::MovedTo { key, by });
            assert!(!engine.has_key_in_transit());
            let effects = tell(&mut engine, Event::Work { steps: 10 });
            let removed = Effect::Remove(key.to_owned());
            assert!(effects.contains(&removed), "{event:?}: {effects:?}");
            // Who waited has the old name, and nobody the new one.
            assert_eq!(engine.holders(KEY).to_vec(), [ClientId(2)]);
            assert!(engine.holders(key).is_empty());
        }
    }
}

/// What never arrives is lost as well, and what arrives later is another key.
#[test]
fn what_never_arrives_is_lost() {
    for event in [Event::Work { steps: 10 }, Event::Tick, Event::LoadBegins] {
        let (mut engine, mut effects) = (Engine::default(), Vec::new());
        acquire(&mut engine, 1, Mode::Exclusive, KeyState::Absent);
        let now = Moment::default();
        engine.handle(now, Event::MovedFrom { key: KEY }, &mut effects);
        engine.handle(now, event, &mut effects);
        assert_eq!(engine.totals().lost_by_living_owners(), 1, "{event:?}");
        engine.handle(now, Event::Tick, &mut effects);
        assert!(engine.is_idle());
    }
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
        let granted = tell(&mut engine, Event::Work { steps: 10 });
        assert_eq!(granted, [], "nobody is");
        assert!(engine.is_idle());
    }
}
