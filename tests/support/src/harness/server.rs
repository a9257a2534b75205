//! A server that belongs to one test: its own process, port and temporary folder, gone when the test is over.
//!
//! It boots from the repository's redis.conf, with the module's path put in and the lines that a test asks for put
//! after it. TETHER_SERVER and TETHER_MODULE say which server and module; without them it is the server on PATH and
//! the module that was built together with this test. TETHER_CONFIG may hold more lines for every server, with
//! semicolons between them: `TETHER_CONFIG="io-threads 4"` runs all tests on servers with I/O threads.

use super::client::Client;
use super::ports::free_port;
use super::programs::{leave_out, module, server_binary};
use super::quick::is_quick;
use super::wait::{eventually, eventually_equal, eventually_within, patience};
use crate::project;
use crate::resp::Frame;
use crate::resp::{int, simple};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// In the server's folder.
const SOCKET: &str = "socket";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Redis,
    Valkey,
}

pub struct Server {
    child: Option<Child>,
    folder: TempDir,
    lines: Vec<String>,
    /// Where they are not those that are tested.
    program: Option<PathBuf>,
    module: Option<PathBuf>,
    /// What its environment says, besides ours.
    environment: Vec<(String, PathBuf)>,
    port: u16,
    is_over_tcp: bool,
    kind: Kind,
    version: (u32, u32),
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    /// A server with these lines after those of redis.conf; other modules are loaded before.
    pub fn with(lines: &[&str]) -> Server {
        Server::begin(lines, None, None, Vec::new())
    }

    /// Another program.
    pub fn of_program(program: &Path, lines: &[&str]) -> Server {
        Server::begin(lines, Some(program.to_owned()), None, Vec::new())
    }

    /// A server with another build of the module.
    pub fn with_module(module: &Path, lines: &[&str]) -> Server {
        Server::begin(lines, None, Some(module.to_owned()), Vec::new())
    }

    /// A server that goes by this wall clock.
    #[cfg(target_os = "linux")]
    pub fn by_clock(clock: &super::Clock, lines: &[&str]) -> Server {
        Server::begin(lines, None, None, clock.environment())
    }

    /// A server whose module panics in each command of this name, once it has done what it does; a release build does not.
    pub fn with_fault(command: &str) -> Server {
        let fault = ("TETHER_FAULT".to_owned(), PathBuf::from(command));
        Server::begin(&[], None, None, vec![fault])
    }

    fn begin(
        lines: &[&str],
        program: Option<PathBuf>,
        module: Option<PathBuf>,
        environment: Vec<(String, PathBuf)>,
    ) -> Server {
        let mut server = Server {
            child: None,
            folder: TempDir::with_prefix("tether-test-").expect("a temporary folder"),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            program,
            module,
            environment,
            port: 0,
            is_over_tcp: !is_quick(),
            kind: Kind::Redis,
            version: (0, 0),
        };
        server.boot();
        let info = server.info("server");
        if info.contains("valkey_version:") {
            server.kind = Kind::Valkey;
            server.version = parse_version(&field(&info, "valkey_version"));
        } else {
            server.version = parse_version(&field(&info, "redis_version"));
        }
        server
    }

    /// A replica of `master`, once the link is up and all of it has arrived.
    pub fn replica_of(master: &Server, lines: &[&str]) -> Server {
        let replica = Server::with(lines);
        replica.follow(master);
        replica
    }

    /// A planned failover (`FAILOVER`) to this replica, until that is the master.
    pub fn fail_over_to(&self, replica: &Server) {
        const WITHIN: Duration = Duration::from_secs(20);
        let (port, ms) = (replica.port(), WITHIN.as_millis());
        let to = format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT {ms}");
        let mut client = self.resp2();
        // The master takes a replica for one only when it has heard of it that all has arrived.
        eventually("a replica to fail over to", || match client.call(&to) {
            refusal @ Frame::Error(_) => Err(refusal.text()),
            _ => Ok(()),
        });
        eventually_within(WITHIN, "the failover", || {
            let info = replica.info("replication");
            match info.contains("role:master") {
                true => Ok(()),
                false => Err(info),
            }
        });
    }

    pub fn follow(&self, master: &Server) {
        self.follow_through(master.port(), master);
    }

    /// The same, where `port` leads to the master (see [`super::Link`]).
    pub fn follow_through(&self, port: u16, master: &Server) {
        self.resp2()
            .run(["REPLICAOF", "127.0.0.1", &port.to_string()]);
        eventually("the replica's link", || {
            let info = self.info("replication");
            let port = format!("master_port:{port}\r\n");
            if info.contains(&port) && info.contains("master_link_status:up") {
                Ok(())
            } else {
                Err(info)
            }
        });
        self.catch_up(master);
    }

