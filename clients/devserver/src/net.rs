//! Sockets: one task for each connection, and one that watches the clock.

use crate::connections::{UNIX, Wire};
use crate::machine::Machine;
use crate::options::Options;
use crate::resp::{Read, read};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tether::engine::ClientId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{sleep_until, timeout};

/// How long the clock's task sleeps at the most.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

#[derive(Clone)]
struct Server {
    machine: Rc<RefCell<Machine>>,
    /// Something happened: there may be a nearer deadline.
    news: Rc<Notify>,
}

pub async fn serve(
    options: Options,
    tcp: std::net::TcpListener,
    unix: Option<std::os::unix::net::UnixListener>,
) -> io::Result<()> {
    let tcp = TcpListener::from_std(tcp)?;
    let unix = unix.map(UnixListener::from_std).transpose()?;
    let server = Server {
        machine: Rc::new(RefCell::new(Machine::new(options))),
        news: Rc::new(Notify::new()),
    };
    spawn_local(watch_the_clock(server.clone()));
    if let Some(unix) = unix {
        let server = server.clone();
        spawn_local(async move {
            while let Ok((stream, _)) = unix.accept().await {
                spawn_local(talk(server.clone(), stream, UNIX.to_owned()));
            }
        });
    }
    loop {
        let (stream, addr) = tcp.accept().await?;
        stream.set_nodelay(true)?;
        spawn_local(talk(server.clone(), stream, addr.to_string()));
    }
}

async fn watch_the_clock(server: Server) {
    loop {
        let deadline = server.machine.borrow().deadline();
        match deadline {
            Some(at) => {
                let _ = timeout(LONGEST_SLEEP, async {
                    tokio::select! {
                        () = sleep_until(at.into()) => {}
                        () = server.news.notified() => {}
                    }
                })
                .await;
            }
            None => server.news.notified().await,
        }
        let is_due = |machine: &Machine| {
            let deadline = machine.deadline();
            deadline.is_some_and(|at| at <= std::time::Instant::now())
        };
        if is_due(&server.machine.borrow()) {
            server.machine.borrow_mut().tick();
        }
    }
}

async fn talk(server: Server, stream: impl AsyncRead + AsyncWrite, addr: String) {
    let wire = Rc::new(Wire::default());
    let client = server.machine.borrow_mut().connect(wire.clone(), addr);
    let _ = exchange(&server, client, &wire, stream).await;
    server.machine.borrow_mut().disconnect(client);
    server.news.notify_one();
}

/// Reads, executes and sends until one of the two ends it.
async fn exchange(
    server: &Server,
    client: ClientId,
    wire: &Wire,
    stream: impl AsyncRead + AsyncWrite,
) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        while !wire.is_blocked.get() && !wire.is_over.get() {
            match read(&buffer) {
                Read::Command(words, length) => {
                    buffer.drain(..length);
                    server.machine.borrow_mut().execute(client, &words);
                    server.news.notify_one();
                }
                Read::Incomplete => break,
                Read::Broken(text) => {
                    wire.send(format!("-ERR Protocol error: {text}\r\n").as_bytes());
                    wire.close();
                }
            }
            if server.machine.borrow().silence.is_some() {
                break;
            }
        }
        let out = wire.out.take();
        if !out.is_empty() {
            writer.write_all(&out).await?;
        }
        if let Some(silence) = server.machine.borrow_mut().silence.take() {
            // Nobody else gets a turn meanwhile, as in a process that is stopped.
            std::thread::sleep(silence);
            continue;
        }
        if wire.is_over.get() {
            return Ok(());
        }
        if !out.is_empty() {
            continue;
        }
        tokio::select! {
            read = reader.read(&mut chunk) => match read? {
                0 => return Ok(()),
                length => buffer.extend_from_slice(&chunk[..length]),
            },
            () = wire.news.notified() => {}
        }
    }
}
