//! `tether devserver`: the module's engine behind RESP, without a Redis.
//!
//! For unit tests of what uses tether, in any language: it starts in milliseconds, and has levers (`DEV`) for what is hard to bring
//! about on a server. It keeps nothing on a disk, has no replicas and no cluster, and of the server's own commands those that
//! tests need. What the module itself says (commands, replies, errors, pushes) is the module's own code: `tether::command`,
//! `tether::engine`, `tether::wire`.
//!
//! - options.rs: how it is started    net.rs: sockets    resp.rs: bytes to commands, replies to bytes
//! - machine.rs: the engine, the keys, the clock; effects    connections.rs: who is connected
//! - execute.rs: a command    own.rs: the module's commands    plain.rs: the server's    levers.rs: `DEV`

mod connections;
mod execute;
mod levers;
mod machine;
mod net;
mod options;
mod own;
mod plain;
mod resp;

pub use options::Options;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

/// One that listens, and answers once it serves.
pub struct Devserver {
    options: Options,
    tcp: TcpListener,
    unix: Option<UnixListener>,
}

impl Devserver {
    /// Listens. An error if the port or the path cannot be had.
    pub fn bind(options: Options) -> io::Result<Devserver> {
        let tcp = TcpListener::bind(("127.0.0.1", options.port))?;
        tcp.set_nonblocking(true)?;
        let unix = options
            .unix_socket
            .as_ref()
            .map(UnixListener::bind)
            .transpose()?;
        if let Some(unix) = &unix {
            unix.set_nonblocking(true)?;
        }
        Ok(Devserver { options, tcp, unix })
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.tcp.local_addr()?.port())
    }

    /// Serves on this thread, until the process ends or the listener fails.
    pub fn serve(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let served = net::serve(self.options, self.tcp, self.unix);
        tokio::task::LocalSet::new().block_on(&runtime, served)
    }
}
