//! What the core does in the orders of events that a real server seldom gives.

use super::*;

pub(super) const FENCE: Duration = Duration::from_secs(4);

fn at(ms: u64) -> BootTime {
    BootTime(ms * 1_000_000)
}

/// A core with what is on the wire to the server and not answered yet.
pub(super) struct World {
    pub core: Core,
    pub sent: VecDeque<(Tag, Command)>,
    pub now: BootTime,
}

impl World {
    pub fn new(has_session: bool) -> World {
        World {
            core: Core::new(at(0), FENCE, has_session),
            sent: VecDeque::new(),
            now: at(0),
        }
    }

    /// With a core that outlives its connection.
    pub fn going_on(has_session: bool) -> World {
        let mut world = World::new(has_session);
        world.core = Core::new(at(0), FENCE, has_session).going_on();
        world
    }

    pub fn ask_for(
        &mut self,
        keys: &[&str],
        label: &str,
        wait: Option<Duration>,
    ) -> Result<Id, Error> {
        let request = Request {
            keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(),
            label: label.into(),
            mode: Mode::Exclusive,
            wait,
            lease: None,
        };
        self.core.ask(self.now, request)
    }

    pub fn ask(&mut self, key: &str, label: &str) -> Id {
        self.ask_for(&[key], label, Some(Duration::ZERO)).unwrap()
    }

    /// What was sent since this was asked last.
    pub fn said(&mut self) -> Vec<String> {
        let out = self.core.out();
        let words = |(_, command): &(Tag, Command)| {
            let words = command.0.iter().map(|word| String::from_utf8_lossy(word));
            words.collect::<Vec<_>>().join(" ")
        };
        let said = out.iter().map(words).collect();
        self.sent.extend(out);
        said
    }

    /// The server answers the oldest command.
    pub fn reply(&mut self, reply: Reply) {
        self.said();
        let (tag, _) = self.sent.pop_front().expect("an unanswered command");
        self.core.replied(self.now, self.now, tag, reply);
    }

    pub fn push(&mut self, key: &str, text: &str) {
        self.push_about(Subject::Lock, key, text);
    }

    pub fn push_about(&mut self, subject: Subject, key: &str, text: &str) {
        let (key, text) = (key.as_bytes(), text.as_bytes());
        self.core.pushed(self.now, subject, key, text);
    }

    fn ask_for_temporary(&mut self, key: &str, wait: Option<Duration>) -> Result<Id, Error> {
        let request = Request {
            keys: vec![key.into()],
            label: Vec::new(),
            mode: Mode::Temporary(b"v w".to_vec()),
            wait,
            lease: None,
        };
        self.core.ask(self.now, request)
    }

    pub fn later(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.core.tick(self.now);
    }

    pub fn changes(&mut self) -> Vec<(Id, Change)> {
        self.core.changes()
    }

    pub fn hang_up(&mut self) {
        self.sent.clear();
        self.core.broke(self.now);
    }
}

pub(super) fn not_held() -> Reply {
    Reply::Error("NOTHELD this owner does not hold the lock".into())
}

pub(super) fn told(reason: &str) -> Change {
    Change::Lost(Loss::Told(reason.into()))
}

#[test]
fn a_lock_is_asked_for_granted_and_given_back() {
    let mut world = World::new(false);
    let id = world.ask("k", "a b");
    let asked = "LOCK.ACQUIRE k OWNER a b NOTIFY WAIT 0 PUSH";
    assert_eq!(world.said(), [asked]);
    world.reply(Reply::Null);
    world.push("k", "7 a b");
    assert_eq!(world.changes(), [(id, Change::Granted(7))]);
    world.core.release(world.now, id);
    assert_eq!(world.said(), ["LOCK.RELEASE k OWNER a b"]);
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), [(id, Change::Over)]);
    assert!(world.core.is_idle());
}

#[test]
fn several_at_once_are_one_request_and_given_back_one_by_one() {
    let mut world = World::new(false);
    let id = world.ask_for(&["a", "b"], "x", None).unwrap();
    assert_eq!(world.said(), ["LOCK.MACQUIRE 2 a b OWNER x NOTIFY"]);
    world.reply(Reply::Number(7));
    world.push("b", "LOST deleted x");
    assert_eq!(world.said(), ["LOCK.RELEASE a OWNER x"]);
    let changes = [(id, Change::Granted(7)), (id, told("deleted"))];
    assert_eq!(world.changes(), changes);
}

#[test]
fn a_time_to_wait_is_rounded_up_and_never_nothing() {
    let mut world = World::new(false);
    let wait = Some(Duration::from_nanos(1));
    world.ask_for(&["k"], "x", wait).unwrap();
    assert!(world.said()[0].ends_with("WAIT 1 PUSH"));
    let wait = Some(Duration::from_micros(1500));
    world.ask_for(&["k"], "y", wait).unwrap();
    assert!(world.said()[0].ends_with("WAIT 2 PUSH"));
}

