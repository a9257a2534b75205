//! A client that takes, awaits, watches and gives back keys at whichever server has them, follows prefixes, and remembers what it was
//! told.

use super::{ON_ITS_WAY, is_lock, tag};
use crate::harness::*;
use crate::nodes::slot;
use crate::random::Random;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a client knows of a key at a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Belief {
    /// With this token.
    Holds(i64),
    Waits,
    /// As a watcher: whether it is there.
    Sees(bool),
}

/// A server that does not answer for so long has come to harm.
const STUCK: Duration = Duration::from_secs(60);

/// A connection to one server, and what it knows by it.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
    port: u16,
    id: i64,
    beliefs: BTreeMap<String, Belief>,
    /// Of the prefixes that it watches.
    views: BTreeMap<String, View>,
    /// What it was answered and told of those.
    seen: Vec<String>,
}

/// What a connection is for: holding keys, watching them, watching prefixes.
const HOLD: usize = 0;
const WATCH: usize = 1;
const FOLLOW: usize = 2;
const PLACES: usize = 3;

impl Line {
    fn to(port: u16) -> Option<Line> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nodelay(true).ok()?;
        let mut line = Line {
            stream,
            buffer: Vec::new(),
            port,
            id: 0,
            beliefs: BTreeMap::new(),
            views: BTreeMap::new(),
            seen: Vec::new(),
        };
        line.call("HELLO 3")?;
        line.id = line.call("CLIENT ID")?.number();
        Some(line)
    }

    /// The reply, or none where the connection has ended.
    fn call(&mut self, request: &str) -> Option<Frame> {
        self.stream.write_all(&encode(request)).ok()?;
        let begin = Instant::now();
        loop {
            if let Some(frame) = self.next()? {
                return Some(frame);
            }
            assert!(begin.elapsed() < STUCK, "{request} has no answer");
        }
    }

    /// The next reply that has come, if one has; pushes before it are taken in. None where the connection has ended.
    fn next(&mut self) -> Option<Option<Frame>> {
        loop {
            match parse(&self.buffer) {
                Ok((Frame::Push(items), length)) => {
                    self.buffer.drain(..length);
                    self.hear(&items);
                    continue;
                }
                Ok((frame, length)) => {
                    self.buffer.drain(..length);
                    return Some(Some(frame));
                }
                Err(Unread::Incomplete) => {}
                Err(broken) => panic!("{broken:?}"),
            }
            let wait = Some(Duration::from_millis(200));
            self.stream.set_read_timeout(wait).ok()?;
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                        return Some(None);
                    }
                    _ => return None,
                },
            }
        }
    }

    fn hear(&mut self, push: &[Frame]) {
        let [kind, key, news] = push else {
            panic!("{push:?}")
        };
        let (kind, key, news) = (kind.text(), key.text(), news.text());
        if kind == "watchtp" {
            return self.see(&key, &news);
        }
        let former = self.beliefs.get(&key).copied();
        let first = news.split(' ').next().unwrap_or_default();
        let (fits, now) = match (kind.as_str(), first) {
            ("watchex", "ADD") => (
                former == Some(Belief::Sees(false)),
                Some(Belief::Sees(true)),
            ),
            ("watchex", "DEL") => (
                former == Some(Belief::Sees(true)),
                Some(Belief::Sees(false)),
            ),
            (_, "LOST") => (matches!(former, Some(Belief::Holds(_))), None),
            (_, "TIMEOUT" | "FAILED") => (former == Some(Belief::Waits), None),
            (_, token) => {
                let token = token.parse().expect("a token");
                (former == Some(Belief::Waits), Some(Belief::Holds(token)))
            }
        };
        assert!(fits, "{push:?} for {} who {former:?}", self.id);
        match now {
            Some(belief) => self.beliefs.insert(key, belief),
            None => self.beliefs.remove(&key),
        };
    }

    /// Of a change each view knows whose prefix matches, and there is one at least.
    fn see(&mut self, key: &str, news: &str) {
        let push = format!("watchtp {key} {news}");
        self.seen.push(push.clone());
        let told = || {
            let last = self.seen.len().saturating_sub(30);
            format!("{push} by {}, after {:#?}", self.port, &self.seen[last..])
        };
        if news.starts_with("END ") {
            let ended = self.views.remove(key);
            assert!(ended.is_some(), "not watched: {}", told());
            return;
        }
        let of_all = news == "FLUSHED";
        let views = self.views.iter_mut();
        let concerned = views.filter(|(prefix, _)| match of_all {
            true => *prefix == key,
            false => key.starts_with(*prefix),
        });
        let mut count = 0;
        for (_, view) in concerned {
            assert!(view.see(&push), "on top of {view:?}: {}", told());
            count += 1;
        }
        assert!(count > 0, "not watched: {}", told());
    }
}

