//! etcd's lock, by its own lock service, in which the server itself follows the recipe of its clients: a key with a
//! lease in a row, and a watch on the one before it.

use super::grpc::{Channel, bytes_field, field, fields, number_field};
use super::process::{Process, QueueEntry, version_of};
use super::{Contender, Crash, Member, Watcher, Way, unexpected};
use std::io;
use std::os::fd::RawFd;
use std::process::Command;
use std::time::{Duration, Instant};
use tether_testing::harness::free_port;

pub const NAME: &str = "etcd";
pub const ON_THREE: &str = "etcd, 3 members";
/// What `etcdctl lock` asks for by default.
const LEASE: Duration = Duration::from_secs(10);
/// A member that forwards a request to a leader that has just died never answers it: a client asks again after so long.
const ASK_AGAIN: Duration = Duration::from_millis(500);
const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// Nothing takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    name: &'static str,
    about: &'static str,
    members: Vec<Process>,
}

impl Way for Cluster {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn version(&self) -> String {
        version_of("etcd", &["--version"])
    }
    fn servers(&self) -> Vec<u32> {
        self.members.iter().map(Process::id).collect()
    }
    fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.port).collect()
    }
    fn leader(&self) -> io::Result<usize> {
        for (at, member) in self.members.iter().enumerate() {
            let (own, leader) = identities(member.port)?;
            if own == leader {
                return Ok(at);
            }
        }
        Err(io::Error::other("there is no leader"))
    }
    /// Each member serves a client as well as any other, so it is one that lives.
    fn ports_without(&self, member: usize) -> Vec<u16> {
        let mut ports = self.ports();
        ports.remove(member);
        ports
    }
    fn after_a_crash(&self) -> Crash {
        Crash::After(LEASE)
    }
}

/// A member's own, and its leader's.
fn identities(port: u16) -> io::Result<(u64, u64)> {
    let mut channel = Channel::open(port, ASK_AGAIN)?;
    let call = channel.call("/etcdserverpb.Maintenance/Status", &[])?;
    let answer = channel.answer(call)?.ok_or(io::ErrorKind::TimedOut)?;
    let number = |message: &[u8], wanted| field(message, wanted).map(|(number, _)| number);
    let own = field(&answer, 1).and_then(|(_, header)| number(header, 2));
    own.zip(number(&answer, 4))
        .ok_or_else(|| unexpected(NAME, &answer))
}

pub fn start() -> io::Result<Box<dyn Way>> {
    start_members(
        NAME,
        "its lock service over gRPC, one member, with its data on disk, as by default",
        1,
    )
}

pub fn start_three() -> io::Result<Box<dyn Way>> {
    start_members(
        ON_THREE,
        "its lock service over gRPC, three members; each step is on two disks before the answer; the contenders are spread over the members",
        3,
    )
}

fn start_members(
    name: &'static str,
    about: &'static str,
    count: usize,
) -> io::Result<Box<dyn Way>> {
    let address = |port: u16| format!("http://127.0.0.1:{port}");
    let places: Vec<_> = (0..count)
        .map(|_| QueueEntry::new())
        .collect::<io::Result<_>>()?;
    let peers: Vec<_> = places.iter().map(|_| address(free_port())).collect();
    let whole: Vec<_> = (0..)
        .zip(&peers)
        .map(|(at, peer)| format!("member{at}={peer}"))
        .collect();
    let mut members = Vec::new();
    for (at, (place, peer)) in places.into_iter().zip(&peers).enumerate() {
        let clients = address(place.port);
        let mut etcd = Command::new("etcd");
        etcd.args(["--data-dir", "data", "--name", &format!("member{at}")])
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", peer])
            .args(["--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &whole.join(",")]);
        let started = place.spawn(etcd).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("etcd is not installed (scripts/need.sh etcd)")
            }
            _ => error,
        });
        members.push(started?);
    }
    // None serves before most of them run.
    for member in &mut members {
        member.wait_until_it_listens("etcd")?;
    }
    let cluster = Cluster {
        name,
        about,
        members,
    };
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = cluster.leader() {
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(SHORT_PAUSE);
    }
    Ok(Box::new(cluster))
}

pub struct Client {
    channel: Channel,
    lock: String,
    lease: u64,
    /// When the lease was last heard to live.
    renewed: Instant,
    mine: Vec<u8>,
    requests: u64,
}

impl Client {
    pub fn join(port: u16, lock: &str) -> io::Result<Client> {
        let mut client = Client {
            channel: Channel::open(port, ASK_AGAIN)?,
            lock: lock.to_owned(),
            lease: 0,
            renewed: Instant::now(),
            mine: Vec::new(),
            requests: 0,
        };
        client.prepare()?;
        Ok(client)
    }