    /// Waits until so many replicas acknowledge what this master writes.
    ///
    /// A replica that is online hears commands from its next word on: if its first one was too early, that is a second later.
    pub fn await_replicas(&self, count: usize) {
        eventually_equal("replicas online", count, || {
            let info = self.info("replication");
            info.matches("state=online").count()
        });
        let mut first = self.resp2();
        let mut keys = (0..1000).map(|number| format!("warm:{number}"));
        // In a cluster some are other servers'.
        let is_made = |key: &String| first.call(["SET", key, "up"]) == simple("OK");
        let key = keys.find(is_made).expect("a key of this server");
        first.run(["DEL", &key]);
        assert_eq!(first.run(&format!("WAIT {count} 60000")), int(count as i64));
    }

    /// Waits until this replica has all that `master` has done so far.
    pub fn catch_up(&self, master: &Server) {
        // The master's own keepalive to its replicas moves the offset too, so look at both again each time.
        let goal = field(&master.info("replication"), "master_repl_offset")
            .parse::<u64>()
            .expect("an offset");
        eventually("the replica's offset", || {
            let seen = field(&self.info("replication"), "slave_repl_offset");
            if seen.parse::<u64>().is_ok_and(|seen| seen >= goal) {
                Ok(())
            } else {
                Err(format!("{seen} of {goal}"))
            }
        });
    }

    // ---- what it is ----

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether `COPY ... DB` leaves a connection in the other database where a module hears of keys: Valkey 8.1.
    pub fn strays_after_copies(&self) -> bool {
        self.kind == Kind::Valkey && self.version == (8, 1)
    }

    /// Whether EXEC executes what was queued before the user's rights were taken away: Redis 8.6.
    pub fn executes_what_was_queued(&self) -> bool {
        self.is_at_least((8, 6), (u32::MAX, 0))
    }

    /// Whether modules can add ACL categories: Redis 7.4, Valkey 8.0.
    pub fn has_own_category(&self) -> bool {
        self.is_at_least((7, 4), (8, 0))
    }

