//! A replica and its acknowledgements, and the append-only file.

use super::Fault;
use super::client::Frame;
use super::server::{Listens, Wish, Workshop};

/// How many grants the replica acknowledges.
const GRANTS: usize = 100;

pub fn attempt(workshop: &Workshop, unused: u64, name: &str) -> Result<(), Fault> {
    let names = ["master", "replica"].map(|role| format!("{role}-{name}"));
    let lines = ["appendonly yes".to_owned(), "appendfsync always".to_owned()];
    let wish = Wish {
        name: &names[0],
        unused: Some(unused),
        lines: &lines,
        listens: Listens::Plain,
    };
    let master = workshop.start(wish)?;
    let follows = [format!("replicaof 127.0.0.1 {}", master.port)];
    let replica = workshop.start(Wish {
        name: &names[1],
        lines: &follows,
        listens: Listens::Nowhere,
        ..wish
    })?;
    let acked = || -> Result<String, Fault> {
        let mut reader = replica.connect(3)?;
        reader.until("INFO replication", |info| {
            info.contains("master_link_status:up")
        })?;
        let (mut client, mut other) = (master.connect(3)?, master.connect(3)?);
        let secret = client.run("SESSION.START GRACE 60000")?;
        other.run("SESSION.START")?;
        client.until("WAIT 1 1000", |count| count == "1")?;
        for _ in 0..GRANTS {
            client.expect("LOCK.ACQUIRE acked ACKS 1", "TOKEN")?;
            client.expect("LOCK.RELEASE acked", "0")?;
        }
        client.expect("LOCK.ACQUIRE acked ACKS 1", "TOKEN")?;
        other.send_all(["LOCK.ACQUIRE acked WAIT 0 ACKS 1"])?;
        client.until_blocked(other.id)?;
        client.expect("LOCK.RELEASE acked", "0")?;
        other.expect_frames("a grant with ACKS", &[Frame::reply("TOKEN")])?;
        client.expect("SETTP kept v ACKS 1", "1")?;
        reader.until("GET kept", |value| value == "v")?;
        Ok(secret)
    };
    let secret = acked().map_err(|fault| master.explain(replica.explain(fault)))?;
    master.end();
    drop(replica);
    // What the files say is so again.
    let again = workshop.start(wish)?;
    let resumed = || -> Result<(), Fault> {
        let mut client = again.connect(3)?;
        let resumed = client.run(&format!("SESSION.RESUME {secret}"))?;
        if resumed.starts_with("error") {
            return Err(Fault::Found(format!(
                "after a restart the session is gone: {resumed}"
            )));
        }
        client.expect("DELTP kept", "1")
    };
    resumed().map_err(|fault| again.explain(fault))
}
