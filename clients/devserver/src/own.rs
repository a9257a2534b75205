//! The module's commands: parsed and answered by its own code.

use crate::connections::{UNIX, USER};
use crate::machine::{Executing, Machine, Speaker, random_hex, since_1970};
use tether::command::{self, Access, Ask, BadInput, KeyPlaces, Request, Spec, TABLE};
use tether::engine::{
    Acquire, ClientId, Db, Digest, Engine, Event, Form, Key, KeySnapshot, KeyState, Kind, Moment,
    Raise, SequenceName, SessionId, Start, Token, WatchPrefix,
};
use tether::policy::losses::LossLog;
use tether::wire::reports::{self, About, Cause, Reporter};

pub fn find(name: &[u8]) -> Option<&'static Spec> {
    TABLE
        .iter()
        .find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

/// A session's secret is its own digest: this server keeps nothing.
fn digest(secret: &[u8]) -> Digest {
    let mut digest = [0; 32];
    let length = secret.len().min(32);
    digest[..length].copy_from_slice(&secret[..length]);
    Digest(digest)
}

/// A command of one client, with its arguments.
struct Caller<'m, 'a> {
    machine: &'m mut Machine,
    client: ClientId,
    db: Db,
    spec: &'static Spec,
    words: &'a [&'a [u8]],
    executing: Executing<'a>,
}

/// Executes a command; `words` are its arguments. Returns the executed command with its reply.
pub fn execute<'a>(
    machine: &mut Machine,
    client: ClientId,
    spec: &'static Spec,
    words: &'a [&'a [u8]],
    mut executing: Executing<'a>,
) -> Executing<'a> {
    let request = match command::parse(spec, words) {
        Ok(request) => request,
        Err(BadInput::WrongArity) => {
            executing.writer.error(&wrong_arity(spec.name));
            return executing;
        }
        Err(BadInput::Because(why)) => {
            executing.writer.error(&format!("ERR {why}"));
            return executing;
        }
    };
    if let Some(error) = refused(machine, spec) {
        executing.writer.error(&error);
        return executing;
    }
    let db = machine.connections.get(client).map_or(Db(0), |it| it.db);
    let mut caller = Caller {
        machine,
        client,
        db,
        spec,
        words,
        executing,
    };
    caller.before();
    caller.answer(request);
    caller.executing
}

pub fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// As the server would refuse it: a replica writes nothing, and releases are taken while writes are refused.
fn refused(machine: &Machine, spec: &Spec) -> Option<String> {
    let writes = matches!(spec.access, Access::Write | Access::Release);
    if writes && machine.engine.is_replica() {
        return Some("READONLY You can't write against a read only replica.".to_owned());
    }
    let refuses = machine.refuses.as_ref()?;
    // As by their flags in the table: what begins, resumes or detaches a session is no write to the server.
    let is_write = spec.flags.split(' ').any(|flag| flag == "write");
    (refuses.everything || is_write).then(|| refuses.error.clone())
}

