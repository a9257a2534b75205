//! A connection that counts frames: as cheap as can be, so that it is the server that is measured.
//!
//! Pushes are told apart from replies by their type, so connections that get any speak RESP3.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long a server may take for anything before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command as it goes over the wire.
pub fn command<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The same for words without blanks in them.
pub fn line(words: &str) -> Vec<u8> {
    command(&words.split_ascii_whitespace().collect::<Vec<_>>())
}

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
        self.send(&line(words));
        self.reply()
    }

    /// The same for a reply that is one text.
    pub fn text(&mut self, words: &str) -> String {
        let reply = self.run(words);
        let begin = end_of_line(reply, 0).expect("a reply is complete");
        String::from_utf8_lossy(&reply[begin..]).into_owned()
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

/// The number that a frame is, or that follows its type.
fn number_of(frame: &[u8]) -> Option<i64> {
    let end = frame.iter().position(|byte| *byte == b'\r')?;
    std::str::from_utf8(&frame[1..end]).ok()?.parse().ok()
}

fn end_of_line(bytes: &[u8], begin: usize) -> Option<usize> {
    let length = bytes.get(begin..)?.iter().position(|byte| *byte == b'\n')?;
    Some(begin + length + 1)
}

/// Where the frame that begins here ends, if all of it has come.
fn end_of_frame(bytes: &[u8], begin: usize) -> Option<usize> {
    let end = end_of_line(bytes, begin)?;
    let length = || number_of(&bytes[begin..end]).expect("a length");
    let parts = match bytes[begin] {
        b'$' | b'=' | b'!' => {
            let text = usize::try_from(length()).ok();
            let end = text.map_or(end, |text| end + text + 2);
            return (end <= bytes.len()).then_some(end);
        }
        b'*' | b'>' | b'~' => length(),
        b'%' => 2 * length(),
        _ => 0,
    };
    (0..parts).try_fold(end, |end, _| end_of_frame(bytes, end))
}
