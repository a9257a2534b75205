//! A Sentinel that belongs to one test.

use super::server::tail;
use super::{Client, Server, eventually_within, free_port, say, server_binary};
use crate::line::field;
use crate::resp::{Frame, ok};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The name of the master.
const NAME: &str = "tether";
/// Discovery, agreement and promotion take Sentinels some seconds; the machine may be busy.
pub const LONG: Duration = Duration::from_secs(60);

pub struct Sentinel {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Sentinel {
    pub fn watching(master: &Server) -> Sentinel {
        Sentinel::at("", "127.0.0.1", master.port())
    }

    /// At this address too, if any, for the master at that one.
    pub fn at(own: &str, master: &str, port: u16) -> Sentinel {
        let folder = TempDir::with_prefix("tether-sentinel-").expect("a temporary folder");
        let own_port = free_port();
        let file = folder.path().join("sentinel.conf");
        let lines = [
            format!("port {own_port}"),
            format!("bind 127.0.0.1 {own}"),
            "protected-mode no".into(),
            format!("dir {}", folder.path().display()),
            format!("sentinel monitor {NAME} {master} {port} 2"),
            // Longer than a server stands still that has to share the machine.
            format!("sentinel down-after-milliseconds {NAME} 4000"),
            format!("sentinel failover-timeout {NAME} 6000"),
            format!("sentinel parallel-syncs {NAME} 2"),
        ];
        fs::write(&file, lines.join("\n") + "\n").expect("the Sentinel's configuration");
        let log = fs::File::create(folder.path().join("log")).expect("the log");
        let child = Command::new(server_binary())
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log)
            .spawn()
            .expect("a Sentinel");
        let sentinel = Sentinel {
            child,
            port: own_port,
            folder,
        };
        sentinel.wait_until_it_knows(0);
        sentinel
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn ask(&self, command: &str) -> Option<Frame> {
        let mut client = Client::connect(("127.0.0.1", self.port)).ok()?;
        Some(client.call(command))
    }

    /// Both replicas, and so many other Sentinels or more: another one may be known sooner than this one is asked.
    pub fn wait_until_it_knows(&self, others: usize) {
        eventually_within(LONG, "what a Sentinel knows", || {
            let about = self.ask(&format!("SENTINEL MASTER {NAME}"));
            let about = about.ok_or("it does not answer")?;
            let said = |name: &str| field(&about, name).text();
            let known = said("num-other-sentinels").parse::<usize>();
            let is_so = known.is_ok_and(|known| known >= others)
                && said("num-slaves") == "2"
                && said("flags") == "master";
            if is_so {
                Ok(())
            } else {
                Err(format!("{about:?}"))
            }
        });
    }

    /// How long the master is silent until this Sentinel takes it for dead.
    pub fn take_for_dead_after(&self, milliseconds: u64) {
        let set = format!("SENTINEL SET {NAME} down-after-milliseconds {milliseconds}");
        assert_eq!(self.ask(&set), Some(ok()));
    }

    /// Has it replace the master, and says whether it will.
    pub fn fail_over(&self) -> bool {
        self.ask(&format!("SENTINEL FAILOVER {NAME}")) == Some(ok())
    }

    pub fn master_port(&self) -> Option<u16> {
        let address = self.ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"))?;
        address.items().get(1)?.text().parse().ok()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            say(&format!(
                "---- the log of the Sentinel on port {} ends:\n{}",
                self.port,
                tail(&log)
            ));
        }
    }
}
