//! A lock that passes from hand to hand, with redis-rs.
//!
//! ```text
//! cargo run --example rust_lock [host [port]]        (127.0.0.1 and 6379 unless told)
//! ```
//!
//! Ann and Bob want the same lock. Each asks for it once and is answered when it is theirs: Bob when Ann gives it
//! back, and Ann, the second time, when Bob's connection is killed. Bob does not know that yet and goes on; his old
//! token stops him.
//!
//! The end is 0 when all of that happened, 1 when not. Nobody waits for ever. Needs redis-rs 1; nothing of the module
//! itself is in this program.

use redis::{Client, Connection, RedisError, Value, cmd};
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Milliseconds that a worker is ready to queue for the lock.
const WAIT: u64 = 5000;

/// How long anyone waits for anything.
const PATIENCE: Duration = Duration::from_secs(10);

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

// ---- what a program with a lock needs ----

/// A connection that can hold a lock. Each worker needs one of its own: to the server, the connection is the worker,
/// and of two tasks on one connection the second would be told that it has the lock itself (DEADLOCK).
///
/// A plain `Connection` never reconnects by itself, which is right: the lock goes with the connection. Of the others, a
/// `ConnectionManager` does, and nobody would notice that the lock is gone; the clones of a `MultiplexedConnection` are
/// all one connection (and wait half a second for an answer, unless told). From a pool, take a connection out, and keep
/// it for as long as the lock.
fn connect(address: &(String, u16)) -> Fallible<Connection> {
    let connection = Client::open(address.clone())?.get_connection()?;
    // Longer than WAIT. Whoever gives up earlier must drop the connection: it stays in the queue, and redis-rs would
    // take the grant for a late answer that is of no use to anyone.
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// Does the work while it holds the lock. The work is given the fencing token, greater than that of any earlier holder.
fn with_lock<T>(
    connection: &mut Connection,
    key: &str,
    work: impl FnOnce(u64) -> Fallible<T>,
) -> Fallible<T> {
    let mut acquire = cmd("LOCK.ACQUIRE");
    let token: Option<u64> = acquire.arg(key).arg("WAIT").arg(WAIT).query(connection)?;
    let token = token.ok_or_else(|| format!("{key} was not free within {WAIT} ms"))?;
    let outcome = work(token);
    // Fails when the lock was lost meanwhile.
    cmd("LOCK.RELEASE").arg(key).exec(connection)?;
    outcome
}

/// What the lock protects; think of a row in a database. It remembers the greatest token and refuses older ones, since
/// no lock can stop a worker that has lost it and has not heard.
static RECORD: AtomicU64 = AtomicU64::new(0);

fn write(token: u64) -> String {
    let newest = RECORD.fetch_max(token, Ordering::SeqCst);
    if token < newest {
        return format!("refused, {newest} came after it");
    }
    "accepted".into()
}

// ---- the story ----

/// One turn of a worker: queue for the lock, write when told to go on, give the lock back.
struct Turn {
    has_it: Receiver<()>,
    may_go_on: Sender<()>,
    /// Gives the worker's connection back.
    thread: JoinHandle<Fallible<Connection>>,
}

impl Turn {
    fn begin(name: &'static str, mut connection: Connection) -> Turn {
        let (tell_has_it, has_it) = channel();
        let (may_go_on, told_to_go_on) = channel();
        let thread = spawn(move || {
            with_lock(&mut connection, "lock", |token| {
                println!("{name}: LOCK.ACQUIRE lock WAIT {WAIT} -> token {token}, it is mine");
                tell_has_it.send(())?;
                told_to_go_on.recv_timeout(PATIENCE)?;
                println!("{name}: writes with token {token} -> {}", write(token));
                println!("{name}: LOCK.RELEASE lock");
                Ok(())
            })?;
            Ok(connection)
        });
        Turn {
            has_it,
            may_go_on,
            thread,
        }
    }

    fn until_it_has_the_lock(self) -> Fallible<Turn> {
        match self.has_it.recv_timeout(PATIENCE) {
            Ok(()) => Ok(self),
            Err(RecvTimeoutError::Timeout) => Err("a worker did not get the lock".into()),
            Err(RecvTimeoutError::Disconnected) => self.finish().and(Err("it ended".into())),
        }
    }

    fn finish(self) -> Fallible<Connection> {
        let _ = self.may_go_on.send(());
        self.thread.join().expect("a worker does not panic")
    }
}

fn story(address: &(String, u16)) -> Fallible<()> {
    let [mut operator, ann, mut bob] = [connect(address)?, connect(address)?, connect(address)?];
    let bobs_id: u64 = cmd("CLIENT").arg("ID").query(&mut bob)?;

    let anns_turn = Turn::begin("ann", ann).until_it_has_the_lock()?;
    let bobs_turn = Turn::begin("bob", bob);
    see_waiting("bob", &mut operator)?;

    // Handed over because it is given back ...
    let ann = anns_turn.finish()?;
    let bobs_turn = bobs_turn.until_it_has_the_lock()?;
    let anns_turn = Turn::begin("ann", ann);
    see_waiting("ann", &mut operator)?;

    // ... and because its holder's connection ends.
    println!("Bob's connection is killed. He has not noticed.");
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(bobs_id);
    kill.exec(&mut operator)?;
    anns_turn.until_it_has_the_lock()?.finish()?;
    let Err(failure) = bobs_turn.finish() else {
        return Err("Bob could give back a lock that he had lost".into());
    };
    match failure.downcast_ref::<RedisError>() {
        Some(error) if error.is_connection_dropped() => {
            println!("bob: the connection is gone, and the lock with it");
        }
        _ => return Err(failure),
    }

    if cmd("EXISTS").arg("lock").query(&mut operator)? {
        return Err("the lock is still there after its last holder".into());
    }
    println!("Nobody holds the lock. The end.");
    Ok(())
}

/// Waits until the server says that somebody waits.
fn see_waiting(name: &str, operator: &mut Connection) -> Fallible<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let info: HashMap<String, Value> = cmd("LOCK.INFO").arg("lock").query(operator)?;
        if matches!(info.get("waiters"), Some(Value::Array(waiters)) if waiters.len() == 1) {
            println!("{name}: LOCK.ACQUIRE lock WAIT {WAIT} -> must wait");
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{name} does not wait for the lock").into());
        }
        sleep(Duration::from_millis(5));
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let host = arguments.next().unwrap_or("127.0.0.1".into());
    let port = arguments.next().map_or(Ok(6379), |port| port.parse());
    let told = port
        .map_err(Into::into)
        .and_then(|port| story(&(host, port)));
    if let Err(failure) = told {
        println!("The story fails: {failure}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
