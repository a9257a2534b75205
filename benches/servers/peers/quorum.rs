//! A lock on three independent servers, in the protocol of the Rust client's quorum (its `protocol.rs` has the rules), without
//! its tasks: what is measured is what the servers and the rules take.
//!
//! The servers are asked in ascending order, each when those before it have granted. With a majority the token is written
//! back, and the other servers are asked for all the same; the lock counts as held once a majority has the token.

use std::io;
use std::time::{Duration, Instant};
use tether_peers::{Contender, Link, receive_any};
use tether_testing::resp::{Frame, encode};

pub const NAME: &str = "quorum of 3";
pub const SERVERS: usize = 3;
/// Of each session: the client's default.
pub const GRACE: Duration = Duration::from_secs(10);
/// No wait takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn contender(ports: &[u16], lock: &str) -> io::Result<Box<dyn Contender>> {
    let mut links: Vec<_> = ports.iter().map(|port| Link::open(*port)).collect();
    for link in &mut links {
        link.run("HELLO 3");
        let begun = link.run(&format!("SESSION.START GRACE {}", GRACE.as_millis()));
        if let Some(Frame::Error(error)) = begun {
            return Err(refused(&error));
        }
    }
    Ok(Box::new(Client {
        servers: links.iter().map(|_| Server::default()).collect(),
        links,
        ask: encode(&format!("LOCK.ACQUIRE {lock} WAIT 0 PUSH")),
        release: encode(&format!("LOCK.RELEASE {lock}")),
        cancel: encode(&format!("LOCK.CANCEL {lock}")),
        lock: lock.to_owned(),
        token: 0,
        requests: 0,
    }))
}

fn refused(error: &[u8]) -> io::Error {
    io::Error::other(String::from_utf8_lossy(error).into_owned())
}

/// What a server was asked for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Hold {
    #[default]
    None,
    Asked,
    Held(i64),
}

/// A command whose reply is still to come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Ask,
    Raise,
    Release,
    Cancel,
}

#[derive(Default)]
struct Server {
    hold: Hold,
    sent: std::collections::VecDeque<Sent>,
}

impl Server {
    fn token(&self) -> Option<i64> {
        match self.hold {
            Hold::Held(token) => Some(token),
            Hold::None | Hold::Asked => None,
        }
    }
}

struct Client {
    links: Vec<Link>,
    /// What is known of each.
    servers: Vec<Server>,
    lock: String,
    ask: Vec<u8>,
    release: Vec<u8>,
    cancel: Vec<u8>,
    /// The lock's, once a majority is held; else 0.
    token: i64,
    requests: u64,
}

impl Client {
    fn majority(&self) -> usize {
        self.links.len() / 2 + 1
    }

    /// How many have this token at least.
    fn with_token(&self, least: i64) -> usize {
        let tokens = self.servers.iter().filter_map(Server::token);
        tokens.filter(|token| *token >= least).count()
    }

    fn send(&mut self, server: usize, sent: Sent) {
        let command = match sent {
            Sent::Ask => self.ask.clone(),
            Sent::Raise => encode(&format!("LOCK.RAISE {} {}", self.lock, self.token)),
            Sent::Release => self.release.clone(),
            Sent::Cancel => self.cancel.clone(),
        };
        self.requests += 1;
        self.links[server].send(&command);
        self.servers[server].sent.push_back(sent);
    }

    fn ask(&mut self, server: usize) {
        self.send(server, Sent::Ask);
        self.servers[server].hold = Hold::Asked;
    }

    /// Asks one after the other until a majority has granted. Whether one has.
    fn ask_in_order(&mut self, deadline: Instant) -> io::Result<bool> {
        for server in 0..self.links.len() {
            if self.with_token(0) >= self.majority() {
                break;
            }
            if !self.links[server].is_up() {
                continue;
            }
            self.ask(server);
            while self.servers[server].hold == Hold::Asked {
                self.hear(deadline)?;
            }
        }
        Ok(self.with_token(0) >= self.majority())
    }

