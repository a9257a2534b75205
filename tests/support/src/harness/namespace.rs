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

    fn set(&self, state: &str) {
        let (side, end) = (&self.client_side.name, &self.client_end);
        ip(&["-n", side, "link", "set", end, state]);
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot run ip: {error}"));
    assert!(
        output.status.success(),
        "ip {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
