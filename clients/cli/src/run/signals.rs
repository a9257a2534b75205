//! The signals that the runner gets, and from whom.

use crate::ignored;
use signal_hook::consts::signal::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::io;
use std::thread;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const PASSED_ON: [i32; 8] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP,
];

#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    pub signal: i32,
    /// The terminal sent it, to the whole process group: the command has it already.
    pub by_terminal: bool,
}

impl Arrived {
    /// Whether it ends a program that does not care for it.
    pub fn is_end(self) -> bool {
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(&self.signal)
    }

    pub fn is_stop(self) -> bool {
        self.signal == SIGTSTP
    }
}

/// From now on signals arrive here and do nothing else. Those that are ignored (`nohup`) stay so.
pub fn listen() -> io::Result<UnboundedReceiver<Arrived>> {
    let ignored = ignored::mask()?;
    let wanted = PASSED_ON.into_iter().filter(|signal| !ignored.has(*signal));
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
    let (say, arrived) = unbounded_channel();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for origin in signals.forever() {
                let by_terminal = origin.cause == Cause::Kernel;
                let signal = origin.signal;
                if say
                    .send(Arrived {
                        signal,
                        by_terminal,
                    })
                    .is_err()
                {
                    return;
                }
            }
        })?;
    Ok(arrived)
}
