//! The engine, the keys and the clock: what happens goes in as events, and the effects are carried out here.

use crate::connections::{Connections, Wire};
use crate::options::Options;
use crate::plain::Change;
use crate::resp::Writer;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tether::engine::{
    Cause, ClientId, Db, Effect, Engine, Event, Key, KeyBuf, KeySnapshot, KeyState, Loss, Moment,
    NOBODY, News, NoRight, Origin, Presence, PresenceChange, Push, Reply, SnapshotPage,
};
use tether::policy::losses::LossLog;
use tether::wire::{Host, pushes, replies};

/// Longer values are told to no watcher of a prefix, as by the module.
const VALUE_MAX_BYTES: usize = 4096;

/// Entries of LOCK.LOG, as by default on a server.
const LOG_ENTRIES: usize = 128;

const STEPS: usize = 1000;

/// What stands at a key.
pub struct Thing {
    /// None: a lock.
    pub value: Option<Vec<u8>>,
    /// When it expires.
    pub end: Option<Moment>,
}

impl Thing {
    pub fn state(&self) -> KeyState {
        match self.value {
            Some(_) => KeyState::Other,
            None => KeyState::Lock,
        }
    }
}

/// What the server refuses, and with which error.
pub struct Refuses {
    pub error: String,
    /// Not only what writes.
    pub everything: bool,
}

/// The command that is executed: where its key is made, and what becomes of it.
#[derive(Default)]
pub struct Executing<'a> {
    pub key: Option<Key<'a>>,
    /// Of a temporary key.
    pub value: Option<&'a [u8]>,
    pub writer: Writer,
    /// Of a guarded command.
    pub changes: Vec<Change>,
    pub is_blocked: bool,
}

pub struct Machine {
    pub engine: Engine,
    pub losses: LossLog,
    pub keys: BTreeMap<KeyBuf, Thing>,
    pub connections: Connections,
    pub options: Options,
    pub refuses: Option<Refuses>,
    /// Of a replica: its master's address.
    pub master: Option<(String, u16)>,
    pub run_id: String,
    /// For how long to do nothing at all, after what was said is sent.
    pub silence: Option<Duration>,
    began: Instant,
    /// By how much the levers have set the clock forward.
    pub ahead: Duration,
}

impl Machine {
    pub fn new(options: Options) -> Machine {
        let mut engine = Engine::default();
        engine.set_logs_losses(true);
        engine.begin_epoch(since_1970());
        let mut losses = LossLog::default();
        losses.set_most(LOG_ENTRIES);
        let mut machine = Machine {
            engine,
            losses,
            keys: BTreeMap::new(),
            connections: Connections::default(),
            refuses: None,
            master: None,
            run_id: random_hex(),
            silence: None,
            began: Instant::now(),
            ahead: Duration::ZERO,
            options,
        };
        let ms = machine.options.quarantine_ms;
        if ms > 0 {
            machine.handle(Event::Quarantine { ms });
        }
        machine
    }

    pub fn now(&self) -> Moment {
        Moment((self.began.elapsed() + self.ahead).as_micros() as u64 + 1)
    }

