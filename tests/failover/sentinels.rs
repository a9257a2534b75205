//! Three Sentinels, a master and two replicas, and a failover that the Sentinels decide on: the master is killed, or cut
//! off while it goes on working for those who still reach it.
//!
//! Replication has caught up when the master fails, so all that was acknowledged is on the replicas.

use crate::grants::assert_rising;
use crate::harness::*;
use crate::line::*;
use crate::load::{Owner, Taker, Worker, work_while};
use crate::random;
use crate::sentinel::{LONG, Sentinel};

const KEYS: usize = 40;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    /// It stands still for the Sentinels, and then goes on for a while.
    CutOff,
}

/// The keys of the load: temporary keys, locks of all kinds, plain keys, one of each in turn.
fn request(place: usize) -> String {
    match place % 5 {
        0 => format!("SETTP t:{place} v TOKEN"),
        1 => format!("LOCK.ACQUIRE t:{place}"),
        2 => format!("LOCK.ACQUIRE t:{place} SHARED OWNER task LEASE 600000"),
        3 => format!("LOCK.MACQUIRE 2 t:{place} more:{place}"),
        _ => format!("SET plain:{place} v"),
    }
}

/// Takes and gives back for a while, and holds some of each kind in the end. The greatest token.
fn load(clients: &mut [Client]) -> i64 {
    let mut greatest = 0;
    for turn in 0..3 {
        for place in 0..KEYS {
            let client = &mut clients[place % 4];
            if let Frame::Integer(token) = client.run(&request(place)) {
                assert!(token > greatest, "{token} after {greatest}");
                greatest = token;
            }
            if turn < 2 {
                client.call(["DELTP", &format!("t:{place}")]);
                client.call(["LOCK.RELEASE", &format!("t:{place}"), "OWNER", "task"]);
                client.call(["LOCK.RELEASE", &format!("t:{place}")]);
                client.call(["LOCK.RELEASE", &format!("more:{place}")]);
            }
        }
    }
    greatest
}

/// On a promoted server: nobody is refused, tokens go on above, plain keys are there, no ghost stays.
fn assert_in_order(server: &Server, greatest: i64) {
    let mut newcomer = server.resp2();
    let bound: Vec<_> = (0..KEYS).filter(|place| place % 5 != 4).collect();
    let requests: Vec<_> = bound.iter().map(|place| request(*place)).collect();
    newcomer.pipeline(&requests.iter().map(String::as_str).collect::<Vec<_>>());
    let mut last = greatest;
    for request in &requests {
        let token = newcomer.read_reply();
        assert!(
            matches!(token, Frame::Integer(token) if token > last),
            "{request} is answered {token:?}; the last token was {last}"
        );
        last = token.number();
    }
    newcomer.run("QUIT");
    newcomer.expect_closed();
    eventually_nothing_is_left(server);
    let mut looker = server.resp2();
    assert_eq!(looker.run("DBSIZE"), int(KEYS as i64 / 5));
    let plain = looker.run("KEYS plain:*").items();
    assert_eq!(plain.len(), KEYS / 5);
}

/// A connection that has a session, with a temporary key and a lock.
struct Session {
    secret: String,
    tokens: [i64; 2],
    _client: Client,
}

impl Session {
    fn start(server: &Server) -> Session {
        let mut client = server.resp2();
        let secret = client.run("SESSION.START GRACE 60000").text();
        let requests = ["SETTP session:key v TOKEN", "LOCK.ACQUIRE session:lock"];
        Session {
            secret,
            tokens: requests.map(|request| client.run(request).number()),
            _client: client,
        }
    }

    /// On the new master all is its own, with the same tokens, and nobody else's meanwhile. Then it gives it back.
    fn resume(&self, server: &Server) {
        let (mut newcomer, mut client) = (server.resp2(), server.resp2());
        assert_eq!(newcomer.run("SETTP session:key w"), int(0));
        assert_eq!(newcomer.run("LOCK.ACQUIRE session:lock"), null());
        let resumed = client.run(["SESSION.RESUME", &self.secret]);
        assert_eq!(resumed, int(2));
        let tokens = ["session:key", "session:lock"].map(|key| token_of(server, key));
        assert_eq!(tokens, self.tokens);
        assert_eq!(client.run("SESSION.END"), int(2));
    }
}

/// Clients that are at work all the time, wherever the master is.
struct Busy {
    takers: Vec<Taker>,
    owners: Vec<Owner>,
}

impl Busy {
    fn new(ports: &[u16]) -> Busy {
        let names = |who: &str| -> Vec<_> { (0..6).map(|n| format!("{who}{n}")).collect() };
        let takers = (0..4).map(|n| Taker::new(ports, &names("busy:"), n));
        let owners = (0..2).map(|n| Owner::new(ports, &names(&format!("owner:{n}-")), n));
        Busy {
            takers: takers.collect(),
            owners: owners.collect(),
        }
    }

