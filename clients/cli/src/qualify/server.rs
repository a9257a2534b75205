//! A server of the trial: started in a folder of its own, on a Unix socket there.

use super::Fault;
use super::client::{Client, PATIENCE};
use super::nest::{Nest, Process};
use super::tls::{self, Authority};
use std::fs::{self, DirBuilder};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

/// What all servers of a trial have in common.
pub struct Workshop {
    pub nest: Nest,
    pub program: PathBuf,
    pub module: PathBuf,
    /// Of the default user: some servers listen on 127.0.0.1, too, where other users of this machine are.
    pub password: String,
}

/// What one of them is to be.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    /// Of its folder.
    pub name: &'a str,
    /// What its calls pass in unused registers. None: it is no trial.
    pub unused: Option<u64>,
    pub lines: &'a [String],
    pub listens: Listens<'a>,
}

/// Besides on its socket; on 127.0.0.1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Listens<'a> {
    Nowhere,
    /// As a master of replicas.
    Plain,
    /// With the cluster's bus.
    Cluster,
    Tls(&'a Authority),
}

pub struct Server<'a> {
    workshop: &'a Workshop,
    process: Process,
    folder: PathBuf,
    authority: Option<&'a Authority>,
    pub port: u16,
}

impl Workshop {
    pub fn start<'a>(&'a self, wish: Wish<'a>) -> Result<Server<'a>, Fault> {
        /// Another process can take a port in the moment before the server does.
        const ATTEMPTS: usize = 5;
        for _ in 1..ATTEMPTS {
            match self.try_to_start(wish) {
                Err(Fault::NoStart(why)) if why.contains("ddress already in use") => {}
                other => return other,
            }
        }
        self.try_to_start(wish)
    }

    fn try_to_start<'a>(&'a self, wish: Wish<'a>) -> Result<Server<'a>, Fault> {
        let folder = self.nest.folder().join(wish.name);
        if !folder.exists() {
            DirBuilder::new().mode(0o700).create(&folder)?;
        }
        for former in ["log", "s"] {
            let _ = fs::remove_file(folder.join(former));
        }
        let [port, bus] = match wish.listens {
            Listens::Nowhere => [0; 2],
            _ => free_ports()?,
        };
        let config = self.config(&wish, &folder, port, bus);
        let file = folder.join("conf");
        fs::write(&file, config)?;
        let process = self.nest.start(&self.program, file.as_os_str(), &folder)?;
        let server = Server {
            workshop: self,
            process,
            folder,
            authority: match wish.listens {
                Listens::Tls(authority) => Some(authority),
                _ => None,
            },
            port,
        };
        server.await_answer()?;
        Ok(server)
    }

    fn config(&self, wish: &Wish, folder: &Path, port: u16, bus: u16) -> String {
        let module = self.module.display();
        let trial = wish
            .unused
            .map_or(String::new(), |unused| format!(" trial {unused:x}"));
        let mut lines = vec![
            format!("loadmodule \"{module}\"{trial}"),
            format!("dir \"{}\"", folder.display()),
            format!("unixsocket \"{}\"", folder.join("s").display()),
            format!("requirepass {}", self.password),
            format!("masterauth {}", self.password),
            "bind 127.0.0.1".to_owned(),
            "save \"\"".to_owned(),
            "crash-log-enabled no".to_owned(),
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        lines.extend(match wish.listens {
            Listens::Nowhere => vec!["port 0".to_owned()],
            Listens::Plain => vec![format!("port {port}")],
            Listens::Cluster => vec![
                format!("port {port}"),
                format!("cluster-port {bus}"),
                "cluster-enabled yes".to_owned(),
            ],
            Listens::Tls(authority) => {
                let mut lines = authority.lines();
                lines.extend(["port 0".to_owned(), format!("tls-port {port}")]);
                lines
            }
        });
        lines.extend(wish.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}

impl Server<'_> {
    fn await_answer(&self) -> Result<(), Fault> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended() {
                return Err(Fault::NoStart(format!(
                    "{}: {}",
                    how(status),
                    self.last_words()
                )));
            }
            // It refuses while it loads its files.
            if let Ok(mut client) = self.connect(2)
                && client.run("PING")? == "PONG"
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Fault::NoStart("it does not answer".to_owned()));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// With this version of RESP; by TLS, if it has that.
    pub fn connect(&self, protocol: u8) -> Result<Client, Fault> {
        let password = &self.workshop.password;
        let unreachable = |error| Fault::Found(format!("it accepts no connection: {error}"));
        if let Some(authority) = self.authority {
            let link = TcpStream::connect(("127.0.0.1", self.port)).map_err(unreachable)?;
            link.set_read_timeout(Some(PATIENCE))?;
            link.set_write_timeout(Some(PATIENCE))?;
            return Client::new(tls::wrap(authority, link)?, protocol, password);
        }
        let link = UnixStream::connect(self.folder.join("s")).map_err(unreachable)?;
        link.set_read_timeout(Some(PATIENCE))?;
        link.set_write_timeout(Some(PATIENCE))?;
        Client::new(link, protocol, password)
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.workshop.nest.ended(self.process)
    }

    /// Ends it in an orderly way.
    pub fn end(self) {
        self.workshop.nest.end(self.process, PATIENCE);
    }

    /// The same fault; if the server has ended, that.
    pub fn explain(&self, fault: Fault) -> Fault {
        /// So long a server that crashes takes for that.
        const CRASHING: Duration = Duration::from_secs(2);
        let Fault::Found(why) = fault else {
            return fault;
        };
        let deadline = Instant::now() + CRASHING;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Fault::Found(format!("the server {} ({why})", how(status)));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Fault::Found(why)
    }

    /// The end of its log.
    fn last_words(&self) -> String {
        const LINES: usize = 3;
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let is_reason = |line: &&str| !line.trim().is_empty() && !line.contains("# WARNING ");
        let lines: Vec<_> = log.lines().filter(is_reason).collect();
        let last = lines.len().saturating_sub(LINES);
        lines[last..].join("; ")
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.workshop.nest.end(self.process, Duration::ZERO);
        }
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, code) => format!("ended with exit code {}", code.unwrap_or_default()),
    }
}

fn free_ports() -> Result<[u16; 2], Fault> {
    let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)));
    let [one, other] = listeners;
    Ok([one?.local_addr()?.port(), other?.local_addr()?.port()])
}
