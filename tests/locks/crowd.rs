//! A thousand connections on one lock, which they take again and again while many of them die: everyone who stays alive
//! is served, in the order of the requests, once for each request, and never two at a time.
//!
//! With each request goes, in the same write, an INCR of a counter: its ticket, which says when the server had it. The
//! token of the grant says when it was served. A counter that is raised while one is inside shows whether it is alone.
//! TETHER_SEED takes another seed than the usual one.

use crate::harness::*;
use crate::line::*;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

const MEMBERS: usize = 1000;
const ROUNDS: usize = 5;
/// How long the server may be at work on it.
const LIMIT: Duration = Duration::from_secs(20);
/// How long nobody is served until it is stuck. A machine that is busy may take its time: Redis 8 stops a thread for each
/// connection that it takes over from it, a thousand times before the first is answered.
const STUCK: Duration = Duration::from_secs(300);

/// How they take the lock and give it back, and what the server says to that.
struct Way {
    take: &'static str,
    give: &'static str,
    given: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Close,
    Reset,
    Killed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Lives,
    DiesWaiting(How),
    DiesInside(How),
}

/// What one member will do: the same for the same seed.
struct Dice(u64);

impl Dice {
    fn of(seed: u64, member: usize) -> Dice {
        Dice(seed.wrapping_mul(1_000_003).wrapping_add(member as u64))
    }

    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % count
    }

    fn fate(&mut self) -> Fate {
        let how = [How::Close, How::Reset, How::Killed][self.below(3) as usize];
        match self.below(16) {
            0 => Fate::DiesWaiting(how),
            1 => Fate::DiesInside(how),
            _ => Fate::Lives,
        }
    }
}

/// What went wrong first, which the others stop at when they see it; and when somebody was last answered.
struct Alarm {
    first: Mutex<Option<String>>,
    answered: Mutex<Instant>,
}

impl Alarm {
    fn new() -> Alarm {
        Alarm {
            first: Mutex::default(),
            answered: Mutex::new(Instant::now()),
        }
    }

    fn raise(&self, what: String) {
        let mut first = self.first.lock().expect("the alarm");
        first.get_or_insert(what);
    }

    fn is_raised(&self) -> bool {
        self.first.lock().expect("the alarm").is_some()
    }

    fn defer(&self) {
        *self.answered.lock().expect("the alarm") = Instant::now();
    }

    fn is_due(&self) -> bool {
        self.answered.lock().expect("the alarm").elapsed() > STUCK
    }
}

/// A connection on which nothing but integers come, for longer than the harness would be patient.
struct Line<'a> {
    stream: BufReader<TcpStream>,
    alarm: &'a Alarm,
}

impl Line<'_> {
    fn send(&mut self, commands: &[&str]) -> Result<(), String> {
        let bytes: Vec<u8> = commands.iter().flat_map(|one| encode(*one)).collect();
        let sent = self.stream.get_mut().write_all(&bytes);
        sent.map_err(|error| format!("{commands:?}: {error}"))
    }

    fn number(&mut self) -> Result<i64, String> {
        let mut line = String::new();
        loop {
            match self.stream.read_line(&mut line) {
                Ok(_) => {
                    let number = line.strip_prefix(':').map(|rest| rest.trim_end().parse());
                    return match number {
                        Some(Ok(number)) => {
                            self.alarm.defer();
                            Ok(number)
                        }
                        _ => Err(format!("no integer: {line:?}")),
                    };
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(error.to_string());
                }
                Err(_) if self.alarm.is_raised() => return Err("the alarm".into()),
                Err(_) if self.alarm.is_due() => {
                    return Err(format!("nothing within {STUCK:?}, after {line:?}"));
                }
                Err(_) => {}
            }
        }
    }

    fn expect(&mut self, command: &str, expected: i64) -> Result<(), String> {
        self.send(&[command])?;
        self.expect_next(command, expected)
    }

    fn expect_next(&mut self, command: &str, expected: i64) -> Result<(), String> {
        match self.number()? {
            number if number == expected => Ok(()),
            number => Err(format!("{command}: {number} instead of {expected}")),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Grant {
    ticket: i64,
    token: i64,
    member: usize,
}

struct Run<'a> {
    way: &'a Way,
    seed: u64,
    alarm: &'a Alarm,
    gate: RwLock<()>,
    killer: Mutex<Client>,
    grants: Mutex<Vec<Grant>>,
}

impl Run<'_> {
    /// Says how often it was served.
    fn live(&self, member: usize, line: Line<'_>, id: i64) -> usize {
        drop(self.gate.read());
        match self.rounds(member, line, id) {
            Ok(served) => served,
            Err(what) => {
                self.alarm.raise(format!("member {member}: {what}"));
                0
            }
        }
    }

    fn rounds(&self, member: usize, mut line: Line<'_>, id: i64) -> Result<usize, String> {
        let mut dice = Dice::of(self.seed, member);
        for round in 0..ROUNDS {
            let fate = dice.fate();
            line.send(&["INCR ticket", self.way.take])?;
            let ticket = line.number()?;
            if let Fate::DiesWaiting(how) = fate {
                self.die(line, id, how);
                return Ok(round);
            }
            let token = line.number()?;
            let grant = Grant {
                ticket,
                token,
                member,
            };
            self.grants.lock().expect("the list").push(grant);
            // Whoever finds more is not alone.
            line.expect("INCR inside", 1)?;
            for _ in 0..dice.below(3) {
                line.expect("STRLEN inside", 1)?;
            }
            if let Fate::DiesInside(how) = fate {
                line.expect("DECR inside", 0)?;
                self.die(line, id, how);
                return Ok(round + 1);
            }
            line.send(&["DECR inside", self.way.give])?;
            line.expect_next("DECR inside", 0)?;
            line.expect_next(self.way.give, self.way.given)?;
        }
        // There is no answer too many in front of this one.
        line.expect(&format!("INCR fence:{member}"), 1)?;
        Ok(ROUNDS)
    }

    fn die(&self, line: Line<'_>, id: i64, how: How) {
        match how {
            How::Close => drop(line),
            How::Reset => Client::over(line.stream.into_inner()).reset(),
            How::Killed => {
                let mut killer = self.killer.lock().expect("the killer");
                killer.run(&format!("CLIENT KILL ID {id}"));
            }
        }
    }

    /// How often a member must have been served, and whether it gets to the end.
    fn due(&self, member: usize) -> (usize, bool) {
        let mut dice = Dice::of(self.seed, member);
        for round in 0..ROUNDS {
            match dice.fate() {
                Fate::DiesWaiting(_) => return (round, false),
                Fate::DiesInside(_) => return (round + 1, false),
                Fate::Lives => dice.below(3),
            };
        }
        (ROUNDS, true)
    }
}

