//! ZooKeeper's lock recipe: a node of one's own in a row, and a watch on the one before it.

use super::process::{Process, QueueEntry};
use super::{Contender, Crash, Member, Watcher, Way, unexpected};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub const NAME: &str = "ZooKeeper";
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// What kazoo asks for by default.
const SESSION: Duration = Duration::from_secs(10);

struct Server(Process);

impl Way for Server {
    fn name(&self) -> &'static str {
        NAME
    }
    fn about(&self) -> &'static str {
        "the lock recipe: sequential ephemeral nodes, each of which is watched by the next contender"
    }
    fn version(&self) -> String {
        let jars = fs::read_dir("/usr/share/java")
            .into_iter()
            .flatten()
            .flatten();
        let names = jars.map(|jar| jar.file_name().to_string_lossy().into_owned());
        let version = |name: String| {
            let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            let is_one = version.starts_with(|c: char| c.is_ascii_digit());
            is_one.then(|| format!("{NAME} {version}"))
        };
        names.filter_map(version).next().unwrap_or_default()
    }
    fn servers(&self) -> Vec<u32> {
        vec![self.0.id()]
    }
    fn ports(&self) -> Vec<u16> {
        vec![self.0.port]
    }
    fn after_a_crash(&self) -> Crash {
        Crash::After(SESSION)
    }
    /// Java compiles what it has run some ten thousand times: cold, it takes two to four times as long.
    fn warm_up(&self, limit: Duration) -> io::Result<()> {
        const SESSIONS: usize = 32;
        let end = Instant::now() + limit;
        let work = |number| {
            let mut session = Session::join(self.0.port, &format!("lock:warm{number}"))?;
            while Instant::now() < end {
                session.acquire()?;
                session.release()?;
            }
            io::Result::Ok(())
        };
        thread::scope(|scope| {
            let spawn = |number| scope.spawn(move || work(number));
            let threads: Vec<_> = (0..SESSIONS).map(spawn).collect();
            for thread in threads {
                let ended = thread.join();
                ended.map_err(|_| io::Error::other("a contender failed"))??;
            }
            Ok(())
        })
    }
}

