//! Server and shell in one: facts in, orders carried out, without either.
//!
//! What a server tells a module of each change is in `keyspace.rs`. Every order is held against what
//! must be true when it is given.

use crate::model::command::{Command, Spot, Who};
use crate::model::presence::{Page, Sight};
use crate::model::replies::{Arrival, Reply, Tokens};
use crate::model::rights::{Rights, User};
use crate::model::world::Fact;
use crate::twins::Twins;
use crate::users::Users;
use crate::words::{answer, key_of, refuse_circle, sentence, spot_of};
use std::collections::{BTreeMap, BTreeSet};
use tether::engine::{
    Acquire, ClientId, Effect, Engine, Event, Key, KeySnapshot, KeyState, Limits, Moment, News,
    Presence, Push, SessionRecord, Timing, Token,
};
use tether::policy::losses::LossLog;

pub struct Machine {
    pub engine: Engine,
    pub losses: LossLog,
    /// The same once more, by the short ways and by the long ones.
    pub twins: Option<Twins>,
    pub users: Users,
    pub things: BTreeMap<Spot, Thing>,
    /// What is to be loaded says so much of sessions.
    pub(super) saved: Vec<SessionRecord>,
    pub(super) lines: Vec<Option<Line>>,
    next_id: u64,
    pub now: Moment,
    heard: Vec<Vec<Arrival>>,
    /// What everyone has seen of its watches of prefixes.
    pub(super) seen: Vec<Vec<Sight>>,
    /// Pushes wait here until a transaction is over.
    outbox: Vec<(Vec<ClientId>, Push)>,
    pub(super) in_exec: bool,
    /// In whose transaction a command of ours was executed.
    pub(super) gives_back: Option<ClientId>,
    /// Whose command is executed outside a transaction.
    pub(super) turn: Option<ClientId>,
    /// What that one's watches have it hear after its reply.
    behind: Vec<(bool, String)>,
    /// The engine's last answer.
    pub(super) reply: Option<Reply>,
    /// The keys that orders were about, in order.
    named: Vec<Spot>,
    /// Those that went to who waited.
    pub(super) handed_over: Vec<Spot>,
    /// How many sessions were ever started.
    pub(super) started: u64,
    /// How many keys sequences have made.
    pub(super) sequences: usize,
    /// Somebody has watched a key, or asked for one with a wait: from then on the shell hears of keys
    /// that come into being.
    pub(super) hears_of_new: bool,
    /// How far replication has come.
    offset: u64,
}

/// What stands at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thing {
    pub is_lock: bool,
    /// It has a time to live.
    pub expires: bool,
}

/// A connection.
pub(super) struct Line {
    pub id: ClientId,
    attended: bool,
    guarded: bool,
    pub blocked: bool,
    /// By the last answer to a wait.
    granted: Option<Token>,
}

impl Machine {
    pub fn new(places: usize, limits: Limits) -> Machine {
        let mut engine = Engine::default();
        engine.set_logs_losses(true);
        let mut losses = LossLog::default();
        losses.set_most(1 << 20);
        engine.set_limits(limits);
        let users = Users::default();
        users.answer(&mut engine);
        Machine {
            engine,
            losses,
            twins: None,
            users,
            things: BTreeMap::new(),
            saved: Vec::new(),
            lines: (0..places).map(|_| None).collect(),
            next_id: 1,
            now: Moment(0),
            heard: vec![Vec::new(); places],
            seen: vec![Vec::new(); places],
            outbox: Vec::new(),
            in_exec: false,
            gives_back: None,
            turn: None,
            behind: Vec::new(),
            reply: None,
            named: Vec::new(),
            handed_over: Vec::new(),
            started: 0,
            sequences: 0,
            hears_of_new: false,
            offset: 0,
        }
    }

    /// What everyone has heard since this was last asked for.
    pub fn heard(&mut self) -> Vec<Vec<Arrival>> {
        self.heard.iter_mut().map(std::mem::take).collect()
    }

    pub fn connect(&mut self, who: Who) {
        let id = ClientId(self.next_id);
        self.next_id += 1;
        self.users.connect(id, who);
        self.lines[who] = Some(Line {
            id,
            attended: false,
            guarded: false,
            blocked: false,
            granted: None,
        });
    }