    fn workers(&mut self) -> Vec<&mut dyn Worker> {
        let takers = self.takers.iter_mut().map(|it| it as &mut dyn Worker);
        let owners = self.owners.iter_mut().map(|it| it as &mut dyn Worker);
        takers.chain(owners).collect()
    }

    /// Looks at what they were told while these servers were the master, one after the other, and has them give back what
    /// they hold. Their greatest token.
    fn end(mut self, masters: &[u16], former: i64) -> i64 {
        for owner in &mut self.owners {
            assert!(owner.resumed() > 0);
            owner.end();
        }
        let mut grants = Vec::new();
        for worker in self.workers() {
            grants.append(&mut worker.line().grants);
        }
        assert_rising(grants, masters, former)
    }
}

/// Lets the former master go on: it has requests to answer, and goes on giving tokens.
fn go_on(pid: libc::pid_t, clients: &mut [Client], promoted: &Server, greatest: i64) {
    for client in &mut *clients {
        client.pipeline(&["LOCK.ACQUIRE late SHARED", "LOCK.RELEASE late"]);
    }
    let first = promoted.resp2().run("LOCK.ACQUIRE first").number();
    assert!(first > greatest, "{first} after {greatest}");
    Server::signal(pid, libc::SIGCONT);
    for client in clients {
        if let Some(Frame::Integer(token)) = client.try_read_reply() {
            assert!(
                token < first,
                "{token} of the old master, {first} of the new"
            );
        }
    }
    promoted.resp2().run("DEL first");
}

fn fail_over(end: End) {
    let mut master = Server::start();
    let replicas = [(); 2].map(|()| Server::replica_of(&master, &[]));
    let sentinels = [(); 3].map(|()| Sentinel::watching(&master));
    sentinels.iter().for_each(|it| it.wait_until_it_knows(2));
    let mut clients = [(); 5].map(|()| master.resp2());
    let session = Session::start(&master);
    let greatest = load(&mut clients);
    queue(&master, &mut clients[4], "LOCK.ACQUIRE t:1 WAIT 0");
    let ports: Vec<_> = { [&master].into_iter().chain(&replicas).map(Server::port) }.collect();
    let mut busy = Busy::new(&ports);
    let pid = master.pid();
    let promoted = work_while(busy.workers(), || {
        match end {
            End::Killed => master.kill(),
            End::CutOff => Server::signal(pid, libc::SIGSTOP),
        }
        let promoted = eventually_within(LONG, "the failover", || {
            let seen: Vec<_> = sentinels.iter().map(Sentinel::master_port).collect();
            let one = replicas.iter().find(|it| seen[0] == Some(it.port()));
            one.filter(|_| seen.iter().all(|port| *port == seen[0]))
                .ok_or(format!("{seen:?}"))
        });
        // It is not replaced in its turn because the machine gives it no time.
        let minute_ms = 60_000;
        (sentinels.iter()).for_each(|sentinel| sentinel.take_for_dead_after(minute_ms));
        session.resume(promoted);
        if end == End::CutOff {
            go_on(pid, &mut clients[..4], promoted, greatest);
        }
        promoted
    });
    let greatest = busy.end(&[master.port(), promoted.port()], greatest);
    assert_in_order(promoted, greatest);
    if end == End::CutOff {
        becomes_a_replica(&master, promoted);
    }
    let other = replicas.iter().find(|it| it.port() != promoted.port());
    becomes_a_replica(other.expect("two of them"), promoted);
}

/// Sentinels close the connections of a server that they make a replica.
fn info(server: &Server) -> Option<String> {
    let mut client = Client::connect(("127.0.0.1", server.port())).ok()?;
    let sent = client.try_send_bytes(&encode("INFO replication"));
    Some(client.try_read_reply().filter(|_| sent)?.text())
}

/// In the end a server follows the new master and has the same keys.
pub fn becomes_a_replica(server: &Server, master: &Server) {
    let expected = format!("master_port:{}\r\n", master.port());
    eventually_within(LONG, "a replica of the new master", || {
        let info = info(server).ok_or("it closes connections")?;
        match info.contains(&expected) && info.contains("master_link_status:up") {
            true => Ok(()),
            false => Err(info),
        }
    });
    server.catch_up(master);
    let size = |server: &Server| server.resp2().run("DBSIZE");
    assert_eq!(size(server), size(master));
}

#[test]
fn sentinels_replace_a_killed_master() {
    fail_over(End::Killed);
}

#[test]
fn sentinels_replace_a_master_that_goes_on_for_a_while() {
    fail_over(End::CutOff);
}

#[test]
#[ignore = "50 failovers; some minutes"]
fn sentinels_replace_masters_again_and_again() {
    for place in 0..random::steps(50) {
        fail_over([End::Killed, End::CutOff][place % 2]);
    }
}
