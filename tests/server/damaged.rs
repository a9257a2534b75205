//! Files that are damaged: the server refuses them in its own words, and does not crash over them.

use crate::harness::*;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So many files are loaded, each with other damage.
const TIMES: usize = 72;

/// A file in which the module has said something of each kind.
fn saved(server: &Server) -> Vec<u8> {
    let (mut plain, mut client) = (server.resp2(), server.resp2());
    plain.run_all(&["SETTP one v", "SELECT 3", "SETTP two v"]);
    client.run_all(&[
        "SESSION.START GRACE 86400000",
        "SETTP temporary v",
        "LOCK.ACQUIRE lock LEASE 60000 OWNER somebody",
        "LOCK.ACQUIRE semaphore PERMITS 3 OF 5",
        "LOCK.ACQUIRE deep",
        "LOCK.ACQUIRE deep",
        "LOCK.ACQUIRE deep SHARED",
        "SAVE",
    ]);
    fs::read(server.folder().join("dump.rdb")).expect("the file")
}

/// Where what the module has said stands in a file: after the keys, and in front of the end and the checksum.
pub fn own_part(file: &[u8]) -> std::ops::Range<usize> {
    // The mark of a module's part, and that of the number that says whose it is.
    const MARKS: [u8; 2] = [0xf7, 0x81];
    let end = file.len() - 9;
    assert_eq!(file[end], 0xff, "the mark of the end");
    let mut starts = file[..end].windows(2).enumerate();
    let last = starts.rfind(|(_, two)| *two == MARKS);
    // After both and the number itself.
    let start = last.expect("a module's part").0 + 10;
    assert!(file[start..end].windows(7).any(|word| word == b"SESSION"));
    start..end
}

/// A start of a server that loads this file; it ends by itself, or it is up.
pub struct Start {
    child: Child,
    folder: std::path::PathBuf,
}

impl Start {
    pub fn with(file: &[u8], config: &str, folder: &Path) -> Start {
        fs::create_dir(folder).expect("a folder");
        fs::write(folder.join("dump.rdb"), file).expect("the file");
        let folder = folder.to_owned();
        let place = folder.display();
        let lines = format!("dir {place}\nport 0\nunixsocket {place}/s\nrdbchecksum no\n");
        fs::write(folder.join("redis.conf"), config.to_owned() + &lines).expect("a file");
        let log = File::create(folder.join("log")).expect("the log");
        let child = Command::new(server_binary())
            .arg(folder.join("redis.conf"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log)
            .spawn();
        let child = child.expect("a server");
        Start { child, folder }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Whether it refused the file; a panic with what it says if it crashed over it.
    pub fn refuses(&mut self, damage: &str) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        let is_refused = loop {
            if let Some(status) = self.child.try_wait().expect("its state") {
                let log = self.log();
                assert_eq!(status.signal(), None, "{damage}: it crashed:\n{log}");
                break true;
            }
            if self.log().contains("eady to accept connections") {
                break false;
            }
            // Then it looks through the file itself, and where that ends between two values it goes on doing so for ever.
            if self.log().contains("Unrecoverable error, aborting now") {
                break true;
            }
            assert!(Instant::now() < deadline, "{damage}: {}", self.log());
            thread::sleep(Duration::from_millis(2));
        };
        let log = self.log();
        for cry in ["BUG REPORT", "CRASH REPORT", "panicked", "fault, commands"] {
            assert!(!log.contains(cry), "{damage}: {log}");
        }
        is_refused
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_damaged_rdb_file_is_refused_and_no_crash() {
    let server = Server::with(&["rdbcompression no"]);
    let whole = saved(&server);
    let part = own_part(&whole);
    let config = fs::read_to_string(server.folder().join("redis.conf")).expect("its settings");
    // The last line of each name counts.
    let start = |file: &[u8], name: &str| {
        let folder = server.folder().join(name);
        Start::with(file, &config, &folder)
    };
    assert!(!start(&whole, "whole").refuses("whole"));
    // Each byte in its turn, as it comes to the number of files; and in what way changes from one to the next.
    let damages: Vec<_> = (0..TIMES)
        .map(|n| {
            let place = part.start + n * part.len() / TIMES;
            let mut file = whole.clone();
            match n % 6 {
                0 => file[place] = 0xff,
                1 => file[place] = 0,
                2 => file[place] ^= 1,
                3 => file[place] ^= 0x80,
                4 => file.truncate(place),
                _ => file[place] = file[place].wrapping_add(7),
            }
            (format!("{n}: byte {place} of {part:?}"), file)
        })
        .collect();
    let (next, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((damage, file)) = damages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = damage.split(':').next().unwrap_or_default();
                    let is_refused = start(file, name).refuses(damage);
                    refused.fetch_add(usize::from(is_refused), Ordering::Relaxed);
                }
            });
        }
    });
    // Another name of a key is a name as well, and little else may be changed.
    let refused = refused.into_inner();
    assert!(refused > TIMES / 2, "{refused} of {TIMES} were refused");
}

