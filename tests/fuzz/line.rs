//! A connection on which anything may be said: it counts what ought to come back, and what does.

use crate::harness::{Frame, Server, Unread, parse};
use crate::spoken::Unit;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// How many replies a stretch of commands has at least, and at most.
#[derive(Clone, Copy, Default)]
struct Bounds {
    least: usize,
    most: usize,
}

pub struct Line {
    stream: TcpStream,
    pub id: i64,
    buffer: Vec<u8>,
    /// Not yet asked for by a mark.
    open: Bounds,
    /// Between two marks that were sent and did not come back yet.
    stretches: VecDeque<(u64, Bounds)>,
    /// Replies since the last mark that came back.
    came: usize,
    /// What was said since then, and heard.
    said: VecDeque<String>,
    heard: VecDeque<Frame>,
    next_mark: u64,
    /// Something was said to the server, here or elsewhere, that may end this connection.
    pub may_end: bool,
    pub has_ended: bool,
    /// The server refuses everything while it loads: a mark, too.
    was_loading: bool,
    /// It may be subscribed to something, and so may hardly say anything on RESP2.
    pub is_subscribed: bool,
    /// Secrets of sessions that it was told.
    pub secrets: Vec<Vec<u8>>,
}

impl Line {
    pub fn new(server: &Server) -> Line {
        let mut client = server.resp2();
        let id = client.id();
        let stream = client.into_stream();
        stream.set_nonblocking(true).expect("a socket that can");
        Line {
            stream,
            id,
            buffer: Vec::new(),
            open: Bounds::default(),
            stretches: VecDeque::new(),
            came: 0,
            said: VecDeque::new(),
            heard: VecDeque::new(),
            next_mark: 0,
            may_end: false,
            has_ended: false,
            was_loading: false,
            is_subscribed: false,
            secrets: Vec::new(),
        }
    }

    pub fn say(&mut self, unit: &Unit) {
        remember(&mut self.said, unit.spelled());
        self.open.least += unit.least;
        self.open.most += unit.most;
        self.may_end |= unit.ends;
        self.is_subscribed = unit.subscribed_after(self.is_subscribed);
        self.send(&unit.bytes);
    }

    /// Asks for something that tells that all before it was answered.
    pub fn mark(&mut self) {
        let mark = self.next_mark;
        self.next_mark += 1;
        self.stretches
            .push_back((mark, std::mem::take(&mut self.open)));
        self.was_loading = false;
        let text = format!("mark{mark}");
        let bytes = format!("*2\r\n$4\r\nPING\r\n${}\r\n{text}\r\n", text.len());
        self.send(bytes.as_bytes());
    }

    /// Another mark, if the last one fell into a time in which the server refused it.
    pub fn mark_again(&mut self) {
        if self.was_loading {
            self.mark();
        }
    }

    /// Whether all that was asked for has come.
    pub fn is_quiet(&self) -> bool {
        self.has_ended || self.stretches.is_empty()
    }

    /// Sends while the server takes it, and takes what comes meanwhile.
    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.has_ended {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => drop(self.listen()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.end(&error.to_string()),
            }
        }
    }

    /// Takes in what has come by now. Whether anything has.
    pub fn listen(&mut self) -> bool {
        let mut chunk = [0; 65536];
        while !self.has_ended {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.end("the server hung up"),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.end(&error.to_string()),
            }
        }
        let mut taken = 0;
        loop {
            match parse(&self.buffer[taken..]) {
                Ok((frame, length)) => {
                    taken += length;
                    self.hear(frame);
                }
                Err(Unread::Incomplete) => break,
                Err(Unread::Broken(why)) => panic!("{why}\n{}", self.story()),
            }
        }
        self.buffer.drain(..taken);
        taken > 0
    }

    fn end(&mut self, how: &str) {
        self.has_ended = true;
        assert!(self.may_end, "{how}, for no reason\n{}", self.story());
    }

    fn hear(&mut self, frame: Frame) {
        match kind_of(&frame) {
            Kind::Unasked => {}
            Kind::Mark(mark) => return self.settle(mark),
            Kind::Reply => self.came += 1,
        }
        match &frame {
            Frame::Error(text) if text.starts_with(b"LOADING") => self.was_loading = true,
            Frame::Bulk(text) if is_secret(text) => self.secrets.push(text.clone()),
            _ => {}
        }
        remember(&mut self.heard, frame);
    }

    /// All before this mark has come.
    fn settle(&mut self, mark: u64) {
        let mut bounds = Bounds::default();
        let mut refused = 0;
        loop {
            let next = self.stretches.pop_front();
            let (next, stretch) =
                next.unwrap_or_else(|| panic!("no mark {mark}\n{}", self.story()));
            bounds.least += stretch.least;
            bounds.most += stretch.most;
            if next == mark {
                break;
            }
            refused += 1;
        }
        let Bounds { least, most } = bounds;
        let came = self.came;
        assert!(
            (least + refused..=most + refused).contains(&came),
            "{came} replies to commands with {least} to {most}, and {refused} marks refused\n{}",
            self.story()
        );
        self.came = 0;
        self.said.clear();
        self.heard.clear();
    }

    pub fn story(&self) -> String {
        let said: Vec<_> = self.said.iter().map(|line| format!("  {line}")).collect();
        let clipped = |frame: &Frame| format!("  {frame:?}").chars().take(100).collect();
        let heard: Vec<String> = self.heard.iter().map(clipped).collect();
        let unread = &self.buffer[..self.buffer.len().min(200)];
        format!(
            "connection {}, {} replies so far, unread \"{}\"; it said last:\n{}\nand heard:\n{}",
            self.id,
            self.came,
            unread.escape_ascii(),
            said.join("\n"),
            heard.join("\n")
        )
    }
}

/// The last few.
fn remember<T>(lines: &mut VecDeque<T>, line: T) {
    const REMEMBERED: usize = 60;
    lines.push_back(line);
    if lines.len() > REMEMBERED {
        lines.pop_front();
    }
}

enum Kind {
    /// A push: it answers nothing.
    Unasked,
    Reply,
    Mark(u64),
}

fn kind_of(frame: &Frame) -> Kind {
    let (items, is_push) = match frame {
        Frame::Bulk(text) => return mark_in(text).map_or(Kind::Reply, Kind::Mark),
        Frame::Push(items) => (items, true),
        Frame::Array(items) => (items, false),
        _ => return Kind::Reply,
    };
    match items.as_slice() {
        // What PING says on RESP2 to who is subscribed.
        [Frame::Bulk(pong), Frame::Bulk(text)] if pong == b"pong" => {
            mark_in(text).map_or(Kind::Reply, Kind::Mark)
        }
        [
            Frame::Bulk(kind),
            Frame::Bulk(_) | Frame::Null,
            Frame::Integer(_),
        ] if kind.ends_with(b"subscribe") => Kind::Reply,
        [Frame::Bulk(kind), _, _] | [Frame::Bulk(kind), _, _, _] if is_message(kind) => {
            Kind::Unasked
        }
        _ if is_push || frame.looks_like_a_push() => Kind::Unasked,
        _ => Kind::Reply,
    }
}

fn is_message(kind: &[u8]) -> bool {
    matches!(kind, b"message" | b"pmessage" | b"smessage")
}

fn mark_in(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"mark")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn is_secret(text: &[u8]) -> bool {
    text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit)
}