    pub fn change_rights(&self, user: User, rights: &Rights) {
        self.users.change(user, rights, self.engine.now());
    }

    /// The keyspace may be written: says what keys that was about, in order.
    pub fn work(&mut self, most: usize) -> Vec<Spot> {
        self.named.clear();
        self.handed_over.clear();
        self.tell(None, Event::Work { steps: most });
        std::mem::take(&mut self.named)
    }

    /// Whether there is work of which the model knows nothing.
    pub fn has_more_to_do(&self) -> bool {
        let engine = &self.engine;
        engine.is_flushing()
            || engine.has_dead_waits()
            || engine.has_ready()
            || engine.has_renewals(self.now)
    }

    pub fn id(&self, who: Who) -> Option<ClientId> {
        self.lines[who].as_ref().map(|line| line.id)
    }

    pub fn who(&self, id: ClientId) -> Option<Who> {
        (0..self.lines.len()).find(|who| self.id(*who) == Some(id))
    }

    pub fn is_blocked(&self, who: Who) -> bool {
        self.lines[who].as_ref().is_some_and(|line| line.blocked)
    }

    pub fn is_guarded(&self, who: Who) -> bool {
        self.lines[who].as_ref().is_some_and(|line| line.guarded)
    }

    /// Lets something happen; `Err` is a wrong answer.
    pub fn happen(&mut self, fact: &Fact, tokens: &mut Tokens) -> Result<(), String> {
        match fact {
            Fact::Ours {
                who,
                db,
                command,
                reply,
            } => {
                let got = self.command(*who, *db, command, tokens)?;
                if !reply.is_met_by(&got, tokens) {
                    return Err(format!(
                        "{command:?} of {who} gets {got:?} and not {reply:?}"
                    ));
                }
            }
            Fact::Changed { by, change } => self.changed(*by, change),
            Fact::ExecBegins => self.in_exec = true,
            Fact::ExecEnds => {
                self.in_exec = false;
                for (mut to, push) in self.outbox_without_what_was_given_back() {
                    // As the shell does.
                    to.retain(|client| self.engine.wants(*client, &push));
                    self.deliver(&to, &push);
                }
            }
            Fact::Ended { who } => {
                let line = self.lines[*who].take().expect("a connection ends once");
                self.heard[*who].clear();
                self.seen[*who].clear();
                let client = line.id;
                self.tell(None, Event::Ended { client });
                assert!(!self.engine.knows_client(client));
                if line.blocked {
                    let granted = None;
                    self.tell(None, Event::Abandoned { client, granted });
                }
            }
            Fact::Unblocked { who, error } => self.unblocked(*who, *error),
            Fact::Dropped { who } => {
                let line = self.lines[*who].as_ref().expect("it is there still");
                let (client, granted) = (line.id, line.granted);
                assert!(granted.is_some(), "no grant that could be dropped");
                self.tell(None, Event::Abandoned { client, granted });
            }
            Fact::WritesRefused => self.tell(None, Event::Writes { accepted: false }),
            Fact::Quarantined { ms } => self.tell(None, Event::Quarantine { ms: *ms }),
            Fact::Propagated => {
                self.offset += 1;
                let offset = self.offset;
                self.tell(None, Event::Propagated { offset });
            }
            Fact::Acknowledged { serial, replicas } => {
                let token = tokens.of(*serial).expect("each hold's token is looked at");
                let (token, replicas) = (Token(token as u64), *replicas);
                self.tell(None, Event::Acknowledged { token, replicas });
            }
            Fact::Replicas { count } => self.tell(None, Event::Replicas { count: *count }),
            Fact::Passed { now } => {
                self.now = Moment(now * 1000);
                self.tell(None, Event::Tick);
            }
        }
        Ok(())
    }

    fn unblocked(&mut self, who: Who, error: bool) {
        let line = self.lines[who].as_mut().expect("who stands still is there");
        assert!(std::mem::replace(&mut line.blocked, false));
        let client = line.id;
        let reply = if error {
            let granted = None;
            self.tell(None, Event::Abandoned { client, granted });
            Reply::refused("UNBLOCKED")
        } else {
            let outer = self.reply.take();
            self.tell(None, Event::Unblocked { client });
            std::mem::replace(&mut self.reply, outer).expect("it is answered")
        };
        self.heard[who].push(Arrival::Reply(reply));
    }

