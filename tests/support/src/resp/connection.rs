//! A connection that counts frames: as cheap as can be, so that it is the server that is measured.
//!
//! Pushes are told apart from replies by their type, so connections that get any speak RESP3.

use super::reader::{Unread, length, parse};
use super::words::encode;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long a server may take for anything before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// Up to here, `received` has been used.
    used: usize,
    /// Pushes seen since the connection was made.
    pub pushes: u64,
}

impl Connection {
    pub fn open(port: u16) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection {
            stream,
            received: Vec::new(),
            used: 0,
            pushes: 0,
        })
    }

    pub fn send(&mut self, commands: &[u8]) {
        self.stream
            .write_all(commands)
            .expect("the server takes commands");
    }

    /// Waits for so many replies and forgets them. None may be an error.
    pub fn skip_replies(&mut self, count: usize) {
        for _ in 0..count {
            self.reply();
        }
    }

    /// Waits for so many replies and forgets them, refusals, too.
    pub fn skip_any_replies(&mut self, count: usize) {
        for _ in 0..count {
            while {
                let begin = self.next_frame();
                self.received[begin] == b'>'
            } {
                self.pushes += 1;
            }
        }
    }

    /// Sends commands and waits for so many replies to them.
    pub fn run_all(&mut self, commands: &[u8], replies: usize) {
        self.send(commands);
        self.skip_replies(replies);
    }

    /// Sends one command, its words parted by blanks, and gives its raw reply.
    pub fn run(&mut self, words: &str) -> &[u8] {
        self.send(&encode(words));
        self.reply()
    }

    /// The same for a reply that is one text.
    pub fn text(&mut self, words: &str) -> String {
        let (reply, _) = parse(self.run(words)).expect("a whole reply");
        reply.text()
    }

    /// The next reply, raw; pushes before it are counted.
    pub fn reply(&mut self) -> &[u8] {
        loop {
            let begin = self.next_frame();
            match self.received[begin] {
                b'>' => self.pushes += 1,
                b'-' => panic!(
                    "the server refuses: {}",
                    String::from_utf8_lossy(&self.received[begin..self.used])
                ),
                _ => return &self.received[begin..self.used],
            }
        }
    }

    /// Waits until so many pushes have come since the connection was made; no reply may come before.
    pub fn wait_for_pushes(&mut self, count: u64) {
        while self.pushes < count {
            let begin = self.next_frame();
            assert_eq!(self.received[begin], b'>', "a reply that nobody asked for");
            self.pushes += 1;
        }
    }

    /// The next push, raw; nothing if none comes within this time. No reply may come before.
    pub fn next_push(&mut self, limit: Option<Duration>) -> Option<Vec<u8>> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let begin = loop {
            if let Some(end) = end_of_frame(&self.received, self.used) {
                break std::mem::replace(&mut self.used, end);
            }
            if deadline.is_some_and(|deadline| !comes_before(&self.stream, deadline)) {
                return None;
            }
            self.receive();
        };
        let push = self.received[begin..self.used].to_vec();
        assert_eq!(push[0], b'>', "a reply that nobody asked for");
        self.pushes += 1;
        Some(push)
    }

    /// The bare socket, when all that came has been used.
    pub fn into_stream(self) -> TcpStream {
        assert_eq!(
            self.used,
            self.received.len(),
            "more came than was asked for"
        );
        self.stream
    }

    /// Where the next frame begins in `received`; it ends at `used`.
    fn next_frame(&mut self) -> usize {
        loop {
            if let Some(end) = end_of_frame(&self.received, self.used) {
                return std::mem::replace(&mut self.used, end);
            }
            self.receive();
        }
    }

    fn receive(&mut self) {
        const CHUNK: usize = 1 << 16;
        self.received.drain(..std::mem::take(&mut self.used));
        let had = self.received.len();
        self.received.resize(had + CHUNK, 0);
        let more = self.stream.read(&mut self.received[had..]);
        let more = more.expect("the server answers");
        assert!(more > 0, "the server has closed the connection");
        self.received.truncate(had + more);
    }
}

/// Whether anything comes in time. The system may be two seconds late with a socket's own time limit of thirty; with
/// this one it is not.
fn comes_before(stream: &TcpStream, deadline: Instant) -> bool {
    let mut watched = libc::pollfd {
        fd: stream.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, or it would ask again and again within the last millisecond.
        let left_ms = left
            .as_micros()
            .div_ceil(1000)
            .try_into()
            .unwrap_or(i32::MAX);
        // SAFETY: it fills in one descriptor, which is there.
        if unsafe { libc::poll(&raw mut watched, 1, left_ms) } > 0 {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}

/// Where the frame that begins here ends, if all of it has come.
fn end_of_frame(bytes: &[u8], begin: usize) -> Option<usize> {
    match length(&bytes[begin..]) {
        Ok(length) => Some(begin + length),
        Err(Unread::Incomplete) => None,
        Err(Unread::Broken(why)) => panic!("the server sent a broken frame: {why}"),
    }
}
