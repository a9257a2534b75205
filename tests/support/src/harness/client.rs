//! A client written by hand, so that the tests see every byte of every frame and the exact order of arrival.
//!
//! Replies and pushes wait in one line, in the order in which they came. `read_reply` takes the first reply and
//! `next_push` the first push, each leaving the others in their places; `next` takes whatever came first.

use super::reset::break_at_drop;
use super::wait::patience;
use crate::resp::{Arrival, Frame, Unread, Words, bulk, encode, parse, sentence, spelled};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// By what a push is told from a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pushes {
    /// Its shape (RESP2).
    Shape,
    /// Its kind of frame (RESP3); an array of the same shape is a reply there.
    Kind,
    /// Either: for a connection that changes its protocol while pushes are under way.
    Either,
}

pub struct Client {
    stream: TcpStream,
    pushes: Pushes,
    /// What the socket waits for at most. To set it is as much work as to read.
    timeout: Duration,
    buffer: Vec<u8>,
    /// How many bytes of the buffer are already taken.
    taken: usize,
    arrived: VecDeque<Arrival>,
}

enum Wire {
    Bytes,
    Closed(String),
    Late,
}

impl Client {
    pub fn connect(address: impl ToSocketAddrs) -> std::io::Result<Client> {
        Ok(Client::over(TcpStream::connect(address)?))
    }