#[test]
fn a_push_may_be_heard_of_before_the_reply_that_stands_before_it() {
    let mut world = World::new(false);
    let id = world.ask("k", "x");
    world.push("k", "7 x");
    world.reply(Reply::Null);
    assert_eq!(world.changes(), [(id, Change::Granted(7))]);
    // The same with a loss: the grant is told first.
    let id = world.ask("l", "x");
    world.push("l", "LOST lease x");
    world.reply(Reply::Number(8));
    let changes = [(id, Change::Granted(8)), (id, told("lease"))];
    assert_eq!(world.changes(), changes);
}

#[test]
fn who_gives_up_leaves_nothing_whatever_was_first() {
    for answers in [
        [Reply::Null, Reply::Number(1), not_held()],
        [Reply::Null, Reply::Number(7), Reply::Number(0)],
        [Reply::Number(7), Reply::Number(7), Reply::Number(0)],
        [Reply::Null, Reply::Number(0), not_held()],
    ] {
        let mut world = World::new(false);
        let id = world.ask("k", "x");
        world.core.give_up(world.now, id);
        let said = [
            "LOCK.ACQUIRE k OWNER x NOTIFY WAIT 0 PUSH",
            "LOCK.CANCEL k OWNER x",
            "LOCK.RELEASE k OWNER x",
        ];
        assert_eq!(world.said(), said);
        // A grant that was pushed meanwhile, and a time that was over, are of no interest.
        world.push("k", "7 x");
        world.push("k", "TIMEOUT x");
        for reply in answers {
            assert_eq!(world.changes(), []);
            world.reply(reply);
        }
        assert_eq!(world.changes(), [(id, Change::Over)]);
        assert!(world.core.is_idle());
    }
}

#[test]
fn an_owner_asks_again_only_when_all_is_answered_that_it_gave_up() {
    let mut world = World::new(false);
    let first = world.ask("k", "x");
    let again = world.ask_for(&["k"], "x", None);
    assert_eq!(again, Err(Error::AskedAlready));
    world.ask("k", "another");
    world.core.give_up(world.now, first);
    world.said();
    let second = world.ask_for(&["k", "l"], "x", Some(Duration::ZERO));
    let second = second.unwrap();
    assert!(world.said().is_empty());
    for reply in [Reply::Null, Reply::Null, Reply::Number(1)] {
        world.reply(reply);
    }
    assert!(world.said().is_empty());
    world.reply(not_held());
    assert_eq!(
        world.said(),
        ["LOCK.MACQUIRE 2 k l OWNER x NOTIFY WAIT 0 PUSH"]
    );
    world.core.give_up(world.now, second);
    assert_eq!(world.said().len(), 3);
    // One that was never sent needs no answer to be given up.
    let third = world.ask("l", "x");
    world.core.give_up(world.now, third);
    assert_eq!(world.changes().last(), Some(&(third, Change::Over)));
}

#[test]
fn the_fence_falls_from_the_sending_of_what_was_answered_last() {
    let mut world = World::new(true);
    let id = world.ask("k", "x");
    world.reply(Reply::Number(7));
    assert_eq!(world.core.next_tick(), at(1000));
    world.later(1000);
    assert_eq!(world.said(), ["PING"]);
    // Answered late: it counts from when it was sent.
    world.later(2900);
    let (tag, _) = world.sent.pop_front().unwrap();
    let pong = Reply::Other;
    world.core.replied(world.now, at(1000), tag, pong);
    assert_eq!(world.core.alive_until(), at(5000));
    world.changes();
    world.later(1099);
    assert_eq!(world.changes(), []);
    world.later(1);
    assert_eq!(world.changes(), [(id, Change::Lost(Loss::Silence))]);
    // What comes then comes too late.
    world.push("k", "8 x");
    assert_eq!(world.changes(), []);
    assert!(matches!(
        world.ask_for(&["k"], "x", None),
        Err(Error::Unreachable(_))
    ));
}

#[test]
fn without_a_session_a_break_is_the_end() {
    let mut world = World::new(false);
    let (held, waiting) = (world.ask("k", "x"), world.ask("l", "x"));
    world.reply(Reply::Number(7));
    world.reply(Reply::Null);
    world.changes();
    world.hang_up();
    let refused = Change::Refused(Error::Unreachable("the connection broke".into()));
    let lost = Change::Lost(Loss::Connection);
    assert_eq!(world.changes(), [(held, lost), (waiting, refused)]);
}

