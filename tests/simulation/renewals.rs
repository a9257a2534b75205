//! The backstop of temporary keys in a cluster: with a server that can do no more than keep the times that
//! keys have to live, however time passes and keys come and go.

use std::collections::HashMap;
use tether::engine::{
    Acquire, Cause, ClientId, Db, Digest, Effect, Engine, Event, Form, Held, Key, KeyBuf,
    KeySnapshot, KeyState, Loss, Mode, Moment, News, Refusal, Reply, SessionId, SessionRecord,
    Terms, Token, Wait,
};

const BACKSTOP_MS: u64 = 60_000;

#[derive(Default)]
struct World {
    engine: Engine,
    now: Moment,
    ends: HashMap<KeyBuf, Moment>,
    renewed: usize,
    /// The shortest time that a key had left when it was renewed.
    least_left_ms: Option<u64>,
    heard: Vec<Effect>,
}

impl World {
    fn new(backstop_ms: u64) -> World {
        let mut world = World::default();
        world.engine.set_backstop(backstop_ms);
        world
    }

    fn tell(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        self.engine.handle(self.now, event, &mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Remove(key) => {
                self.ends.remove(&key);
            }
            Effect::Persist(key) => {
                self.ends.remove(&key);
            }
            Effect::Renew {
                key,
                least_ms,
                most_ms,
            } => {
                let left_ms = self.ends.get(&key).map(|end| end.ms_since(self.now));
                if left_ms.is_some_and(|left_ms| left_ms >= least_ms) {
                    return;
                }
                let least = self.least_left_ms.into_iter().chain(left_ms).min();
                self.least_left_ms = least;
                self.renewed += 1;
                self.ends.insert(key.clone(), self.now.after_ms(most_ms));
                if least_ms == 0 {
                    let key = key.as_key();
                    self.tell(Event::Renewed { key });
                }
            }
            other => self.heard.push(other),
        }
    }

    /// Lets time pass, doing what is to be done in it.
    fn pass_ms(&mut self, ms: u64) {
        let end = self.now.after_ms(ms);
        self.work();
        while let Some(due) = self.engine.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            assert!(self.engine.has_work(self.now), "woken for nothing");
            self.work();
        }
        self.now = end;
    }

    /// Does what is to be done now, and says in how many slices.
    fn work(&mut self) -> usize {
        let mut slices = 0;
        while self.engine.has_work(self.now) {
            self.tell(Event::Work { steps: 50 });
            slices += 1;
        }
        slices
    }

    fn settp(&mut self, client: u64, name: &str) {
        let key = key(name);
        let state = KeyState::Absent;
        let seen = [KeySnapshot { key, state }];
        self.tell(Event::Acquire(ask(client, &seen, None)));
    }

    fn left_ms(&self, name: &str) -> Option<u64> {
        let end = self.ends.get(&key(name).to_owned())?;
        Some(end.ms_since(self.now))
    }
}

fn key(name: &str) -> Key<'_> {
    let name = name.as_bytes();
    Key { db: Db(0), name }
}

fn ask<'a>(client: u64, seen: &'a [KeySnapshot<'a>], wait: Option<Wait>) -> Acquire<'a> {
    Acquire {
        client: ClientId(client),
        seen,
        terms: Terms::of(Mode::Temporary),
        value: b"v",
        wait,
        form: Form::Settp,
        in_command: true,
    }
}

#[test]
fn without_a_backstop_nothing_is_timed() {
    let mut world = World::new(0);
    world.settp(1, "a");
    world.tell(Event::RenewAll);
    world.pass_ms(BACKSTOP_MS);
    assert_eq!((world.renewed, world.engine.deadline()), (0, None));
    assert!(!world.engine.has_backstop(key("a")));
    assert!(!world.engine.may_be_expired(key("a")));
}

#[test]
fn only_a_temporary_key_whose_owner_lives_has_a_backstop() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "a");
    let (key_of_lock, state) = (key("lock"), KeyState::Absent);
    world.tell(Event::Acquire(Acquire {
        terms: Terms::of(Mode::Exclusive),
        form: Form::Lock,
        ..ask(
            1,
            &[KeySnapshot {
                key: key_of_lock,
                state,
            }],
            None,
        )
    }));
    let has_backstop =
        |world: &World| ["a", "lock", "b"].map(|name| world.engine.has_backstop(key(name)));
    assert_eq!(has_backstop(&world), [true, false, false]);
    let client = ClientId(1);
    world.tell(Event::Ended { client });
    assert_eq!(has_backstop(&world), [false; 3]);
}

#[test]
fn a_key_is_renewed_while_its_owner_lives_and_no_oftener_than_needed() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "a");
    assert_eq!(world.left_ms("a"), Some(BACKSTOP_MS));
    for _ in 0..600 {
        world.pass_ms(1000);
        assert!(world.left_ms("a").unwrap() >= BACKSTOP_MS / 3);
    }
    // Ten backstops: twice in each at most.
    assert!((15..=21).contains(&world.renewed), "{}", world.renewed);
    world.tell(Event::Ended {
        client: ClientId(1),
    });
    world.pass_ms(BACKSTOP_MS);
    assert_eq!(world.left_ms("a"), None);
    assert_eq!(world.engine.deadline(), None, "nothing is left to renew");
}

