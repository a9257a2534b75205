//! A connection to a server that may die: what [`tether_testing::resp::Connection`] is for servers that do not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use tether_testing::resp::{Frame, Unread, encode, length, parse};

/// No answer takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Once it is broken, it stays so, and gives nothing.
pub struct Link {
    stream: Option<TcpStream>,
    received: Vec<u8>,
    used: usize,
}

impl Link {
    /// Broken from the beginning if there is no server.
    pub fn open(port: u16) -> Link {
        let stream = TcpStream::connect(("127.0.0.1", port)).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        Link {
            stream: stream.ok(),
            received: Vec::new(),
            used: 0,
        }
    }

    pub fn is_up(&self) -> bool {
        self.stream.is_some()
    }

    /// None if it is broken.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.stream.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub fn send(&mut self, commands: &[u8]) {
        if let Some(stream) = &mut self.stream
            && stream.write_all(commands).is_err()
        {
            self.stream = None;
        }
    }

    /// The next reply or push; nothing if the connection is broken.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.buffered() {
                return Some(frame);
            }
            self.receive();
            self.stream.as_ref()?;
        }
    }

    /// The next reply or push, if all of it was received.
    pub fn buffered(&mut self) -> Option<Frame> {
        match parse(&self.received[self.used..]) {
            Ok((frame, length)) => {
                self.used += length;
                Some(frame)
            }
            Err(Unread::Incomplete) => None,
            Err(Unread::Broken(why)) => panic!("the server sent a broken frame: {why}"),
        }
    }

    /// The same as it is, for frames that are long and need not be taken apart.
    pub fn buffered_bytes(&mut self) -> Option<&[u8]> {
        let begin = self.used;
        match length(&self.received[begin..]) {
            Ok(length) => {
                self.used += length;
                Some(&self.received[begin..self.used])
            }
            Err(Unread::Incomplete) => None,
            Err(Unread::Broken(why)) => panic!("the server sent a broken frame: {why}"),
        }
    }

    /// Waits for more; the connection is broken if none comes.
    pub fn receive(&mut self) {
        const LEAST: usize = 4096;
        let Some(stream) = &mut self.stream else {
            return;
        };
        self.received.drain(..std::mem::take(&mut self.used));
        let had = self.received.len();
        // The more has come of a frame, the more is to come.
        self.received.resize(had + had.max(LEAST), 0);
        let more = stream.read(&mut self.received[had..]).unwrap_or(0);
        self.received.truncate(had + more);
        if more == 0 {
            self.stream = None;
        }
    }

    /// One command's reply; nothing if the connection is broken.
    pub fn run(&mut self, words: &str) -> Option<Frame> {
        self.send(&encode(words));
        self.next_frame()
    }
}

/// Waits until something has come on one of these, or one breaks, for so long at most; receives what came.
pub fn receive_any(links: &mut [Link], limit: Duration) {
    // The system passes over those below 0.
    let sockets: Vec<_> = links
        .iter()
        .map(|link| link.descriptor().unwrap_or(-1))
        .collect();
    for at in await_any(&sockets, limit) {
        links[at].receive();
    }
}

/// Waits until something has come on one of these, or one breaks, for so long at most; the places of those.
pub fn await_any(sockets: &[RawFd], limit: Duration) -> Vec<usize> {
    let watched = |socket: &RawFd| libc::pollfd {
        fd: *socket,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut all: Vec<_> = sockets.iter().map(watched).collect();
    let limit_ms = limit.as_millis().try_into().unwrap_or(i32::MAX);
    // SAFETY: it fills in so many descriptors, which are there.
    unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, limit_ms) };
    (0..all.len()).filter(|at| all[*at].revents != 0).collect()
}
