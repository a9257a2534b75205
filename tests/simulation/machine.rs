//! Server and shell in one: facts in, orders carried out, without either.
//!
//! What a server tells a module of each change is in `Machine::changed`, in the order in which
//! servers tell it; what the shell filters out is filtered out here. Every order is held against
//! what must be true when it is given.

use crate::model::command::{Command, DATABASES, NAMES, Spot, Who};
use crate::model::told::{Arrival, Reply};
use crate::model::world::{Change, Fact};
use std::collections::BTreeSet;
use tether::engine::{
    Acquire, ClientId, Db, Effect, Engine, Event, Form, Hand, Key, KeyBuf, Limits, Mode, Moment,
    News, Push, Seen, Standing,
};

pub struct Machine {
    pub engine: Engine,
    pub present: BTreeSet<Spot>,
    lines: Vec<Option<Line>>,
    next_id: u64,
    heard: Vec<Vec<Arrival>>,
    /// Pushes wait here until a transaction is over.
    outbox: Vec<(Vec<ClientId>, Push)>,
    in_exec: bool,
    /// The engine's last answer.
    reply: Option<tether::engine::Reply>,
    removed: Vec<Spot>,
}

/// A connection.
struct Line {
    id: ClientId,
    resp3: bool,
    attended: bool,
    guarded: bool,
}

const NOW: Moment = Moment(0);

impl Machine {
    pub fn new(places: usize, limits: Limits) -> Machine {
        let mut engine = Engine::default();
        engine.set_limits(limits);
        Machine {
            engine,
            present: BTreeSet::new(),
            lines: (0..places).map(|_| None).collect(),
            next_id: 1,
            heard: vec![Vec::new(); places],
            outbox: Vec::new(),
            in_exec: false,
            reply: None,
            removed: Vec::new(),
        }
    }

    /// What everyone has heard since this was last asked for.
    pub fn heard(&mut self) -> Vec<Vec<Arrival>> {
        self.heard.iter_mut().map(std::mem::take).collect()
    }

    pub fn connect(&mut self, who: Who, resp3: bool) {
        let id = ClientId(self.next_id);
        self.next_id += 1;
        self.lines[who] = Some(Line {
            id,
            resp3,
            attended: false,
            guarded: false,
        });
    }

    /// The keyspace may be written: says what was removed.
    pub fn work(&mut self, most: usize) -> Vec<Spot> {
        self.removed.clear();
        self.tell(None, Event::Work { most });
        std::mem::take(&mut self.removed)
    }

    pub fn id(&self, who: Who) -> Option<ClientId> {
        self.lines[who].as_ref().map(|line| line.id)
    }

    pub fn is_guarded(&self, who: Who) -> bool {
        self.lines[who].as_ref().is_some_and(|line| line.guarded)
    }