impl<'a> Caller<'_, 'a> {
    fn before(&mut self) {
        if self.spec.access == Access::Release {
            let accepted = self.machine.refuses.is_none();
            self.machine.handle(Event::Writes { accepted });
        }
        let now = self.machine.now();
        let is_over = self
            .machine
            .engine
            .first_lease_end()
            .is_some_and(|end| end <= now);
        let may_write = self.spec.access != Access::Look && self.machine.refuses.is_none();
        if is_over && may_write && !self.machine.engine.is_replica() {
            let steps = usize::MAX;
            self.machine.handle(Event::Lapse { steps });
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.machine.handle_in(Some(&mut self.executing), event);
    }

    fn error(&mut self, message: &str) {
        self.executing.writer.error(message);
    }

    fn key<'b>(&self, name: &'b [u8]) -> Key<'b> {
        let db = self.db;
        Key { db, name }
    }

    fn keys<'b>(&self, names: &[&'b [u8]]) -> Vec<Key<'b>> {
        names.iter().map(|name| self.key(name)).collect()
    }

    fn answer(&mut self, request: Request<'a, '_>) {
        let client = self.client;
        match request {
            Request::Settp {
                key,
                value,
                token,
                sequential,
                ask,
            } => match sequential {
                true => self.settp_next(key, value, ask),
                false => {
                    let form = if token { Form::SettpToken } else { Form::Settp };
                    self.acquire(&[key], value, form, ask);
                }
            },
            Request::Acquire { keys, ask } => {
                let form = match self.spec.keys {
                    KeyPlaces::First => Form::Lock,
                    _ => Form::Locks,
                };
                self.acquire(keys, b"", form, ask);
            }
            Request::Deltp { keys } => {
                let keys = &self.keys(keys);
                self.handle(Event::Drop { client, keys });
            }
            Request::Release { key, label, all } => {
                let key = self.key(key);
                self.handle(Event::Release {
                    client,
                    key,
                    label,
                    all,
                });
            }
            Request::Extend {
                key,
                lease_ms,
                label,
            } => {
                let key = self.key(key);
                self.handle(Event::Extend {
                    client,
                    key,
                    label,
                    lease_ms,
                });
            }
            Request::Raise { key, token, label } => {
                let raise = Raise {
                    client,
                    key: self.key(key),
                    label,
                    token: Token(token),
                    most: Engine::max_raise(since_1970() + self.machine.ahead),
                };
                self.handle(Event::Raise(raise));
            }
            Request::Cancel { key, label } => {
                let key = self.key(key);
                self.handle(Event::Cancel { client, key, label });
            }
            other => self.watch_or_report(other),
        }
    }

    fn watch_or_report(&mut self, request: Request<'a, '_>) {
        let client = self.client;
        match request {
            Request::Check { key, token } => {
                if self.is_current(key, token) {
                    self.executing.writer.integer(1);
                }
            }
            Request::Guard { key, token } => {
                if self.is_current(key, token) {
                    let inner: Vec<_> = self.words[2..].to_vec();
                    let writer = std::mem::take(&mut self.executing.writer);
                    let (writer, changes) = self.machine.run_plain(client, &inner, writer);
                    (self.executing.writer, self.executing.changes) = (writer, changes);
                }
            }
            Request::Watchex { keys } => {
                if self.may_push() {
                    let keys = self.keys(keys);
                    let seen: Vec<_> = keys.iter().map(|key| self.machine.snapshot(*key)).collect();
                    let seen = &seen;
                    self.handle(Event::Watch { client, seen });
                }
            }
            Request::Unwatchex { keys: &[] } => self.handle(Event::UnwatchAll { client }),
            Request::Unwatchex { keys } => {
                let keys = &self.keys(keys);
                self.handle(Event::Unwatch { client, keys });
            }
            Request::Watchtp {
                prefix,
                goes_on,
                keys_only,
            } => {
                if self.may_push() {
                    let prefix = self.key(prefix);
                    let sight = 0;
                    let watch = WatchPrefix {
                        client,
                        prefix,
                        goes_on,
                        keys_only,
                        sight,
                        at_most: usize::MAX,
                    };
                    self.handle(Event::WatchPrefix(watch));
                }
            }
            Request::Unwatchtp { prefix } => {
                let prefix = prefix.map(|prefix| self.key(prefix));
                self.handle(Event::UnwatchPrefix { client, prefix });
            }
            other => self.about_sessions(&other),
        }
    }

    fn about_sessions(&mut self, request: &Request<'_, '_>) {
        let client = self.client;
        match *request {
            Request::Start { grace_ms } => self.start(grace_ms),
            Request::Resume { secret, notify } => {
                if !notify || self.may_push() {
                    let digest = digest(secret);
                    self.handle(Event::Resume {
                        client,
                        digest,
                        notify,
                    });
                }
            }
            Request::EndSession => {
                let later = false;
                self.handle(Event::EndSession { client, later });
            }
            Request::Detach => self.handle(Event::Detach { client }),
            Request::KillSession { id } => {
                let (session, later) = (SessionId(id), false);
                self.handle(Event::KillSession { session, later });
            }
            Request::ResetLog => self.reset_log(),
            ref report => self.report(report),
        }
    }

    fn start(&mut self, grace_ms: u64) {
        let secret = random_hex();
        let start = Start {
            client: self.client,
            secret: secret.as_bytes(),
            digest: digest(secret.as_bytes()),
            grace_ms,
            user: USER.as_bytes(),
        };
        self.handle(Event::Start(start));
    }

    /// Whether this client can get pushes; if not, it is refused in the module's words.
    fn may_push(&mut self) -> bool {
        let can_push = self.machine.options.can_push;
        if !can_push {
            self.error("ERR pushes are off: `tether devserver` was told so (see docs/servers.md)");
        }
        can_push
    }

    fn acquire(&mut self, names: &[&[u8]], value: &'a [u8], form: Form, ask: Ask<'_>) {
        let keys = self.keys(names);
        let seen: Vec<_> = keys.iter().map(|key| self.machine.snapshot(*key)).collect();
        if ask.terms.attributes.notify && !self.may_push() {
            return;
        }
        if ask.terms.acks.is_some() {
            self.machine.handle(Event::Replicas { count: 0 });
        }
        let in_command = form != Form::Locks;
        self.executing.value = (form.kind() == Kind::Temporary).then_some(value);
        let ask = Acquire {
            client: self.client,
            seen: &seen,
            terms: ask.terms,
            value,
            wait: ask.wait,
            form,
            in_command,
        };
        self.handle(Event::Acquire(ask));
    }

    /// `SETTP ... SEQ`: as SETTP of the first of the next names that nobody has.
    fn settp_next(&mut self, key: &'a [u8], value: &'a [u8], ask: Ask<'_>) {
        let mut token = self.machine.engine.next_token_of_sequence();
        let mut name = SequenceName::new(key, token);
        let is_taken = |machine: &Machine, name: &SequenceName| {
            let key = Key {
                db: self.db,
                name: name.bytes(),
            };
            let state = machine.snapshot(key).state;
            !machine.engine.is_unclaimed(key) || state != KeyState::Absent
        };
        while is_taken(self.machine, &name) {
            token.0 += 1;
            name.set(token);
        }
        // The key that is made is none of the command's words: the grant says its name itself.
        let keys = [self.key(name.bytes())];
        let seen: Vec<_> = keys.iter().map(|key| self.machine.snapshot(*key)).collect();
        if ask.terms.attributes.notify && !self.may_push() {
            return;
        }
        let ask = Acquire {
            client: self.client,
            seen: &seen,
            terms: ask.terms,
            value,
            wait: ask.wait,
            form: Form::Sequence,
            in_command: false,
        };
        self.handle(Event::Acquire(ask));
    }

    /// Whether the token is one of a current hold; if not, replies with the error.
    fn is_current(&mut self, name: &[u8], token: u64) -> bool {
        let seen: KeySnapshot<'_> = self.machine.snapshot(self.key(name));
        let now = self.machine.now();
        match self.machine.engine.check_token(now, seen, Token(token)) {
            Ok(()) => true,
            Err(why) => {
                self.error(&reports::stale(token, why));
                false
            }
        }
    }

    fn reset_log(&mut self) {
        self.machine.losses.clear();
        self.machine.close_log();
        self.executing.writer.simple("OK");
    }

    fn report(&mut self, request: &Request<'_, '_>) {
        let mut speaker = Speaker::new(self.machine, &mut self.executing.writer);
        speaker.client = self.client;
        reports::answer(&mut speaker, request);
    }
}

