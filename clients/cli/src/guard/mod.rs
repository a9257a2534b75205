//! The guard: a process of its own that starts the command, and ends it and everything that it started when the lock is
//! lost, whatever has become of the runner.
//!
//! ```text
//!   tether run (the runner)    holds the lock, and says until when it vouches for that
//!     └─ guard                 keeps that deadline on its own timer; a process group of its own
//!          └─ the command      in the runner's process group, so that the terminal treats it as the runner's
//! ```
//!
//! - machine.rs: what it decides, without clock or processes
//! - family.rs: the processes that the command started
//! - words.rs: what runner and guard say to each other
//!
//! What can go wrong, each with its test in tests/guard.rs or tests/run.rs:
//!
//! - **The runner is killed or stopped, or its network is cut:** its promises cease, and the deadline passes here.
//! - **A signal to the whole process group** (`kill -9 -PGID`, Ctrl-\): the guard is in another.
//! - **The guard is killed:** the runner, also a subreaper, inherits all processes, notices the end of the socket, and kills
//!   them while it has the lock. Both killed at once is an exception that the documentation names.
//! - **The command forks twice, begins a session, ignores the signal, is stopped, forks all the time:** see family.rs.
//! - **A process number is given anew between look and signal:** see family.rs.
//! - **The deadline passes before the command is started:** it is not started.
//! - **The terminal stops what writes from the background** (`stty tostop`): the guard writes to its socket only.
//! - **The runner reads nothing, since it is stopped:** the socket does not block.
//! - **A signal comes before the command is there to get it:** the runner passes it on here, where it waits in the socket until
//!   the command is started.

mod family;
mod machine;
mod words;

pub use family::{News, adopt_orphans, kill_children, next_news, signal_all};
pub use machine::Why;
pub use words::{Ending, Lines, ToGuard, ToRunner};

use crate::ignored;
use machine::{Effect, Fact, Guard};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitStatus, kill_process};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use signal_hook::consts::signal::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tether_client::BootTime;

/// The first argument of a guard. Nobody but a runner gives it.
pub const ROLE: &str = "--as-guard";

/// What a runner tells its guard when it starts it.
pub struct Order {
    pub socket: RawFd,
    pub alive_until: BootTime,
    pub kill_after: Duration,
    pub on_loss: Signal,
    /// The process group for the command: the runner's.
    pub group: i32,
    pub command: Vec<OsString>,
}

impl Order {
    pub fn arguments(&self) -> Vec<OsString> {
        let numbers = [
            self.socket.to_string(),
            self.alive_until.0.to_string(),
            self.kill_after.as_nanos().to_string(),
            self.on_loss.as_raw().to_string(),
            self.group.to_string(),
        ];
        let mut arguments = vec![OsString::from(ROLE)];
        arguments.extend(numbers.map(OsString::from));
        arguments.extend(self.command.iter().cloned());
        arguments
    }

    /// From what follows [`ROLE`].
    pub fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Order> {
        fn number<T: std::str::FromStr>(word: Option<OsString>) -> Option<T> {
            word?.to_str()?.parse().ok()
        }
        let order = Order {
            socket: number(arguments.next())?,
            alive_until: BootTime(number(arguments.next())?),
            kill_after: Duration::from_nanos(number(arguments.next())?),
            on_loss: Signal::from_named_raw(number(arguments.next())?)?,
            group: number(arguments.next())?,
            command: arguments.collect(),
        };
        (!order.command.is_empty()).then_some(order)
    }
}

/// What a guard's process does from its first moment to its last.
pub fn serve(order: &Order) {
    // SAFETY: the runner has left this descriptor open for this process alone, and nothing here has used it before.
    let socket = unsafe { OwnedFd::from_raw_fd(order.socket) };
    let mut runner = UnixStream::from(socket);
    if let Err(error) = guard(order, &mut runner) {
        let word = ToRunner::Unfit(error.raw_os_error().unwrap_or(0));
        let _ = runner.write_all(word.line().as_bytes());
    }
}

fn guard(order: &Order, runner: &mut UnixStream) -> io::Result<()> {
    fcntl_setfd(&*runner, FdFlags::CLOEXEC)?;
    runner.set_nonblocking(true)?;
    adopt_orphans()?;
    let fenced = is_fenced();
    let alive_until = if fenced {
        order.alive_until
    } else {
        BootTime::NEVER
    };
    let mut watch = Watch {
        runner: runner.try_clone()?,
        lines: Lines::default(),
        wake: Wake::set_up()?,
        timer: timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?,
        machine: Guard::new(alive_until, order.kill_after),
        alone: false,
        fenced,
        on_loss: order.on_loss,
        command: None,
        ending: Ending::Code(0),
        finished: false,
    };
    if !watch.machine.may_start(BootTime::now()) {
        watch.say(ToRunner::Done {
            why: Why::Deadline,
            ending: Ending::Code(0),
        });
        return Ok(());
    }
    let spawned = Command::new(&order.command[0])
        .args(&order.command[1..])
        .process_group(order.group)
        .spawn();
    match spawned {
        Ok(child) => {
            watch.command = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            watch.say(ToRunner::Started);
        }
        Err(error) => {
            watch.say(ToRunner::NotStarted(error.raw_os_error().unwrap_or(0)));
            return Ok(());
        }
    }
    while !watch.finished {
        watch.turn()?;
    }
    Ok(())
}

/// A pipe that wakes the loop when a signal comes.
struct Wake {
    pipe: UnixStream,
    /// Somebody asked the guard itself to end.
    end: Arc<AtomicBool>,
}