    pub fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Client::over_stream(stream)
    }

    /// Both kinds of sockets are read and written alike.
    pub fn over_unix(stream: UnixStream) -> Client {
        Client::over_stream(OwnedFd::from(stream).into())
    }

    fn over_stream(stream: TcpStream) -> Client {
        stream
            .set_write_timeout(Some(patience()))
            .expect("a write timeout");
        Client {
            stream,
            pushes: Pushes::Shape,
            timeout: Duration::ZERO,
            buffer: Vec::new(),
            taken: 0,
            arrived: VecDeque::new(),
        }
    }

    /// Changes to RESP3.
    pub fn hello3(mut self) -> Client {
        self.pushes = Pushes::Kind;
        self.run("HELLO 3");
        self
    }

    /// Takes pushes of both protocols from now on (for a connection that uses RESET or HELLO on its way).
    pub fn changing_protocol(mut self) -> Client {
        self.pushes = Pushes::Either;
        self
    }

    // ---- sending ----

    pub fn send(&mut self, command: impl Words) {
        self.send_bytes(&encode(command));
    }

    /// Sends several commands in one piece.
    pub fn pipeline(&mut self, commands: &[&str]) {
        let bytes: Vec<u8> = commands
            .iter()
            .flat_map(|command| encode(*command))
            .collect();
        self.send_bytes(&bytes);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .unwrap_or_else(|error| panic!("cannot send to the server: {error}"));
    }

    /// Sends what may not all be taken, since the server is expected to hang up; says whether it was.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    // ---- commands and their replies ----

    pub fn call(&mut self, command: impl Words) -> Frame {
        self.send(command);
        self.read_reply()
    }

    /// A command that must not be refused.
    pub fn run(&mut self, command: impl Words) -> Frame {
        let words = command.words();
        self.send(words.clone());
        self.reply_to(words)
    }

    /// The reply to a command that was sent and must not be refused.
    pub fn reply_to(&mut self, command: impl Words) -> Frame {
        let reply = self.read_reply();
        if let Frame::Error(message) = &reply {
            panic!(
                "{} was refused: {}",
                spelled(&command.words()),
                message.escape_ascii()
            );
        }
        reply
    }

    /// Commands that must not be refused, hundreds of them in one piece, and their replies. Much less work than one after the
    /// other: neither side waits for the other after each of them.
    pub fn run_many(&mut self, commands: impl IntoIterator<Item = String>) -> Vec<Frame> {
        const IN_ONE_PIECE: usize = 500;
        let commands: Vec<String> = commands.into_iter().collect();
        let mut replies = Vec::with_capacity(commands.len());
        for piece in commands.chunks(IN_ONE_PIECE) {
            let bytes: Vec<u8> = piece.iter().flat_map(encode).collect();
            self.send_bytes(&bytes);
            replies.extend(piece.iter().map(|command| self.reply_to(command)));
        }
        replies
    }

    pub fn run_all(&mut self, commands: &[&str]) {
        for command in commands {
            self.run(*command);
        }
    }

    /// A command that must be refused: the error's text.
    pub fn refused(&mut self, command: impl Words) -> String {
        let words = command.words();
        match self.call(words.clone()) {
            Frame::Error(message) => String::from_utf8(message).expect("an error in UTF-8"),
            other => panic!("{} was not refused but answered {other:?}", spelled(&words)),
        }
    }

    pub fn id(&mut self) -> i64 {
        self.run("CLIENT ID").number()
    }

    // ---- what arrives ----

    /// The first reply not yet taken. Pushes that came before it keep their places.
    pub fn read_reply(&mut self) -> Frame {
        self.take(patience(), "a reply", |arrival| {
            matches!(arrival, Arrival::Reply(_))
        })
        .into_reply()
    }

    /// The first reply, or none when the connection ends before it.
    pub fn try_read_reply(&mut self) -> Option<Frame> {
        let deadline = Instant::now() + patience();
        while !self.parse_one() {
            if !matches!(self.fill(deadline), Wire::Bytes) {
                return None;
            }
        }
        self.arrived.pop_front().map(Arrival::into_reply)
    }

    /// Whatever came first and was not yet taken, or none when the connection ends before it.
    pub fn try_next(&mut self) -> Option<Arrival> {
        let deadline = Instant::now() + patience();
        while self.arrived.is_empty() && !self.parse_one() {
            match self.fill(deadline) {
                Wire::Bytes => {}
                Wire::Closed(_) => return None,
                Wire::Late => panic!("anything: not within {:?}; {}", patience(), self.seen()),
            }
        }
        self.arrived.pop_front()
    }

    pub fn read_replies(&mut self, count: usize) -> Vec<Frame> {
        (0..count).map(|_| self.read_reply()).collect()
    }

    /// The first push not yet taken, waiting for it if need be.
    pub fn next_push(&mut self) -> String {
        self.next_push_within(patience())
    }

    pub fn next_push_within(&mut self, patience: Duration) -> String {
        self.take(patience, "a push", |arrival| {
            matches!(arrival, Arrival::Push(_))
        })
        .into_push()
    }

    pub fn next_pushes(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next_push()).collect()
    }

    /// The pushes that have been read from the wire already, without waiting for more.
    pub fn arrived_pushes(&mut self) -> Vec<String> {
        let (pushes, replies) = self
            .arrived
            .drain(..)
            .partition(|arrival| matches!(arrival, Arrival::Push(_)));
        self.arrived = replies;
        VecDeque::into_iter(pushes)
            .map(Arrival::into_push)
            .collect()
    }

    /// Whatever came first and was not yet taken.
    #[allow(clippy::should_implement_trait)] // it waits, and has no end
    pub fn next(&mut self) -> Arrival {
        self.take(patience(), "anything", |_| true)
    }

    /// Whatever has come by now and was not yet taken, without waiting for more.
    pub fn arrived(&mut self) -> Vec<Arrival> {
        let blocking = |client: &Client, blocking: bool| {
            let set = client.stream.set_nonblocking(!blocking);
            set.expect("a socket that can do either");
        };
        blocking(self, false);
        loop {
            while self.parse_one() {}
            match self.fill(Instant::now() + patience()) {
                Wire::Bytes => {}
                Wire::Closed(how) => panic!("{how}; {}", self.seen()),
                Wire::Late => break,
            }
        }
        blocking(self, true);
        self.arrived.drain(..).collect()
    }

    /// Whether a reply has come by now that was not yet taken.
    pub fn has_reply(&mut self) -> bool {
        self.arrived = self.arrived().into();
        let mut arrived = self.arrived.iter();
        arrived.any(|arrival| matches!(arrival, Arrival::Reply(_)))
    }

    pub fn next_many(&mut self, count: usize) -> Vec<Arrival> {
        (0..count).map(|_| self.next()).collect()
    }

    /// All pushes that the server had sent when it answers a last command on this connection. No reply may be
    /// outstanding. To be sure that a change made elsewhere is behind them, call `Server::settle` first, or use
    /// `Server::settled`, which does both.
    pub fn pushes(&mut self) -> Vec<String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mark = format!("fence-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.send(["ECHO", &mark]);
        let mut pushes = Vec::new();
        loop {
            match self.next() {
                Arrival::Push(push) => pushes.push(push),
                Arrival::Reply(frame) if frame == bulk(&mark) => return pushes,
                Arrival::Reply(other) => {
                    panic!("an unexpected reply {other:?} before the fence; pushes: {pushes:?}")
                }
            }
        }
    }

    /// The very next bytes on the wire, whole frames or not.
    pub fn raw_bytes(&mut self, count: usize) -> Vec<u8> {
        assert!(
            self.arrived.is_empty(),
            "read as frames already: {:?}",
            self.arrived
        );
        let deadline = Instant::now() + patience();
        while self.buffer.len() - self.taken < count {
            match self.fill(deadline) {
                Wire::Bytes => {}
                Wire::Closed(how) => panic!("{how} after {:?}", self.unread()),
                Wire::Late => panic!(
                    "{count} bytes: not within {:?}; so far {:?}",
                    patience(),
                    self.unread()
                ),
            }
        }
        let bytes = self.buffer[self.taken..self.taken + count].to_vec();
        self.taken += count;
        bytes
    }

    /// Asserts what the very next bytes are.
    pub fn expect_bytes(&mut self, expected: &str) {
        let bytes = self.raw_bytes(expected.len());
        assert_eq!(
            bytes.escape_ascii().to_string(),
            expected.as_bytes().escape_ascii().to_string()
        );
    }

    /// Waits until the server has closed the connection, dropping what it says until then.
    pub fn expect_closed(&mut self) {
        let deadline = Instant::now() + patience();
        loop {
            self.taken = self.buffer.len();
            match self.fill(deadline) {
                Wire::Bytes => {}
                Wire::Closed(_) => return,
                Wire::Late => panic!("the connection is not closed within {:?}", patience()),
            }
        }
    }

    fn take(
        &mut self,
        patience: Duration,
        what: &str,
        wanted: impl Fn(&Arrival) -> bool,
    ) -> Arrival {
        let deadline = Instant::now() + patience;
        let mut looked_at = 0;
        loop {
            if let Some(at) = self.arrived.iter().skip(looked_at).position(&wanted) {
                return self
                    .arrived
                    .remove(looked_at + at)
                    .expect("it was just seen");
            }
            looked_at = self.arrived.len();
            if self.parse_one() {
                continue;
            }
            match self.fill(deadline) {
                Wire::Bytes => {}
                Wire::Closed(how) => panic!("{what}: {how}; {}", self.seen()),
                Wire::Late => panic!("{what}: not within {patience:?}; {}", self.seen()),
            }
        }
    }

    fn parse_one(&mut self) -> bool {
        match parse(&self.buffer[self.taken..]) {
            Ok((frame, length)) => {
                self.taken += length;
                let arrival = self.sort(frame);
                self.arrived.push_back(arrival);
                true
            }
            Err(Unread::Incomplete) => false,
            Err(Unread::Broken(why)) => panic!("the server sent a broken frame: {why}"),
        }
    }

    fn sort(&self, frame: Frame) -> Arrival {
        let is_push = match &frame {
            Frame::Push(_) if self.pushes == Pushes::Shape => {
                panic!("a RESP3 push on RESP2: {frame:?}")
            }
            Frame::Push(_) => true,
            other => self.pushes != Pushes::Kind && other.looks_like_a_push(),
        };
        if is_push {
            Arrival::Push(sentence(&frame))
        } else {
            Arrival::Reply(frame)
        }
    }

    fn fill(&mut self, deadline: Instant) -> Wire {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Wire::Late;
        }
        // Of long times whole seconds are enough.
        let timeout = match left.as_secs() {
            0 => left,
            seconds => Duration::from_secs(seconds + 1),
        };
        if timeout != self.timeout {
            let set = self.stream.set_read_timeout(Some(timeout));
            set.expect("a read timeout");
            self.timeout = timeout;
        }
        let mut chunk = [0; 16384];
        match self.stream.read(&mut chunk) {
            Ok(0) => Wire::Closed("the server closed the connection".into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Wire::Bytes
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Wire::Late
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Wire::Bytes,
            Err(error) => Wire::Closed(format!("the connection broke: {error}")),
        }
    }

    fn seen(&self) -> String {
        let last: Vec<_> = self.arrived.iter().rev().take(5).rev().collect();
        format!(
            "{} things lie unread, the last {last:?}, then the bytes {:?}",
            self.arrived.len(),
            self.unread()
        )
    }

    fn unread(&self) -> String {
        let unread = &self.buffer[self.taken..];
        unread[..unread.len().min(200)].escape_ascii().to_string()
    }

    // ---- endings ----

    /// Ends the connection with a reset instead of a FIN. Its server is one [over TCP](super::server::Server::over_tcp).
    pub fn reset(self) {
        self.stream.local_addr().expect("a connection over TCP");
        break_at_drop(&self.stream);
    }

    /// Gives the socket away, say to another process.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}
