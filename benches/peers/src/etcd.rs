//! etcd's lock, by its own lock service, in which the server itself follows the recipe of its clients: a key with a
//! lease in a row, and a watch on the one before it.

use super::grpc::{Channel, bytes_field, field, number_field};
use super::process::{Process, QueueEntry, version_of};
use super::{Contender, Crash, Way, unexpected};
use std::io;
use std::process::Command;
use std::time::Duration;
use tether_testing::harness::free_port;

pub const NAME: &str = "etcd";
/// What `etcdctl lock` asks for by default.
const LEASE: Duration = Duration::from_secs(10);

struct Server(Process);

impl Way for Server {
    fn name(&self) -> &'static str {
        NAME
    }
    fn about(&self) -> &'static str {
        "its lock service over gRPC, one member, data on the disk as by default"
    }
    fn version(&self) -> String {
        version_of("etcd", &["--version"])
    }
    fn servers(&self) -> Vec<u32> {
        vec![self.0.id()]
    }
    fn ports(&self) -> Vec<u16> {
        vec![self.0.port]
    }
    fn after_a_crash(&self) -> Crash {
        Crash::After(LEASE)
    }
}

pub fn start() -> io::Result<Box<dyn Way>> {
    let place = QueueEntry::new()?;
    let address = |port: u16| format!("http://127.0.0.1:{port}");
    let (clients, peers) = (address(place.port), address(free_port()));
    let mut etcd = Command::new("etcd");
    etcd.args(["--data-dir", "data"])
        .args(["--listen-client-urls", &clients])
        .args(["--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers])
        .args(["--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")]);
    let started = place.run(etcd).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("etcd is not installed (scripts/need.sh etcd)"),
        _ => error,
    });
    Ok(Box::new(Server(started?)))
}

pub struct Client {
    channel: Channel,
    lock: String,
    lease: u64,
    mine: Vec<u8>,
    requests: u64,
}

impl Client {
    pub fn join(port: u16, lock: &str) -> io::Result<Client> {
        let mut client = Client {
            channel: Channel::open(port, LEASE / 3)?,
            lock: lock.to_owned(),
            lease: 0,
            mine: Vec::new(),
            requests: 0,
        };
        client.prepare()?;
        Ok(client)
    }

    fn call(&mut self, method: &str, message: &[u8]) -> io::Result<Vec<u8>> {
        self.requests += 1;
        let call = self.channel.call(method, message)?;
        loop {
            if let Some(answer) = self.channel.answer(call)? {
                return Ok(answer);
            }
            // The lease is to live while its owner waits. Nobody looks at the answer.
            let lease = number_field(1, self.lease);
            self.channel
                .call("/etcdserverpb.Lease/LeaseKeepAlive", &lease)?;
        }
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
        self.call("/v3lockpb.Lock/Unlock", &request).map(drop)
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}
