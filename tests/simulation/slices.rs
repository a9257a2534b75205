//! What is due in great numbers is done in slices, and no fact causes more of it than it was asked for.

use tether::engine::{
    Acquire, Attributes, ClientId, Db, Effect, Engine, Event, Form, Key, Mode, Moment, Reply, Seen,
    Standing, Wait,
};

const LEASES: usize = 1000;

#[derive(Default)]
struct Server {
    engine: Engine,
    now: Moment,
}

fn key(name: &str) -> Key<'_> {
    let (db, name) = (Db(0), name.as_bytes());
    Key { db, name }
}

fn name(number: usize) -> String {
    format!("key:{number}")
}

impl Server {
    fn tell(&mut self, event: Event<'_>) -> Vec<Effect> {
        let mut orders = Vec::new();
        self.engine.handle(self.now, event, &mut orders);
        orders
    }

    fn acquire(
        &mut self,
        who: u64,
        name: &str,
        lease_ms: Option<u64>,
        wait: Option<Wait>,
    ) -> Vec<Effect> {
        let standing = match self.engine.look_up(key(name)) {
            Some(_) => self.engine.stands(key(name)),
            None => Standing::Absent,
        };
        self.tell(Event::Acquire(Acquire {
            client: ClientId(who),
            seen: &[Seen {
                key: key(name),
                standing,
            }],
            mode: Mode::Exclusive,
            attributes: Attributes::default(),
            value: b"",
            label: b"",
            lease_ms,
            wait,
            form: Form::Lock,
            in_hand: true,
        }))
    }

    fn share(&mut self, who: u64, label: &[u8], lease_ms: Option<u64>) -> Vec<Effect> {
        let standing = match self.held() {
            0 => Standing::Absent,
            _ => Standing::Lock,
        };
        let key = key("k");
        self.tell(Event::Acquire(Acquire {
            client: ClientId(who),
            seen: &[Seen { key, standing }],
            mode: Mode::Shared,
            attributes: Attributes::default(),
            value: b"",
            label,
            lease_ms,
            wait: None,
            form: Form::Lock,
            in_hand: true,
        }))
    }

    fn held(&self) -> usize {
        self.engine.gauges().holds
    }
}

/// A server with so many leases, all of which are over.
fn with_leases_that_are_over() -> Server {
    let mut server = Server::default();
    for number in 0..LEASES {
        server.acquire(1, &name(number), Some(10), None);
    }
    server.now = server.now.after_ms(20);
    server
}

#[test]
fn a_command_ends_its_own_keys_leases_and_few_others() {
    let mut server = with_leases_that_are_over();
    let (limit_ms, push) = (None, true);
    let last = name(LEASES - 1);
    server.acquire(2, &last, None, Some(Wait { limit_ms, push }));
    let orders = server.tell(Event::Lapse { most: 16 });
    assert_eq!(server.held(), LEASES - 16);
    assert!(orders.len() <= 2 * 16, "a push and a removal each");

    // Whose turn it is has it before anybody asks.
    let orders = server.tell(Event::LapseOf {
        keys: &[key(&last)],
    });
    let pushes = orders
        .iter()
        .filter(|order| matches!(order, Effect::Push { .. }));
    assert_eq!(pushes.count(), 2, "{orders:?}");
    assert_eq!(&*server.engine.holders(key(&last)), &[ClientId(2)]);
    assert_eq!(server.held(), LEASES - 16, "one has gone, one has come");
    let refused = server.acquire(3, &last, None, None);
    assert!(
        matches!(refused[..], [.., Effect::Reply(Reply::Null)]),
        "{refused:?}"
    );

    // Its former owner holds nothing, and who does not wait has what is free.
    let other = name(LEASES - 2);
    let orders = server.tell(Event::LapseOf {
        keys: &[key(&other)],
    });
    assert!(
        matches!(orders[..], [Effect::Push { .. }, Effect::Remove(_)]),
        "{orders:?}"
    );
    let released = server.tell(Event::Release {
        client: ClientId(1),
        key: key(&other),
        label: b"",
        all: false,
    });
    assert!(
        matches!(released[..], [Effect::Reply(Reply::Refused(_))]),
        "{released:?}"
    );
    server.engine.check_invariants();
}

#[test]
fn leases_that_are_over_end_in_slices_of_the_size_asked_for() {
    let mut server = with_leases_that_are_over();
    let mut slices = 0;
    while server.engine.has_work(server.now) {
        let before = server.held();
        let orders = server.tell(Event::Work { most: 64 });
        assert!(before - server.held() <= 64 && orders.len() <= 2 * 64);
        slices += 1;
    }
    assert_eq!((server.held(), slices), (0, LEASES.div_ceil(64)));
    server.engine.check_invariants();
}

#[test]
fn of_a_lock_with_very_many_readers_each_finds_its_own_lease_over_and_others_end_some() {
    let mut server = Server::default();
    for number in 0..LEASES {
        let label = number.to_string();
        server.share(1, label.as_bytes(), Some(10));
    }
    server.now = server.now.after_ms(20);
    let keys = &[key("k")];
    server.tell(Event::LapseOf { keys });
    let left = server.held();
    assert!((1..LEASES).contains(&left), "{left} are left");

    let last = (LEASES - 1).to_string();
    let released = server.tell(Event::Release {
        client: ClientId(1),
        key: key("k"),
        label: last.as_bytes(),
        all: false,
    });
    assert!(
        matches!(
            released[..],
            [Effect::Push { .. }, Effect::Reply(Reply::Refused(_))]
        ),
        "{released:?}"
    );
    let last = (LEASES - 2).to_string();
    let orders = server.share(1, last.as_bytes(), None);
    let granted = matches!(orders.last(), Some(Effect::Reply(Reply::Integer(_))));
    assert!(granted, "not deeper, but anew: {orders:?}");
    assert_eq!(server.held(), left - 1);
    while server.engine.has_work(server.now) {
        server.tell(Event::Work { most: 64 });
    }
    assert_eq!(server.held(), 1);
    server.engine.check_invariants();
}