    /// Handles what was received; if that is nothing, waits for more until then.
    fn hear(&mut self, deadline: Instant) -> io::Result<()> {
        if self.hear_received()? {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        receive_any(&mut self.links, left);
        for (link, server) in self.links.iter().zip(&mut self.servers) {
            // A hold counts until the session's grace is over, also when the server cannot be asked.
            if !link.is_up() {
                server.sent.clear();
                if server.hold == Hold::Asked {
                    server.hold = Hold::None;
                }
            }
        }
        self.hear_received()?;
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Whether there was anything.
    fn hear_received(&mut self) -> io::Result<bool> {
        let mut any = false;
        for server in 0..self.links.len() {
            while let Some(frame) = self.links[server].buffered() {
                self.handle(server, frame)?;
                any = true;
            }
        }
        Ok(any)
    }

    fn handle(&mut self, server: usize, frame: Frame) -> io::Result<()> {
        if let Frame::Push(items) = frame {
            let text = items.last().map(Frame::text).unwrap_or_default();
            let token = text.parse();
            let token = token.map_err(|_| io::Error::other(format!("the push says {text}")))?;
            self.granted(server, token);
            return Ok(());
        }
        let sent = self.servers[server].sent.pop_front();
        match (sent, frame) {
            (Some(Sent::Ask), Frame::Integer(token)) => self.granted(server, token),
            (Some(Sent::Ask), Frame::Null) => {}
            (Some(Sent::Raise), Frame::Integer(token)) => {
                if self.servers[server].token().is_some() {
                    self.servers[server].hold = Hold::Held(token);
                }
            }
            // 0 and 1 are no tokens: it was granted meanwhile.
            (Some(Sent::Cancel), Frame::Integer(token)) if token > 1 => {
                self.send(server, Sent::Release);
            }
            (Some(Sent::Release | Sent::Cancel), Frame::Integer(_)) => {}
            (_, Frame::Error(error)) => return Err(refused(&error)),
            (_, other) => return Err(io::Error::other(format!("a reply {other:?}"))),
        }
        Ok(())
    }

    fn granted(&mut self, server: usize, token: i64) {
        if self.servers[server].hold != Hold::Asked {
            return; // It was taken back.
        }
        self.servers[server].hold = Hold::Held(token);
        if token < self.token {
            self.send(server, Sent::Raise);
        }
    }
}

impl Contender for Client {
    fn acquire(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.ask_in_order(deadline)? {
            self.release()?;
            let reached = self.links.iter().filter(|link| link.is_up());
            if reached.count() < self.majority() {
                return Err(io::Error::other("no majority of the servers is reached"));
            }
        }
        let tokens = self.servers.iter().filter_map(Server::token);
        self.token = tokens.max().unwrap_or(0);
        for server in 0..self.links.len() {
            match self.servers[server].hold {
                Hold::Held(token) if token < self.token => self.send(server, Sent::Raise),
                Hold::None if self.links[server].is_up() => self.ask(server),
                _ => {}
            }
        }
        while self.with_token(self.token) < self.majority() {
            self.hear(deadline)?;
        }
        Ok(())
    }

    /// Gives all back, and waits until the servers have taken it.
    fn release(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        receive_any(&mut self.links, Duration::ZERO);
        self.hear_received()?;
        self.token = 0;
        for server in 0..self.links.len() {
            let hold = std::mem::take(&mut self.servers[server].hold);
            if self.links[server].is_up() {
                match hold {
                    Hold::Held(_) => self.send(server, Sent::Release),
                    Hold::Asked => self.send(server, Sent::Cancel),
                    Hold::None => {}
                }
            }
        }
        while self.servers.iter().any(|server| !server.sent.is_empty()) {
            self.hear(deadline)?;
        }
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}
