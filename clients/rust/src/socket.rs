//! The socket to a server: by TCP, TLS or a Unix socket, closed in forked children.
//!
//! Whoever has a [`Wire`] can write to it at once, without a task: so a guard that is dropped at the end of `main` releases its lock.

use crate::core::Command;
use crate::error::Error;
use crate::fork::Mark;
use crate::resp::{Frame, Malformed, Reader, pack};
use crate::tls::{Tls, TlsStream};
use futures_util::FutureExt;
use futures_util::future::select_ok;
use redis::ConnectionAddr;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UnixSocket, UnixStream, lookup_host};

/// So much is read at a time.
const READ_AT_ONCE: usize = 16 << 10;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Its fields are dropped in this order, as [`Mark`] wants.
pub struct Socket {
    stream: Stream,
    _mark: Mark,
}

impl Socket {
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await
    }

    pub async fn ready(&self, interest: Interest) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.ready(interest).await.map(|_| ()),
            Stream::Unix(stream) => stream.ready(interest).await.map(|_| ()),
        }
    }
}

/// Reads and writes what the kernel takes and gives without waiting.
impl Read for &Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_read(bytes),
            Stream::Unix(stream) => stream.try_read(bytes),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A host and a port.
pub type Place = (String, u16);

/// Commands out, frames in.
pub struct Wire {
    pub socket: Arc<Socket>,
    tls: Option<TlsStream>,
    /// What the socket did not take yet.
    out: Vec<u8>,
    reader: Reader,
    /// The server is a node of a cluster.
    pub is_cluster: bool,
    /// Where the server is, unless that is a Unix socket.
    pub place: Option<Place>,
}

impl Wire {
    pub async fn connect(address: &ConnectionAddr, tls: &Tls) -> Result<Wire, Error> {
        let unreachable = |error: io::Error| Error::Unreachable(error.to_string());
        let place = |host: &str, port| Some((host.to_owned(), port));
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let socket = tcp(host, *port).await.map_err(unreachable)?;
                Ok(Wire::of(socket, None, place(host, *port)))
            }
            ConnectionAddr::TcpTls { insecure: true, .. } => Err(Error::Refused(
                "TLS a server's certificate is always looked at: '#insecure' is not offered"
                    .to_owned(),
            )),
            ConnectionAddr::TcpTls { host, port, .. } => {
                let socket = tcp(host, *port).await.map_err(unreachable)?;
                let stream = tls.connect(host, &socket).await?;
                Ok(Wire::of(socket, Some(stream), place(host, *port)))
            }
            ConnectionAddr::Unix(path) => {
                let socket = unix(path).await.map_err(unreachable)?;
                Ok(Wire::of(socket, None, None))
            }
            other => Err(Error::Refused(format!(
                "'{other}' is no address known here"
            ))),
        }
    }

    fn of(socket: Socket, tls: Option<TlsStream>, place: Option<Place>) -> Wire {
        Wire {
            socket: Arc::new(socket),
            tls,
            out: Vec::new(),
            reader: Reader::default(),
            is_cluster: false,
            place,
        }
    }

    /// Adds a command to what is to be written.
    pub fn push(&mut self, command: &[Vec<u8>]) {
        pack(command, &mut self.out);
    }

    /// Writes as much as the socket takes. O(bytes written).
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.write(&std::mem::take(&mut self.out))?;
            return until_it_would_block(|| tls.flush(&self.socket));
        }
        let mut written = 0;
        let done = until_it_would_block(|| {
            let rest = &self.out[written..];
            if rest.is_empty() {
                return Ok(false);
            }
            written += (&*self.socket).write(rest)?;
            Ok(true)
        });
        self.out.drain(..written);
        done
    }

    /// Whether there is something left to write.
    pub fn has_more(&self) -> bool {
        !self.out.is_empty() || self.tls.as_ref().is_some_and(TlsStream::has_more)
    }

    /// Reads what has come. An error is the end of the connection; frames that came before it are there.
    pub fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_AT_ONCE];
        until_it_would_block(|| {
            let read = match &mut self.tls {
                Some(tls) => tls.read(&self.socket, &mut bytes)?,
                None => (&*self.socket).read(&mut bytes)?,
            };
            self.reader.feed(&bytes[..read]);
            match read {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                // What TLS has decrypted makes no socket readable.
                read => Ok(read == READ_AT_ONCE || self.tls.is_some()),
            }
        })
    }

    /// What was read.
    pub fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        self.reader.next()
    }

    /// Asks, and waits for the answers; for a connection that nobody else has.
    pub async fn ask<const N: usize>(
        &mut self,
        commands: [Command; N],
    ) -> Result<[Frame; N], Error> {
        let broke = |error: io::Error| Error::Unreachable(error.to_string());
        for command in &commands {
            self.push(command);
        }
        let mut answers = Vec::new();
        loop {
            self.flush().map_err(broke)?;
            match self.next() {
                Ok(Some(Frame::Push(_))) => continue,
                Ok(Some(frame)) => answers.push(frame),
                Ok(None) => self.more().await.map_err(broke)?,
                Err(Malformed) => return Err(Error::Unreachable("the answer is no RESP3".into())),
            }
            if answers.len() == N {
                return answers.try_into().map_err(|_| Error::broke());
            }
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        let interest = match self.has_more() {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        self.socket.ready(interest).await?;
        self.read()
    }
}

/// Goes on while it says that there is more.
fn until_it_would_block(mut step: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    loop {
        match step() {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Of the addresses of a name the one that answers first.
async fn tcp(host: &str, port: u16) -> io::Result<Socket> {
    let attempts: Vec<_> = lookup_host((host, port))
        .await?
        .map(|at| tcp_at(at).boxed())
        .collect();
    if attempts.is_empty() {
        return Err(io::Error::other(format!("'{host}' has no address")));
    }
    Ok(select_ok(attempts).await?.0)
}

async fn tcp_at(at: SocketAddr) -> io::Result<Socket> {
    let (mark, socket) = Mark::open(|| match at {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    })?;
    let stream = socket.connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(Socket {
        stream: Stream::Tcp(stream),
        _mark: mark,
    })
}

async fn unix(path: &Path) -> io::Result<Socket> {
    let (mark, socket) = Mark::open(UnixSocket::new_stream)?;
    let stream = socket.connect(path).await?;
    Ok(Socket {
        stream: Stream::Unix(stream),
        _mark: mark,
    })
}