pub struct Player {
    ports: Vec<u16>,
    names: Vec<String>,
    dice: Random,
    /// To each server one for each purpose.
    lines: Vec<[Option<Line>; PLACES]>,
    /// Which server has a slot, as far as it has been told.
    places: BTreeMap<u16, usize>,
    pub granted: usize,
    pub renamed: usize,
    /// How much was heard of prefixes by connections that have ended.
    seen: usize,
}

impl Player {
    pub fn new(ports: &[u16], names: &[String], seed: u64) -> Player {
        Player {
            ports: ports.to_vec(),
            names: names.to_vec(),
            dice: Random::new(seed),
            lines: ports.iter().map(|_| [None, None, None]).collect(),
            places: BTreeMap::new(),
            granted: 0,
            renamed: 0,
            seen: 0,
        }
    }

    pub fn step(&mut self) {
        let name = self.name();
        let server = match self.places.get(&slot(&name)) {
            Some(server) => *server,
            None => self.dice.below(self.ports.len()),
        };
        match self.dice.below(12) {
            0 => {
                self.call(server, HOLD, "PING");
            }
            1 => self.watch(server, &name),
            10 => self.follow(&name),
            11 => self.write(server, &name),
            2 | 3 if matches!(self.belief(server, HOLD, &name), Some(Belief::Holds(_))) => {
                self.rename(server, &name);
            }
            _ => self.take_or_give(server, &name, false),
        }
    }

    fn name(&mut self) -> String {
        let on_its_way = ON_ITS_WAY.load(Ordering::Relaxed);
        let all = self.names.iter();
        let near: Vec<_> = all.filter(|name| slot(name) == on_its_way).collect();
        match near.is_empty() || self.dice.below(3) == 0 {
            true => self.names[self.dice.below(self.names.len())].clone(),
            false => near[self.dice.below(near.len())].clone(),
        }
    }

    /// What it knows, when it has heard all that it was told: the server, the connection, the key.
    pub fn beliefs(&mut self) -> Vec<(usize, i64, String, Belief)> {
        let mut all = Vec::new();
        for server in 0..self.ports.len() {
            for place in [HOLD, WATCH] {
                let Some(line) = self.caught_up(server, place) else {
                    continue;
                };
                let beliefs = line.beliefs.iter();
                all.extend(beliefs.map(|(key, belief)| (server, line.id, key.clone(), *belief)));
            }
        }
        all
    }

    /// A connection that has heard all that it was told; none where there was none, or is no more.
    fn caught_up(&mut self, server: usize, place: usize) -> Option<&Line> {
        self.lines[server][place].as_ref()?;
        self.call(server, place, "PING")?;
        self.lines[server][place].as_ref()
    }

    /// The reply, or none where there was no connection, or is no more: then what it knew by it is void.
    fn call(&mut self, server: usize, place: usize, request: &str) -> Option<Frame> {
        let line = &mut self.lines[server][place];
        if line.is_none() {
            *line = Line::to(self.ports[server]);
        }
        let reply = line.as_mut().and_then(|line| line.call(request));
        if reply.is_none() {
            self.seen += line.take().map_or(0, |line| line.seen.len());
        }
        reply
    }

    fn belief(&self, server: usize, place: usize, name: &str) -> Option<Belief> {
        let line = self.lines[server][place].as_ref();
        line.and_then(|line| line.beliefs.get(name).copied())
    }

    fn set(&mut self, server: usize, place: usize, name: &str, belief: Option<Belief>) {
        let line = self.lines[server][place].as_mut().expect("it has answered");
        match belief {
            Some(belief) => line.beliefs.insert(name.to_owned(), belief),
            None => line.beliefs.remove(name),
        };
    }

    fn watch(&mut self, server: usize, name: &str) {
        if self.belief(server, WATCH, name).is_some() {
            return;
        }
        if let Some(reply @ Frame::Bulk(_)) = self.call(server, WATCH, &format!("WATCHEX {name}")) {
            let there = reply == bulk("EXIST");
            self.set(server, WATCH, name, Some(Belief::Sees(there)));
        }
    }

    /// Watches a prefix at any server, also at a replica: of one key, of the temporary ones of its slot, or of all of its slot.
    fn follow(&mut self, name: &str) {
        let server = self.dice.below(self.ports.len());
        let tag = tag(name);
        let prefixes = [name.to_owned(), format!("{tag}t"), tag.to_owned()];
        let prefix = prefixes[self.dice.below(prefixes.len())].clone();
        if self.call(server, FOLLOW, "READONLY").is_none() {
            return;
        }
        let reply = self.call(server, FOLLOW, &format!("WATCHTP {prefix}"));
        if let Some(reply @ Frame::Array(_)) = reply {
            let line = self.lines[server][FOLLOW]
                .as_mut()
                .expect("it has answered");
            line.seen.push(format!("{prefix} has {reply:?}"));
            line.views.insert(prefix.clone(), View::of(&prefix, &reply));
        }
    }

