//! PostgreSQL's advisory locks, by prepared statements over its own protocol.

use super::process::{Process, QueueEntry, version_of};
use super::{Contender, Crash, Way, unexpected};
use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub const NAME: &str = "PostgreSQL";
const USER: &str = "postgres";

struct Server(Process);

impl Way for Server {
    fn name(&self) -> &'static str {
        NAME
    }
    fn about(&self) -> &'static str {
        "pg_advisory_lock and pg_advisory_unlock, prepared"
    }
    fn version(&self) -> String {
        let program = programs().unwrap_or_default().join("postgres");
        version_of(&program.to_string_lossy(), &["--version"])
    }
    fn servers(&self) -> Vec<u32> {
        vec![self.0.id()]
    }
    fn ports(&self) -> Vec<u16> {
        vec![self.0.port]
    }
    fn after_a_crash(&self) -> Crash {
        Crash::AtOnce
    }
}

/// A fresh cluster in a temporary folder; PostgreSQL refuses to run as root.
pub fn start() -> io::Result<Box<dyn Way>> {
    let place = QueueEntry::new()?;
    let data = place.path().join("data");
    let programs = programs().ok_or_else(|| {
        io::Error::other("PostgreSQL is not installed (scripts/need.sh postgresql)")
    })?;
    give_to_user(&place)?;
    let made = as_user(&programs.join("initdb"))
        .args([
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
            "-D",
        ])
        .arg(&data)
        .current_dir(place.path())
        .output()?;
    if !made.status.success() {
        return Err(unexpected("initdb", &made.stderr));
    }
    let mut server = as_user(&programs.join("postgres"));
    server
        .arg("-D")
        .arg(&data)
        .args(["-p", &place.port.to_string(), "-h", "127.0.0.1", "-k", ""])
        .args(["-c", "max_connections=400"]);
    Ok(Box::new(Server(place.run(server)?)))
}

/// The newest version's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let number = |name: OsString| name.to_str()?.parse::<u32>().ok();
    let mut versions: Vec<_> = versions.collect();
    versions.sort_by_key(|version| Reverse(number(version.file_name())));
    let folders = versions.iter().map(|version| version.path().join("bin"));
    let mut folders: Vec<_> = folders.collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let mut complete = folders
        .into_iter()
        .filter(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
    complete.next()
}

fn as_user(program: &PathBuf) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args([
            &format!("--reuid={USER}"),
            &format!("--regid={USER}"),
            "--clear-groups",
        ])
        .args(["--pdeathsig", "KILL"])
        .arg(program);
    command
}

fn is_root() -> bool {
    // SAFETY: it only tells a number.
    unsafe { libc::geteuid() == 0 }
}

fn give_to_user(place: &QueueEntry) -> io::Result<()> {
    if is_root() {
        let given = Command::new("chown").arg(USER).arg(place.path()).status()?;
        if !given.success() {
            return Err(io::Error::other("PostgreSQL needs its user `postgres`"));
        }
    }
    Ok(())
}

pub struct Session {
    stream: TcpStream,
    received: Vec<u8>,
    requests: u64,
}

impl Session {
    pub fn join(port: u16, lock: &str) -> io::Result<Session> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut session = Session {
            stream,
            received: Vec::new(),
            requests: 0,
        };
        let mut start = 196_608_i32.to_be_bytes().to_vec();
        start.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
        let length = (start.len() + 4) as u32;
        session
            .stream
            .write_all(&[&length.to_be_bytes()[..], &start].concat())?;
        session.wait_until_ready()?;
        let number = lock.trim_start_matches("lock:");
        for verb in ["lock", "unlock"] {
            let query = format!("{verb}\0SELECT pg_advisory_{verb}({number})\0\0\0");
            session
                .stream
                .write_all(&[message(b'P', query.as_bytes()), message(b'S', b"")].concat())?;
            session.wait_until_ready()?;
        }
        Ok(session)
    }

    fn execute(&mut self, statement: &str) -> io::Result<()> {
        self.requests += 1;
        // The unnamed portal; no parameters; results as text.
        let bind = format!("\0{statement}\0\0\0\0\0\0\0");
        let whole = [
            message(b'B', bind.as_bytes()),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
        ];
        self.stream.write_all(&whole.concat())?;
        self.wait_until_ready()
    }

    /// Reads up to ReadyForQuery.
    fn wait_until_ready(&mut self) -> io::Result<()> {
        loop {
            while self.received.len() >= 5 {
                let length = u32::from_be_bytes(self.received[1..5].try_into().expect("4 bytes"));
                let end = 1 + length as usize;
                if self.received.len() < end {
                    break;
                }
                let kind = self.received[0];
                if kind == b'E' {
                    return Err(unexpected(NAME, &self.received[5..end]));
                }
                self.received.drain(..end);
                if kind == b'Z' {
                    return Ok(());
                }
            }
            let mut chunk = [0; 4096];
            let count = self.stream.read(&mut chunk)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&chunk[..count]);
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() + 4) as u32;
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

impl Contender for Session {
    fn acquire(&mut self) -> io::Result<()> {
        self.execute("lock")
    }
    fn release(&mut self) -> io::Result<()> {
        self.execute("unlock")
    }
    fn requests(&self) -> u64 {
        self.requests
    }
}