    /// What the server, or the module, replies to a client that sends an internal command. Redis 8.0 knows such commands.
    pub fn refusal_of_internal_commands(&self) -> &'static str {
        match self.is_at_least((8, 0), (u32::MAX, 0)) {
            true => "unknown command",
            false => "for replication only",
        }
    }

    /// Whether a connection that is subscribed can stand still for a module: not on Valkey since 8.1.1.
    pub fn blocks_subscribed(&self) -> bool {
        !self.is_at_least((u32::MAX, 0), (8, 1))
    }

    /// Whether it is Redis of this version or later, or Valkey of that.
    pub fn is_at_least(&self, redis: (u32, u32), valkey: (u32, u32)) -> bool {
        self.version
            >= if self.kind == Kind::Redis {
                redis
            } else {
                valkey
            }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn info(&self, section: &str) -> String {
        self.resp2().run(["INFO", section]).text()
    }

    /// One number of INFO.
    pub fn gauge(&self, section: &str, name: &str) -> i64 {
        self.gauges(section, [name])[0]
    }

    /// Numbers of INFO, all of one moment.
    pub fn gauges<const N: usize>(&self, section: &str, names: [&str; N]) -> [i64; N] {
        let info = self.info(section);
        names.map(|name| {
            let value = field(&info, name);
            let number = value.parse();
            number.unwrap_or_else(|_| panic!("{name} in INFO {section} is {value:?}"))
        })
    }

    /// How long its main thread has been at work so far, on a processor. None where the system does not tell.
    pub fn time_at_work(&self) -> Option<Duration> {
        let pid = self.child.as_ref()?.id();
        let times = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        let nanoseconds = times.split(' ').next()?.parse().ok()?;
        Some(Duration::from_nanos(nanoseconds))
    }

    /// How many turns its event loop has made so far: what it counts itself, or how often it has slept. None where neither is
    /// told.
    pub fn turns(&self) -> Option<u64> {
        let pid = self.child.as_ref()?.id();
        let counted = find_field(&self.info("stats"), "eventloop_cycles");
        let turns = counted.or_else(|| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            find_field(&status, "voluntary_ctxt_switches")
        });
        turns?.parse().ok()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// What its append-only files hold now, one after another.
    pub fn append_only_text(&self) -> String {
        let folder = self.folder().join("appendonlydir");
        let files = fs::read_dir(&folder).expect("the folder of append-only files");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.sort();
        let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        paths.iter().map(text).collect()
    }

    // ---- connections ----

    /// Has tests connect over TCP also in a quick run, for what Unix sockets do not have: resets and addresses.
    pub fn over_tcp(mut self) -> Server {
        self.is_over_tcp = true;
        self
    }

    /// Has tests connect over its Unix socket, where they connect so often that TCP would run out of ports.
    pub fn over_unix(mut self) -> Server {
        self.is_over_tcp = false;
        self
    }

    /// Over TCP, or in a quick run over the server's Unix socket, unless [`over_tcp`](Self::over_tcp) or
    /// [`over_unix`](Self::over_unix) has said which.
    pub fn resp2(&self) -> Client {
        if self.is_over_tcp {
            return Client::connect(("127.0.0.1", self.port))
                .unwrap_or_else(|error| panic!("cannot connect: {error}"));
        }
        let stream = UnixStream::connect(self.folder().join(SOCKET));
        Client::over_unix(stream.unwrap_or_else(|error| panic!("cannot connect: {error}")))
    }

    pub fn resp3(&self) -> Client {
        self.resp2().hello3()
    }

    /// When this returns, the server has handed out the pushes for everything that it had done before: they are in
    /// front of the reply to any command that is sent from now on.
    ///
    /// Pushes may be written after their cause: in a later turn of the server's event loop, or by its timers, whose
    /// shortest time is one millisecond, and one of which may start another. Each round trip takes at least one turn, so several
    /// of them, each after a timer's time, and two more leave both behind.
    pub fn settle(&self) {
        const TIMERS: usize = 3;
        const SHORTEST: Duration = Duration::from_millis(1);
        let mut fence = self.resp2();
        for _ in 0..TIMERS {
            fence.run("PING");
            std::thread::sleep(SHORTEST);
        }
        fence.run("PING");
        fence.run("PING");
    }

    /// All that `watcher` has been told, and not yet read, about everything that happened so far.
    pub fn settled(&self, watcher: &mut Client) -> Vec<String> {
        self.settle();
        watcher.pushes()
    }

    // ---- life and death ----

    /// kill -9, and a new start in the same folder.
    pub fn crash_and_restart(&mut self) {
        self.kill();
        self.boot();
    }

    /// For signals: SIGKILL at any moment, SIGSTOP and SIGCONT.
    pub fn pid(&self) -> libc::pid_t {
        let child = self.child.as_ref().expect("it runs");
        child.id().try_into().expect("a process id")
    }

    /// Sends a signal, from any thread; a process that has ended meanwhile is no mistake.
    pub fn signal(pid: libc::pid_t, signal: libc::c_int) {
        // SAFETY: a child of this test, which nobody has waited for: its number is not given anew.
        unsafe { libc::kill(pid, signal) };
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// A new start after [`Server::kill`], in the same folder and with the same lines.
    pub fn restart_as_it_was(&mut self) {
        self.kill();
        self.boot();
    }

    /// kill -9, and a new start in the same folder with another build of the module.
    pub fn restart_with_module(&mut self, module: &Path) {
        self.kill();
        self.module = Some(module.to_owned());
        self.boot();
    }

    /// kill -9, if it still runs. It can be started again by [`Server::restart`].
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A new start in the same folder, with these lines in place of the former ones.
    pub fn restart(&mut self, lines: &[&str]) {
        self.kill();
        self.lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self.boot();
    }

    /// kill -9, and a new start without any data; in a cluster it is the same node.
    pub fn restart_without_files(&mut self) {
        self.kill();
        let files = fs::read_dir(self.folder()).expect("the server's folder");
        for file in files {
            let path = file.expect("a file").path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("log" | "nodes.conf") => {}
                _ if path.is_dir() => fs::remove_dir_all(path).expect("a folder of files"),
                _ => fs::remove_file(path).expect("a file of the server"),
            }
        }
        self.boot();
    }

    fn boot(&mut self) {
        let fixed = self.port != 0;
        for _ in 0..20 {
            if !fixed {
                self.port = free_port();
            }
            self.write_config();
            self.spawn();
            if self.answers() {
                return;
            }
            self.kill();
        }
        panic!(
            "found no free port for the server; its log ends:\n{}",
            tail(&self.log())
        );
    }

    /// Waits for the first PONG; false when another process took the port meanwhile.
    fn answers(&mut self) -> bool {
        let deadline = Instant::now() + patience() * 2;
        loop {
            let child = self.child.as_mut().expect("it was just spawned");
            if let Some(status) = child.try_wait().expect("the server's state") {
                let log = self.log();
                if log.contains("Address already in use") || log.contains("Failed listening") {
                    return false;
                }
                panic!(
                    "the server ended at once ({status}); its log ends:\n{}",
                    tail(&log)
                );
            }
            if let Some(info) = self.try_info() {
                // Or it is another's server, which took the port a moment before.
                return info.contains(&format!("process_id:{}\r\n", self.pid()));
            }
            assert!(
                Instant::now() < deadline,
                "the server does not answer; its log ends:\n{}",
                tail(&self.log())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the server at our port says of itself, once it answers commands. Another's can end meanwhile.
    fn try_info(&self) -> Option<String> {
        let mut client = Client::connect(("127.0.0.1", self.port)).ok()?;
        let mut call = |request: &[u8]| {
            let is_sent = client.try_send_bytes(request);
            is_sent.then(|| client.try_read_reply()).flatten()
        };
        call(b"*1\r\n$4\r\nPING\r\n").filter(|reply| *reply == simple("PONG"))?;
        match call(b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n")? {
            Frame::Bulk(info) => Some(String::from_utf8_lossy(&info).into_owned()),
            _ => None,
        }
    }

    /// A server that does not answer is made to crash: its report in the log has the stack of its main thread, since Redis 7.2 of
    /// every thread.
    fn report_if_stuck(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(3);
        let port = self.port;
        let answers = || -> io::Result<usize> {
            let mut socket = TcpStream::connect(("127.0.0.1", port))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.write_all(b"PING\r\n")?;
            socket.read(&mut [0; 64])
        };
        let Some(child) = &mut self.child else { return };
        let is_stuck =
            answers().is_err_and(|error| error.kind() != io::ErrorKind::ConnectionRefused);
        if !is_stuck || !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        Server::signal(child.id() as libc::pid_t, libc::SIGABRT);
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn spawn(&mut self) {
        let log = self.folder().join("log");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log file");
        let program = self.program.clone().unwrap_or_else(server_binary);
        let child = Command::new(&program)
            .arg(self.folder().join("redis.conf"))
            .current_dir(self.folder())
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log)
            .spawn();
        self.child = Some(
            child.unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display())),
        );
    }

    fn write_config(&self) {
        let source = project().join("redis.conf");
        let source = fs::read_to_string(&source)
            .unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        let is_module = |line: &String| line.starts_with("loadmodule ");
        // All at their defaults; another build of the module may not know each.
        let is_foreign = |line: &str| self.module.is_some() && line.starts_with("tether.");
        let (others, wanted): (Vec<_>, Vec<_>) = self.lines.iter().cloned().partition(is_module);
        let mut module_lines = 0;
        let mut config: Vec<String> = Vec::new();
        for line in source.lines() {
            if line.starts_with("loadmodule ") {
                module_lines += 1;
                config.extend(others.iter().cloned());
                let module = self.module.clone().unwrap_or_else(module);
                config.push(format!("loadmodule {}", module.display()));
            } else if !is_foreign(line) {
                config.push(line.to_owned());
            }
        }
        assert_eq!(module_lines, 1, "redis.conf must load the module, once");
        config.push(format!("port {}", self.port));
        let socket = self.folder().join(SOCKET);
        config.push(format!("unixsocket {}", socket.display()));
        config.push(format!("dir {}", self.folder().display()));
        config.push("bind 127.0.0.1".into());
        config.push("save \"\"".into());
        config.push("enable-debug-command yes".into());
        config.push("repl-diskless-sync-delay 0".into());
        let wished = env::var("TETHER_CONFIG").unwrap_or_default();
        config.extend(wished.split(';').map(|line| line.trim().to_owned()));
        config.extend(wanted);
        leave_out(&mut config);
        fs::write(self.folder().join("redis.conf"), config.join("\n") + "\n")
            .expect("the server's configuration");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.report_if_stuck();
        }
        self.kill();
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "---- the log of the server on port {} ends:\n{}",
                self.port,
                tail(&self.log())
            );
        }
    }
}

/// Waits until `client`, which must be another connection, sees that `key` is gone.
pub fn eventually_gone(client: &mut Client, key: &str) {
    eventually(&format!("the end of {key}"), || {
        match client.run(["EXISTS", key]).number() {
            0 => Ok(()),
            _ => Err("it exists".into()),
        }
    });
}

fn field(info: &str, name: &str) -> String {
    find_field(info, name).unwrap_or_else(|| panic!("no {name} in INFO:\n{info}"))
}

fn find_field(info: &str, name: &str) -> Option<String> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

fn parse_version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|part| {
        part.parse()
            .unwrap_or_else(|_| panic!("the version {text:?}"))
    });
    (
        numbers.next().expect("a version"),
        numbers.next().expect("a minor version"),
    )
}

/// What a log says last. Where the server reports its own end, the report begins with why.
pub fn tail(log: &str) -> String {
    const LINES: usize = 150;
    let lines: Vec<_> = log.lines().collect();
    let report = lines.iter().position(|line| line.contains("REPORT START"));
    let first = report.unwrap_or(lines.len().saturating_sub(LINES));
    let last = lines.len().min(first + LINES);
    lines[first..last].join("\n")
}