impl Reporter for Speaker<'_> {
    fn caller(&self) -> ClientId {
        self.client
    }

    fn caller_db(&self) -> Db {
        let connection = self.machine.connections.get(self.client);
        connection.map_or(Db(0), |connection| connection.db)
    }

    fn now(&self) -> Moment {
        self.machine.now()
    }

    fn wall_ms(&self) -> u64 {
        since_1970().as_millis() as u64
    }

    fn engine<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.machine.engine)
    }

    fn losses<T>(&self, look: impl FnOnce(&LossLog) -> T) -> T {
        look(&self.machine.losses)
    }

    fn may_see_all(&self) -> bool {
        true
    }

    fn is_present(&self, key: Key<'_>) -> bool {
        self.machine.snapshot(key).state.is_present()
    }

    fn refuses(&self) -> Vec<Cause> {
        let refused = self.machine.refuses.as_ref().map(|refuses| &*refuses.error);
        let is = |code: &str| refused.is_some_and(|error| error.starts_with(code));
        let causes = [
            self.machine.engine.is_replica().then_some(Cause::Replica),
            is("NOREPLICAS").then_some(Cause::Replicas),
            is("OOM").then_some(Cause::Memory),
            is("MISCONF").then_some(Cause::Misconf),
        ];
        causes.into_iter().flatten().collect()
    }

    fn idle_ms(&self, client: ClientId) -> Option<i64> {
        self.machine.connections.get(client).map(|_| 0)
    }

    fn about(&self) -> About {
        let options = &self.machine.options;
        let connection = self.machine.connections.get(self.client);
        let has_peer = connection.is_some_and(|connection| connection.addr != UNIX);
        About {
            run_id: self.machine.run_id.clone(),
            can_push: options.can_push,
            peer_timeout_ms: if has_peer { options.peer_timeout_ms } else { 0 },
            quarantine_ms: options.quarantine_ms,
        }
    }
}
