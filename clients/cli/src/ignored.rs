//! Which signals this process was started to ignore, as `nohup` does. They stay ignored: a handler would take that from the
//! command, which inherits it.

use std::io;

pub struct Mask(u64);

impl Mask {
    pub fn has(&self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }

    /// From the text of /proc/<pid>/status.
    fn ignored_in(status: &str) -> Option<Mask> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(line.trim(), 16).ok().map(Mask)
    }
}

pub fn mask() -> io::Result<Mask> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    Ok(Mask::ignored_in(&status).unwrap_or(Mask(0)))
}

#[test]
fn what_is_ignored_is_read_from_the_systems_mask() {
    let mask = Mask::ignored_in("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n").unwrap();
    assert!(mask.has(1) && mask.has(13));
    assert!(!mask.has(2) && !mask.has(15));
    assert!(Mask::ignored_in("Name: x\n").is_none());
}
