//! The way from a replica to its master: slow, held back, and cut with all that is under way on it.
//!
//! When a process is killed, the system still delivers what it has sent. A machine that fails, or its network, takes that with
//! it; so does a link that is cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

pub struct Link {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    is_held: AtomicBool,
    /// Microseconds by which what the master sends is late.
    delay: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl State {
    fn open(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

impl Link {
    /// To the server at this port, for whoever connects to the link's own.
    pub fn to(port: u16) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for the link");
        let address = listener.local_addr().expect("the link's address");
        let state = Arc::new(State::default());
        let shared = state.clone();
        spawn(move || {
            for replica in listener.incoming() {
                if shared.is_cut() {
                    return;
                }
                let Ok(replica) = replica else { continue };
                if let Ok(master) = TcpStream::connect(("127.0.0.1", port)) {
                    connect(&shared, replica, master);
                }
            }
        });
        Link {
            port: address.port(),
            state,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on what the master sends comes so many microseconds later.
    pub fn delay(&self, microseconds: u64) {
        self.state.delay.store(microseconds, Ordering::SeqCst);
    }

    /// From now on what the master sends does not arrive. The connection stays.
    pub fn hold(&self) {
        self.state.is_held.store(true, Ordering::SeqCst);
    }

    /// Ends what is connected now. Who connects again gets through.
    pub fn break_off(&self) {
        for stream in self.state.open().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends it. What is under way is lost.
    pub fn cut(&self) {
        if self.state.is_cut.swap(true, Ordering::SeqCst) {
            return;
        }
        for stream in self.state.open().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // So that the listener looks.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

fn connect(state: &Arc<State>, replica: TcpStream, master: TcpStream) {
    let copy = |stream: &TcpStream| {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.try_clone().expect("a second handle")
    };
    state.open().extend([copy(&replica), copy(&master)]);
    let (from_replica, to_master) = (copy(&replica), copy(&master));
    let acknowledgements = state.clone();
    spawn(move || pump(&acknowledgements, from_replica, to_master, false));
    let state = state.clone();
    spawn(move || pump(&state, master, replica, true));
}

fn pump(state: &State, mut from: TcpStream, mut to: TcpStream, is_late: bool) {
    let mut chunk = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        if is_late {
            let delay = state.delay.load(Ordering::SeqCst);
            sleep(Duration::from_micros(delay));
            while state.is_held.load(Ordering::SeqCst) && !state.is_cut() {
                sleep(Duration::from_millis(1));
            }
        }
        if state.is_cut() || to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