#[test]
fn a_key_keeps_a_third_of_its_time_whenever_it_is_made() {
    for delay_ms in (0..BACKSTOP_MS / 3).step_by(1000) {
        let mut world = World::new(BACKSTOP_MS);
        world.settp(1, "first");
        world.pass_ms(delay_ms);
        world.settp(1, "a");
        for _ in 0..180 {
            world.pass_ms(1000);
            let left_ms = world.left_ms("a");
            assert!(left_ms >= Some(BACKSTOP_MS / 3), "{delay_ms}: {left_ms:?}");
        }
    }
}

#[test]
fn what_an_ended_connection_left_is_not_renewed_while_it_cannot_be_removed() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "a");
    world.tell(Event::Ended {
        client: ClientId(1),
    });
    let renewed = world.renewed;
    world.now = world.now.after_ms(BACKSTOP_MS - 1);
    while world.engine.has_renewals(world.now) {
        world.tell(Event::Renew { steps: 64 });
    }
    assert_eq!((world.renewed, world.left_ms("a")), (renewed, Some(1)));
}

#[test]
fn however_fast_the_keys_become_many_none_is_forgotten() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "first");
    let mut count = 1_u64;
    for second in 0..120 {
        let more = if second < 70 { count / 7 + 1 } else { 0 };
        for _ in 0..more {
            count += 1;
            world.settp(1 + count / 50_000, &format!("key {count}"));
        }
        if second % 10 == 9 {
            // As many come as go.
            for number in (2..count).step_by(3) {
                let name = format!("key {number}");
                let (by, why) = (Cause::Server, Loss::Deleted);
                world.tell(Event::Gone {
                    key: key(&name),
                    by,
                    why,
                });
                world.ends.remove(&key(&name).to_owned());
            }
        }
        world.pass_ms(1000);
        let shortest = world.ends.values().map(|end| end.ms_since(world.now)).min();
        assert!(
            shortest.unwrap() >= BACKSTOP_MS / 6,
            "{count} keys after {second} s: {shortest:?}"
        );
    }
    world.engine.check_invariants();
    assert!(count > 4000, "{count}");
    assert!(world.least_left_ms.unwrap() >= BACKSTOP_MS / 6);
}

#[test]
fn a_server_that_stood_still_makes_up_for_it_at_once() {
    let mut world = World::new(BACKSTOP_MS);
    for number in 0..1000 {
        world.settp(1, &number.to_string());
    }
    world.pass_ms(BACKSTOP_MS / 2);
    world.now = world.now.after_ms(50_000);
    let slices = world.work();
    assert!((20..50).contains(&slices), "{slices}");
    let least = world.ends.values().map(|end| end.ms_since(world.now)).min();
    assert_eq!(least, Some(BACKSTOP_MS));
}

#[test]
fn a_time_that_a_user_gave_stands_until_somebody_takes_it_away() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "a");
    let timed = |world: &mut World, ms| {
        let end = world.now.after_ms(ms);
        world.ends.insert(key("a").to_owned(), end);
        world.tell(Event::Timed { key: key("a") });
    };
    timed(&mut world, 40_000);
    world.pass_ms(39_000);
    assert_eq!(world.left_ms("a"), Some(1000), "it was not renewed");
    // PERSIST, or SET; where nobody tells of it, the next visit finds out.
    world.ends.remove(&key("a").to_owned());
    world.pass_ms(BACKSTOP_MS / 3);
    assert!(world.left_ms("a").unwrap() > BACKSTOP_MS / 2);
    world.pass_ms(5 * BACKSTOP_MS);
    assert!(world.left_ms("a").unwrap() >= BACKSTOP_MS / 3);
    timed(&mut world, 3_600_000);
    world.ends.remove(&key("a").to_owned());
    world.tell(Event::Untimed { key: key("a") });
    assert_eq!(world.left_ms("a"), Some(BACKSTOP_MS));
}

#[test]
fn what_a_user_said_of_a_key_goes_along_with_its_name() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "a");
    world.tell(Event::Timed { key: key("a") });
    world.tell(Event::MovedFrom { key: key("a") });
    let (by, why) = (Cause::Server, Loss::Deleted);
    world.tell(Event::MovedTo { key: key("b"), by });
    world.ends.clear();
    world.ends.insert(key("b").to_owned(), Moment(1));
    world.pass_ms(BACKSTOP_MS);
    assert_eq!(world.left_ms("b"), Some(0), "it was not renewed");
    // A new key of that name knows nothing of it.
    world.tell(Event::Gone {
        key: key("b"),
        by,
        why,
    });
    world.ends.clear();
    world.settp(1, "b");
    world.pass_ms(5 * BACKSTOP_MS);
    assert!(world.left_ms("b").unwrap() >= BACKSTOP_MS / 3);
}

