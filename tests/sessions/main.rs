//! Sessions in real servers, by theme. Each test owns its server (see `harness`), so they can run side by side.

mod ending;
mod former;
mod notify;
mod operators;
mod outliving;
mod resuming;
mod starting;

use harness::*;
use tether_testing::{harness, line};

/// A connection with a session, and the session's secret.
fn with_session(server: &Server, grace_ms: u64) -> (Client, String) {
    let mut client = server.resp3();
    let secret = start(&mut client, grace_ms);
    (client, secret)
}

fn start(client: &mut Client, grace_ms: u64) -> String {
    let grace = grace_ms.to_string();
    client.run(["SESSION.START", "GRACE", &grace]).text()
}

/// How many sessions are attached, and how many detached.
fn sessions(server: &Server) -> [i64; 2] {
    ["attached", "detached"].map(|state| line::tether(server, &format!("sessions_{state}")))
}

/// A field of the only holder of a key.
fn of_holder(server: &Server, key: &str, field: &str) -> Frame {
    let info = server.resp3().run(["LOCK.INFO", key]);
    let holders = line::field(&info, "holders").items();
    assert_eq!(holders.len(), 1, "{info:?}");
    line::field(&holders[0], field)
}

const A_DAY: u64 = 86_400_000;
