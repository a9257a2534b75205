//! Sessions that take and release keys until their master is killed in the moment of a grant, and what the server that takes its
//! place knows of the grants that they were told of.

use crate::harness::*;
use crate::random::Random;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const GRACE: &str = "SESSION.START GRACE 3600000";

/// What happened in some failovers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    pub failovers: usize,
    /// Grants that clients were told of, in all.
    pub grants: usize,
    pub noacks: usize,
    /// Grants that clients had been told of and not yet released when the master was killed.
    pub held: usize,
    /// Those of them that the promoted server did not know.
    pub missing: usize,
    /// Kills before the answer to the request in whose moment they came.
    pub unanswered: usize,
    /// Those of them after which the promoted server had a grant that nobody was told of: it was pending.
    pub pending: usize,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Outcome) {
        self.failovers += other.failovers;
        self.grants += other.grants;
        self.noacks += other.noacks;
        self.held += other.held;
        self.missing += other.missing;
        self.unanswered += other.unanswered;
        self.pending += other.pending;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Temporary,
    Exclusive,
    Leased,
    Shared,
    Several,
}

const KINDS: [Kind; 5] = [
    Kind::Temporary,
    Kind::Exclusive,
    Kind::Leased,
    Kind::Shared,
    Kind::Several,
];

#[derive(Debug)]
struct Name {
    key: String,
    kind: Kind,
    is_contended: bool,
    /// The client was told of a grant with this token, and has not begun to release it. None is everything else: a promoted
    /// server may know a hold here whose grant or release nobody was told of.
    token: Option<i64>,
}

impl Name {
    fn keys(&self) -> Vec<String> {
        match self.kind {
            Kind::Several => vec![self.key.clone(), format!("{}+", self.key)],
            _ => vec![self.key.clone()],
        }
    }

    fn owner(&self) -> &'static str {
        if self.kind == Kind::Leased {
            " OWNER job"
        } else {
            ""
        }
    }

    fn request(&self) -> String {
        let key = &self.key;
        match self.kind {
            Kind::Temporary => format!("SETTP {key} v TOKEN"),
            Kind::Exclusive => format!("LOCK.ACQUIRE {key}"),
            Kind::Leased => format!("LOCK.ACQUIRE {key} OWNER job LEASE 36000000"),
            Kind::Shared => format!("LOCK.ACQUIRE {key} SHARED"),
            Kind::Several => format!("LOCK.MACQUIRE 2 {key} {key}+"),
        }
    }

    fn release(&self) -> Vec<String> {
        let command = match self.kind {
            Kind::Temporary => "DELTP",
            _ => "LOCK.RELEASE",
        };
        let release = |key| format!("{command} {key}{}", self.owner());
        self.keys().iter().map(release).collect()
    }
}

enum Answer {
    Granted(i64),
    NoAcks,
    No,
}

/// Kills the master when so many grants have been asked for, in the moment of one that nothing stands in the way of.
struct Trigger<'a> {
    left: AtomicIsize,
    is_over: AtomicBool,
    kill: &'a (dyn Fn() + Sync),
}

impl Trigger<'_> {
    fn is_due(&self, is_contended: bool) -> bool {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        left <= 0 && !is_contended && !self.is_over.swap(true, Ordering::SeqCst)
    }
}

/// A connection with a session.
pub struct Owner {
    client: Client,
    secret: String,
    names: Vec<Name>,
    /// The name that it asked for, and has no answer.
    asked: Option<usize>,
    acks: Option<usize>,
    dice: Random,
}

/// So many owners at a master, who ask for acknowledgements of so many replicas, or for none.
pub fn owners(
    master: &Server,
    prefix: &str,
    count: usize,
    acks: Option<usize>,
    seed: u64,
) -> Vec<Owner> {
    let name = |key: String, kind, is_contended| Name {
        key: format!("{prefix}{key}"),
        kind,
        is_contended,
        token: None,
    };
    let owner = |number: usize| {
        let mut names = Vec::new();
        for kind in KINDS {
            names.extend((0..2).map(|n| name(format!("{number}:{kind:?}:{n}"), kind, false)));
            names.push(name(format!("all:{kind:?}"), kind, true));
        }
        let mut client = master.resp3();
        Owner {
            secret: client.run(GRACE).text(),
            client,
            names,
            asked: None,
            acks,
            dice: Random::new(seed.wrapping_mul(1000) + number as u64),
        }
    };
    (0..count).map(owner).collect()
}

impl Owner {
    /// Nothing once the server is gone.
    fn step(&mut self, trigger: &Trigger, outcome: &mut Outcome) -> Option<()> {
        let at = self.dice.below(self.names.len());
        let is_contended = self.names[at].is_contended;
        match self.names[at].token {
            Some(_) if self.dice.per_mille(if is_contended { 700 } else { 400 }) => {
                self.names[at].token = None;
                for request in self.names[at].release() {
                    self.send(&request)?;
                    let reply = self.client.try_next()?.into_reply();
                    assert!(matches!(reply, Frame::Integer(_)), "{request}: {reply:?}");
                }
            }
            Some(_) => {}
            None => self.acquire(at, trigger, outcome)?,
        }
        Some(())
    }