#[test]
fn with_a_session_everything_is_looked_up_on_the_next_connection() {
    let mut world = World::new(true);
    let kept = world.ask("kept", "x");
    let lost = world.ask("lost", "x");
    let granted = world.ask("granted", "x");
    let waits = world.ask("waits", "x");
    let released = world.ask("released", "x");
    for reply in [7, 8].map(Reply::Number) {
        world.reply(reply);
    }
    world.reply(Reply::Null);
    world.reply(Reply::Null);
    world.reply(Reply::Number(9));
    world.hang_up();
    world.core.release(world.now, released);
    assert!(world.said().is_empty());
    world.changes();
    world.later(500);
    world.core.resumed(world.now, world.now);
    let said = [
        "LOCK.CANCEL kept OWNER x",
        "LOCK.CANCEL lost OWNER x",
        "LOCK.CANCEL granted OWNER x",
        "LOCK.CANCEL waits OWNER x",
        "LOCK.CANCEL released OWNER x",
        "LOCK.RELEASE released OWNER x",
    ];
    assert_eq!(world.said(), said);
    for reply in [7, 10, 11, 0, 9, 0].map(Reply::Number) {
        world.reply(reply);
    }
    let changes = [
        (lost, Change::Lost(Loss::Connection)),
        (granted, Change::Granted(11)),
        (released, Change::Over),
    ];
    assert_eq!(world.changes(), changes);
    assert_eq!(world.core.alive_until(), at(500) + FENCE);
    assert_eq!(world.sent.len(), 1, "one is asked for again");
    world.reply(Reply::Null);
    world.push("waits", "12 x");
    assert_eq!(world.changes(), [(waits, Change::Granted(12))]);
    world.core.release(world.now, kept);
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), [(kept, Change::Over)]);
}

#[test]
fn a_session_that_is_not_resumed_in_time_is_lost() {
    let mut world = World::new(true);
    let id = world.ask("k", "x");
    world.reply(Reply::Number(7));
    world.hang_up();
    world.changes();
    assert_eq!(world.core.next_tick(), at(0) + FENCE);
    world.later(4000);
    assert_eq!(world.changes(), [(id, Change::Lost(Loss::Silence))]);
    world.core.resumed(world.now, world.now);
    assert!(world.said().is_empty());
}

#[test]
fn a_silent_connection_is_given_up_in_time_to_try_another_if_something_is_held() {
    for (has_session, is_held, is_stuck) in [
        (true, true, true),
        (true, false, false),
        (false, true, false),
    ] {
        let mut world = World::new(has_session);
        world.ask("k", "x");
        world.reply(if is_held {
            Reply::Number(7)
        } else {
            Reply::Null
        });
        world.later(1999);
        assert!(!world.core.is_stuck());
        world.later(1);
        assert_eq!(world.core.is_stuck(), is_stuck);
        world.hang_up();
        assert!(!world.core.is_stuck());
    }
}

#[test]
fn a_loss_by_another_name_is_looked_up() {
    let mut world = World::new(false);
    let renamed = world.ask("old", "x");
    let other = world.ask("other", "x");
    world.reply(Reply::Number(7));
    world.reply(Reply::Number(8));
    world.changes();
    world.push("new", "LOST deleted x");
    assert_eq!(
        world.said(),
        ["LOCK.CANCEL old OWNER x", "LOCK.CANCEL other OWNER x"]
    );
    world.reply(Reply::Number(0));
    world.reply(Reply::Number(8));
    assert_eq!(world.changes(), [(renamed, told("deleted"))]);
    world.core.release(world.now, other);
    world.reply(not_held());
    assert_eq!(world.changes(), [(other, told("deleted"))]);
}

#[test]
fn a_temporary_key_is_made_and_deleted() {
    let mut world = World::new(false);
    let id = world.ask_for_temporary("k", Some(Duration::ZERO)).unwrap();
    assert_eq!(world.said(), ["SETTP k v w TOKEN NOTIFY WAIT 0 PUSH"]);
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), []);
    // A lock of the same name is something else.
    world.push("k", "6");
    assert_eq!(world.changes(), []);
    world.push_about(Subject::TemporaryKey, "k", "7");
    assert_eq!(world.changes(), [(id, Change::Granted(7))]);
    world.core.release(world.now, id);
    assert_eq!(world.said(), ["DELTP k"]);
    world.reply(Reply::Number(1));
    assert_eq!(world.changes(), [(id, Change::Over)]);
    // Without waiting; and deleted by another meanwhile.
    let id = world.ask_for_temporary("k", None).unwrap();
    assert_eq!(world.said(), ["SETTP k v w TOKEN NOTIFY"]);
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), [(id, Change::Refused(Error::Taken))]);
    let id = world.ask_for_temporary("k", None).unwrap();
    world.reply(Reply::Number(8));
    world.core.release(world.now, id);
    world.reply(Reply::Number(0));
    let changes = [(id, Change::Granted(8)), (id, told("deleted"))];
    assert_eq!(world.changes(), changes);
    assert!(world.core.is_idle());
}

