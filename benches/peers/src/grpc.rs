//! As much of gRPC as locks and watches need: one connection, and for each call one message there and one back, or many back.
//!
//! Headers are sent without compression and, since no answer depends on them, not read: a call without an answer
//! has failed.

use super::unexpected;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW: u8 = 8;
/// Of SETTINGS and PING; of DATA and HEADERS.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub struct Channel {
    stream: TcpStream,
    received: Vec<u8>,
    next_call: u32,
    /// Bytes of data that the server may not know we have read.
    unconfirmed: u32,
    /// Of the call that [`Channel::messages`] listens to: what has come of its next message.
    begun: Vec<u8>,
}

struct Frame {
    kind: u8,
    flags: u8,
    call: u32,
    body: Vec<u8>,
}

impl Channel {
    /// After `idle` without a frame, [`Channel::answer`] gives nothing.
    pub fn open(port: u16, idle: Duration) -> io::Result<Channel> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(idle))?;
        let mut channel = Channel {
            stream,
            received: Vec::new(),
            next_call: 1,
            unconfirmed: 0,
            begun: Vec::new(),
        };
        let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings = frame(SETTINGS, 0, 0, &[]);
        channel
            .stream
            .write_all(&[&hello[..], &settings].concat())?;
        Ok(channel)
    }

    pub fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Begins a call; gives its number.
    pub fn call(&mut self, method: &str, message: &[u8]) -> io::Result<u32> {
        self.begin(method, message, END_STREAM)
    }

    /// The same for one that the server answers again and again, until the connection ends.
    pub fn listen(&mut self, method: &str, message: &[u8]) -> io::Result<u32> {
        self.begin(method, message, 0)
    }

    fn begin(&mut self, method: &str, message: &[u8], flags: u8) -> io::Result<u32> {
        let call = self.next_call;
        self.next_call += 2;
        // POST, http, and then literals: path, authority, content-type, te.
        let mut headers = vec![0x83, 0x86, 0x04];
        let text = |headers: &mut Vec<u8>, text: &str| {
            headers.push(text.len() as u8);
            headers.extend_from_slice(text.as_bytes());
        };
        text(&mut headers, method);
        headers.push(0x01);
        text(&mut headers, "localhost");
        headers.extend_from_slice(&[0x0f, 0x10]);
        text(&mut headers, "application/grpc");
        headers.push(0x00);
        text(&mut headers, "te");
        text(&mut headers, "trailers");
        let length = (message.len() as u32).to_be_bytes();
        let data = [&[0][..], &length, message].concat();
        let frames = [
            frame(HEADERS, END_HEADERS, call, &headers),
            frame(DATA, flags, call, &data),
        ];
        self.stream.write_all(&frames.concat())?;
        Ok(call)
    }

    /// The call's message, when it has ended; nothing if the server was silent for a while.
    pub fn answer(&mut self, call: u32) -> io::Result<Option<Vec<u8>>> {
        let mut message = Vec::new();
        loop {
            let Some(frame) = self.next_frame()? else {
                return Ok(None);
            };
            self.keep_house(&frame)?;
            if frame.kind == GO_AWAY || (frame.kind == RESET && frame.call == call) {
                return Err(unexpected("gRPC", &frame.body));
            }
            if frame.call != call || frame.kind > HEADERS {
                continue;
            }
            if frame.kind == DATA {
                message.extend_from_slice(&frame.body);
            }
            if frame.flags & END_STREAM != 0 {
                // One byte says that it is not compressed, four how long it is.
                return match message.get(5..) {
                    Some(message) => Ok(Some(message.to_vec())),
                    None => Err(unexpected("gRPC refuses", &frame.body)),
                };
            }
        }
    }

    /// Reads once, waiting for it if need be; the messages of the only call that is listened to that are complete then.
    pub fn messages(&mut self, call: u32) -> io::Result<Vec<Vec<u8>>> {
        const HEAD: usize = 5;
        self.receive()?;
        while let Some(frame) = self.buffered() {
            self.keep_house(&frame)?;
            let is_its = frame.call == call && matches!(frame.kind, DATA | HEADERS | RESET);
            let ends = frame.kind == RESET || frame.flags & END_STREAM != 0;
            if frame.kind == GO_AWAY || (is_its && ends) {
                return Err(unexpected("gRPC", &frame.body));
            }
            if is_its && frame.kind == DATA {
                self.begun.extend_from_slice(&frame.body);
            }
        }
        let mut messages = Vec::new();
        while let Some(&[_, length @ ..]) = self.begun.first_chunk::<HEAD>() {
            let end = HEAD + u32::from_be_bytes(length) as usize;
            if self.begun.len() < end {
                break;
            }
            messages.push(self.begun[HEAD..end].to_vec());
            self.begun.drain(..end);
        }
        Ok(messages)
    }

    /// What the protocol asks of both sides.
    fn keep_house(&mut self, got: &Frame) -> io::Result<()> {
        const ENOUGH: u32 = 16 * 1024;
        match got.kind {
            SETTINGS | PING if got.flags & ACK == 0 => {
                let body: &[u8] = if got.kind == PING { &got.body } else { &[] };
                self.stream.write_all(&frame(got.kind, ACK, 0, body))
            }
            DATA => {
                self.unconfirmed += got.body.len() as u32;
                if self.unconfirmed < ENOUGH {
                    return Ok(());
                }
                let read = std::mem::take(&mut self.unconfirmed).to_be_bytes();
                self.stream.write_all(&frame(WINDOW, 0, 0, &read))
            }
            _ => Ok(()),
        }
    }

    /// Nothing if the server was silent for a while.
    fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered() {
                return Ok(Some(frame));
            }
            if !self.receive()? {
                return Ok(None);
            }
        }
    }

    /// The next frame, if all of it has come.
    fn buffered(&mut self) -> Option<Frame> {
        const HEAD: usize = 9;
        let &[a, b, c, kind, flags, call @ ..] = self.received.first_chunk::<HEAD>()?;
        let end = HEAD + u32::from_be_bytes([0, a, b, c]) as usize;
        let body = self.received.get(HEAD..end)?.to_vec();
        self.received.drain(..end);
        Some(Frame {
            kind,
            flags,
            call: u32::from_be_bytes(call),
            body,
        })
    }

    /// Reads once. Whether anything has come in time.
    fn receive(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn frame(kind: u8, flags: u8, call: u32, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&length[..], &[kind, flags], &call.to_be_bytes(), body].concat()
}

/// A field that is bytes.
pub fn bytes_field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    put_number(&mut field, value.len() as u64);
    field.extend_from_slice(value);
    field
}

/// A field that is a number.
pub fn number_field(number: u8, value: u64) -> Vec<u8> {
    let mut field = vec![number << 3];
    put_number(&mut field, value);
    field
}

fn put_number(field: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        field.push(value as u8 | 0x80);
        value >>= 7;
    }
    field.push(value as u8);
}

/// A field of a message: its number if it is one, and its bytes if it is bytes.
pub fn field(message: &[u8], wanted: u8) -> Option<(u64, &[u8])> {
    fields(message, wanted).next()
}

/// All fields of that number.
pub fn fields(message: &[u8], wanted: u8) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    let all = std::iter::from_fn(move || {
        let tag = *message.get(at)?;
        at += 1;
        let value = take_number(message, &mut at)?;
        let bytes = if tag & 7 == 2 {
            let begin = at;
            at += usize::try_from(value).ok()?;
            message.get(begin..at)?
        } else {
            &[]
        };
        Some((tag >> 3, (value, bytes)))
    });
    all.filter(move |(number, _)| *number == wanted)
        .map(|(_, field)| field)
}

fn take_number(message: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
