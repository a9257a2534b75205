//! Sessions through crashes: what a session was told that it holds, it holds after the restart, with the same tokens, and
//! for nobody else to take; until its grace is over.
//!
//! The files are append-only with `appendfsync always`, rewritten at random moments in either form. The seed is the whole
//! story but for the moment of the kill.

use crate::harness::*;
use crate::line::*;
use crate::random::{self, Random};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

const NAMES: usize = 8;

struct Owner {
    client: Client,
    secret: String,
    /// What it was told that it holds, with the token.
    held: BTreeMap<String, i64>,
    /// A key of which it does not know: the server ended before it answered.
    unsure: Option<String>,
}

impl Owner {
    fn new(server: &Server) -> Owner {
        let mut client = server.resp2();
        let secret = client.run("SESSION.START GRACE 60000").text();
        Owner {
            client,
            secret,
            held: BTreeMap::new(),
            unsure: None,
        }
    }

    fn call(&mut self, request: &str) -> Option<Frame> {
        let sent = self.client.try_send_bytes(&encode(request));
        self.client.try_read_reply().filter(|_| sent)
    }

    /// Until the server is gone.
    fn run(&mut self, server: &Server, dice: &mut Random) {
        while self.step(server, dice).is_some() {}
    }

    fn step(&mut self, server: &Server, dice: &mut Random) -> Option<()> {
        let key = format!("s:{}", dice.below(NAMES));
        match (dice.below(12), self.held.contains_key(&key)) {
            (0, _) => {
                let address = ("127.0.0.1", server.port());
                let former = Client::connect(address).ok()?;
                let former = std::mem::replace(&mut self.client, former);
                // The former connection may be there still, or not.
                let kept = dice.per_mille(500).then_some(former);
                let resumed = self.call(&format!("SESSION.RESUME {}", self.secret))?;
                assert_eq!(resumed, int(self.held.len() as i64));
                drop(kept);
            }
            (1, _) => drop(self.call("BGREWRITEAOF")?),
            (_, true) => {
                self.unsure = Some(key.clone());
                let given = [format!("DELTP {key}"), format!("LOCK.RELEASE {key}")];
                let given = given.map(|request| self.call(&request));
                given.into_iter().collect::<Option<Vec<_>>>()?;
                self.held.remove(&key);
                self.unsure = None;
            }
            (_, false) => {
                self.unsure = Some(key.clone());
                let request = match dice.below(3) {
                    0 => format!("LOCK.ACQUIRE {key} LEASE 600000"),
                    1 => format!("LOCK.ACQUIRE {key}"),
                    _ => format!("SETTP {key} v TOKEN"),
                };
                let token = self.call(&request)?.number();
                assert!(token > 0, "{request} is answered {token}");
                self.held.insert(key, token);
                self.unsure = None;
            }
        }
        Some(())
    }

    /// All that it was told is there, and refuses others; then it has it again.
    fn resume(&mut self, server: &Server, what: &str) {
        let mut newcomer = server.resp2();
        let sure = self
            .held
            .keys()
            .filter(|key| Some(*key) != self.unsure.as_ref());
        for key in sure.clone() {
            let refused = newcomer.call(["SETTP", key, "newcomer"]);
            assert_eq!(refused, int(0), "{what}: {key} of {:?}", self.held);
            assert_eq!(token_of(server, key), self.held[key], "{what}: {key}");
        }
        let least = sure.count() as i64;
        self.client = server.resp2();
        let resumed = self.client.run(["SESSION.RESUME", &self.secret]).number();
        let most = least + i64::from(self.unsure.is_some());
        assert!((least..=most).contains(&resumed), "{what}: {resumed}");
        if let Some(key) = self.unsure.take() {
            // Now it can know.
            self.held.remove(&key);
            if resumed == most {
                self.held.insert(key.clone(), token_of(server, &key));
            }
        }
        let greatest = self.held.values().max().copied().unwrap_or(0);
        let token = newcomer.run("LOCK.ACQUIRE new").number();
        assert!(token > greatest, "{what}: {token} after {:?}", self.held);
        newcomer.run("LOCK.RELEASE new");
    }
}

fn round(seed: u64) {
    let mut dice = Random::new(seed);
    let preamble = format!("aof-use-rdb-preamble {}", dice.pick(&["yes", "no"]));
    let mut server = Server::with(&["appendonly yes", "appendfsync always", &preamble]);
    let mut owner = Owner::new(&server);
    for life in 1..=3 {
        let what = format!("TETHER_SEED={seed}, life {life}");
        let pid = server.pid();
        let after = Duration::from_micros(dice.below(100_000) as u64);
        let killer = thread::spawn(move || {
            thread::sleep(after);
            Server::signal(pid, libc::SIGKILL);
        });
        owner.run(&server, &mut dice);
        killer.join().expect("the killer");
        server.crash_and_restart();
        owner.resume(&server, &what);
        server.crash_and_restart();
        owner.resume(&server, &format!("{what}, second start"));
    }
    let kept = owner.held.len() as i64;
    assert_eq!(owner.client.run("SESSION.END"), int(kept));
    eventually_nothing_is_left(&server);
    server.crash_and_restart();
    assert_eq!(server.resp2().run("DBSIZE"), int(0));
    let mut client = server.resp2();
    let refusal = client.refused(["SESSION.RESUME", &owner.secret]);
    assert!(refusal.starts_with("NOSESSION"), "{refusal}");
}

#[test]
fn a_session_loses_nothing_in_a_crash() {
    for seed in (random::seed()..).take(random::steps(4)) {
        round(seed);
    }
}

#[test]
#[ignore = "100 rounds of six crashes each; some minutes"]
fn sessions_lose_nothing_in_hundreds_of_crashes() {
    let first = random::seed();
    say(&format!(
        "crashes under sessions from TETHER_SEED={first} on"
    ));
    for seed in (first..).take(random::steps(100)) {
        round(seed);
    }
}

#[test]
fn a_session_that_is_not_resumed_goes_after_the_restart() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let mut client = server.resp2();
    client.run_all(&["SESSION.START GRACE 300", "SETTP k v", "LOCK.ACQUIRE l"]);
    server.crash_and_restart();
    let mut newcomer = server.resp2();
    assert_eq!(newcomer.run("SETTP k w WAIT 0"), int(1));
    assert!(newcomer.run("LOCK.ACQUIRE l WAIT 0").number() > 0);
    drop((client, newcomer));
    eventually_nothing_is_left(&server);
    server.crash_and_restart();
    eventually_equal("keys", int(0), || server.resp2().run("DBSIZE"));
}
