//! The client on a real server.

mod addresses;
mod cluster;
mod enduring;
mod fork;
mod keys;
mod locks;
mod names;
mod quorum;
#[cfg(target_os = "linux")]
mod quorum_faults;
mod testing;
mod unclaimed;

use std::future::Future;
use std::time::Duration;
use tether_client::{Error, Locks, Loss};
use tether_testing::harness::{Server, eventually_equal};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
/// For what must not happen.
const A_MOMENT: Duration = Duration::from_millis(50);

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// What comes of it; a failure if nothing does.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("an answer in time")
}

async fn connect(server: &Server) -> Locks {
    soon(Locks::connect(&url(server))).await.unwrap()
}

async fn with_session(server: &Server) -> Locks {
    let builder = Locks::builder(&url(server)).grace(Duration::from_secs(20));
    soon(builder.connect()).await.unwrap()
}

fn waiters(server: &Server) -> i64 {
    server.gauge("tether", "tether_waiters")
}

fn holds(server: &Server) -> i64 {
    server.gauge("tether", "tether_holds")
}

/// Ends the connections of all others than the one that asks.
fn hang_up(server: &Server) {
    server.resp2().run("CLIENT KILL TYPE normal");
}
