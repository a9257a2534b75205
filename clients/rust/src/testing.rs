//! For tests of what uses locks: a server of their own, without a Redis.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const READY_WITHIN: Duration = Duration::from_secs(10);

/// `tether devserver`, with levers that bring about what is hard to bring about on a server: the module's own engine in one process,
/// on a free port, that ends when this is dropped. Start one for each test.
///
/// ```no_run
/// use tether_client::testing::DevServer;
/// use tether_client::{Error, Locks};
///
/// #[tokio::test]
/// async fn work_stops_when_its_lock_is_deleted() -> Result<(), Error> {
///     let server = DevServer::start().expect("install `tether` (cargo install tether-cli), or name it in TETHER_PROGRAM");
///     let locks = Locks::builder(&server.url()).build()?;
///     let guard = locks.lock("report").acquire().await?;
///     server.lose("report");
///     assert_eq!(guard.lost().await.reason(), "deleted");
///     Ok(())
/// }
/// ```
///
/// It has one user, no scripts, no files, no replicas and no cluster. Its methods wait for the server's answer, in the thread that calls
/// them, and panic if there is none.
#[derive(Debug)]
pub struct DevServer {
    process: Child,
    port: u16,
}

impl DevServer {
    /// Starts the program that the variable `TETHER_PROGRAM` names, else `tether` on `PATH`, and waits until it listens.
    ///
    /// # Errors
    /// That there is no such program, or that it does not say its port.
    pub fn start() -> io::Result<DevServer> {
        let program = std::env::var_os("TETHER_PROGRAM");
        DevServer::start_at(
            program.as_deref().unwrap_or(OsStr::new("tether")),
            [] as [&str; 0],
        )
    }

    /// Starts this program, with these arguments after `devserver --port 0`, such as `--peer-timeout 2s`.
    ///
    /// # Errors
    /// As of [`DevServer::start`].
    pub fn start_at(
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> io::Result<DevServer> {
        let mut process = Command::new(program)
            .args(["devserver", "--port", "0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take();
        let (said, first) = mpsc::channel();
        // In a thread, since a read has no time limit, and a child of the program may keep the pipe open.
        thread::spawn(move || {
            let mut line = String::new();
            let _ = output.map(|output| BufReader::new(output).read_line(&mut line));
            let _ = said.send(line);
        });
        let line = first.recv_timeout(READY_WITHIN).unwrap_or_default();
        let port = line.trim_end().strip_prefix("ready on port ");
        match port.and_then(|port| port.parse().ok()) {
            Some(port) => Ok(DevServer { process, port }),
            None => {
                let _ = process.kill();
                process.wait()?;
                Err(io::Error::other(format!(
                    "it said {line:?}, and not its port, within {READY_WITHIN:?}"
                )))
            }
        }
    }

    /// For [`Locks::builder`](crate::Locks::builder), and for clients of any kind.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The key is gone, and whoever has it loses it, as by `DEL`.
    pub fn lose(&self, key: impl AsRef<[u8]>) {
        self.pull(redis::cmd("DEV").arg("LOSE").arg(key.as_ref()));
    }

    /// The server reads and sends nothing for so long, so that fences fall.
    pub fn be_silent(&self, time: Duration) {
        self.pull(redis::cmd("DEV").arg("SILENT").arg(milliseconds(time)));
    }

    /// All connections end.
    pub fn hang_up(&self) {
        self.pull(redis::cmd("DEV").arg("DROP"));
    }

    /// The server refuses with an error of this code: to whatever writes, if that is `NOREPLICAS`, `MISCONF` or `OOM`; any other code to
    /// every command.
    pub fn refuse(&self, code: &str) {
        self.pull(redis::cmd("DEV").arg("REFUSE").arg(code));
    }

    /// The server refuses nothing any more.
    pub fn accept(&self) {
        self.pull(redis::cmd("DEV").arg("ACCEPT"));
    }

    /// The server's clock goes forward: leases, waits, graces and expiries end. The client's does not.
    pub fn advance(&self, time: Duration) {
        self.pull(redis::cmd("DEV").arg("ADVANCE").arg(milliseconds(time)));
    }

    fn pull(&self, lever: &redis::Cmd) {
        let pulled = redis::Client::open(self.url())
            .and_then(|client| client.get_connection())
            .and_then(|mut connection| lever.exec(&mut connection));
        pulled.expect("tether devserver answers");
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for DevServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