#[test]
fn a_changed_setting_is_for_the_keys_that_there_are_too() {
    let mut world = World::new(1000);
    world.settp(1, "a");
    world.engine.set_backstop(BACKSTOP_MS);
    world.tell(Event::RenewAll);
    world.pass_ms(0);
    assert_eq!(world.left_ms("a"), Some(BACKSTOP_MS));
    world.engine.set_backstop(0);
    world.tell(Event::RenewAll);
    world.pass_ms(0);
    assert_eq!((world.left_ms("a"), world.engine.deadline()), (None, None));
}

#[test]
fn a_server_with_a_master_renews_nothing() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "a");
    world.tell(Event::Demoted { redirect: false });
    assert_eq!(world.engine.deadline(), None);
    let mode = Mode::Temporary;
    world.tell(Event::Inherited {
        key: key("b"),
        mode,
        token: None,
    });
    assert_eq!(world.engine.deadline(), None);
}

#[test]
fn a_promoted_server_knows_which_times_are_of_users() {
    let mut world = World::new(BACKSTOP_MS);
    world.tell(Event::Demoted { redirect: false });
    let id = SessionId(1);
    let told = SessionRecord::Session {
        id,
        digest: Digest([1; 32]),
        grace_ms: 100 * BACKSTOP_MS,
    };
    world.tell(Event::SessionRecord(&told));
    let short = Moment(5_000_000);
    for (name, timed) in [
        ("ours", false),
        ("theirs", false),
        ("loaded", true),
        ("again", true),
    ] {
        let held = Held {
            session: id,
            key: key(name).to_owned(),
            terms: Terms::of(Mode::Temporary),
            depth: 1,
            shared_below: 0,
            token: Token(7),
            timed,
        };
        world.tell(Event::SessionRecord(&SessionRecord::Held(held)));
        world.ends.insert(key(name).to_owned(), short);
    }
    world.tell(Event::Timed { key: key("theirs") });
    world.tell(Event::Renewed { key: key("again") });
    assert_eq!(world.renewed, 0);
    let all: Vec<_> = world.engine.session_records(world.now).collect();
    let timed = |told: &&SessionRecord| matches!(told, SessionRecord::Held(held) if held.timed);
    assert_eq!(all.iter().filter(timed).count(), 2);
    world.tell(Event::Promoted);
    world.tell(Event::RenewAll);
    world.pass_ms(0);
    let left = ["ours", "again", "theirs", "loaded"].map(|name| world.left_ms(name));
    let [ours, theirs] = [BACKSTOP_MS, 5_000].map(Some);
    assert_eq!(left, [ours, ours, theirs, theirs]);
}

#[test]
fn who_waits_for_a_key_of_another_server_is_sent_there() {
    let mut world = World::new(BACKSTOP_MS);
    world.settp(1, "a");
    let state = KeyState::Other;
    let seen = [KeySnapshot {
        key: key("a"),
        state,
    }];
    for (client, push) in [(2, false), (3, true), (4, false)] {
        let limit_ms = None;
        let wait = Some(Wait { limit_ms, push });
        world.tell(Event::Acquire(ask(client, &seen, wait)));
    }
    let (by, why) = (Cause::Server, Loss::Deleted);
    world.tell(Event::Gone {
        key: key("a"),
        by,
        why,
    });
    world.heard.clear();
    world.tell(Event::Elsewhere { key: key("a") });
    let answer = |client| Effect::Answer {
        client: ClientId(client),
        reply: Reply::Refused(Refusal::Elsewhere {
            key: key("a").to_owned(),
        }),
        granted: None,
    };
    let heard = std::mem::take(&mut world.heard);
    assert_eq!((&heard[0], &heard[2]), (&answer(2), &answer(4)));
    assert!(matches!(
        &heard[1],
        Effect::Push { to, push } if *to == [ClientId(3)]
            && matches!(push.news(), News::Failed(_, why) if matches!(**why, Refusal::Elsewhere { .. }))
    ));
    world.pass_ms(1000);
    assert_eq!(world.heard, [], "nobody is granted it here");
    assert_eq!(world.engine.keys_of_the_living(), []);
}

#[test]
fn without_a_backstop_no_time_to_live_is_restored() {
    for (backstop_ms, orders) in [(BACKSTOP_MS, 1), (0, 0)] {
        let mut world = World::new(backstop_ms);
        world.settp(1, "a");
        let mut effects = Vec::new();
        let untimed = Event::Untimed { key: key("a") };
        world.engine.handle(world.now, untimed, &mut effects);
        assert_eq!(effects.len(), orders, "{effects:?}");
    }
}

#[test]
fn without_temporary_keys_there_is_nothing_to_renew() {
    let mut world = World::new(BACKSTOP_MS);
    world.tell(Event::RenewAll);
    assert_eq!(world.engine.deadline(), None);
}
