//! The socket to a server: by TCP, TLS or a Unix socket, closed in forked children.

use crate::error::Error;
use crate::fork::Mark;
use crate::tls::Tls;
use futures_util::FutureExt;
use futures_util::future::select_ok;
use redis::ConnectionAddr;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixSocket, lookup_host};

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Its fields are dropped in this order, as [`Mark`] wants.
pub struct Socket {
    stream: Box<dyn Stream>,
    _mark: Mark,
}

impl Socket {
    pub async fn connect(address: &ConnectionAddr, tls: &Tls) -> Result<Socket, Error> {
        let unreachable = |error: io::Error| Error::Unreachable(error.to_string());
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let (mark, stream) = tcp(host, *port).await.map_err(unreachable)?;
                Ok(Socket::of(mark, stream))
            }
            ConnectionAddr::TcpTls { insecure: true, .. } => Err(Error::Refused(
                "a server's certificate is always looked at: '#insecure' is not offered".to_owned(),
            )),
            ConnectionAddr::TcpTls { host, port, .. } => {
                let (mark, stream) = tcp(host, *port).await.map_err(unreachable)?;
                let stream = tls.connect(host, stream).await?;
                Ok(Socket {
                    stream,
                    _mark: mark,
                })
            }
            ConnectionAddr::Unix(path) => {
                let (mark, stream) = unix(path).await.map_err(unreachable)?;
                Ok(Socket::of(mark, stream))
            }
            other => Err(Error::Refused(format!(
                "'{other}' is no address known here"
            ))),
        }
    }

    fn of(mark: Mark, stream: impl Stream + 'static) -> Socket {
        Socket {
            stream: Box::new(stream),
            _mark: mark,
        }
    }
}

/// Of the addresses of a name the one that answers first.
async fn tcp(host: &str, port: u16) -> io::Result<(Mark, TcpStream)> {
    let attempts: Vec<_> = lookup_host((host, port))
        .await?
        .map(|at| tcp_at(at).boxed())
        .collect();
    if attempts.is_empty() {
        return Err(io::Error::other(format!("'{host}' has no address")));
    }
    Ok(select_ok(attempts).await?.0)
}

async fn tcp_at(at: SocketAddr) -> io::Result<(Mark, TcpStream)> {
    let (mark, socket) = Mark::open(|| match at {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    })?;
    let stream = socket.connect(at).await?;
    stream.set_nodelay(true)?;
    Ok((mark, stream))
}

async fn unix(path: &Path) -> io::Result<(Mark, tokio::net::UnixStream)> {
    let (mark, socket) = Mark::open(UnixSocket::new_stream)?;
    let stream = socket.connect(path).await?;
    Ok((mark, stream))
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