    /// Waits for the answer as long as it takes, within reason.
    fn call(&mut self, method: &str, message: &[u8]) -> io::Result<Vec<u8>> {
        self.requests += 1;
        let call = self.channel.call(method, message)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(answer) = self.channel.answer(call)? {
                return Ok(answer);
            }
            self.keep_alive()?;
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Asks again when no answer comes, or a refusal: for what may be done twice.
    fn call_again_and_again(&mut self, method: &str, message: &[u8]) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.requests += 1;
            let call = self.channel.call(method, message)?;
            match self.channel.answer(call) {
                Ok(Some(answer)) => return Ok(answer),
                Err(error) if error.kind() != io::ErrorKind::Other => return Err(error),
                refused_or_none if Instant::now() > deadline => {
                    refused_or_none?;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(None) => self.keep_alive()?,
                Err(_) => std::thread::sleep(SHORT_PAUSE),
            }
        }
    }

    /// The lease is to live while its owner waits. Nobody looks at the answer.
    fn keep_alive(&mut self) -> io::Result<()> {
        if self.renewed.elapsed() < LEASE / 3 {
            return Ok(());
        }
        self.renewed = Instant::now();
        let lease = number_field(1, self.lease);
        let method = "/etcdserverpb.Lease/LeaseKeepAlive";
        self.channel.call(method, &lease).map(drop)
    }
}

impl Contender for Client {
    /// A lease of its own; a former one lapses by itself.
    fn prepare(&mut self) -> io::Result<()> {
        let answer = self.call(
            "/etcdserverpb.Lease/LeaseGrant",
            &number_field(1, LEASE.as_secs()),
        )?;
        let lease = field(&answer, 2).ok_or_else(|| unexpected(NAME, &answer))?;
        self.lease = lease.0;
        self.renewed = Instant::now();
        Ok(())
    }

    fn acquire(&mut self) -> io::Result<()> {
        let request = [
            bytes_field(1, self.lock.as_bytes()),
            number_field(2, self.lease),
        ]
        .concat();
        let answer = self.call("/v3lockpb.Lock/Lock", &request)?;
        let mine = field(&answer, 2).ok_or_else(|| unexpected(NAME, &answer))?;
        self.mine = mine.1.to_vec();
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        let request = bytes_field(1, &self.mine);
        self.call_again_and_again("/v3lockpb.Lock/Unlock", &request)
            .map(drop)
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}

/// What the members' keys begin with, and the first key behind all of them.
const MEMBERS: [&[u8]; 2] = [b"m:", b"m;"];

fn key_of(name: &str) -> Vec<u8> {
    [MEMBERS[0], name.as_bytes()].concat()
}

impl Member for Client {
    /// In transactions of as many keys as the server takes by default, or nearly so.
    fn add(&mut self, names: &[String]) -> io::Result<()> {
        const AT_ONCE: usize = 100;
        for names in names.chunks(AT_ONCE) {
            let put = |name: &String| {
                let put = [
                    bytes_field(1, &key_of(name)),
                    bytes_field(2, b"a-value-of-some-bytes"),
                    number_field(3, self.lease),
                ];
                // Among what is done where nothing is asked before.
                bytes_field(2, &bytes_field(2, &put.concat()))
            };
            let puts: Vec<_> = names.iter().flat_map(put).collect();
            self.call("/etcdserverpb.KV/Txn", &puts)?;
            self.keep_alive()?;
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let key = bytes_field(1, &key_of(name));
        self.call("/etcdserverpb.KV/DeleteRange", &key).map(drop)
    }

    fn tend(&mut self) -> io::Result<()> {
        self.keep_alive()
    }
}

/// A watch of all keys with the members' prefix.
pub struct PrefixWatch {
    channel: Channel,
    call: u32,
}

impl PrefixWatch {
    pub fn begin(port: u16) -> io::Result<PrefixWatch> {
        let mut channel = Channel::open(port, PATIENCE)?;
        let range = [bytes_field(1, MEMBERS[0]), bytes_field(2, MEMBERS[1])].concat();
        let call = channel.listen("/etcdserverpb.Watch/Watch", &bytes_field(1, &range))?;
        let mut watch = PrefixWatch { channel, call };
        // It says that it has begun.
        while watch.channel.messages(call)?.is_empty() {}
        Ok(watch)
    }
}

impl Watcher for PrefixWatch {
    fn descriptor(&self) -> RawFd {
        self.channel.descriptor()
    }

    fn gone(&mut self) -> io::Result<Vec<String>> {
        const EVENTS: u8 = 11;
        const DELETED: u64 = 1;
        let mut gone = Vec::new();
        for message in self.channel.messages(self.call)? {
            for (_, event) in fields(&message, EVENTS) {
                let key = field(event, 2).and_then(|(_, pair)| field(pair, 1));
                let is_deleted = field(event, 1).is_some_and(|(kind, _)| kind == DELETED);
                if let Some((_, key)) = key.filter(|_| is_deleted) {
                    let name = key.strip_prefix(MEMBERS[0]).unwrap_or_default();
                    gone.push(String::from_utf8_lossy(name).into_owned());
                }
            }
        }
        Ok(gone)
    }
}
