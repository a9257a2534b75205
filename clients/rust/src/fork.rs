//! What a forked child must not have: the connections of its parent.
//!
//! The server sees one connection, whoever has a copy of its socket. A copy in a child would keep the locks of a parent that died,
//! and could release them. So each socket is entered here, and at a fork the child puts a dead socket in the place of each: the
//! numbers stay taken, and nothing that the child still runs reaches the server, nor the parent's epoll instance.
//!
//! - A socket is opened and entered under a lock that a fork waits for: so none is missed.
//! - It is entered with its inode. One that was closed meanwhile, whose number is another file's, is left alone.
//! - The handlers call what may be called between fork and exec only: fstat, socket, dup2, fcntl, close.
//!
//! The only file with `unsafe`: pthread_atfork and these five have no other form.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// How often this process became a child since the first socket was opened.
static FORKS: AtomicU64 = AtomicU64::new(0);

static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

thread_local! {
    /// Held by the thread that forks, from before until after.
    static HELD: Cell<Option<MutexGuard<'static, Vec<Entry>>>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    fd: RawFd,
    inode: libc::ino_t,
}

/// In which process something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth(u64);

impl Birth {
    pub fn now() -> Birth {
        Birth(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is a forked child of that process. O(1), without a system call.
    pub fn was_before_fork(self) -> bool {
        self != Birth::now()
    }
}

/// That a socket is entered, until this is dropped. Drop it after the socket.
pub struct Mark(Entry);

impl Mark {
    /// Opens a socket that no forked child keeps.
    pub fn open<S: AsRawFd>(open: impl FnOnce() -> io::Result<S>) -> io::Result<(Mark, S)> {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| {
            // SAFETY: the handlers are functions of this program, which is never unloaded.
            unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
        });
        let mut entries = entries();
        let socket = open()?;
        let fd = socket.as_raw_fd();
        let Some(inode) = inode(fd) else {
            return Err(io::Error::last_os_error());
        };
        let entry = Entry { fd, inode };
        entries.push(entry);
        Ok((Mark(entry), socket))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut entries = entries();
        if let Some(at) = entries.iter().position(|entry| *entry == self.0) {
            entries.swap_remove(at);
        }
    }
}

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inode(fd: RawFd) -> Option<libc::ino_t> {
    // SAFETY: all zeros is a value of this type, which fstat fills.
    let mut facts: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `facts` outlives the call; a number that is no file's is an error.
    let failed = unsafe { libc::fstat(fd, &raw mut facts) };
    (failed == 0).then_some(facts.st_ino)
}

extern "C" fn prepare() {
    let guard = entries();
    // A thread that ends may have no such place any more: then the child does without.
    let _ = HELD.try_with(move |held| held.set(Some(guard)));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(Cell::take);
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    if let Ok(Some(mut entries)) = HELD.try_with(Cell::take) {
        for entry in entries.drain(..) {
            if inode(entry.fd) == Some(entry.inode) {
                bury(entry.fd);
            }
        }
    }
}

/// Puts a socket in its place that is connected to nothing.
fn bury(fd: RawFd) {
    // SAFETY: these take numbers only. `fd` is a socket of a `Mark`, whose owner in this process only closes it from now on.
    unsafe {
        let dead = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        if dead < 0 {
            libc::close(fd);
            return;
        }
        libc::dup2(dead, fd);
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::close(dead);
    }
}
