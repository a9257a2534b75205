//! Those who ask again and again: redis-py's Lock on one server, redlock on several.

use super::{Contender, Link};
use std::io;
use std::time::Duration;
use tether_testing::resp::{Frame, encode, int, ok};

pub const REDIS_PY: &str = "redis-py Lock";
pub const REDLOCK: &str = "redlock";
pub const REDLOCK_ON_THREE: &str = "redlock, 3 servers";
/// After which a dead holder's lock is free.
pub const LEASE: Duration = Duration::from_secs(10);

/// Removes the key only if it is still one's own.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

pub struct Client {
    /// To each server.
    connections: Vec<Link>,
    attempt: Vec<u8>,
    release: Vec<u8>,
    /// How long to sleep between attempts, and by how much longer at most.
    pause: (Duration, Duration),
    chance: u64,
    requests: u64,
}

impl Client {
    pub fn join(way: &str, ports: &[u16], lock: &str, number: usize) -> io::Result<Client> {
        let mut connections = Vec::new();
        for &port in ports {
            connections.push(Link::open(port));
        }
        let mut script = String::new();
        for connection in &mut connections {
            connection.send(&encode(["SCRIPT", "LOAD", RELEASE]));
            if let Some(reply) = connection.next_frame() {
                script = reply.text();
            }
        }
        let token = format!("token:{number}");
        let lease_ms = LEASE.as_millis().to_string();
        let ms = Duration::from_millis;
        Ok(Client {
            connections,
            attempt: encode(["SET", lock, &token, "NX", "PX", &lease_ms]),
            release: encode(["EVALSHA", &script, "1", lock, &token]),
            pause: if way == REDIS_PY {
                (ms(100), ms(0))
            } else {
                (ms(200), ms(200))
            },
            chance: number as u64 * 2 + 1,
            requests: 0,
        })
    }

    /// To all servers at once; how many of them gave this reply.
    fn everywhere(&mut self, command: &[u8], good: &Frame) -> usize {
        self.requests += self.connections.len() as u64;
        for connection in &mut self.connections {
            connection.send(command);
        }
        let replies = self.connections.iter_mut().filter_map(Link::next_frame);
        let is_good = |reply: &Frame| {
            assert!(!matches!(reply, Frame::Error(_)), "refused: {reply:?}");
            reply == good
        };
        replies.filter(is_good).count()
    }

    /// Not the same for all, or they would ask together for ever.
    fn sleep(&mut self) {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let part = (self.chance % 1024) as f64 / 1024.0;
        std::thread::sleep(self.pause.0 + self.pause.1.mul_f64(part));
    }
}

impl Contender for Client {
    fn acquire(&mut self) -> io::Result<()> {
        let attempt = self.attempt.clone();
        while self.everywhere(&attempt, &ok()) <= self.connections.len() / 2 {
            if self.connections.len() > 1 {
                self.release()?;
            }
            self.sleep();
        }
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        let release = self.release.clone();
        self.everywhere(&release, &int(1));
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}