impl Wake {
    fn set_up() -> io::Result<Wake> {
        let (pipe, write_end) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        let ignored = ignored::mask()?;
        let heard = |signal: &i32| *signal == SIGCHLD || !ignored.has(*signal);
        let ends = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];
        for signal in ends.into_iter().filter(heard) {
            signal_hook::flag::register(signal, Arc::clone(&end))?;
            signal_hook::low_level::pipe::register(signal, write_end.try_clone()?)?;
        }
        // A guard that stops or dies guards nothing: these do nothing to it. (Handlers, since the command would inherit
        // it if they were ignored.)
        let others = [SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2];
        for signal in others.into_iter().filter(heard) {
            signal_hook::low_level::pipe::register(signal, write_end.try_clone()?)?;
        }
        Ok(Wake { pipe, end })
    }
}

struct Watch {
    runner: UnixStream,
    lines: Lines,
    wake: Wake,
    timer: OwnedFd,
    machine: Guard,
    /// The runner's end of the socket is closed.
    alone: bool,
    /// Always, but for the tests that show what happens without.
    fenced: bool,
    on_loss: Signal,
    command: Option<Pid>,
    ending: Ending,
    finished: bool,
}

impl Watch {
    /// Waits for something to happen, and deals with it.
    fn turn(&mut self) -> io::Result<()> {
        self.set_timer()?;
        let mut events = [
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.wake.pipe, PollFlags::IN),
            PollFd::new(&self.runner, PollFlags::IN),
        ];
        // Once the runner is gone, the end of its socket would wake this loop all the time.
        let watched = if self.alone { 2 } else { 3 };
        match poll(&mut events[..watched], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        while matches!(self.wake.pipe.read(&mut bytes), Ok(1..)) {}
        self.hear_the_runner();
        self.look_at_children();
        if self.wake.end.load(Ordering::Relaxed) {
            self.tell(Fact::RunnerGone);
        }
        self.tell(Fact::Tick);
        Ok(())
    }

    fn set_timer(&self) -> io::Result<()> {
        const SECOND: u64 = 1_000_000_000;
        // A time of 0 would switch the timer off.
        let at = self.machine.deadline().0.max(1);
        let it_value = Timespec {
            tv_sec: i64::try_from(at / SECOND).unwrap_or(i64::MAX),
            tv_nsec: (at % SECOND).try_into().unwrap_or(0),
        };
        let it_interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let when = Itimerspec {
            it_interval,
            it_value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &when)?;
        Ok(())
    }

    fn hear_the_runner(&mut self) {
        let mut bytes = [0; 4096];
        while !self.alone {
            let lines = match self.runner.read(&mut bytes) {
                Ok(count @ 1..) => self.lines.take(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => {
                    self.alone = true;
                    return self.tell(Fact::RunnerGone);
                }
            };
            for line in lines {
                match ToGuard::parse(&line) {
                    Some(ToGuard::Alive(until)) => self.tell(Fact::Alive(until)),
                    Some(ToGuard::Lost) => self.tell(Fact::Lost),
                    Some(ToGuard::Signal(signal)) => self.pass_on(signal),
                    None => {}
                }
            }
        }
    }

    /// A signal that was sent to the runner. The command is a child that has not been reaped, so the number is its own.
    fn pass_on(&self, signal: i32) {
        if let (Some(command), Some(signal)) = (self.command, Signal::from_named_raw(signal)) {
            let _ = kill_process(command, signal);
        }
    }

    fn look_at_children(&mut self) {
        loop {
            match next_news() {
                News::Of(child, status) if Some(child) == self.command => self.of_command(status),
                News::Of(..) => {}
                News::NoneYet => return,
                News::NoChildLeft => return self.tell(Fact::NoneLeft),
            }
        }
    }

    fn of_command(&mut self, status: WaitStatus) {
        let by_terminal = [SIGTSTP, SIGTTIN, SIGTTOU];
        if let Some(signal) = status.stopping_signal() {
            if by_terminal.contains(&signal) {
                self.say(ToRunner::Stopped);
            }
        } else if let Some(ending) = ending(status) {
            self.command = None;
            self.ending = ending;
            self.tell(Fact::CommandEnded);
        }
    }

    fn tell(&mut self, fact: Fact) {
        let is_about_loss = matches!(fact, Fact::Lost | Fact::RunnerGone);
        if is_about_loss && !self.fenced {
            return;
        }
        for effect in self.machine.handle(BootTime::now(), fact) {
            match effect {
                Effect::Ask => family::signal_all(self.on_loss),
                Effect::Kill => kill_children(),
                Effect::Finish(why) => {
                    let ending = self.ending;
                    self.say(ToRunner::Done { why, ending });
                    self.finished = true;
                }
            }
        }
    }

    /// A runner that does not listen misses it; the socket has room for all that a guard says.
    fn say(&mut self, word: ToRunner) {
        let _ = self.runner.write_all(word.line().as_bytes());
    }
}

/// Tests of a debug build may switch the fencing off, to see that it is the fencing that keeps holders apart.
fn is_fenced() -> bool {
    !cfg!(debug_assertions) || std::env::var_os("TETHER_TEST_UNFENCED").is_none()
}

/// None where it has not ended.
fn ending(status: WaitStatus) -> Option<Ending> {
    if let Some(signal) = status.terminating_signal() {
        return Some(Ending::Signal(signal));
    }
    let code = u8::try_from(status.exit_status()?).ok()?;
    Some(Ending::Code(code))
}

/// Why a command could not be started, as shells say it: 127 where there is none, 126 where it cannot be executed.
pub fn start_code(errno: i32) -> u8 {
    if Errno::from_raw_os_error(errno) == Errno::NOENT {
        127
    } else {
        126
    }
}

/// Where a runner finds the program of its guard: its own, whatever has been installed in its place since.
pub fn program() -> &'static OsStr {
    OsStr::new("/proc/self/exe")
}
