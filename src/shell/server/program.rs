//! Which program the server is: the digest of its file.
//!
//! The program is the one whose functions the module calls, not that of `/proc/self/exe`: where a loader was started with the
//! server as its argument, that is the loader.

use crate::policy::program::{file_at, hexadecimal};
use crate::shell::sys::shim;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};

/// In hexadecimal digits; `None` if the system does not show the program. Reads the whole file, so call it once.
pub fn identity() -> Option<String> {
    digest(open()?).ok()
}

/// The file that the running program was read from.
fn open() -> Option<File> {
    const RUNNING: &str = "/proc/self/exe";
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let name = file_at(&maps, shim::address_in_server()?)?;
    // The link leads to the file even where that was replaced since.
    let is_running = fs::read_link(RUNNING).is_ok_and(|running| running.to_str() == Some(name));
    File::open(if is_running { RUNNING } else { name }).ok()
}

fn digest(mut file: File) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hexadecimal(digest.finalize().as_slice())),
            count => digest.update(&bytes[..count]),
        }
    }
}
