//! The folder and the processes of a trial, which end with it: also after a signal, and the processes also by SIGKILL.

use crate::{codes, ignored, signals};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal, setrlimit,
};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// The first argument of a process that becomes a server. Nobody else gives it.
pub const ROLE: &str = "--as-trial";

/// Becomes the program that follows the number of the process that wants it, and ends when that does. Returns if that is not
/// possible, with the exit code.
pub fn become_server(mut words: impl Iterator<Item = OsString>) -> u8 {
    let (Some(parent), Some(program)) = (words.next(), words.next()) else {
        return codes::USAGE;
    };
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A server that crashes is no news here, so it leaves no core. Without either the trial works all the same.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before that.
    let is_there = getppid().is_some_and(|id| parent == id.as_raw_nonzero().to_string().as_str());
    if !is_there {
        return codes::FAILED;
    }
    let error = Command::new(&program).args(words).exec();
    crate::output::complain(format!("{}: {error}", program.display()));
    codes::FAILED
}

/// Where a Unix socket can be: its path has 107 bytes at most.
const LONGEST_FOLDER: usize = 60;

/// A process of the trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(usize);

struct Content {
    folder: PathBuf,
    processes: Vec<Child>,
    is_over: bool,
}

impl Content {
    fn clear(&mut self) {
        self.is_over = true;
        self.processes.iter_mut().for_each(kill);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// With what it started: a program can be a script. Its number is its own until it was waited for.
fn kill(process: &mut Child) {
    if let Ok(None) = process.try_wait() {
        let _ = kill_process_group(Pid::from_child(process), Signal::KILL);
    }
    let _ = process.wait();
}

pub struct Nest {
    folder: PathBuf,
    content: Arc<Mutex<Content>>,
    /// A signal came, and another thread is about to end this process.
    is_ending: Arc<AtomicBool>,
}

impl Nest {
    /// Makes the folder, which only this user can enter.
    pub fn new() -> io::Result<Nest> {
        let mut parent = env::temp_dir();
        if parent.as_os_str().len() > LONGEST_FOLDER {
            parent = PathBuf::from("/tmp");
        }
        let name = format!("tether-qualify-{}", &random()?[..16]);
        let folder = parent.join(name);
        let content = Content {
            folder: folder.clone(),
            processes: Vec::new(),
            is_over: false,
        };
        let content = Arc::new(Mutex::new(content));
        // Before there is a folder that a signal could leave behind.
        let is_ending = Arc::new(AtomicBool::new(false));
        clear_at_signals(Arc::clone(&content), &is_ending)?;
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Nest {
            folder,
            content,
            is_ending,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a program in a folder. What it writes goes to the file `log` there.
    pub fn start(&self, program: &Path, argument: &OsStr, folder: &Path) -> io::Result<Process> {
        let mut content = self.lock();
        if content.is_over {
            drop(content);
            end_by_signal();
        }
        let log = File::options()
            .append(true)
            .create(true)
            .open(folder.join("log"))?;
        let process = Command::new(env::current_exe()?)
            .args([ROLE, &process::id().to_string()])
            .args([program.as_os_str(), argument])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        content.processes.push(process);
        Ok(Process(content.processes.len() - 1))
    }

    /// How it ended, if it did.
    pub fn ended(&self, process: Process) -> Option<ExitStatus> {
        self.lock().processes[process.0].try_wait().ok().flatten()
    }

    /// Asks it to end, and kills it if it does not in that time.
    pub fn end(&self, process: Process, patience: Duration) {
        let id = Pid::from_child(&self.lock().processes[process.0]);
        let deadline = Instant::now() + patience;
        while self.ended(process).is_none() && Instant::now() < deadline {
            let _ = kill_process(id, Signal::TERM);
            thread::sleep(Duration::from_millis(20));
        }
        kill(&mut self.lock().processes[process.0]);
    }

    /// After a fault, which may be that of a signal: then that ends this process.
    pub fn stand_by(&self) {
        if self.is_ending.load(Ordering::Relaxed) {
            end_by_signal();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        self.lock().clear();
    }
}

/// Another thread is about to end this process.
fn end_by_signal() -> ! {
    loop {
        thread::park();
    }
}

fn clear_at_signals(content: Arc<Mutex<Content>>, is_ending: &Arc<AtomicBool>) -> io::Result<()> {
    let ignored = ignored::mask()?;
    let wanted = signals::ENDS
        .into_iter()
        .filter(|signal| !ignored.has(*signal));
    let wanted: Vec<_> = wanted.collect();
    // Set by the handler, so before anything that it interrupts returns.
    for signal in &wanted {
        signal_hook::flag::register(*signal, Arc::clone(is_ending))?;
    }
    let mut arriving = signal_hook::iterator::Signals::new(wanted)?;
    thread::spawn(move || {
        if let Some(signal) = arriving.forever().next() {
            let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
            content.clear();
            drop(content);
            process::exit(signals::end_by(signal).into());
        }
    });
    Ok(())
}

/// 32 digits that nobody guesses.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_is_this_users_and_goes_with_its_processes() {
        let nest = Nest::new().unwrap();
        let folder = nest.folder().to_owned();
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let other = Nest::new().unwrap();
        assert_ne!(other.folder(), folder);
        drop(nest);
        assert!(!folder.exists());
    }
}
