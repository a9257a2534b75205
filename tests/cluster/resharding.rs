//! Slots that move under load, as `redis-cli --cluster reshard` moves them.

use crate::harness::*;
use crate::line::tether;
use crate::nodes::{Cluster, names_in_first_slots, redis_cli};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A server that gets no time for a sixth of it loses keys that it should keep.
const BACKSTOP: Duration = Duration::from_millis(9000);
const MOVED_SLOTS: u16 = 40;
/// Names in these slots, and in as many that stay.
const ALL_SLOTS: u16 = 2 * MOVED_SLOTS;
const OWNERS: usize = 8;

/// A connection to each server; follows redirections as cluster clients do.
struct Wanderer {
    lines: BTreeMap<u16, Client>,
    first: u16,
}

impl Wanderer {
    fn new(cluster: &Cluster) -> Wanderer {
        let lines = cluster
            .servers
            .iter()
            .map(|server| (server.port(), server.resp3()));
        let first = cluster.servers[0].port();
        Wanderer {
            lines: lines.collect(),
            first,
        }
    }

    /// Asks the server of this port, and whomever it is sent to. The reply and whose it is.
    fn call(&mut self, words: &[&str]) -> (Frame, u16) {
        let (mut port, mut asking) = (self.first, false);
        for _ in 0..50 {
            let line = self.lines.get_mut(&port).expect("one of the servers");
            if asking {
                line.run("ASKING");
            }
            let reply = line.call(words.to_vec());
            let Frame::Error(_) = &reply else {
                return (reply, port);
            };
            let text = reply.text();
            let words: Vec<_> = text.split(' ').collect();
            asking = words[0] == "ASK";
            match words[0] {
                "ASK" | "MOVED" => {
                    let address = words[2].rsplit_once(':').expect("an address");
                    port = address.1.parse().expect("a port");
                }
                "TRYAGAIN" => thread::sleep(Duration::from_millis(5)),
                "NOTHELD" => return (reply, port),
                _ => panic!("{words:?}"),
            }
        }
        panic!("{words:?} goes round in circles");
    }
}

/// Takes keys and gives them back, waiting for them, until told to stop; says how often it had one.
fn work(mut line: Wanderer, names: &[String], turn: usize, stop: &AtomicBool) -> usize {
    let mut had = 0;
    for name in names.iter().cycle().skip(turn) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let shared = format!("{{{name}}}shared");
        let lock = format!("{{{name}}}lock");
        for (take, give, key) in [
            ("SETTP", "DELTP", &shared),
            ("LOCK.ACQUIRE", "LOCK.RELEASE", &lock),
        ] {
            let mut words = vec![take, key];
            words.extend((take == "SETTP").then_some("v"));
            words.extend(["WAIT", "100"]);
            let (reply, port) = line.call(&words);
            if matches!(reply, Frame::Integer(1..)) {
                had += 1;
                // It may have moved away meanwhile, which is no mistake.
                line.first = port;
                line.call(&[give, key]);
            }
        }
    }
    had
}

#[test]
fn no_key_without_an_owner_outlives_the_backstop_when_slots_move_under_load() {
    let cluster = Cluster::of_masters(3, &["tether.cluster-backstop 9000"]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let names = names_in_first_slots("n", ALL_SLOTS);
    let mut owners: Vec<_> = (0..OWNERS).map(|_| source.resp3()).collect();
    let (mut watcher, mut patient) = (source.resp3(), source.resp3());
    for (number, name) in names.iter().enumerate() {
        let owner = &mut owners[number % OWNERS];
        owner.run(["SETTP", name, "v", "NOTIFY"]);
        owner.run(["LOCK.ACQUIRE", &format!("{{{name}}}held"), "NOTIFY"]);
        watcher.run(["WATCHEX", name]);
        patient.run(["SETTP", name, "patient", "WAIT", "0", "PUSH"]);
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|turn| {
                let (line, names, stop) = (Wanderer::new(&cluster), &names, &stop);
                scope.spawn(move || work(line, names, turn * 7, stop))
            })
            .collect();
        let (from, to) = (cluster.id(0), cluster.id(1));
        let count = MOVED_SLOTS.to_string();
        let address = cluster.address(0);
        let reshard = [
            "reshard",
            &address,
            "--cluster-from",
            &from,
            "--cluster-to",
            &to,
            "--cluster-slots",
            &count,
        ];
        redis_cli(&reshard);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            assert!(
                worker.join().expect("a worker") > 0,
                "a worker never got anything"
            );
        }
    });
    cluster.agree();
    source.settle();
    everyone_knows(&cluster, &names, &mut owners, &mut watcher, &mut patient);
    nothing_is_left(&cluster, &names);
    assert_eq!(
        tether(target, "waiters") + tether(source, "waiters"),
        i64::from(MOVED_SLOTS)
    );
}

/// Each owner has heard `LOST` once of what moved, and nothing of what it still owns; and so on.
fn everyone_knows(
    cluster: &Cluster,
    names: &[String],
    owners: &mut [Client],
    watcher: &mut Client,
    patient: &mut Client,
) {
    let (moved, stayed) = names.split_at(usize::from(MOVED_SLOTS));
    let mut lost: Vec<_> = owners.iter_mut().flat_map(Client::pushes).collect();
    lost.sort();
    let mut expected: Vec<_> = moved
        .iter()
        .flat_map(|name| {
            [
                format!("settp {name} LOST moved"),
                format!("lock {{{name}}}held LOST moved"),
            ]
        })
        .collect();
    expected.sort();
    assert_eq!(lost, expected);
    let as_set = |pushes: Vec<String>| -> BTreeSet<String> { pushes.into_iter().collect() };
    let gone = moved.iter().map(|name| format!("watchex {name} DEL"));
    assert_eq!(as_set(watcher.pushes()), gone.collect());
    // Each is told where to ask instead.
    let to = cluster.address(1);
    let sent_there = |push: String| {
        let (who, there) = push.split_once(" FAILED ").unwrap_or_default();
        let is_known = there.starts_with("MOVED ") || there.starts_with("ASK ");
        assert!(is_known && there.ends_with(&to), "{push}");
        who.to_owned()
    };
    let turned_away = moved.iter().map(|name| format!("settp {name}"));
    let told = patient.pushes().into_iter().map(sent_there);
    assert_eq!(as_set(told.collect()), turned_away.collect());
    let mut client = cluster.servers[0].resp3();
    for name in stayed {
        let info = client.run(["LOCK.INFO", name]);
        let holders = crate::line::field(&info, "holders").items();
        assert_eq!(holders.len(), 1, "{name}");
    }
}

/// What has no owner goes: at the source at once, at the target within the backstop.
fn nothing_is_left(cluster: &Cluster, names: &[String]) {
    let (_, stayed) = names.split_at(usize::from(MOVED_SLOTS));
    let mut expected: Vec<_> = stayed
        .iter()
        .flat_map(|name| [name.clone(), format!("{{{name}}}held")])
        .collect();
    expected.sort();
    eventually_within(
        BACKSTOP + BACKSTOP / 2,
        "the end of what nobody owns",
        || {
            let mut left: Vec<String> = Vec::new();
            for server in &cluster.servers {
                let keys = server.resp2().run("KEYS *").items();
                left.extend(keys.iter().map(Frame::text));
            }
            left.sort();
            if left == expected {
                return Ok(());
            }
            left.retain(|name| !expected.contains(name));
            Err(format!("{left:?} are too many"))
        },
    );
}
