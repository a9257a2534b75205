//! The terminal while `tether top` has it: the alternate screen, keys without Enter, and all as it was at the end, whatever ends it.

use crate::ignored;
use crate::output;
use crate::signals::ENDS;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use rustix::time::Timespec;
use signal_hook::consts::signal::{SIGTSTP, SIGWINCH};
use std::io::{self, Read, stdin};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

pub enum Event {
    /// The time is over.
    Time,
    /// The terminal has another size, or this process goes on after a stop.
    Redraw,
    /// What was typed; several bytes where a key has them.
    Typed(Vec<u8>),
    /// A signal that ends this process, or the end of the terminal.
    End(Option<i32>),
}

pub struct Keyboard {
    /// How the terminal was; None if the standard input is none.
    was: Option<Termios>,
    wake: UnixStream,
    /// The last signal that came; 0 is none.
    came: Arc<AtomicUsize>,
}

impl Keyboard {
    pub fn begin() -> io::Result<Keyboard> {
        let (wake, write_end) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let came = Arc::new(AtomicUsize::new(0));
        let ignored = ignored::mask()?;
        let heard = ENDS.into_iter().chain([SIGTSTP, SIGWINCH]);
        for signal in heard.filter(|signal| !ignored.has(*signal)) {
            let number = usize::try_from(signal).unwrap_or(0);
            signal_hook::flag::register_usize(signal, Arc::clone(&came), number)?;
            signal_hook::low_level::pipe::register(signal, write_end.try_clone()?)?;
        }
        let was = match isatty(stdin()) {
            true => Some(tcgetattr(stdin())?),
            false => None,
        };
        let keyboard = Keyboard { was, wake, came };
        keyboard.enter()?;
        Ok(keyboard)
    }

    fn enter(&self) -> io::Result<()> {
        if let Some(was) = &self.was {
            let mut now = was.clone();
            now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            tcsetattr(stdin(), OptionalActions::Now, &now)?;
        }
        output::steering(ENTER)
    }

    fn leave(&self) -> io::Result<()> {
        if let Some(was) = &self.was {
            tcsetattr(stdin(), OptionalActions::Now, was)?;
        }
        output::steering(LEAVE)
    }

    /// What happens next, until that moment.
    pub fn next(&mut self, until: Instant) -> io::Result<Event> {
        loop {
            match self.came.swap(0, Ordering::Relaxed) {
                0 => {}
                signal if signal == SIGTSTP as usize => {
                    self.leave()?;
                    // As the terminal would have done it.
                    let _ = kill_process(getpid(), Signal::STOP);
                    self.enter()?;
                    return Ok(Event::Redraw);
                }
                signal if signal == SIGWINCH as usize => return Ok(Event::Redraw),
                signal => return Ok(Event::End(i32::try_from(signal).ok())),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Event::Time);
            }
            if let Some(event) = self.wait(left)? {
                return Ok(event);
            }
        }
    }

    fn wait(&mut self, left: Duration) -> io::Result<Option<Event>> {
        let input = stdin();
        let mut events = [
            PollFd::new(&self.wake, PollFlags::IN),
            PollFd::new(&input, PollFlags::IN),
        ];
        let watched = if self.was.is_some() { 2 } else { 1 };
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut events[..watched], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_typed = watched == 2 && !events[1].revents().is_empty();
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
        if !is_typed {
            return Ok(None);
        }
        match rustix::io::read(&input, &mut bytes) {
            Ok(count @ 1..) => Ok(Some(Event::Typed(bytes[..count].to_vec()))),
            Err(Errno::INTR) => Ok(None),
            // The terminal is gone.
            Ok(_) | Err(_) => Ok(Some(Event::End(None))),
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // There is nobody to tell that it could not be put back.
        let _ = self.leave();
    }
}
