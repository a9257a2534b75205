//! The signals that this process gets, and from whom; and an end by a signal.
//!
//! No signal is lost on its way from the kernel to who asks here: the handlers run on the main thread, which the kernel prefers,
//! and [`Signals::come`] says at once what came before it was asked.

use crate::ignored;
use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use signal_hook::consts::signal::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::Cause;
use std::collections::VecDeque;
use std::io;
use std::os::unix::net;
use tokio::net::UnixStream;

/// What ends a program that does not care for it.
pub const ENDS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What else is passed on to a command.
pub const OTHERS: [i32; 2] = [SIGCONT, SIGTSTP];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    pub signal: i32,
    /// The terminal sent it, to the whole process group: a command that was started before has it already.
    pub by_terminal: bool,
}

impl Arrived {
    /// Whether it ends a program that does not care for it.
    pub fn is_end(self) -> bool {
        ENDS.contains(&self.signal)
    }

    pub fn is_stop(self) -> bool {
        self.signal == SIGTSTP
    }
}

pub struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    arrived: VecDeque<Arrived>,
    ended: Option<i32>,
}

impl Signals {
    /// From now on these arrive here and do nothing else. Those that are ignored (`nohup`) stay so. Within a tokio runtime.
    pub fn listen(wanted: impl IntoIterator<Item = i32>) -> io::Result<Signals> {
        let ignored = ignored::mask()?;
        let wanted = wanted.into_iter().filter(|signal| !ignored.has(*signal));
        let (ours, theirs) = net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = UnixStream::from_std(ours)?;
        Ok(Signals {
            delivery: SignalDelivery::with_pipe(ours, theirs, WithOrigin::default(), wanted)?,
            arrived: VecDeque::new(),
            ended: None,
        })
    }

    /// The next signal. None is lost if this is not waited for to the end.
    pub async fn next(&mut self) -> Arrived {
        loop {
            self.look();
            if let Some(arrived) = self.arrived.pop_front() {
                return arrived;
            }
            if self.delivery.get_read().readable().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What has come until now.
    pub fn come(&mut self) -> impl Iterator<Item = Arrived> + '_ {
        self.look();
        self.arrived.drain(..)
    }

    /// The first that came, whoever has dealt with it, of those that end a program which does not care for them.
    pub fn ended(&self) -> Option<i32> {
        self.ended
    }

    fn look(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.delivery.get_read().try_read(&mut bytes), Ok(1..)) {}
        let arrived = self.delivery.pending().map(|origin| Arrived {
            signal: origin.signal,
            by_terminal: origin.cause == Cause::Kernel,
        });
        for arrived in arrived {
            if arrived.is_end() {
                self.ended.get_or_insert(arrived.signal);
            }
            self.arrived.push_back(arrived);
        }
    }
}

/// Ends this process by that signal, as it ends programs that do not care for it: so a shell sees that, and does not go on with
/// the next command of a script. Where it does not end this one, the exit code that says the same.
pub fn end_by(signal: i32) -> u8 {
    // The kernel does not let the first process of a container end by a signal of its own.
    let is_first = getpid().as_raw_nonzero().get() == 1;
    let is_known = signal_hook::low_level::signal_name(signal).is_some();
    if !is_first && is_known {
        // Where the command has left a core, a second one would say nothing.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = setrlimit(Resource::Core, none);
        let _ = emulate_default_handler(signal);
    }
    u8::try_from(128 + signal).unwrap_or(crate::codes::FAILED)
}
