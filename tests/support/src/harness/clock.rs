//! A wall clock that a test sets, for a server that is started with it. All else keeps the machine's time.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

pub struct Clock(TempDir);

impl Clock {
    /// Builds `clock.c`. The clock is right until it is set.
    pub fn new() -> Clock {
        let clock = Clock(TempDir::with_prefix("tether-clock-").expect("a temporary folder"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/harness/clock.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(clock.shared_object())
            .arg(source)
            .status();
        assert!(built.expect("a C compiler").success());
        fs::write(clock.file(), [0; 8]).expect("the clock's file");
        clock
    }

    /// Sets it ahead by so much of what is right.
    pub fn ahead(&self, by: Duration) {
        self.set(by.as_micros() as i64);
    }

    /// Sets it behind by so much of what is right.
    pub fn behind(&self, by: Duration) {
        self.set(-(by.as_micros() as i64));
    }

    fn set(&self, ahead_us: i64) {
        let file = OpenOptions::new().write(true).open(self.file());
        let file = file.expect("the clock's file");
        file.write_all_at(&ahead_us.to_ne_bytes(), 0)
            .expect("the clock is set");
    }

    /// What a program's environment must say so that it goes by this clock.
    pub(super) fn environment(&self) -> Vec<(String, PathBuf)> {
        vec![
            ("LD_PRELOAD".to_owned(), self.shared_object()),
            ("TETHER_CLOCK".to_owned(), self.file()),
        ]
    }

    fn shared_object(&self) -> PathBuf {
        self.path().join("clock.so")
    }

    fn file(&self) -> PathBuf {
        self.path().join("clock")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}
