//! What the standard library cannot ask of processes.

use crate::harness::patience;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How a process has ended that is to end soon. One that does not is killed, and a failure.
#[track_caller]
pub fn ended(process: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("its state") {
            return status;
        }
        if begin.elapsed() > patience() {
            let _ = process.kill();
            let _ = process.wait();
            panic!("a process that is to end runs on after {:?}", patience());
        }
        sleep(Duration::from_millis(5));
    }
}

/// The processor time that a process has used, with all its threads.
#[cfg(target_os = "linux")]
pub fn cpu_of(process: u32) -> Option<Duration> {
    let process = libc::pid_t::try_from(process).ok()?;
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls only fill in what they are given.
    let told = unsafe {
        libc::clock_getcpuclockid(process, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    let (seconds, nanoseconds) = (time.tv_sec.try_into(), time.tv_nsec.try_into());
    told.then_some(Duration::new(seconds.ok()?, nanoseconds.ok()?))
}

#[cfg(not(target_os = "linux"))]
pub fn cpu_of(_: u32) -> Option<Duration> {
    None
}

/// Should this program be stopped or killed, what it started goes with it.
#[cfg(target_os = "linux")]
pub fn end_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the one call made between fork and exec is a system call.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
pub fn end_with_us(_: &mut Command) {}
