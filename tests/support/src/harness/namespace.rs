//! Two network namespaces joined by a cable that can be cut, so that a peer vanishes without a FIN or a reset.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A host of its own, as far as the network goes: nothing in it reaches the machine's own interfaces.
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn create(name: String) -> Namespace {
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        Namespace { name }
    }

    /// Runs `work` inside. Sockets, threads and processes that it makes belong to this namespace for good.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = File::open(format!("/var/run/netns/{}", self.name))
                    .expect("the namespace's file");
                // SAFETY: the descriptor is open, and only this thread changes its namespace.
                let entered = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(entered, 0, "setns: {}", std::io::Error::last_os_error());
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

/// Two hosts and the cable between them.
pub struct Cable {
    pub server_side: Namespace,
    pub client_side: Namespace,
    client_end: String,
    server_end: String,
}

/// One end of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Server,
    Client,
}

/// The server's address on the cable.
pub const SERVER_ADDRESS: &str = "198.18.77.1";
pub const CLIENT_ADDRESS: &str = "198.18.77.2";

impl Cable {
    /// Why this machine cannot have one, if it cannot.
    pub fn impossible_here() -> Option<String> {
        // SAFETY: it only reads.
        if unsafe { libc::geteuid() } != 0 {
            return Some("network namespaces need root".into());
        }
        None
    }

    pub fn lay() -> Cable {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let stem = format!(
            "tt{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let (server_end, client_end) = (format!("{stem}s"), format!("{stem}c"));
        assert!(
            CString::new(server_end.as_str()).unwrap().as_bytes().len() < libc::IFNAMSIZ,
            "{server_end} is too long"
        );
        let server_side = Namespace::create(server_end.clone());
        let client_side = Namespace::create(client_end.clone());
        ip(&[
            "link",
            "add",
            &server_end,
            "netns",
            &server_side.name,
            "type",
            "veth",
            "peer",
            "name",
            &client_end,
            "netns",
            &client_side.name,
        ]);
        for (side, end, address) in [
            (&server_side, &server_end, SERVER_ADDRESS),
            (&client_side, &client_end, CLIENT_ADDRESS),
        ] {
            ip(&[
                "-n",
                &side.name,
                "addr",
                "add",
                &format!("{address}/30"),
                "dev",
                end,
            ]);
            ip(&["-n", &side.name, "link", "set", end, "up"]);
        }
        Cable {
            server_side,
            client_side,
            client_end,
            server_end,
        }
    }

    /// From now on nothing passes, and nobody is told. The client's side cannot use its address meanwhile.
    pub fn cut(&self) {
        self.set("down");
    }

    /// All is as it was before.
    pub fn mend(&self) {
        self.set("up");
    }

    /// From now on nothing that this side sends arrives, and nobody is told, until [`Cable::clear`].
    pub fn silence(&self, side: Side) {
        self.queue(side, &["replace", "root", "blackhole"]);
    }

    /// What this side sends passes at so few bits in a second that it is late, until [`Cable::clear`].
    pub fn slow_down(&self, side: Side, bits: usize) {
        let rate = format!("{bits}bit");
        let tight = [
            "replace", "root", "tbf", "rate", &rate, "burst", "300", "limit", "20000",
        ];
        self.queue(side, &tight);
    }

    /// What this side sends passes again.
    pub fn clear(&self, side: Side) {
        self.queue(side, &["replace", "root", "pfifo"]);
    }

    fn queue(&self, side: Side, words: &[&str]) {
        let (host, end) = match side {
            Side::Server => (&self.server_side.name, &self.server_end),
            Side::Client => (&self.client_side.name, &self.client_end),
        };
        let mut arguments = vec!["-n", host, "qdisc", words[0], "dev", end];
        arguments.extend(&words[1..]);
        call("tc", &arguments);
    }

    /// Ends all connections between the two with a reset.
    pub fn reset(&self) {
        let host = &self.server_side.name;
        let kill = ["netns", "exec", host, "ss", "-K", "dst", CLIENT_ADDRESS];
        call("ip", &kill);
    }

    /// The processes on this side.
    pub fn processes(&self, side: Side) -> Vec<libc::pid_t> {
        let host = match side {
            Side::Server => &self.server_side.name,
            Side::Client => &self.client_side.name,
        };
        let pids = call("ip", &["netns", "pids", host]);
        pids.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    }

    fn set(&self, state: &str) {
        let (side, end) = (&self.client_side.name, &self.client_end);
        ip(&["-n", side, "link", "set", end, state]);
    }
}

fn ip(arguments: &[&str]) {
    call("ip", arguments);
}

/// What the program writes.
fn call(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