/// One server, alone, with its own defaults.
pub fn start() -> io::Result<Box<dyn Way>> {
    if !Path::new(JAR).is_file() {
        return Err(io::Error::other(
            "ZooKeeper is not installed (scripts/need.sh zookeeper)",
        ));
    }
    let place = QueueEntry::new()?;
    let settings = place.path().join("zoo.cfg");
    let lines = format!(
        "tickTime=2000\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
         admin.enableServer=false\n",
        place.path().join("data").display(),
        place.port
    );
    fs::write(&settings, lines)?;
    let mut java = Command::new("java");
    java.args(["-Xmx512m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", JAR])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(settings);
    let server = place.run(java)?;
    // It listens before it serves, and closes whoever comes too early.
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = Session::join(server.port, "lock:first") {
        if Instant::now() > deadline {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(Box::new(Server(server)))
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const CHILDREN: i32 = 8;
const PING: i32 = 11;
const ADD_WATCH: i32 = 106;
const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
/// Numbers of answers that belong to no request.
const EVENT: i32 = -1;
const PONG: i32 = -2;

pub struct Session {
    port: u16,
    stream: TcpStream,
    received: Vec<u8>,
    lock: String,
    mine: String,
    number: i32,
    requests: u64,
}

impl Session {
    pub fn join(port: u16, lock: &str) -> io::Result<Session> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SESSION / 3))?;
        let mut session = Session {
            port,
            stream,
            received: Vec::new(),
            lock: format!("/{}", lock.replace(':', "-")),
            mine: String::new(),
            number: 0,
            requests: 0,
        };
        let timeout = SESSION.as_millis() as i32;
        let mut hello = Vec::new();
        hello.extend_from_slice(&[0; 4 + 8]);
        hello.extend_from_slice(&timeout.to_be_bytes());
        hello.extend_from_slice(&[0; 8]);
        hello.extend_from_slice(&bytes(&[0; 16]));
        session.stream.write_all(&bytes(&hello))?;
        session.frame()?;
        let root = session.lock.clone();
        match session.create(&root, 0) {
            Err(error) if !error.to_string().contains(&NODE_EXISTS.to_string()) => Err(error),
            _ => Ok(session),
        }
    }

    /// The path that it got.
    fn create(&mut self, path: &str, flags: i32) -> io::Result<String> {
        let (error, answer) = self.request(CREATE, &node(path, b"", flags))?;
        if error != 0 {
            return Err(unexpected(NAME, error.to_string().as_bytes()));
        }
        Ok(texts(&answer, 0, 1).remove(0))
    }

    /// The node before ours; none when ours is the first.
    fn predecessor(&mut self) -> io::Result<Option<String>> {
        let body = [bytes(self.lock.as_bytes()), vec![0]].concat();
        let (error, answer) = self.request(CHILDREN, &body)?;
        if error != 0 {
            return Err(unexpected(NAME, error.to_string().as_bytes()));
        }
        let count = i32::from_be_bytes(answer[..4].try_into().expect("4 bytes"));
        let mine = self.mine.rsplit('/').next().unwrap_or_default();
        let names = texts(&answer, 4, count as usize).into_iter();
        let before = names.filter(|name| name.as_str() < mine).max();
        Ok(before.map(|name| format!("{}/{name}", self.lock)))
    }

    fn ping(&mut self) -> io::Result<()> {
        self.send(PONG, PING, &[])?;
        while self.answer()?.0 != PONG {}
        Ok(())
    }

    fn request(&mut self, kind: i32, body: &[u8]) -> io::Result<(i32, Vec<u8>)> {
        self.requests += 1;
        self.number += 1;
        self.send(self.number, kind, body)?;
        loop {
            let (number, error, answer) = self.answer()?;
            if number == self.number {
                return Ok((error, answer));
            }
        }
    }

    fn send(&mut self, number: i32, kind: i32, body: &[u8]) -> io::Result<()> {
        let whole = [&number.to_be_bytes()[..], &kind.to_be_bytes(), body].concat();
        self.stream.write_all(&bytes(&whole))
    }

    fn answer(&mut self) -> io::Result<(i32, i32, Vec<u8>)> {
        let frame = self.frame()?;
        let number = |at: usize| i32::from_be_bytes(frame[at..at + 4].try_into().expect("4 bytes"));
        Ok((number(0), number(12), frame[16..].to_vec()))
    }

    /// Pings while nothing comes, so that the session lives. Who has asked for nothing yet has none: a server that still
    /// starts may forget whoever said hello, so that one has to come again.
    fn frame(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(frame) = self.buffered() {
                return Ok(frame);
            }
            match self.receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.number > 0 => {
                    self.send(PONG, PING, &[])?
                }
                received => received?,
            }
        }
    }

    /// The next frame, if all of it has come.
    fn buffered(&mut self) -> Option<Vec<u8>> {
        let length = self.received.first_chunk()?;
        let end = 4 + u32::from_be_bytes(*length) as usize;
        let frame = self.received.get(4..end)?.to_vec();
        self.received.drain(..end);
        Some(frame)
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.received.extend_from_slice(&chunk[..count]);
                Ok(())
            }
        }
    }

    /// Those who watch the members are sent each change of them, with its path, until their session ends: as Curator's newer
    /// caches are.
    pub fn watch(port: u16) -> io::Result<Session> {
        const PERSISTENT_AND_RECURSIVE: i32 = 1;
        let mut session = Session::join(port, MEMBERS)?;
        let mode = PERSISTENT_AND_RECURSIVE.to_be_bytes();
        let body = [bytes(session.lock.as_bytes()), mode.to_vec()].concat();
        match session.request(ADD_WATCH, &body)? {
            (0, _) => Ok(session),
            (error, _) => Err(unexpected(NAME, error.to_string().as_bytes())),
        }
    }
}

