//! The runner's half of the guard: it starts it, passes on what the lock's client says, and hears what becomes of the command.

use crate::guard::{self, Lines, Order, ToGuard, ToRunner};
use rustix::io::{FdFlags, fcntl_setfd};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;
use tokio::net::UnixStream;

pub struct Keeper {
    socket: UnixStream,
    /// The same. Tokio's does not write before its first look at the socket.
    writer: net::UnixStream,
    /// What the socket had no room for.
    unsaid: Vec<u8>,
    lines: Lines,
    heard: VecDeque<ToRunner>,
    guard: Child,
}

impl Keeper {
    /// Starts a guard, which starts the command. `order` is complete but for the socket.
    pub fn start(mut order: Order, environment: &[(&str, &OsStr)]) -> io::Result<Keeper> {
        // Should the guard be killed, all that it looked after becomes ours.
        guard::adopt_orphans()?;
        let (ours, theirs) = net::UnixStream::pair()?;
        fcntl_setfd(&theirs, FdFlags::empty())?;
        order.socket = theirs.as_raw_fd();
        let mut command = Command::new(guard::program());
        command.arg0("tether").args(order.arguments());
        command.envs(environment.iter().copied());
        // Out of reach for signals to the group of runner and command.
        let guard = command.process_group(0).spawn()?;
        ours.set_nonblocking(true)?;
        Ok(Keeper {
            writer: ours.try_clone()?,
            socket: UnixStream::from_std(ours)?,
            unsaid: Vec::new(),
            lines: Lines::default(),
            heard: VecDeque::new(),
            guard,
        })
    }

    /// A guard that is stopped hears it when it goes on. Promises that there is no room for are left out: they would be out of date.
    pub fn say(&mut self, word: ToGuard) {
        if self.unsaid.is_empty() || !matches!(word, ToGuard::Alive(_)) {
            self.unsaid.extend(word.line().as_bytes());
        }
        while !self.unsaid.is_empty() {
            match self.writer.write(&self.unsaid) {
                Ok(count) => drop(self.unsaid.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// What the guard says next; None if it has gone. Nothing is lost if this is not waited for to the end.
    pub async fn hear(&mut self) -> Option<ToRunner> {
        let mut bytes = [0; 1024];
        loop {
            if let Some(word) = self.heard.pop_front() {
                return Some(word);
            }
            self.socket.readable().await.ok()?;
            match self.socket.try_read(&mut bytes) {
                Ok(count @ 1..) => {
                    let lines = self.lines.take(&bytes[..count]);
                    let words = lines.iter().filter_map(|line| ToRunner::parse(line));
                    self.heard.extend(words);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// After its last word the guard ends by itself. The lock does not wait for that, as the guard may be stopped; but without a wait
    /// it would remain as a zombie for as long as this process runs.
    pub fn end(self) {
        let Keeper { mut guard, .. } = self;
        let _ = thread::Builder::new().spawn(move || guard.wait());
    }
}

/// What a guard would do, done here after somebody killed it: ends when no process of the command is left.
pub async fn take_over() {
    loop {
        guard::kill_children();
        loop {
            match guard::next_news() {
                guard::News::NoChildLeft => return,
                guard::News::NoneYet => break,
                guard::News::Of(..) => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