    /// When `tick` has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let ends = self.keys.values().filter_map(|thing| thing.end);
        let first = ends.chain(self.engine.next_work(self.now())).min()?;
        let after = Duration::from_micros(first.us_since(self.now()));
        Some(Instant::now() + after)
    }

    // ---- connections ----

    pub fn connect(&mut self, wire: Rc<Wire>, addr: String) -> ClientId {
        let may_speak = self.options.password.is_none();
        self.connections.add(wire, addr, may_speak)
    }

    /// Once more does nothing.
    pub fn disconnect(&mut self, client: ClientId) {
        let origin = self.origin(client);
        if self.connections.get(client).is_none() {
            return;
        }
        if let Some(origin) = origin
            && self.engine.wants_origin(client)
        {
            self.engine.note_origin(client, origin, false);
        }
        let ended = self.connections.remove(client);
        self.handle(Event::Ended { client });
        if ended.is_some_and(|connection| connection.wire.is_blocked.get()) {
            let granted = None;
            self.handle(Event::Abandoned { client, granted });
        }
        self.settle();
    }

    fn origin(&self, client: ClientId) -> Option<Origin> {
        let (addr, name, user) = self.connections.origin(client)?;
        Some(Origin::new(&addr, &name, &user))
    }

    // ---- time ----

    pub fn tick(&mut self) {
        self.expire();
        self.handle(Event::Tick);
        self.settle();
    }

    /// Deletes the keys whose time is over.
    pub fn expire(&mut self) {
        let now = self.now();
        let is_over = |thing: &Thing| thing.end.is_some_and(|end| end <= now);
        let over: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, thing)| is_over(thing))
            .collect();
        let over: Vec<_> = over.into_iter().map(|(key, _)| key.clone()).collect();
        for key in over {
            self.lose(key.as_key(), None, Loss::Expired);
        }
    }

    /// Does what the engine has put off: grants, removals, ends of leases and waits.
    pub fn settle(&mut self) {
        let has_more = |engine: &Engine| {
            engine.is_flushing() || engine.has_dead_waits() || engine.is_building_index()
        };
        while has_more(&self.engine) {
            self.handle(Event::Reap { steps: STEPS });
        }
        while self.refuses.is_none()
            && !self.engine.is_replica()
            && self.engine.has_work(self.now())
        {
            self.handle(Event::Work { steps: STEPS });
        }
    }

    // ---- keys ----

    pub fn look(&self, db: Db, name: &[u8]) -> Option<&Thing> {
        let key = Key { db, name };
        self.keys.get(&key.to_owned())
    }

    pub fn snapshot<'a>(&self, key: Key<'a>) -> KeySnapshot<'a> {
        let thing = self.look(key.db, key.name);
        let state = thing.map_or(KeyState::Absent, Thing::state);
        KeySnapshot { key, state }
    }

    /// Removes a key; false if there was none.
    pub fn lose(&mut self, key: Key<'_>, by: Option<ClientId>, why: Loss) -> bool {
        let is_there = self.keys.remove(&key.to_owned()).is_some();
        if is_there && let Some(holder) = self.engine.look_up(key) {
            let by = cause(by, holder);
            self.handle(Event::Gone { key, by, why });
        }
        is_there
    }

    // ---- the engine ----

    /// An event outside of a command of the module.
    pub fn handle(&mut self, event: Event<'_>) {
        self.handle_in(None, event);
    }

    pub fn handle_in(&mut self, mut executing: Option<&mut Executing<'_>>, event: Event<'_>) {
        let mut effects = Vec::new();
        let now = self.now();
        self.engine.handle(now, event, &mut effects);
        for effect in effects {
            self.perform(executing.as_deref_mut(), effect);
        }
    }

    fn perform(&mut self, executing: Option<&mut Executing<'_>>, effect: Effect) {
        match effect {
            Effect::Reply(reply) => {
                let executing = executing.expect("a command is answered");
                self.reply(&mut executing.writer, &reply);
            }
            Effect::Block => executing.expect("a command blocks").is_blocked = true,
            Effect::Answer { client, reply, .. } => self.answer(client, &reply),
            Effect::CreateKey { .. } => {
                let executing = executing.expect("a command makes its key");
                let key = executing.key.expect("it has a key").to_owned();
                let value = executing.value.map(<[u8]>::to_vec);
                self.keys.insert(key, Thing { value, end: None });
            }
            Effect::Make { key, value, .. } => {
                let value = Some(value.to_vec());
                self.keys.insert(key, Thing { value, end: None });
            }
            Effect::MakeLock { key, .. } => {
                let value = None;
                self.keys.insert(key, Thing { value, end: None });
            }
            Effect::Remove(key) => {
                self.keys.remove(&key);
            }
            Effect::Push { to, push } => self.push(&to, &push),
            Effect::Presence(change) => self.push_presence(*change),
            Effect::Lost(lost) => {
                let now = self.now();
                if let Some((entry, client)) = self.losses.add(now, lost)
                    && let Some(origin) = self.origin(client)
                {
                    self.losses.describe(entry, origin);
                }
                self.close_log();
            }
            Effect::NextHolder { key, token } => {
                self.losses.granted(key.as_key(), token);
                self.close_log();
            }
            // There are no replicas, no files and no cluster, and the end of each connection is noticed.
            Effect::ReplicateToken(_)
            | Effect::Replicate(_)
            | Effect::Renew { .. }
            | Effect::Persist(_)
            | Effect::EnablePush(_)
            | Effect::TrackDisconnect(_)
            | Effect::CountAcks => {}
        }
    }

    pub fn close_log(&mut self) {
        if let Some(logged) = self.losses.closed() {
            self.engine.close_log(logged);
        }
    }

    // ---- what clients get ----

    fn reply(&self, writer: &mut Writer, reply: &Reply) {
        let mut speaker = Speaker::new(self, writer);
        match reply {
            Reply::Page(page) => {
                let SnapshotPage {
                    prefix,
                    entries,
                    keys_only,
                    ..
                } = &**page;
                let shown: Vec<_> = entries
                    .iter()
                    .map(|(name, token)| {
                        let value = self.value(prefix.db, name).filter(|_| !keys_only);
                        (name, *token, value.map(Into::into))
                    })
                    .collect();
                replies::page(&mut speaker, page, &shown, true);
            }
            reply => replies::send(&mut speaker, reply),
        }
    }

    fn value(&self, db: Db, name: &[u8]) -> Option<&[u8]> {
        let value = self.look(db, name)?.value.as_deref();
        value.filter(|value| value.len() <= VALUE_MAX_BYTES)
    }

    /// Ends a connection's block.
    fn answer(&mut self, client: ClientId, reply: &Reply) {
        let Some(connection) = self.connections.get(client) else {
            return;
        };
        let mut writer = Writer {
            resp3: connection.resp3,
            ..Writer::default()
        };
        self.reply(&mut writer, reply);
        connection.wire.is_blocked.set(false);
        connection.wire.send(&writer.bytes);
    }

    fn push(&mut self, to: &[ClientId], push: &Push) {
        for client in to {
            if let Some(connection) = self.connections.get(*client) {
                let mut writer = Writer::default();
                let (kind, payload) = pushes::words(&Speaker::new(self, &mut writer), push);
                let head = pushes::head(kind, &push.key.name);
                let frame = pushes::frame(connection.resp3, &head, &payload);
                connection.wire.send(&frame);
            }
        }
    }

    fn push_presence(&mut self, presence: Presence) {
        let Presence { to, key, change } = presence;
        let has_value = matches!(change, PresenceChange::Added(_) | PresenceChange::Set(_));
        let value = self.value(key.db, &key.name).filter(|_| has_value);
        let value = value.map(<[u8]>::to_vec);
        for viewer in to {
            let value = value.as_deref().filter(|_| !viewer.keys_only);
            let news = News::of_presence(change, value.map(Into::into));
            let push = Push::new(key.clone(), news, b"");
            self.push(&[viewer.client], &push);
        }
    }
}