    fn acquire(&mut self, at: usize, trigger: &Trigger, outcome: &mut Outcome) -> Option<()> {
        let way = self.dice.pick(&["", " WAIT 30", " WAIT 300 PUSH"]);
        let mut request = self.names[at].request() + way;
        if let Some(acks) = self.acks {
            request += &format!(" ACKS {acks}");
            if self.dice.per_mille(60) {
                request += " ACKTIMEOUT 1";
            }
        }
        self.asked = Some(at);
        self.send(&request)?;
        let is_due = trigger.is_due(self.names[at].is_contended);
        if is_due {
            // Unless the answer says otherwise.
            outcome.unanswered += 1;
            let limit = self.dice.pick(&[200, 1000, 4000]);
            let after = Duration::from_micros(self.dice.below(limit) as u64);
            // Sleeping would be too inexact.
            let begin = Instant::now();
            while begin.elapsed() < after {
                std::hint::spin_loop();
            }
            (trigger.kill)();
        }
        let answer = self.answer(&request)?;
        outcome.unanswered -= usize::from(is_due);
        match answer {
            Answer::Granted(token) => {
                self.names[at].token = Some(token);
                outcome.grants += 1;
            }
            Answer::NoAcks => outcome.noacks += 1,
            Answer::No => {}
        }
        self.asked = None;
        Some(())
    }

    fn send(&mut self, request: &str) -> Option<()> {
        self.client.try_send_bytes(&encode(request)).then_some(())
    }

    fn answer(&mut self, request: &str) -> Option<Answer> {
        loop {
            match self.client.try_next()? {
                Arrival::Reply(Frame::Integer(token @ 1..)) => return Some(Answer::Granted(token)),
                Arrival::Reply(Frame::Integer(0) | Frame::Null) if request.contains("PUSH") => {}
                Arrival::Reply(Frame::Integer(0) | Frame::Null) => return Some(Answer::No),
                Arrival::Reply(Frame::Error(text)) if text.starts_with(b"NOACKS") => {
                    return Some(Answer::NoAcks);
                }
                // It has one of these keys and waits for another, which the other has.
                Arrival::Reply(Frame::Error(text)) if text.starts_with(b"DEADLOCK") => {
                    return Some(Answer::No);
                }
                Arrival::Push(push) => {
                    let words: Vec<_> = push.split(' ').collect();
                    return Some(match words[2..] {
                        ["TIMEOUT", ..] => Answer::No,
                        ["FAILED", "NOACKS", ..] => Answer::NoAcks,
                        [token, ..] => Answer::Granted(token.parse().unwrap_or_else(|_| {
                            panic!("{request} is answered by the push {push}");
                        })),
                        [] => panic!("{request} is answered by the push {push}"),
                    });
                }
                Arrival::Reply(reply) => panic!("{request} is answered {reply:?}"),
            }
        }
    }

    /// Resumes the session at the promoted server, and compares.
    fn look(&mut self, server: &Server, outcome: &mut Outcome) {
        self.client = server.resp3();
        let resumed = match self.client.call(["SESSION.RESUME", &self.secret]) {
            Frame::Integer(count) => count,
            // A server knows only sessions that held something.
            Frame::Error(text) if text.starts_with(b"NOSESSION") => {
                self.secret = self.client.run(GRACE).text();
                0
            }
            reply => panic!("SESSION.RESUME is answered {reply:?}"),
        };
        let mut found = 0;
        for (at, name) in self.names.iter_mut().enumerate() {
            let mut tokens = Vec::new();
            for key in name.keys() {
                let cancel = format!("LOCK.CANCEL {key}{}", name.owner());
                tokens.push(self.client.run(&cancel).number());
            }
            let held = tokens.iter().filter(|token| **token != 0).count();
            found += held as i64;
            if let Some(token) = name.token {
                outcome.held += 1;
                if tokens.iter().any(|found| *found != token) {
                    outcome.missing += 1;
                    if self.acks.is_some() {
                        say(&format!("{name:?} has the tokens {tokens:?}"));
                    }
                }
            } else if held > 0 && self.asked == Some(at) && !name.is_contended {
                outcome.pending += 1;
            }
            name.token = Some(tokens[0]);
            // Of several keys some were released already.
            if held < tokens.len() {
                for request in name.release() {
                    if held > 0 {
                        self.client.call(&request);
                    }
                }
                name.token = None;
            }
        }
        assert_eq!(resumed, found, "what the session holds, and its keys");
        self.asked = None;
    }
}

/// Has owners at work until one of them, in the moment of a request for a grant, has the master killed. Returns once they have
/// read all that the master said.
pub fn work_until_killed(
    owners: &mut [Owner],
    requests: usize,
    kill: &(dyn Fn() + Sync),
    outcome: &mut Outcome,
) {
    let trigger = Trigger {
        left: AtomicIsize::new(requests as isize),
        is_over: AtomicBool::new(false),
        kill,
    };
    thread::scope(|scope| {
        let at_work = owners.iter_mut().map(|owner| {
            let trigger = &trigger;
            scope.spawn(move || {
                let mut own = Outcome::default();
                while owner.step(trigger, &mut own).is_some() {}
                own
            })
        });
        for owner in at_work.collect::<Vec<_>>() {
            *outcome += owner.join().expect("an owner");
        }
    });
}

/// Has owners resume their sessions at the promoted server. With acknowledgements each grant that they were told of is there.
pub fn look(owners: &mut [Owner], promoted: &Server, outcome: &mut Outcome) {
    let mut own = Outcome {
        failovers: 1,
        ..Outcome::default()
    };
    for owner in &mut *owners {
        owner.look(promoted, &mut own);
    }
    // Counted by kills, not by owners.
    own.pending = own.pending.min(1);
    if owners.iter().any(|owner| owner.acks.is_some()) {
        assert_eq!(own.missing, 0, "grants that a client was told of are lost");
    }
    *outcome += own;
}