/// The append-only file that is written at last.
fn newest_of_appendonly(server: &Server) -> std::path::PathBuf {
    let files = fs::read_dir(server.folder().join("appendonlydir")).expect("its folder");
    let paths = files.map(|file| file.expect("a file").path());
    let mut paths = paths.filter(|path| path.to_string_lossy().ends_with(".incr.aof"));
    paths.next().expect("an append-only file")
}

/// None of them makes sense but those in between that begin with a space. MOST is the greatest number that there is.
const LINES: &str = "\
TETHER.TOKEN MOST
TETHER.TOKEN 4611686018427387904
TETHER.TOKEN 9007199254740992
TETHER.TOKEN 9007199254740991
TETHER.TOKEN 8900000000000000
TETHER.SESSION START 3 DIGEST MOST
TETHER.SESSION START MOST DIGEST 1000
 TETHER.SESSION START 5 DIGEST 86400000
 SET other v
TETHER.SETTP other 8900000000000000 w
TETHER.SETTP other MOST w
TETHER.SETTP other 0 w
TETHER.SETTP other 9
TETHER.LOCK other 9
TETHER.LOCK other 9 temporary
TETHER.LOCK other 9 permits/6/5
TETHER.LOCK other 8900000000000000 exclusive
TETHER.LOCK other 9 exclusive TASK words
TETHER.HOLD other 5 '' temporary 1 0 MOST -
TETHER.HOLD other 5 '' temporary 2 0 9 -
TETHER.RENEW other -9223372036854775807
TETHER.RENEW other MOST
 TETHER.LOCK held 9 exclusive task words
TETHER.HOLD held 5 '' exclusive 4294967295 0 9 -
TETHER.HOLD held 5 '' exclusive 1 4294967295 9 -
TETHER.HOLD held 5 '' permits/6/5 1 0 9 -
TETHER.HOLD held 5 '' exclusive 1 0 9 MOST
TETHER.HOLD held 5 '' exclusive 1 0 9007199254740991 -";

#[test]
fn numbers_of_an_append_only_file_are_held_to_what_a_client_may_say() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let first = server.resp2().run("LOCK.ACQUIRE first").number();
    let word = |word: &str| match word {
        "MOST" => u64::MAX.to_string(),
        "DIGEST" => "ab".repeat(32),
        "''" => String::new(),
        word => word.to_owned(),
    };
    let words = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>();
    let bytes: Vec<u8> = LINES.lines().flat_map(|line| encode(words(line))).collect();
    let path = newest_of_appendonly(&server);
    server.kill();
    let mut file = fs::read(&path).expect("the file");
    file.extend(bytes);
    fs::write(&path, file).expect("the file");
    server.restart_as_it_was();
    // It answers at all; what made no sense has left nothing.
    let sessions = ["tether_sessions_detached", "tether_sessions_attached"];
    assert_eq!(server.gauges("tether", sessions), [1, 0]);
    let mut client = server.resp2();
    assert_eq!(client.run("GET other"), bulk("v"));
    assert_eq!(client.run("PTTL other"), int(-1));
    let token = client.run("LOCK.ACQUIRE held WAIT 10000").number();
    assert!(
        first < token && token < first + (60 << 22),
        "{first} {token}"
    );
}