/// Whose doing a change is: asked only where a connection holds the key.
pub fn cause(by: Option<ClientId>, holder: Option<ClientId>) -> Cause {
    match (by, holder) {
        (Some(client), Some(_)) => Cause::Client(client),
        _ => Cause::Server,
    }
}

pub fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a clock that is later than 1970")
}

/// 128 bits from the source that the standard library has for its hash maps.
pub fn random_hex() -> String {
    use std::hash::{BuildHasher, RandomState};
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}

/// What replies of the module are written with.
pub struct Speaker<'a> {
    pub machine: &'a Machine,
    writer: &'a mut Writer,
    /// Whom a report is for.
    pub client: ClientId,
}

impl<'a> Speaker<'a> {
    pub fn new(machine: &'a Machine, writer: &'a mut Writer) -> Self {
        let client = NOBODY;
        Speaker {
            machine,
            writer,
            client,
        }
    }
}

impl Host for Speaker<'_> {
    fn integer(&mut self, value: i64) {
        self.writer.integer(value);
    }

    fn null(&mut self) {
        self.writer.null();
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.writer.bulk(bytes);
    }

    fn array(&mut self, length: usize) {
        self.writer.array(length);
    }

    fn map(&mut self, length: usize) {
        self.writer.map(length);
    }

    fn error(&mut self, message: &str) {
        self.writer.error(message);
    }

    fn redirection(&self, _: Key<'_>) -> String {
        unreachable!("there is no cluster")
    }

    fn no_right(&self, _: NoRight) -> String {
        unreachable!("one user has all rights")
    }

    fn may_see(&self, _: Key<'_>, _: &[&[u8]]) -> bool {
        true
    }

    fn origin(&self, client: ClientId) -> Option<(String, String, String)> {
        self.machine.connections.origin(client)
    }
}