#[test]
fn a_temporary_key_that_is_given_up_leaves_nothing_and_delays_its_next_owner() {
    for (answers, races) in [([0, 0], (1, 0)), ([0, 1], (0, 1)), ([7, 1], (0, 1))] {
        let mut world = World::new(false);
        let id = world.ask_for_temporary("k", Some(Duration::ZERO)).unwrap();
        let again = world.ask_for_temporary("k", None);
        assert_eq!(again, Err(Error::AskedAlready));
        world.core.give_up(world.now, id);
        assert_eq!(world.said()[1..], ["DELTP k"]);
        let next = world.ask_for_temporary("k", None).unwrap();
        world.push_about(Subject::TemporaryKey, "k", "7");
        assert!(world.said().is_empty());
        for answer in answers {
            world.reply(Reply::Number(answer));
        }
        assert_eq!(world.changes(), [(id, Change::Over)]);
        let Races {
            cancel_first,
            grant_first,
        } = world.core.races();
        assert_eq!((cancel_first, grant_first), races);
        assert_eq!(world.said(), ["SETTP k v w TOKEN NOTIFY"]);
        world.reply(Reply::Number(9));
        assert_eq!(world.changes(), [(next, Change::Granted(9))]);
    }
}

#[test]
fn temporary_keys_are_looked_up_on_the_next_connection_of_a_session() {
    let mut world = World::new(true);
    for key in ["kept", "lost", "waits"] {
        world.ask_for_temporary(key, Some(Duration::ZERO)).unwrap();
    }
    for token in [7, 8, 0] {
        world.reply(Reply::Number(token));
    }
    world.changes();
    world.hang_up();
    world.core.resumed(world.now, world.now);
    let said = ["kept", "lost", "waits"].map(|key| format!("LOCK.CANCEL {key}"));
    assert_eq!(world.said(), said);
    for answer in [7, 0, 0] {
        world.reply(Reply::Number(answer));
    }
    assert_eq!(world.changes(), [(1, Change::Lost(Loss::Connection))]);
    assert_eq!(world.said(), ["SETTP waits v w TOKEN NOTIFY WAIT 0 PUSH"]);
    // By a name that it got since: of temporary keys only.
    world.ask("lock", "");
    world.reply(Reply::Number(0));
    world.reply(Reply::Number(9));
    world.push_about(Subject::TemporaryKey, "new", "LOST deleted");
    assert_eq!(world.said(), ["LOCK.CANCEL kept"]);
}

#[test]
fn a_redirection_ends_the_wait_that_it_is_about() {
    let mut world = World::new(false);
    for (code, label) in [
        ("MOVED 7 host:1", "a b"),
        ("ASK 7 :1", ""),
        ("UNBLOCKED", "c"),
    ] {
        let id = world.ask("k", label);
        world.reply(Reply::Null);
        let push = format!("FAILED {code} {label}");
        world.push("k", push.trim_end());
        let refused = Change::Refused(Error::Refused(code.into()));
        assert_eq!(world.changes(), [(id, refused)]);
    }
}

/// Its clock is behind that of another server, or it refuses writes for a moment.
#[test]
fn a_token_that_is_refused_is_asked_for_again_until_the_server_raises_it() {
    let mut world = World::new(true);
    let id = world.ask("k", "one");
    world.said();
    world.reply(Reply::Number(5));
    world.core.raise(world.now, id, 9);
    assert_eq!(world.said(), ["LOCK.RAISE k 9 OWNER one"]);
    for refusal in ["ERR the token is more than a second ahead", "NOREPLICAS"] {
        world.reply(Reply::Error(refusal.to_owned()));
        let next = world.core.next_tick();
        assert!(next <= world.now + RAISE_AGAIN, "{next:?}");
        assert_eq!(world.said(), [""; 0]);
        world.now = next;
        world.core.tick(next);
        assert_eq!(world.said(), ["LOCK.RAISE k 9 OWNER one"]);
    }
    world.reply(Reply::Number(9));
    assert!(world.core.next_tick() > world.now + RAISE_AGAIN);
    let raised = Change::Raised(9);
    assert_eq!(world.core.changes().last(), Some(&(id, raised)));
    // What is refused for good, and what is given back, is not asked for any more.
    world.core.raise(world.now, id, 10);
    world.said();
    world.reply(Reply::Error("NOPERM".to_owned()));
    assert!(world.core.next_tick() > world.now + RAISE_AGAIN);
    world.core.raise(world.now, id, 11);
    world.said();
    world.reply(Reply::Error("MISCONF".to_owned()));
    world.core.release(world.now, id);
    world.said();
    world.core.tick(world.now + RAISE_AGAIN);
    assert_eq!(world.said(), [""; 0]);
}