/// Each process may open as many files as it is allowed to at most; servers that it starts inherit that.
fn allow_many_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is the one that these calls read and write.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(20_000);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

fn connect<'a>(server: &Server, alarm: &'a Alarm) -> (i64, Line<'a>) {
    let mut client = server.resp2();
    let id = client.id();
    let stream = client.into_stream();
    let look = Duration::from_millis(200);
    stream.set_read_timeout(Some(look)).expect("a time-out");
    let stream = BufReader::with_capacity(256, stream);
    let line = Line { stream, alarm };
    (id, line)
}

fn run(way: &Way) {
    let wished = std::env::var("TETHER_SEED").ok();
    let seed = wished.map_or(7, |seed| seed.parse().expect("TETHER_SEED is a number"));
    say(&format!("a crowd on {}: seed {seed}", way.take));
    allow_many_files();
    let server = Server::start().over_tcp();
    let begin = Instant::now();
    let alarm = Alarm::new();
    let run = Run {
        way,
        seed,
        alarm: &alarm,
        gate: RwLock::new(()),
        killer: Mutex::new(server.resp2()),
        grants: Mutex::default(),
    };
    let lines: Vec<_> = (0..MEMBERS).map(|_| connect(&server, &alarm)).collect();
    let closed = run.gate.write().expect("the gate");
    alarm.defer();
    let served: Vec<_> = thread::scope(|scope| {
        let live = |(member, (id, line))| {
            let run = &run;
            let thread = thread::Builder::new().stack_size(256 * 1024);
            let lives = thread.spawn_scoped(scope, move || run.live(member, line, id));
            lives.expect("a thread")
        };
        let members: Vec<_> = lines.into_iter().enumerate().map(live).collect();
        drop(closed);
        let ends = members.into_iter().map(|member| member.join());
        ends.map(|end| end.expect("a member")).collect()
    });
    let wrong = alarm.first.lock().expect("the alarm").clone();
    assert_eq!(wrong, None);
    check(&server, &run, &served);
    let handoffs = tether(&server, "handoffs_total");
    let took = begin.elapsed();
    let at_work = server.time_at_work().unwrap_or(took);
    say(&format!(
        "a crowd on {}: {handoffs} handoffs in {took:.1?}, the server at work for {at_work:.1?}",
        way.take
    ));
    assert!(at_work < LIMIT, "{at_work:?}");
}

fn check(server: &Server, run: &Run<'_>, served: &[usize]) {
    let dues: Vec<_> = (0..MEMBERS).map(|member| run.due(member)).collect();
    for (member, (due, _)) in dues.iter().enumerate() {
        assert_eq!(served[member], *due, "member {member}");
    }
    let mut grants = run.grants.lock().expect("the list").clone();
    assert_eq!(grants.len(), served.iter().sum::<usize>());
    // By ticket: who asked earlier was served earlier.
    grants.sort();
    let wrong = grants
        .windows(2)
        .find(|pair| pair[0].ticket == pair[1].ticket || pair[0].token >= pair[1].token);
    assert_eq!(wrong, None, "out of order");
    let survivors = dues.iter().filter(|(_, survives)| *survives).count();
    assert!((500..MEMBERS).contains(&survivors), "{survivors} survivors");

    eventually_nothing_is_left(server);
    let mut client = server.resp2();
    assert_eq!(client.call("EXISTS k"), int(0));
    assert_eq!(client.call("GET inside"), bulk("0"));
    assert_eq!(
        client.call("DBSIZE"),
        int(2 + survivors as i64),
        "fences and counters"
    );
    let granted = tether(server, "grants_total");
    assert!(granted >= grants.len() as i64, "{granted} {}", grants.len());
    for none in ["timeouts_total", "deadlocks_refused_total"] {
        assert_eq!(tether(server, none), 0, "{none}");
    }
    let died = tether(server, "lost_died_total") + tether(server, "lost_killed_total");
    assert_eq!(tether(server, "lost_total"), died);
}

#[test]
fn a_thousand_take_turns_with_a_temporary_key() {
    run(&Way {
        take: "SETTP k v TOKEN WAIT 0",
        give: "DELTP k",
        given: 1,
    });
}

#[test]
fn a_thousand_take_turns_with_a_lock() {
    run(&Way {
        take: "LOCK.ACQUIRE k WAIT 0",
        give: "LOCK.RELEASE k",
        given: 0,
    });
}
