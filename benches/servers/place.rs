//! Where processes run.
//!
//! Who asks and who answers by turns can do so on one processor, or each wakes the other on another one, which costs
//! several times as much. Left alone a system changes between both, and then that is what is measured.

use std::mem::{size_of, zeroed};

/// As long as this lives, the calling thread and all that it starts stay on one processor.
pub struct OnOne(libc::cpu_set_t);

impl OnOne {
    /// On the first or the last of the processors that there are.
    pub fn new(is_last: bool) -> OnOne {
        let former = allowed();
        // SAFETY: numbers within a set's size; the sets are ours.
        unsafe {
            let is_there = |number: &usize| libc::CPU_ISSET(*number, &former);
            let mut there = (0..libc::CPU_SETSIZE as usize).filter(is_there);
            let one = match is_last {
                true => there.next_back(),
                false => there.next(),
            };
            let mut set: libc::cpu_set_t = zeroed();
            libc::CPU_SET(one.expect("a processor that we run on"), &mut set);
            allow(&set);
        }
        OnOne(former)
    }
}

impl Drop for OnOne {
    fn drop(&mut self) {
        allow(&self.0);
    }
}

fn allowed() -> libc::cpu_set_t {
    // SAFETY: the kernel fills in what is ours and that long; 0 is the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        let done = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        set
    }
}

fn allow(set: &libc::cpu_set_t) {
    // SAFETY: as in `allowed`.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
