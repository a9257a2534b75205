//! Network namespaces joined by cables that can be cut, so that a peer vanishes without a FIN or a reset.

use std::ffi::{CString, OsStr};
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

    /// A command for a process inside. Unlike one that is started in [`Namespace::enter`] it does not end with a thread when it
    /// is to end with this process.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Lays a cable to another: an end here, with an address for what goes over it, and one there.
    fn join(&self, own: (&str, &str), other: &Namespace, others: (&str, &str)) {
        for (end, _) in [own, others] {
            let length = CString::new(end).unwrap().as_bytes().len();
            assert!(length < libc::IFNAMSIZ, "{end} is too long");
        }
        ip(&[
            "link",
            "add",
            own.0,
            "netns",
            &self.name,
            "type",
            "veth",
            "peer",
            "name",
            others.0,
            "netns",
            &other.name,
        ]);
        for (host, (end, address), (_, peer)) in [(self, own, others), (other, others, own)] {
            let name = &host.name;
            ip(&["-n", name, "addr", "add", address, "peer", peer, "dev", end]);
            ip(&["-n", name, "link", "set", end, "up"]);
        }
    }

    /// Sets how what is sent from here passes this end of a cable.
    fn queue(&self, end: &str, words: &[&str]) {
        let mut arguments = vec!["-n", &self.name, "qdisc", "replace", "dev", end, "root"];
        arguments.extend(words);
        call("tc", &arguments);
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
        let stem = stem();
        let (server_end, client_end) = (format!("{stem}s"), format!("{stem}c"));
        let server_side = Namespace::create(server_end.clone());
        let client_side = Namespace::create(client_end.clone());
        server_side.join(
            (&server_end, SERVER_ADDRESS),
            &client_side,
            (&client_end, CLIENT_ADDRESS),
        );
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
        self.queue(side, &SILENT);
    }

    /// What this side sends passes at so few bits in a second that it is late, until [`Cable::clear`].
    pub fn slow_down(&self, side: Side, bits: usize) {
        let rate = format!("{bits}bit");
        let tight = ["tbf", "rate", &rate, "burst", "300", "limit", "20000"];
        self.queue(side, &tight);
    }

    /// What this side sends passes again.
    pub fn clear(&self, side: Side) {
        self.queue(side, &CLEAR);
    }

    fn queue(&self, side: Side, words: &[&str]) {
        let (host, end) = match side {
            Side::Server => (&self.server_side, &self.server_end),
            Side::Client => (&self.client_side, &self.client_end),
        };
        host.queue(end, words);
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

/// Several hosts with servers and several with clients, and a cable of its own between each two of them. Each server has one
/// address for all clients.
pub struct Mesh {
    servers: Vec<Namespace>,
    clients: Vec<Namespace>,
}

impl Mesh {
    pub fn lay(servers: usize, clients: usize) -> Mesh {
        let stem = stem();
        let hosts = |side, count| {
            let host = |at| Namespace::create(format!("{stem}{side}{at}"));
            (0..count).map(host).collect()
        };
        let mesh = Mesh {
            servers: hosts("s", servers),
            clients: hosts("c", clients),
        };
        for (at, server) in mesh.servers.iter().enumerate() {
            for (client_at, client) in mesh.clients.iter().enumerate() {
                server.join(
                    (&end_to(Side::Client, client_at), &Mesh::server_address(at)),
                    client,
                    (
                        &end_to(Side::Server, at),
                        &format!("198.18.79.{}", client_at + 1),
                    ),
                );
            }
        }
        mesh
    }

    pub fn server_address(at: usize) -> String {
        format!("198.18.78.{}", at + 1)
    }

    pub fn server(&self, at: usize) -> &Namespace {
        &self.servers[at]
    }

    pub fn client(&self, at: usize) -> &Namespace {
        &self.clients[at]
    }

    /// From now on nothing that this side of a server's and a client's cable sends arrives, and nobody is told, until
    /// [`Mesh::clear`].
    pub fn silence(&self, cable: (usize, usize), side: Side) {
        self.queue(cable, side, &SILENT);
    }

    /// What this side sends passes again.
    pub fn clear(&self, cable: (usize, usize), side: Side) {
        self.queue(cable, side, &CLEAR);
    }

    fn queue(&self, (server, client): (usize, usize), side: Side, words: &[&str]) {
        match side {
            Side::Server => self.servers[server].queue(&end_to(Side::Client, client), words),
            Side::Client => self.clients[client].queue(&end_to(Side::Server, server), words),
        }
    }
}

/// The name of the end of a cable to this host.
fn end_to(side: Side, at: usize) -> String {
    match side {
        Side::Server => format!("server{at}"),
        Side::Client => format!("client{at}"),
    }
}

/// What drops all that is sent, and reports that as sent.
const SILENT: [&str; 1] = ["blackhole"];
const CLEAR: [&str; 1] = ["pfifo"];

/// What the names of the next namespaces begin with.
fn stem() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("tt{}-{number}", std::process::id())
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