    pub(super) fn look(&self, spot: Spot) -> KeySnapshot<'static> {
        KeySnapshot {
            key: key_of(spot.db, spot.name),
            state: match self.things.get(&spot) {
                Some(thing) if thing.is_lock => KeyState::Lock,
                Some(_) => KeyState::Other,
                None => KeyState::Absent,
            },
        }
    }

    /// As the shell does: what a transaction caused is not heard after it has ended the watch.
    pub(super) fn take_back(&mut self, client: ClientId, keys: &[Key<'_>]) {
        for (to, push) in &mut self.outbox {
            let is_watch = matches!(push.news(), News::Added | News::Deleted);
            if is_watch && (keys.is_empty() || keys.contains(&push.key.as_key())) {
                to.retain(|id| *id != client);
            }
        }
    }

    // ---- the engine and its orders ----

    pub(super) fn tell(&mut self, in_command: Option<(Spot, Thing)>, event: Event<'_>) {
        let mut effects = Vec::new();
        let asked = match &event {
            Event::Acquire(ask) => Some(*ask),
            _ => None,
        };
        let at_once = asked.is_some_and(|ask| self.engine.is_uncontended(ask.seen));
        // As little exact as the engine says that it may be.
        let time = match self.engine.timing(&event) {
            Timing::Exact => self.now,
            Timing::Late => Moment(self.now.0.saturating_sub(10_000)),
            Timing::Any => Moment::default(),
        };
        if let Some(twins) = &mut self.twins {
            twins.tell(time, event);
        }
        self.engine.handle(time, event, &mut effects);
        assert!(!at_once || !self.engine.is_awaited());
        let is_reply = |effect: &Effect| matches!(effect, Effect::Reply(_));
        let before_last = effects.len().saturating_sub(1);
        assert!(!effects[..before_last].iter().any(is_reply), "{effects:?}");
        for effect in effects {
            self.perform(in_command, asked.as_ref(), effect);
        }
    }

    fn perform(
        &mut self,
        in_command: Option<(Spot, Thing)>,
        asked: Option<&Acquire<'_>>,
        effect: Effect,
    ) {
        match effect {
            Effect::Reply(reply) => {
                let wrong = asked.and_then(|ask| refuse_circle(&self.engine, ask, &reply));
                let reply = wrong.map_or_else(|| answer(reply), Reply::Refused);
                self.answer_once(reply);
            }
            Effect::Block => self.answer_once(Reply::Blocked),
            Effect::Answer {
                client,
                reply,
                granted,
            } => {
                let who = self.who(client).expect("who stands still is there");
                let line = self.line(client).expect("it was just found");
                assert!(std::mem::replace(&mut line.blocked, false));
                line.granted = granted;
                self.heard[who].push(Arrival::Reply(answer(reply)));
            }
            Effect::CreateKey { .. } => {
                let (spot, thing) = in_command.expect("a command that asks for a key");
                let former = self.things.insert(spot, thing);
                assert_eq!(former, None, "{spot:?} is made over another");
            }
            Effect::Make { key, .. } => self.make(spot_of(&key), false),
            Effect::MakeLock { key, .. } => self.make(spot_of(&key), true),
            Effect::Remove(key) => {
                let spot = spot_of(&key);
                self.named.push(spot);
                let former = self.things.remove(&spot);
                assert!(former.is_some(), "{key:?} is removed twice");
            }
            // What replicas are told, and what is renewed: see `twins.rs` and `renewals.rs`.
            Effect::ReplicateToken(_) | Effect::Replicate(_) => {}
            Effect::Renew { .. } | Effect::Persist(_) => panic!("there is no backstop"),
            Effect::Push { to, push } => {
                if matches!(push.news(), News::Lost(..)) {
                    self.named.push(spot_of(&push.key));
                }
                match self.in_exec {
                    true => self.outbox.push((to, push)),
                    false => self.deliver(&to, &push),
                }
            }
            Effect::Presence(presence) => {
                self.perform(in_command, asked, pushed(*presence));
            }
            Effect::EnablePush(client) => {
                let line = self.line(client).expect("who is attended lives");
                assert!(!std::mem::replace(&mut line.attended, true));
            }
            Effect::CountAcks => {}
            Effect::Lost(lost) => {
                self.losses.add(self.now, lost);
            }
            Effect::NextHolder { key, token } => {
                self.handed_over.push(spot_of(&key));
                self.losses.granted(key.as_key(), token);
                if let Some(logged) = self.losses.closed() {
                    self.engine.close_log(logged);
                }
            }
            Effect::TrackDisconnect(client) => {
                let line = self.line(client).expect("who is guarded lives");
                assert!(!std::mem::replace(&mut line.guarded, true));
            }
        }
    }

    /// As the shell does: what a transaction was granted and has given back, it does not hear of.
    fn outbox_without_what_was_given_back(&mut self) -> Vec<(Vec<ClientId>, Push)> {
        let all = std::mem::take(&mut self.outbox);
        let gives_back = self.gives_back.take();
        let is_told = |at: usize| {
            let (to, push) = &all[at];
            let News::Granted(_, token) = *push.news() else {
                return true;
            };
            let is_same = |(other, next): &&(Vec<ClientId>, Push)| {
                (other, &next.key, next.label()) == (to, &push.key, push.label())
            };
            let next = all[at + 1..].iter().find(is_same);
            let is_lost = next.is_some_and(|(_, next)| matches!(next.news(), News::Lost(..)));
            let is_anothers = gives_back.is_some_and(|client| client != to[0]);
            is_lost || is_anothers || self.engine.granted(to[0]).contains(&token)
        };
        let told = (0..all.len()).filter(|at| is_told(*at));
        told.map(|at| all[at].clone()).collect()
    }

    /// Its watches of prefixes are answered so.
    pub(super) fn see_reply(&mut self, who: Who, command: &Command, reply: &Reply) {
        let (Command::Watchtp { .. } | Command::Unwatchtp { .. }) = command else {
            return;
        };
        let expected = match *command {
            Command::Watchtp {
                prefix,
                goes_on,
                keys_only,
            } => Reply::Page(Page {
                prefix,
                goes_on,
                keys_only,
                next: Vec::new(),
                entries: Vec::new(),
            }),
            Command::Unwatchtp { prefix } => Reply::Unwatched(prefix, 0),
            _ => return,
        };
        self.seen[who].extend(Sight::of(&expected, reply));
    }

    pub(super) fn answer_once(&mut self, reply: Reply) {
        let former = self.reply.replace(reply);
        assert_eq!(former, None, "a second answer to one command");
    }

    fn make(&mut self, spot: Spot, is_lock: bool) {
        self.named.push(spot);
        let expires = false;
        self.things.insert(spot, Thing { is_lock, expires });
    }

    pub(super) fn line(&mut self, client: ClientId) -> Option<&mut Line> {
        let mut lines = self.lines.iter_mut().flatten();
        lines.find(|line| line.id == client)
    }

    /// A command has been answered: what comes after its reply comes.
    pub(super) fn end_turn(&mut self, who: Who) {
        self.turn = None;
        for (is_sight, sentence) in self.behind.drain(..) {
            match is_sight {
                true => self.seen[who].push(Sight::Push(sentence)),
                false => self.heard[who].push(Arrival::Push(sentence)),
            }
        }
    }

    fn deliver(&mut self, to: &[ClientId], push: &Push) {
        let is_sight = matches!(push.news(), News::Presence(_));
        let is_watch = is_sight || matches!(push.news(), News::Added | News::Deleted);
        for client in to {
            let Some(who) = self.who(*client) else {
                // It has ended meanwhile, in the same transaction.
                continue;
            };
            let line = self.line(*client).expect("it was just found");
            assert!(line.attended, "pushes to who was never attended");
            match is_watch && self.turn == Some(*client) {
                true => self.behind.push((is_sight, sentence(push))),
                false if is_sight => self.seen[who].push(Sight::Push(sentence(push))),
                false => self.heard[who].push(Arrival::Push(sentence(push))),
            }
        }
    }
}

/// A change without its value, to each once.
fn pushed(presence: Presence) -> Effect {
    let Presence { to, key, change } = presence;
    let to: Vec<ClientId> = to.iter().map(|viewer| viewer.client).collect();
    let once: BTreeSet<_> = to.iter().collect();
    assert_eq!(once.len(), to.len(), "two pushes for one change");
    let push = Push::new(key, News::of_presence(change, None), b"");
    Effect::Push { to, push }
}