/// The name below which members have their nodes.
pub const MEMBERS: &str = "members";

impl Member for Session {
    fn add(&mut self, names: &[String]) -> io::Result<()> {
        const EPHEMERAL: i32 = 1;
        const AT_ONCE: usize = 500;
        for names in names.chunks(AT_ONCE) {
            for name in names {
                self.number += 1;
                let path = format!("{}/{name}", self.lock);
                let node = node(&path, b"a-value-of-some-bytes", EPHEMERAL);
                self.send(self.number, CREATE, &node)?;
            }
            for _ in names {
                while match self.answer()? {
                    (EVENT | PONG, _, _) => true,
                    (_, 0, _) => false,
                    (_, error, _) => return Err(unexpected(NAME, error.to_string().as_bytes())),
                } {}
            }
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.mine = format!("{}/{name}", self.lock);
        self.release()
    }

    fn tend(&mut self) -> io::Result<()> {
        self.ping()
    }
}

impl Watcher for Session {
    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    fn gone(&mut self) -> io::Result<Vec<String>> {
        const DELETED: i32 = 2;
        // A number, a transaction's, and an error; the kind of the event, the session's state.
        const KIND: usize = 16;
        const PATH: usize = 24;
        self.receive()?;
        let mut gone = Vec::new();
        while let Some(frame) = self.buffered() {
            let number = |at: usize| {
                let bytes = frame.get(at..at + 4)?.try_into().ok()?;
                Some(i32::from_be_bytes(bytes))
            };
            if (number(0), number(KIND)) == (Some(EVENT), Some(DELETED)) {
                let path = texts(&frame, PATH, 1).remove(0);
                let name = path.rsplit('/').next().unwrap_or_default();
                gone.push(name.to_owned());
            }
        }
        Ok(gone)
    }

    fn tend(&mut self) -> io::Result<()> {
        self.send(PONG, PING, &[])
    }
}

impl Contender for Session {
    /// A new session, if the old one was silent for too long.
    fn prepare(&mut self) -> io::Result<()> {
        if self.ping().is_err() {
            let name = self.lock.trim_start_matches('/').to_owned();
            let session = Session::join(self.port, &name)?;
            let requests = self.requests + session.requests;
            *self = Session {
                requests,
                ..session
            };
        }
        Ok(())
    }

    fn acquire(&mut self) -> io::Result<()> {
        const EPHEMERAL_IN_A_ROW: i32 = 3;
        self.mine = self.create(&format!("{}/lock-", self.lock), EPHEMERAL_IN_A_ROW)?;
        while let Some(before) = self.predecessor()? {
            let body = [bytes(before.as_bytes()), vec![1]].concat();
            if self.request(EXISTS, &body)?.0 != NO_NODE {
                while self.answer()?.0 != EVENT {}
            }
        }
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        let body = [bytes(self.mine.as_bytes()), (-1_i32).to_be_bytes().to_vec()].concat();
        match self.request(DELETE, &body)? {
            (0, _) => Ok(()),
            (error, _) => Err(unexpected(NAME, error.to_string().as_bytes())),
        }
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}

/// What makes a node that anyone may do anything with.
fn node(path: &str, value: &[u8], flags: i32) -> Vec<u8> {
    let mut body = [bytes(path.as_bytes()), bytes(value)].concat();
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&31_i32.to_be_bytes());
    body.extend_from_slice(&bytes(b"world"));
    body.extend_from_slice(&bytes(b"anyone"));
    body.extend_from_slice(&flags.to_be_bytes());
    body
}

/// With their length before them.
fn bytes(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32).to_be_bytes()[..], content].concat()
}

fn texts(answer: &[u8], mut at: usize, count: usize) -> Vec<String> {
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let length = u32::from_be_bytes(answer[at..at + 4].try_into().expect("4 bytes")) as usize;
        found.push(String::from_utf8_lossy(&answer[at + 4..at + 4 + length]).into_owned());
        at += 4 + length;
    }
    found
}
