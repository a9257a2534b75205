//! Blocks that the module ends: by a release, by the end of a connection, by time, from outside.

use super::Fault;
use super::client::{Client, Frame};
use super::server::Server;

/// How often a lock is handed from one client to another.
const HANDOFFS: usize = 100;

const WAIT: &str = "LOCK.ACQUIRE baton WAIT 0";

pub fn try_all(server: &Server) -> Result<(), Fault> {
    for protocol in [2, 3] {
        attempt(server, protocol)
            .map_err(|fault| fault.within(&format!("ends of blocks, RESP{protocol}")))?;
    }
    Ok(())
}

fn attempt(server: &Server, protocol: u8) -> Result<(), Fault> {
    let (mut one, mut other) = (server.connect(protocol)?, server.connect(protocol)?);
    let mut watcher = server.connect(3)?;
    one.expect("LOCK.ACQUIRE baton", "TOKEN")?;
    for _ in 0..HANDOFFS {
        // What it sent behind its wait is executed afterwards.
        other.send_all([WAIT, "PING"])?;
        watcher.until_blocked(other.id)?;
        one.expect("LOCK.RELEASE baton", "0")?;
        granted(&mut other, true)?;
        std::mem::swap(&mut one, &mut other);
    }
    // In a transaction.
    other.send_all([WAIT])?;
    watcher.until_blocked(other.id)?;
    one.expect_all(&[
        ("MULTI", "OK"),
        ("LOCK.RELEASE baton", "QUEUED"),
        ("EXEC", "0"),
    ])?;
    granted(&mut other, false)?;
    // By the end of the holder's connection.
    one.send_all([WAIT])?;
    watcher.until_blocked(one.id)?;
    drop(other);
    granted(&mut one, false)?;
    // By time, and from outside.
    let mut other = server.connect(protocol)?;
    other.expect("LOCK.ACQUIRE baton WAIT 5", "nil")?;
    other.send_all([WAIT])?;
    watcher.until_blocked(other.id)?;
    watcher.expect(&format!("CLIENT UNBLOCK {}", other.id), "1")?;
    other.expect_frames("CLIENT UNBLOCK", &[Frame::reply("nil")])?;
    // A waiter that is killed does not stand in the next one's way.
    other.send_all([WAIT])?;
    watcher.until_blocked(other.id)?;
    let mut last = server.connect(protocol)?;
    last.send_all([WAIT])?;
    watcher.until_blocked(last.id)?;
    watcher.expect(&format!("CLIENT KILL ID {}", other.id), "1")?;
    other.until_closed()?;
    one.expect("LOCK.RELEASE baton", "0")?;
    granted(&mut last, false)?;
    last.expect("LOCK.RELEASE baton", "0")?;
    // What was blocked by the module can be blocked by the server.
    for client in [&mut one, &mut last] {
        client.expect("BLPOP nothing 0.01", "nil")?;
        client.is_quiet()?;
    }
    match watcher.gauge("clients", "blocked_clients")? {
        0 => Ok(()),
        count => Err(Fault::Found(format!("{count} clients count as blocked"))),
    }
}

fn granted(client: &mut Client, and_ping: bool) -> Result<(), Fault> {
    client.expect_frames("a grant", &[Frame::reply("TOKEN")])?;
    if and_ping {
        client.expect_frames("what was sent behind a wait", &[Frame::reply("PONG")])?;
    }
    Ok(())
}