    /// Lets something happen; `Err` is a wrong answer.
    pub fn happen(&mut self, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Ours {
                who,
                db,
                command,
                reply,
            } => {
                let got = self.command(*who, *db, command);
                if !reply.is_met_by(&got) {
                    return Err(format!(
                        "{command:?} of {who} gets {got:?} and not {reply:?}"
                    ));
                }
            }
            Fact::Changed { by, change } => self.changed(*by, change),
            Fact::ExecBegins => self.in_exec = true,
            Fact::ExecEnds => {
                self.in_exec = false;
                for (to, push) in std::mem::take(&mut self.outbox) {
                    self.deliver(&to, &push);
                }
            }
            Fact::Ended { who } => {
                let line = self.lines[*who].take().expect("a connection ends once");
                self.heard[*who].clear();
                self.tell(None, Event::Ended { client: line.id });
                assert!(!self.engine.knows_client(line.id));
            }
        }
        Ok(())
    }

    // ---- the module's commands ----

    fn command(&mut self, who: Who, db: usize, command: &Command) -> Reply {
        let client = self.id(who).expect("only connections send commands");
        match command {
            Command::Settp { key, .. } => {
                let spot = Spot { db, name: *key };
                let seen = [self.look(spot)];
                let ask = Acquire {
                    client,
                    seen: &seen,
                    mode: Mode::Temporary,
                    value: b"",
                    label: b"",
                    lease_ms: None,
                    wait: None,
                    form: Form::Settp,
                    in_hand: true,
                };
                self.tell(Some(spot), Event::Acquire(ask));
            }
            Command::Deltp { keys } => {
                let keys: Vec<Key<'_>> = keys.iter().map(|name| key_of(db, *name)).collect();
                let keys = &keys;
                self.tell(None, Event::Drop { client, keys });
            }
            Command::Watchex { keys } => {
                let looks = keys.iter().map(|name| self.look(Spot { db, name: *name }));
                let seen: Vec<Seen<'_>> = looks.collect();
                let seen = &seen;
                self.tell(None, Event::Watch { client, seen });
            }
            Command::Unwatchex { keys } => {
                let keys: Vec<Key<'_>> = keys.iter().map(|name| key_of(db, *name)).collect();
                self.take_back(client, &keys);
                self.tell(
                    None,
                    match &keys[..] {
                        [] => Event::UnwatchAll { client },
                        keys => Event::Unwatch { client, keys },
                    },
                );
            }
            other => unreachable!("{other:?} is not the module's"),
        }
        answer(self.reply.take().expect("each command is answered"))
    }

    fn look(&self, spot: Spot) -> Seen<'static> {
        Seen {
            key: key_of(spot.db, spot.name),
            standing: match self.present.contains(&spot) {
                true => Standing::Other,
                false => Standing::Absent,
            },
        }
    }

    /// As the shell does: what a transaction caused is not heard after it has ended the watch.
    fn take_back(&mut self, client: ClientId, keys: &[Key<'_>]) {
        for (to, push) in &mut self.outbox {
            let is_watch = matches!(push.news, News::Added | News::Deleted);
            if is_watch && (keys.is_empty() || keys.contains(&push.key.as_key())) {
                to.retain(|id| *id != client);
            }
        }
    }

    // ---- what servers tell ----

    fn changed(&mut self, by: Option<Who>, change: &Change) {
        match change {
            Change::New(spot) => {
                self.present.insert(*spot);
                self.made(by, *spot);
            }
            Change::Deleted(spot) => {
                self.present.remove(spot);
                self.gone(by, *spot);
            }
            Change::Lapsed(spot) => {
                self.present.remove(spot);
                self.gone(None, *spot);
            }
            Change::Carried { from, to } => {
                self.present.remove(from);
                self.present.insert(*to);
                self.made(by, *to);
                let key = key_of(from.db, from.name);
                if self.engine.look_up(key).is_some() {
                    self.tell(None, Event::MovedFrom { key });
                }
                if self.engine.is_carrying() {
                    let key = key_of(to.db, to.name);
                    self.tell(None, Event::MovedTo { key });
                }
            }
            Change::Flushed(db) => {
                self.present
                    .retain(|spot| db.is_some_and(|db| db != spot.db));
                let hand = by.and_then(|who| self.id(who));
                let by = hand.map_or(Hand::Nobody, Hand::Client);
                let db = db.map(|db| Db(db as u32));
                self.tell(None, Event::Flushed { db, by });
            }
            Change::Swapped => {
                let swapped = self.present.iter().map(|spot| Spot {
                    db: DATABASES - 1 - spot.db,
                    ..*spot
                });
                self.present = swapped.collect();
                let (one, other) = (Db(0), Db(1));
                self.tell(None, Event::Swapped { one, other });
                self.look_again(Some(&[one, other]));
            }
            Change::Loaded { present, held } => {
                self.present = present.iter().copied().collect();
                self.tell(None, Event::LoadBegins);
                for spot in held {
                    let (key, mode) = (key_of(spot.db, spot.name), Mode::Temporary);
                    self.tell(None, Event::Inherited { key, mode });
                }
                self.tell(None, Event::LoadEnded);
                self.look_again(None);
            }
        }
    }

    fn made(&mut self, by: Option<Who>, spot: Spot) {
        let key = key_of(spot.db, spot.name);
        if let Some(holder) = self.engine.look_up(key) {
            let by = self.hand(by, holder);
            self.tell(None, Event::Made { key, by });
        }
    }

    fn gone(&mut self, by: Option<Who>, spot: Spot) {
        let key = key_of(spot.db, spot.name);
        if let Some(holder) = self.engine.look_up(key) {
            let by = self.hand(by, holder);
            self.tell(None, Event::Gone { key, by });
        }
    }

    /// The shell asks whose hand it was only where somebody holds the key.
    fn hand(&self, by: Option<Who>, holder: Option<ClientId>) -> Hand {
        match (by.and_then(|who| self.id(who)), holder) {
            (Some(client), Some(_)) => Hand::Client(client),
            _ => Hand::Nobody,
        }
    }

    fn look_again(&mut self, dbs: Option<&[Db]>) {
        for key in self.engine.known_keys(dbs) {
            let seen = self.look(spot_of(&key));
            self.tell(None, Event::Found { seen });
        }
    }

    // ---- the engine and its orders ----

    fn tell(&mut self, in_hand: Option<Spot>, event: Event<'_>) {
        let mut effects = Vec::new();
        self.engine.handle(NOW, event, &mut effects);
        for effect in effects {
            self.perform(in_hand, effect);
        }
    }

    fn perform(&mut self, in_hand: Option<Spot>, effect: Effect) {
        match effect {
            Effect::Reply(reply) => {
                let former = self.reply.replace(reply);
                assert_eq!(former, None, "a second answer to one command");
            }
            Effect::MakeInHand => {
                let spot = in_hand.expect("a command that asks for a key");
                assert!(self.present.insert(spot), "{spot:?} is made over another");
            }
            Effect::Remove(key) => {
                let spot = spot_of(&key);
                assert!(self.present.remove(&spot), "{key:?} is removed twice");
                self.removed.push(spot);
            }
            // What replicas are told is not this test's affair.
            Effect::TellToken(_) => {}
            Effect::Push { to, push } if self.in_exec => self.outbox.push((to, push)),
            Effect::Push { to, push } => self.deliver(&to, &push),
            Effect::Attend(client) => {
                let line = self.line(client).expect("who is attended lives");
                assert!(!std::mem::replace(&mut line.attended, true));
            }
            Effect::Guard(client) => {
                let line = self.line(client).expect("who is guarded lives");
                assert!(!std::mem::replace(&mut line.guarded, true));
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn line(&mut self, client: ClientId) -> Option<&mut Line> {
        let mut lines = self.lines.iter_mut().flatten();
        lines.find(|line| line.id == client)
    }

    fn deliver(&mut self, to: &[ClientId], push: &Push) {
        for client in to {
            let Some(who) = (0..self.lines.len()).find(|who| self.id(*who) == Some(*client)) else {
                // It has ended meanwhile, in the same transaction.
                continue;
            };
            let line = self.line(*client).expect("it was just found");
            assert!(line.attended, "pushes to who was never attended");
            if let Some(sentence) = sentence(push, line.resp3) {
                self.heard[who].push(Arrival::Push(sentence));
            }
        }
    }
}

pub fn key_of(db: usize, name: usize) -> Key<'static> {
    let db = Db(db as u32);
    let name = NAMES[name];
    Key { db, name }
}

fn spot_of(key: &KeyBuf) -> Spot {
    let name = NAMES.iter().position(|name| **name == *key.name);
    Spot {
        db: key.db.0 as usize,
        name: name.expect("one of the names"),
    }
}

/// As the shell would send it, if it would.
fn sentence(push: &Push, resp3: bool) -> Option<String> {
    use crate::model::told;
    let news = match push.news {
        News::Added => told::News::Added,
        News::Deleted => told::News::Deleted,
        News::Lost(_) if resp3 => told::News::Lost,
        News::Lost(_) => return None,
        other => panic!("nobody asked for {other:?}"),
    };
    let spot = spot_of(&push.key);
    Some(told::Push { spot, news }.sentence())
}

fn answer(reply: tether::engine::Reply) -> Reply {
    use tether::engine::{Refusal, Reply as Said};
    let state = |present: &bool| Reply::text(if *present { "EXIST" } else { "NOEXIST" });
    match reply {
        Said::Integer(number) => Reply::Int(number),
        Said::Null => Reply::Null,
        Said::States(states) => match &states[..] {
            [present] => state(present),
            all => Reply::Array(all.iter().map(state).collect()),
        },
        Said::Refused(Refusal::TooManyWatches { .. }) => Reply::refused("ERR too many watches"),
        Said::Refused(Refusal::TooManyKeys { .. }) => Reply::refused("ERR too many keys"),
        Said::Refused(other) => Reply::Refused(format!("{other:?}")),
    }
}
