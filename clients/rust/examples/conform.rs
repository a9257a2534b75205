//! The adapter of this client for `clients/protocol/conform`: a JSON object a line in, one a line out.
//!
//! All of it is in one thread, so that a pause of the caller is one of the client, as it would be in a process that is stopped.

use futures_util::{FutureExt, Stream, StreamExt};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tether_client::redis::aio::MultiplexedConnection;
use tether_client::{
    Error, Guard, KeyChange, LockRequest, Locks, Loss, Member, MemberChange, PresenceEvent,
    WatchEvent, redis,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
use tokio::task::AbortHandle;

const CALLS: [&str; 12] = [
    "extend",
    "guard",
    "check_server",
    "fork",
    "execute",
    "watch",
    "unwatch",
    "presence",
    "observe",
    "end",
    "pause",
    "go_on",
];

/// One line, with the time.
fn say(mut said: Value) {
    let time = clock_gettime(ClockId::Monotonic);
    said["at"] = json!(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{said}")
        .and_then(|()| out.flush())
        .expect("somebody reads");
}

fn say_error(what: &str, id: &str, error: &Error) {
    say(json!({what: id, "error": error.name(), "code": error.code(), "text": error.to_string()}));
}

/// What became of a request.
#[derive(Default)]
struct Entry {
    guard: Option<Arc<Guard>>,
    task: Option<AbortHandle>,
    is_given_up: bool,
    lost: Option<Loss>,
    was_granted: bool,
}

#[derive(Clone, Default)]
struct Entries(Arc<Mutex<HashMap<String, Entry>>>);

impl Entries {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once for each request.
    fn say_lost(&self, id: &str, loss: Loss) {
        let mut entries = self.lock();
        let entry = entries.entry(id.to_owned()).or_default();
        if entry.lost.is_none() {
            say(json!({"lost": id, "reason": loss.reason()}));
            entry.lost = Some(loss);
        }
    }

    /// A request of a task of its own, which is polled here first: so requests are sent in the order of the calls.
    fn acquire(
        &self,
        id: String,
        acquire: impl Future<Output = Result<Guard, Error>> + Send + 'static,
    ) {
        let (entries, name) = (self.clone(), id.clone());
        let acquired = async move {
            match acquire.await {
                Ok(guard) => entries.granted(&name, guard).await,
                Err(error) => say_error("refused", &name, &error),
            }
        };
        self.lock().insert(id.clone(), Entry::default());
        let mut acquired = Box::pin(acquired);
        if acquired.as_mut().now_or_never().is_none() {
            let task = tokio::spawn(acquired).abort_handle();
            if let Some(entry) = self.lock().get_mut(&id) {
                entry.task = Some(task);
            }
        }
    }

    async fn granted(&self, id: &str, guard: Guard) {
        let (token, lost) = (guard.token(), guard.lost());
        {
            let mut entries = self.lock();
            let entry = entries.entry(id.to_owned()).or_default();
            if entry.is_given_up {
                return; // The guard goes.
            }
            say(json!({"granted": id, "token": token}));
            entry.guard = Some(Arc::new(guard));
            entry.was_granted = true;
        }
        self.say_lost(id, lost.await);
    }

    /// The guard, which nobody else uses.
    fn take(&self, id: &str) -> Option<Guard> {
        let guard = self.lock().get_mut(id)?.guard.take();
        guard.and_then(Arc::into_inner)
    }

    async fn release(self, id: String, guard: Guard) {
        match guard.release().await {
            Ok(()) => say(json!({"released": id})),
            Err(Error::Lost(loss)) => self.say_lost(&id, loss),
            Err(error) => say_error("not_released", &id, &error),
        }
    }

    fn check(&self, id: &str) -> Value {
        let entries = self.lock();
        let Some(entry) = entries.get(id) else {
            return json!("released");
        };
        let checked = entry.guard.as_ref().map(|guard| guard.check());
        match (checked, &entry.lost) {
            (Some(Ok(())), _) => json!("held"),
            (Some(Err(loss)), _) => json!({"lost": loss.reason()}),
            (None, Some(loss)) => json!({"lost": loss.reason()}),
            (None, None) if entry.was_granted || entry.is_given_up => json!("released"),
            (None, None) => json!("waiting"),
        }
    }
}

struct Adapter {
    locks: Option<Locks>,
    url: String,
    entries: Entries,
    watches: HashMap<String, (AbortHandle, watch::Sender<bool>)>,
    data: Arc<tokio::sync::Mutex<Option<MultiplexedConnection>>>,
}

fn text(call: &Value, name: &str) -> Option<String> {
    call.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn time(call: &Value, name: &str) -> Option<Duration> {
    let ms = call.get(name).and_then(Value::as_f64);
    ms.map(|ms| Duration::from_secs_f64(ms / 1000.0))
}

fn texts(call: &Value, name: &str) -> Vec<String> {
    let all = call
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    all.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

impl Adapter {
    fn locks(&self) -> &Locks {
        self.locks.as_ref().expect("it was opened")
    }

    fn open(&mut self, call: &Value) -> Result<(), Error> {
        let master = text(call, "master").map(|master| format!("redis://{master}"));
        self.url = text(call, "url").or(master).unwrap_or_default();
        let mut builder = Locks::builder(&self.url)
            .or_at(texts(call, "others"))
            .sentinels(texts(call, "sentinels"));
        if let Some(path) = text(call, "ca") {
            builder = builder.authority(std::fs::read(path).expect("an authority"));
        }
        if let Some(grace) = time(call, "grace") {
            builder = builder.grace(grace);
        }
        if let Some(stop_within) = time(call, "stop_within") {
            builder = builder.stop_within(stop_within);
        }
        if let Some(fence) = time(call, "fence") {
            builder = builder.fence(fence);
        }
        self.locks = Some(builder.build()?);
        Ok(())
    }

    fn acquire(&self, call: &Value, id: String) {
        let keys = texts(call, "keys");
        let wait = time(call, "wait");
        if let Some(value) = text(call, "temporary") {
            let mut key = self.locks().temporary_key(&keys[0], value);
            key = match wait {
                Some(Duration::ZERO) => key.no_wait(),
                Some(wait) => key.wait(wait),
                None => key,
            };
            return self.entries.acquire(id, key.acquire());
        }
        let lock = how(self.locks().all(keys), call);
        let lock = match wait {
            Some(Duration::ZERO) => lock.no_wait(),
            Some(wait) => lock.wait(wait),
            None => lock,
        };
        self.entries.acquire(id, lock.acquire());
    }

    fn release(&self, id: String) {
        if let Some(guard) = self.entries.take(&id) {
            let mut released = Box::pin(self.entries.clone().release(id, guard));
            if released.as_mut().now_or_never().is_none() {
                tokio::spawn(released);
            }
        }
    }

    fn give_up(&self, id: String) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(id.clone()).or_default();
        if entry.guard.is_some() {
            drop(entries);
            return self.release(id);
        }
        if !entry.was_granted && !entry.is_given_up {
            entry.is_given_up = true;
            if let Some(task) = entry.task.take() {
                task.abort();
            }
            say(json!({"over": id}));
        }
    }

    fn extend(&self, call: &Value, id: String) {
        let lease = time(call, "lease").unwrap_or_default();
        let entries = &self.entries;
        let guard = entries
            .lock()
            .get(&id)
            .and_then(|entry| entry.guard.clone());
        let Some(guard) = guard else {
            return;
        };
        tokio::spawn(async move {
            match guard.extend(lease).await {
                Ok(()) => say(json!({"extended": id})),
                Err(error) => say_error("not_extended", &id, &error),
            }
        });
    }

    /// A guarded write, or a question to the server, on the connection for data.
    fn guard(&self, call: &Value, id: String) {
        let words = texts(call, "command");
        let is_write = call["call"] == "guard";
        let (data, url, entries) = (self.data.clone(), self.url.clone(), self.entries.clone());
        let guard = entries
            .lock()
            .get(&id)
            .and_then(|entry| entry.guard.clone());
        let Some(guard) = guard else {
            return;
        };
        tokio::spawn(async move {
            let ran = run(&data, &url, &guard, is_write.then_some(words)).await;
            let checked = guard.check();
            match ran {
                Ok(reply) if is_write => say(json!({"ran": id, "reply": reply})),
                Ok(_) => say(json!({"checked": id})),
                Err(error) if error.code() == Some("STALE") => {
                    let stale = Loss::Told("stale".to_owned());
                    entries.say_lost(&id, checked.err().unwrap_or(stale));
                }
                Err(error) => {
                    let code = error.code().unwrap_or("UNREACHABLE");
                    let name = if error.code().is_some() {
                        "refused"
                    } else {
                        "unreachable"
                    };
                    say(json!({"not_run": id, "error": name, "code": code}));
                }
            }
        });
    }

    fn watch(&mut self, call: &Value, id: String) {
        let prefix = text(call, "prefix").unwrap_or_default();
        let (pause, is_paused) = watch::channel(false);
        let name = id.clone();
        let task = match call["call"].as_str() {
            Some("watch") => {
                let events = self.locks().watch(texts(call, "keys"));
                let told = move |event: WatchEvent| say_change(&name, &event.key, event.change);
                tokio::spawn(tell(id.clone(), events, is_paused, told))
            }
            Some("presence") => {
                let events = self.locks().presence(prefix);
                let told = move |event: PresenceEvent| say_member(&name, &event.key, event.change);
                tokio::spawn(tell(id.clone(), events, is_paused, told))
            }
            _ => {
                let events = self.locks().observe(prefix);
                let told = move |leader: Option<Member>| match leader {
                    None => say(json!({"leader": name, "token": null})),
                    Some(member) => say(with_member(json!({"leader": name}), member)),
                };
                tokio::spawn(tell(id.clone(), events, is_paused, told))
            }
        };
        self.watches.insert(id, (task.abort_handle(), pause));
    }

    /// The reader of a watch takes nothing more, or goes on.
    fn pause(&self, id: &str, is_paused: bool) {
        if let Some((_, pause)) = self.watches.get(id) {
            pause.send_replace(is_paused);
        }
    }

    fn close(&self) {
        let locks = self.locks().clone();
        let mut closed = Box::pin(async move {
            locks.close().await;
            say(json!({"closed": true}));
        });
        if closed.as_mut().now_or_never().is_none() {
            tokio::spawn(closed);
        }
    }

    /// Whether this is the child, which has said all.
    fn fork(&self, call: &Value) -> bool {
        let entries = self.entries.lock(); // So that no other thread has it.
        // SAFETY: the child takes no lock that another thread may have: this is what is tested.
        match unsafe { libc::fork() } {
            0 => drop(entries),
            _ => return false,
        }
        let input = std::fs::File::open(text(call, "input").expect("a path")).expect("a pipe");
        for line in BufReader::new(input).lines().map_while(Result::ok) {
            let call: Value = serde_json::from_str(&line).expect("a call");
            let id = text(&call, "id").unwrap_or_default();
            let mut answer = match call["call"].as_str() {
                Some("check") => json!({"gives": self.entries.check(&id)}),
                Some("release") => {
                    let guard = self.entries.take(&id);
                    let released = guard.and_then(|guard| guard.release().now_or_never());
                    json!({"raised": format!("{released:?}")})
                }
                _ => {
                    let acquired = self.locks().lock("l").acquire().now_or_never();
                    let error = acquired.and_then(Result::err);
                    json!({"error": error.map(|error| error.name())})
                }
            };
            answer["done"] = call["n"].clone();
            answer["child"] = json!(true);
            say(answer);
        }
        true
    }

    /// What the answer to the call has beside its number.
    fn call(&mut self, call: &Value) -> Result<Value, Error> {
        let id = text(call, "id").unwrap_or_default();
        match call["call"].as_str().unwrap_or_default() {
            "open" => self.open(call)?,
            "acquire" => self.acquire(call, id),
            "release" => self.release(id),
            "give_up" => self.give_up(id),
            "check" => {
                std::thread::sleep(time(call, "stall").unwrap_or_default());
                return Ok(json!({"gives": self.entries.check(&id)}));
            }
            "extend" => self.extend(call, id),
            "guard" | "check_server" => self.guard(call, id),
            "watch" | "presence" | "observe" => self.watch(call, id),
            "unwatch" | "end" => {
                if let Some((task, _)) = self.watches.remove(&id) {
                    task.abort();
                }
            }
            "pause" => self.pause(&id, true),
            "go_on" => self.pause(&id, false),
            "close" => self.close(),
            "execute" => return Ok(json!({"sockets": sockets_of_a_child()})),
            _ => return Ok(json!({"unknown": true})),
        }
        Ok(Value::Object(Map::new()))
    }
}

fn how(mut lock: LockRequest, call: &Value) -> LockRequest {
    if call["shared"] == true {
        lock = lock.shared();
    }
    if let Some(permits) = call.get("permits").and_then(Value::as_array) {
        let [permits, total] = [0, 1].map(|at| permits[at].as_u64().unwrap_or_default());
        lock = lock.permits(permits, total);
    }
    if let Some(owner) = text(call, "owner") {
        lock = lock.owner(owner);
    }
    // A task of this client is named by its user.
    if let Some(task) = text(call, "from") {
        lock = lock.task(task);
    }
    if let Some(lease) = time(call, "lease") {
        lock = lock.lease(lease);
    }
    if call["reentrant"] == true {
        lock = lock.reentrant();
    }
    if let Some(acks) = call.get("acks").and_then(Value::as_u64) {
        lock = lock.acks(acks);
    }
    if let Some(timeout) = time(call, "acktimeout") {
        lock = lock.ack_timeout(timeout);
    }
    if let Some(at_least) = time(call, "at_least") {
        lock = lock.at_least(at_least);
    }
    lock
}

async fn run(
    data: &tokio::sync::Mutex<Option<MultiplexedConnection>>,
    url: &str,
    guard: &Guard,
    command: Option<Vec<String>>,
) -> redis::RedisResult<String> {
    let mut data = data.lock().await;
    let connection = match &mut *data {
        Some(connection) => connection,
        None => {
            let client = redis::Client::open(url)?;
            data.insert(client.get_multiplexed_async_connection().await?)
        }
    };
    let Some(words) = command else {
        return guard.check_server(connection).await.map(|()| String::new());
    };
    let mut command = redis::cmd(&words[0]);
    command.arg(&words[1..]);
    let reply: redis::RedisResult<redis::Value> = guard.run(connection, &command).await;
    reply.map(|reply| format!("{reply:?}"))
}

/// What is watched, while its reader goes on, until it ends.
async fn tell<T>(
    id: String,
    mut events: impl Stream<Item = Result<T, Error>> + Unpin,
    mut is_paused: watch::Receiver<bool>,
    told: impl Fn(T),
) {
    loop {
        let goes_on = is_paused.wait_for(|is_paused| !is_paused).await.is_ok();
        tokio::select! {
            biased;
            _ = is_paused.changed(), if goes_on => {}
            event = events.next() => match event {
                Some(Ok(event)) => told(event),
                Some(Err(error)) => say_error("ended", &id, &error),
                None => return,
            },
        }
    }
}

fn say_change(id: &str, key: &[u8], change: KeyChange) {
    let change = format!("{change:?}").to_lowercase();
    say(json!({"watch": id, "key": String::from_utf8_lossy(key), "is": change}));
}

fn with_member(mut said: Value, member: Member) -> Value {
    said["token"] = json!(member.token);
    said["value"] = json!(
        member
            .value
            .map(|value| String::from_utf8_lossy(&value).into_owned())
    );
    said
}

fn say_member(id: &str, key: &[u8], change: MemberChange) {
    let of = |is: &str| json!({"presence": id, "key": String::from_utf8_lossy(key), "is": is});
    match change {
        MemberChange::Added(member) => say(with_member(of("add"), member)),
        MemberChange::Set(member) => say(with_member(of("set"), member)),
        MemberChange::Gone(reason) => {
            let mut gone = of("del");
            gone["reason"] = json!(reason);
            say(gone);
        }
    }
}

/// What a program that is executed has.
fn sockets_of_a_child() -> Vec<String> {
    let listing = Command::new("ls")
        .arg("-l")
        .arg("/proc/self/fd")
        .output()
        .expect("ls");
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let words: HashSet<_> = listing.split_whitespace().map(str::to_owned).collect();
    words
        .into_iter()
        .filter(|word| word.starts_with("socket:"))
        .collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut adapter = Adapter {
        locks: None,
        url: String::new(),
        entries: Entries::default(),
        watches: HashMap::new(),
        data: Arc::default(),
    };
    let hello = concat!("tether-client ", env!("CARGO_PKG_VERSION"));
    let levels = ["L1", "L2", "L3", "CLUSTER"];
    say(json!({"hello": hello, "levels": levels, "calls": CALLS}));
    let (sender, mut lines) = unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(Result::ok);
        lines.for_each(|line| _ = sender.send(line));
    });
    while let Some(line) = lines.recv().await {
        let call: Value = serde_json::from_str(&line).expect("a call");
        let mut answer = match call["call"] == "fork" {
            true if adapter.fork(&call) => break,
            true => json!({}),
            false => adapter
                .call(&call)
                .unwrap_or_else(|error| json!({"error": error.to_string()})),
        };
        answer["done"] = call["n"].clone();
        say(answer);
    }
    // Without a close, as programs end.
    std::process::exit(0);
}