    /// What it follows at each server, when it has heard all that it was told.
    pub fn views(&mut self) -> Vec<(usize, String, View)> {
        let mut all = Vec::new();
        for server in 0..self.ports.len() {
            let line = self.caught_up(server, FOLLOW).into_iter();
            let views = line.flat_map(|line| &line.views);
            all.extend(views.map(|(prefix, view)| (server, prefix.clone(), view.clone())));
        }
        all
    }

    /// How much it has heard of prefixes.
    pub fn seen(&self) -> usize {
        let lines = self.lines.iter().flatten().flatten();
        self.seen + lines.map(|line| line.seen.len()).sum::<usize>()
    }

    /// Gives a temporary key another value, if it is there.
    fn write(&mut self, server: usize, name: &str) {
        if !is_lock(name) {
            let value = self.dice.below(1000);
            self.call(server, HOLD, &format!("SET {name} {value} XX KEEPTTL"));
        }
    }

    /// Has a temporary key that it holds go by another name of its slot, whoever has that; not if it has lost it meanwhile.
    fn rename(&mut self, server: usize, name: &str) {
        let Some(Belief::Holds(token)) = self.belief(server, HOLD, name) else {
            return;
        };
        let is_one = |to: &&String| !is_lock(to) && slot(to) == slot(name);
        let mut free: Vec<_> = self.names.iter().filter(is_one).cloned().collect();
        free.retain(|to| self.belief(server, HOLD, to).is_none());
        if is_lock(name) || free.is_empty() {
            return;
        }
        let to = &free[self.dice.below(free.len())];
        self.call(server, HOLD, &format!("WATCH {name}"));
        let check = self.call(server, HOLD, &format!("LOCK.CHECK {name} {token}"));
        self.call(server, HOLD, "MULTI");
        if check == Some(int(1)) {
            self.call(server, HOLD, &format!("RENAME {name} {to}"));
        }
        let done = self.call(server, HOLD, "EXEC");
        if done == Some(Frame::Array(vec![ok()])) {
            self.renamed += 1;
            self.set(server, HOLD, name, None);
            self.set(server, HOLD, to, Some(Belief::Holds(token)));
        }
    }

    fn take_or_give(&mut self, server: usize, name: &str, asking: bool) {
        let is_lock = is_lock(name);
        let belief = self.belief(server, HOLD, name);
        // LOCK.RELEASE says how deep the hold is still.
        let given_back = int(i64::from(
            !(is_lock && matches!(belief, Some(Belief::Holds(_)))),
        ));
        let request = match (belief, is_lock) {
            (None, false) => format!("SETTP {name} v TOKEN"),
            (None, true) => format!("LOCK.ACQUIRE {name} OWNER job"),
            (Some(Belief::Waits), _) if self.dice.below(4) > 0 => return,
            (Some(Belief::Waits), false) => format!("LOCK.CANCEL {name}"),
            (Some(Belief::Waits), true) => format!("LOCK.CANCEL {name} OWNER job"),
            (Some(_), false) => format!("DELTP {name}"),
            (Some(_), true) => format!("LOCK.RELEASE {name} OWNER job"),
        };
        let takes = request.starts_with("SETTP") || request.starts_with("LOCK.ACQUIRE");
        let waits = takes && self.dice.below(2) == 0;
        let shared = takes && is_lock && self.dice.below(2) == 0;
        let more = |wanted: bool, words| if wanted { words } else { "" };
        let request = format!(
            "{request}{}{}",
            more(shared, " SHARED"),
            match (takes, waits) {
                (true, true) => " WAIT 0 PUSH",
                (true, false) => " NOTIFY",
                (false, _) => "",
            }
        );
        if asking && self.call(server, HOLD, "ASKING").is_none() {
            return;
        }
        let Some(reply) = self.call(server, HOLD, &request) else {
            self.places.remove(&slot(name));
            return;
        };
        match reply {
            Frame::Error(_) => self.refused(name, &reply.text(), asking),
            Frame::Integer(token) if takes && token > 0 => {
                self.granted += 1;
                self.set(server, HOLD, name, Some(Belief::Holds(token)));
            }
            _ if waits => self.set(server, HOLD, name, Some(Belief::Waits)),
            _ if !takes && reply == given_back => self.set(server, HOLD, name, None),
            // It was not granted; or there was nothing to give back, of which it must have been told, or will be.
            _ => {}
        }
    }

    fn refused(&mut self, name: &str, error: &str, asking: bool) {
        let words: Vec<_> = error.split(' ').collect();
        let port = words.get(2).and_then(|address| address.rsplit_once(':'));
        let server = port.and_then(|(_, port)| {
            let port = port.parse().ok()?;
            self.ports.iter().position(|other| *other == port)
        });
        match (words[0], server) {
            ("MOVED", Some(server)) => {
                self.places.insert(slot(name), server);
            }
            ("ASK", Some(server)) if !asking => self.take_or_give(server, name, true),
            _ => {
                self.places.remove(&slot(name));
            }
        }
    }
}
