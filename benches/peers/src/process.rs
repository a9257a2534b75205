//! A peer's server: a free port, a temporary folder, its own user where it insists, killed when it goes out of sight.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tether_testing::harness::free_port;
use tether_testing::process::{cpu_of, end_with_us};

pub struct Process {
    child: Child,
    pub port: u16,
    folder: TempDir,
}

/// A folder for its data, and a port.
pub struct QueueEntry {
    pub folder: TempDir,
    pub port: u16,
}

impl QueueEntry {
    pub fn new() -> io::Result<QueueEntry> {
        Ok(QueueEntry {
            folder: TempDir::with_prefix("tether-bench-")?,
            port: free_port(),
        })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the server there, until it takes connections.
    pub fn run(self, command: Command) -> io::Result<Process> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut process = self.spawn(command)?;
        process.wait_until_it_listens(&program)?;
        Ok(process)
    }

    /// Runs the server there; it need not take connections yet.
    pub fn spawn(self, mut command: Command) -> io::Result<Process> {
        let log = fs::File::create(self.path().join("log"))?;
        command
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        end_with_us(&mut command);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn();
        let child =
            child.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        Ok(Process {
            child,
            port: self.port,
            folder: self.folder,
        })
    }
}

impl Process {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn wait_until_it_listens(&mut self, program: &str) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if Instant::now() > deadline || self.child.try_wait()?.is_some() {
                let log = fs::read_to_string(self.folder.path().join("log"));
                let log = log.unwrap_or_default();
                let end: Vec<_> = log.lines().rev().take(5).collect();
                let why = format!("{program} did not start: {}", end.join(" / "));
                return Err(io::Error::other(why));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// The first line of what a program says about itself.
pub fn version_of(program: &str, words: &[&str]) -> String {
    let said = Command::new(program).args(words).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    said.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processor time that these processes and all that they started have used.
pub fn cpu(roots: &[u32]) -> Duration {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<_> = entries.filter_map(|entry| parent(&entry.path())).collect();
    let mut family = roots.to_vec();
    let mut at = 0;
    while let Some(&of) = family.get(at) {
        let children = all.iter().filter(|(_, parent)| *parent == of);
        family.extend(children.map(|(id, _)| *id));
        at += 1;
    }
    family.into_iter().filter_map(cpu_of).sum()
}

/// A process's id, and that of its parent.
fn parent(folder: &Path) -> Option<(u32, u32)> {
    let id = folder.file_name()?.to_str()?.parse().ok()?;
    let text = fs::read_to_string(folder.join("stat")).ok()?;
    // The name before this may hold anything; the state comes first.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((id, fields.nth(1)?.parse().ok()?))
}
