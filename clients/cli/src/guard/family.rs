//! The processes that the command started, found through the kernel's lists of children.
//!
//! This process is their subreaper: whoever loses its parent becomes its child. So killing the children, again and again
//! until none is left, reaches everything, whatever forked twice, began a session of its own, or forks meanwhile.
//! A child stays a zombie until this process reaps it, so a child's number cannot belong to anybody else. For those
//! further down that does not hold: they are signalled through a pidfd, once it is certain whose child it is.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    pidfd_send_signal, set_child_subreaper, wait,
};
use std::fs;
use std::os::fd::OwnedFd;

/// From now on orphans among the descendants become children of this process. Refused where the kernel has no lists of
/// children, since then there would be no finding them.
pub fn adopt_orphans() -> std::io::Result<()> {
    fs::read(children_file(getpid(), getpid()))?;
    set_child_subreaper(Some(getpid()))?;
    Ok(())
}

fn children_file(process: Pid, thread: Pid) -> String {
    let (process, thread) = (process.as_raw_nonzero(), thread.as_raw_nonzero());
    format!("/proc/{process}/task/{thread}/children")
}

/// The children of all its threads. None where the process is gone.
fn children_of(process: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())) else {
        return Vec::new();
    };
    let threads = threads.flatten().filter_map(|entry| {
        let thread = entry.file_name().to_str()?.parse().ok()?;
        Pid::from_raw(thread)
    });
    let lists = threads.filter_map(|thread| fs::read(children_file(process, thread)).ok());
    let mut children = Vec::new();
    for list in lists {
        let list = String::from_utf8_lossy(&list).into_owned();
        let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        children.extend(pids.filter_map(Pid::from_raw));
    }
    children
}

/// Kills all children. Theirs become children of this process in that moment: the next call finds them.
pub fn kill_children() {
    for child in children_of(getpid()) {
        // It may have ended, which is what is wanted. Another user's process (a setuid program) cannot be killed
        // here, and the next call tries again.
        let _ = kill_process(child, Signal::KILL);
    }
}

/// Sends a signal to every descendant, and has those that are stopped go on, since they would not notice it otherwise.
pub fn signal_all(signal: Signal) {
    for child in children_of(getpid()) {
        if let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) {
            signal_tree(child, &handle, signal);
        }
    }
}

fn signal_tree(process: Pid, handle: &OwnedFd, signal: Signal) {
    // Those below first: a parent that ends hands its children up, and they would be missed.
    for child in children_of(process) {
        if let Some(own) = child_of(process, handle, child) {
            signal_tree(child, &own, signal);
        }
    }
    let _ = pidfd_send_signal(handle, signal);
    let _ = pidfd_send_signal(handle, Signal::CONT);
}

/// A handle of `child`, if that is certainly a child of `parent`, which the other handle is of: its number may have been
/// given to a stranger since it was read. Both are still there after the look, so the look was at them.
fn child_of(parent: Pid, parent_handle: &OwnedFd, child: Pid) -> Option<OwnedFd> {
    let handle = pidfd_open(child, PidfdFlags::empty()).ok()?;
    let is_child = parent_of(child) == Some(parent);
    (is_child && is_there(parent_handle) && is_there(&handle)).then_some(handle)
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    parent_in(&String::from_utf8_lossy(&stat))
}

/// The parent in a line of /proc/<pid>/stat. The name before it may have spaces and parentheses of its own.
fn parent_in(stat: &str) -> Option<Pid> {
    let (_, rest) = stat.rsplit_once(") ")?;
    Pid::from_raw(rest.split(' ').nth(1)?.parse().ok()?)
}

fn is_there(handle: &OwnedFd) -> bool {
    let mut ended = [PollFd::new(handle, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut ended, Some(&at_once)) == Ok(0)
}

/// What has become of a child.
pub enum News {
    Of(Pid, WaitStatus),
    NoneYet,
    NoChildLeft,
}

/// The next news of any child. Who has ended is gone with it.
pub fn next_news() -> News {
    let how = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        match wait(how) {
            Ok(Some((child, status))) => return News::Of(child, status),
            Err(io::Errno::CHILD) => return News::NoChildLeft,
            Err(io::Errno::INTR) => {}
            Ok(None) | Err(_) => return News::NoneYet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        let parent = |stat| parent_in(stat).map(|pid| pid.as_raw_nonzero().get());
        assert_eq!(parent("17 (sh) S 4 17 17 0"), Some(4));
        assert_eq!(parent("17 (a) b) S 99 (x) S 5 17 17 0"), Some(5));
        assert_eq!(parent("17 () ) Z 6 1"), Some(6));
        assert_eq!(parent("17 (sh) S 0 0"), None);
        assert_eq!(parent("nonsense"), None);
    }

    #[test]
    fn a_process_is_a_child_of_its_parent_only() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let parent = rustix::process::getppid().unwrap();
        let parents = pidfd_open(parent, PidfdFlags::empty()).unwrap();
        assert!(child_of(parent, &parents, getpid()).is_some());
        assert!(child_of(getpid(), &own, parent).is_none());
    }
}
