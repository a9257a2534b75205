//! A server of our own: free port, temporary folder, killed when it goes out of sight.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tether_testing::harness::{free_port, module};
use tether_testing::process::{cpu_of, end_with_us};
use tether_testing::project;
use tether_testing::resp::{Connection, encode};

/// A server program of the matrix.
#[derive(Clone)]
pub struct Program {
    pub name: String,
    path: PathBuf,
}

impl Program {
    /// Those that TETHER_SERVERS names; if it names none, those of three that are there.
    pub fn chosen() -> Vec<Program> {
        const USUAL: &[&str] = &["redis-7.0", "redis-8.0", "valkey-9.1"];
        let names = env::var("TETHER_SERVERS").unwrap_or_default();
        let names: Vec<&str> = names.split_ascii_whitespace().collect();
        let names = if names.is_empty() { USUAL } else { &names };
        let (there, missing): (Vec<_>, Vec<_>) = names
            .iter()
            .map(|name| Program::fetched(name))
            .partition(|program| program.path.is_file());
        for Program { name, .. } in missing {
            println!("SKIPPED {name}: it is not in .servers/ (`make servers` fetches it)");
        }
        assert!(!there.is_empty(), "there is no server to measure");
        there
    }

    fn fetched(name: &str) -> Program {
        Program {
            name: name.to_owned(),
            path: project().join(".servers").join(name).join("redis-server"),
        }
    }
}

/// What is loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    Nothing,
    Module,
    /// The module without a rule, see `benches/bare/lib.rs`.
    Bare,
    /// The same, and it hears of all keys that come into being.
    BareHearingOfNew,
}

pub struct Server {
    child: Child,
    folder: TempDir,
    port: u16,
}

impl Server {
    /// Boots from the repository's redis.conf.
    pub fn start(program: &Program, loaded: Loaded) -> Server {
        Server::start_with(program, loaded, "")
    }

    /// The same with these lines after those of redis.conf.
    pub fn start_with(program: &Program, loaded: Loaded, settings: &str) -> Server {
        Server::run(Command::new(&program.path), loaded, settings)
    }

    /// The same under callgrind, which counts the instructions that it executes until [`Server::end_counting`].
    pub fn start_counting(program: &Program, loaded: Loaded) -> Server {
        let mut valgrind = Command::new("valgrind");
        // The program may be a script that becomes the server: each process has a file of its own.
        valgrind
            .args(["-q", "--tool=callgrind", "--trace-children=yes"])
            .arg("--callgrind-out-file=counts.%p")
            .arg(&program.path);
        // What is done from time to time is done more often under valgrind, which is slow.
        let decay = "dirty_decay_ms:-1,muzzy_decay_ms:-1";
        valgrind
            .env("MALLOC_CONF", decay)
            .env("JE_MALLOC_CONF", decay);
        Server::run(
            valgrind,
            loaded,
            "hz 1\ndynamic-hz no\nactiverehashing no\n",
        )
    }

    fn run(mut command: Command, loaded: Loaded, settings: &str) -> Server {
        let folder = TempDir::with_prefix("tether-bench-").expect("a temporary folder");
        let port = free_port();
        let config = folder.path().join("redis.conf");
        let lines = configuration(loaded, port, folder.path()) + settings;
        fs::write(&config, lines).expect("a file to write");
        let log = fs::File::create(folder.path().join("log")).expect("a file to write");
        command
            .arg(config)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log);
        end_with_us(&mut command);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut server = Server {
            child,
            folder,
            port,
        };
        server.wait_until_it_answers();
        server
    }

    /// Shuts the server down, and tells how many instructions it has executed in all its life.
    pub fn end_counting(mut self) -> u64 {
        self.connect().send(&encode("SHUTDOWN NOSAVE"));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            assert!(Instant::now() < deadline, "the server does not shut down");
            std::thread::sleep(Duration::from_millis(10));
        }
        let counts = self
            .folder
            .path()
            .join(format!("counts.{}", self.child.id()));
        let counts = fs::read_to_string(&counts).expect("callgrind writes what it counted");
        let total = counts
            .lines()
            .find_map(|line| line.strip_prefix("totals: "));
        total
            .and_then(|total| total.trim().parse().ok())
            .expect("callgrind's total")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.port).expect("the server takes connections")
    }

    pub fn connect_resp3(&self) -> Connection {
        let mut connection = self.connect();
        connection.run("HELLO 3");
        connection
    }

    pub fn version(&self) -> String {
        let info = self.connect().text("INFO server");
        let valkey = field(&info, "valkey_version").map(|version| format!("Valkey {version}"));
        let redis = || format!("Redis {}", field(&info, "redis_version").unwrap_or("?"));
        valkey.unwrap_or_else(redis)
    }

    pub fn has_command(&self, name: &str) -> bool {
        let mut connection = self.connect_resp3();
        !connection
            .run(&format!("COMMAND INFO {name}"))
            .ends_with(b"_\r\n")
    }

    /// The processor time that the server has used; nothing where the system does not tell.
    pub fn cpu(&self) -> Option<Duration> {
        cpu_of(self.child.id())
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let ready = Connection::open(self.port).is_ok();
            if ready && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
                return;
            }
            assert!(
                Instant::now() < deadline && self.child.try_wait().is_ok_and(|e| e.is_none()),
                "the server did not start; its log:\n{}",
                fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    /// Lets it end by itself, if it does so soon: only then is written what `scripts/profile.sh` records.
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Ok(process) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: a signal to a child of ours that nobody has waited for yet.
            unsafe { libc::kill(process, libc::SIGTERM) };
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) && matches!(self.child.try_wait(), Ok(None))
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The repository's redis.conf, but alone on its port, without its own ways to the disk, and with limits
/// that nothing measured here runs into.
fn configuration(loaded: Loaded, port: u16, folder: &Path) -> String {
    let source = project().join("redis.conf");
    let source = fs::read_to_string(&source).expect("redis.conf is in the repository");
    let mut lines: Vec<String> = source
        .lines()
        .filter(|line| !line.starts_with("loadmodule ") && !line.starts_with("tether."))
        .map(str::to_owned)
        .collect();
    lines.extend([
        format!("port {port}"),
        "bind 127.0.0.1".to_owned(),
        format!("dir {}", folder.display()),
        "save \"\"".to_owned(),
        "maxclients 15000".to_owned(),
    ]);
    match loaded {
        Loaded::Nothing => {}
        Loaded::Module => {
            lines.push(format!("loadmodule {}", module().display()));
            lines.push("tether.max-watches-per-client 2000000".to_owned());
            lines.push("tether.max-keys-per-client 2000000".to_owned());
        }
        Loaded::Bare => lines.push(format!("loadmodule {}", bare().display())),
        Loaded::BareHearingOfNew => lines.push(format!("loadmodule {} new", bare().display())),
    }
    lines.join("\n") + "\n"
}

/// Where `cargo build --release --example bare` puts it.
pub fn bare() -> PathBuf {
    let program = env::current_exe().expect("this program's path");
    let folder = program.ancestors().nth(2).expect("cargo's folder");
    folder.join("examples").join(library("bare"))
}

fn library(name: &str) -> String {
    let (before, after) = (env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    format!("{before}{name}{after}")
}
