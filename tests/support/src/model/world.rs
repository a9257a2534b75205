//! A world: who is connected, which keys exist, who watches and owns what. It takes one step at a
//! time and says what everyone is to hear.

use super::acks::PendingGrant;
pub use super::changes::Change;
use super::command::{Command, DATABASES, Name, Spot, Who};
pub use super::connections::Connection;
use super::endings::Ending;
pub use super::entry::{Entry, Value};
use super::holds::Hold;
use super::presence::PrefixWatch;
use super::queues::Waiter;
use super::replies::{Heard, Push, Reply, Serial};
use super::rights::{Rights, USERS};
use super::sequence;
use super::sessions::{Number, Session};
use super::step::Step;
pub use super::totals::{DIED, Floor, REASONS, Totals};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    pub who: Who,
    pub spot: Spot,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub watches: usize,
    pub keys: usize,
    /// So many who go together are served in one step, and the others as soon as may be.
    pub together: usize,
    /// So many keys are told at once to who watches a prefix.
    pub page: usize,
}

impl Limits {
    /// The module's defaults, which no history reaches.
    pub const ROOMY: Limits = Limits {
        watches: 65_536,
        keys: 65_536,
        together: 128,
        page: 1000,
    };
}

/// What happened in a step that a server would tell the module of, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Ours {
        who: Who,
        db: usize,
        command: Command,
        /// As it is to be.
        reply: Reply,
    },
    Changed {
        by: Option<Who>,
        change: Change,
    },
    ExecBegins,
    ExecEnds,
    Ended {
        who: Who,
    },
    /// `CLIENT UNBLOCK`, of somebody who stands still.
    Unblocked {
        who: Who,
        error: bool,
    },
    /// The answer to this one's wait never came to it.
    Dropped {
        who: Who,
    },
    /// The server has started, and grants nothing for so long.
    WritesRefused,
    Quarantined {
        ms: u64,
    },
    Propagated,
    Acknowledged {
        serial: Serial,
        replicas: u32,
    },
    Replicas {
        count: u32,
    },
    /// It is so late now.
    Passed {
        now: u64,
    },
}

#[derive(Clone)]
pub struct World {
    pub databases: [Vec<Entry>; DATABASES],
    /// The oldest first.
    pub holds: Vec<Hold>,
    /// The oldest first.
    pub waiters: Vec<Waiter>,
    /// Those that wait for acknowledgements, the oldest first.
    pub grants: Vec<PendingGrant>,
    /// How many replicas are connected.
    pub replicas: u32,
    /// Grants of which a hold has ended in this command.
    pub(super) broken: Vec<Serial>,
    pub sessions: Vec<Session>,
    /// How many sessions were ever started.
    pub started: Number,
    /// How many keys sequences have made.
    pub sequences: usize,
    /// In milliseconds.
    pub now: u64,
    /// Nothing is granted before this moment.
    pub quarantine_ends: Option<u64>,
    /// The server refuses writes: nobody is served.
    pub writes_refused: bool,
    /// Of the last grant.
    pub last_serial: Serial,
    pub clients: Vec<Option<Connection>>,
    pub watches: Vec<Watch>,
    pub prefixes: Vec<PrefixWatch>,
    pub limits: Limits,
    /// What the users may do.
    pub rights: [Rights; USERS],
    /// Whether somebody who is subscribed can stand still.
    pub blocks_subscribed: bool,
    pub totals: Totals,
    /// The oldest first.
    pub endings: Vec<Ending>,
    /// Whoever can be served, and what endings leave behind, waits for [`Step::Work`].
    pub slow: bool,
    pub(super) made: u64,
    /// How many connections have ended.
    pub(super) gone: u64,
    /// The key that is being handed over.
    pub(super) handing: Option<Spot>,
    /// What each was granted by the answer to its wait, in the last step.
    pub(super) just_granted: Vec<Option<Serial>>,
    pub(super) facts: Vec<Fact>,
    pub(super) heard: Vec<Vec<Heard>>,
    /// Pushes that come in an order that is not said.
    pub(super) gathered: Option<Vec<(Who, Push)>>,
    /// What nobody has noticed yet that is over, and what is to be deleted, in [`Step::Between`].
    pub(super) over: Vec<Spot>,
    pub(super) to_be_deleted: Vec<Spot>,
    /// What is pushed after the reply that comes next.
    pub(super) pending: Vec<Vec<Vec<Push>>>,
}

/// Whose command is being executed, and how.
pub(super) struct Turn {
    pub who: Who,
    pub db: usize,
    pub in_script: bool,
    pub in_exec: bool,
    /// The number that the next connection had when the command was sent.
    pub sent_before: u64,
    /// See [`Heard::Reply`].
    pub settles: Vec<Spot>,
}

/// What follows from a step.
#[derive(Clone, Default)]
pub struct Outcome {
    /// What each client is to hear. Of one that has ended, nothing is said.
    pub heard: Vec<Vec<Heard>>,
    pub facts: Vec<Fact>,
}

impl World {
    pub fn new(places: usize, limits: Limits, slow: bool) -> World {
        sequence::forget();
        World {
            databases: Default::default(),
            holds: Vec::new(),
            waiters: Vec::new(),
            grants: Vec::new(),
            replicas: 0,
            broken: Vec::new(),
            sessions: Vec::new(),
            started: 0,
            sequences: 0,
            now: 0,
            quarantine_ends: None,
            writes_refused: false,
            last_serial: 0,
            clients: (0..places).map(|_| None).collect(),
            watches: Vec::new(),
            prefixes: Vec::new(),
            limits,
            rights: Default::default(),
            blocks_subscribed: true,
            totals: Totals::default(),
            endings: Vec::new(),
            slow,
            made: 0,
            gone: 0,
            handing: None,
            just_granted: vec![None; places],
            gathered: None,
            over: Vec::new(),
            to_be_deleted: Vec::new(),
            facts: Vec::new(),
            heard: Vec::new(),
            pending: vec![Vec::new(); places],
        }
    }

    pub fn take(&mut self, step: &Step) -> Outcome {
        self.take_in_order(step, &[])
    }

    /// Takes a step; where it is not said whose lease ends first, it is those of the keys in this
    /// order.
    pub fn take_in_order(&mut self, step: &Step, order: &[Spot]) -> Outcome {
        self.heard.resize_with(self.clients.len(), Vec::new);
        if !matches!(step, Step::Drop { .. }) {
            self.just_granted.fill(None);
        }
        match step {
            Step::Work { most } => {
                self.writes_refused = false;
                self.work(*most, order);
            }
            _ => self.happen(step),
        }
        if !self.slow {
            self.settle();
        }
        self.outcome()
    }

    fn outcome(&mut self) -> Outcome {
        self.flush_pending();
        Outcome {
            heard: std::mem::take(&mut self.heard),
            facts: std::mem::take(&mut self.facts),
        }
    }

    pub(super) fn happen(&mut self, step: &Step) {
        match step {
            Step::Connect { who, resp3 } => self.connect(*who, *resp3),
            Step::End { who, .. } => self.end(*who),
            Step::Run { who, command } => self.send(*who, command),
            Step::Multi { who } => {
                let client = self.client_mut(*who);
                (client.queue, client.queued_in_vain) = (Some(Vec::new()), false);
                self.answer(*who, Reply::Ok, Vec::new());
            }
            Step::Exec { who } => self.exec(*who),
            Step::Discard { who } => {
                self.client_mut(*who).queue = None;
                self.answer(*who, Reply::Ok, Vec::new());
            }
            Step::Pipeline { who, commands } => {
                for command in commands {
                    self.send(*who, command);
                }
            }
            Step::Expiry { who, key, then } => self.expiry(*who, *key, then.as_ref()),
            Step::Reload { goes, comes, .. } => self.reload_meanwhile(*goes, *comes),
            Step::Rights { user, rights } => self.change_rights(*user, rights),
            Step::Overdue {
                holder,
                key,
                label,
                then,
            } => self.overdue(*holder, *key, *label, then),
            Step::Between {
                who,
                over,
                deleted,
                command,
            } => self.between(*who, [over, deleted], command),
            Step::Restart { quarantine } => self.restart(*quarantine),
            Step::QuarantineOver => self.quarantine_ends = None,
            Step::Evict { spot } => {
                if self.exists(*spot) {
                    self.evict(*spot);
                }
            }
            Step::Resync {
                present,
                held,
                locks,
            } => self.resync(present, held, locks),
            Step::Pass { ms } => {
                self.pass(*ms);
                let now = self.now;
                self.facts.push(Fact::Passed { now });
            }
            Step::Quarantine { ms } => {
                self.quarantine_ends = Some(self.now + ms);
                self.facts.push(Fact::Quarantined { ms: *ms });
            }
            Step::Refuse => {
                self.writes_refused = true;
                self.facts.push(Fact::WritesRefused);
            }
            Step::Propagated | Step::Acknowledged { .. } | Step::Replicas { .. } => {
                self.hear_of_replicas(step);
            }
            Step::Drop { who } => {
                let who = *who;
                self.take_back(who);
                self.facts.push(Fact::Dropped { who });
            }
            Step::Work { .. } => unreachable!("taken in an order"),
        }
    }

    fn hear_of_replicas(&mut self, step: &Step) {
        match step {
            Step::Propagated => {
                self.propagated();
                self.facts.push(Fact::Propagated);
            }
            Step::Acknowledged { at, replicas } => {
                let (serial, replicas) = (self.grants[*at].serial, *replicas);
                self.acknowledged(*at, replicas);
                self.facts.push(Fact::Acknowledged { serial, replicas });
            }
            Step::Replicas { count } => {
                let count = *count;
                self.count_replicas(count);
                self.facts.push(Fact::Replicas { count });
            }
            _ => unreachable!("{step:?} is about no replicas"),
        }
    }

    // ---- commands ----

    pub(super) fn send(&mut self, who: Who, command: &Command) {
        let sent_before = self.made;
        if self.is_about_hearing(who, command) {
            return;
        }
        if let Some(refusal) = self.refused_in_multi(who, command) {
            return self.answer(who, refusal, Vec::new());
        }
        if let Some(queue) = &mut self.client_mut(who).queue {
            queue.push((command.clone(), sent_before));
            return self.answer(who, Reply::Queued, Vec::new());
        }
        let mut turn = self.turn(who, sent_before, false);
        let reply = self.run(&mut turn, command);
        self.client_mut(who).db = turn.db;
        if reply != Reply::Blocked {
            if command.is_ours() {
                self.tell_in_front(who);
            }
            self.answer(who, reply, turn.settles);
        }
    }

    fn exec(&mut self, who: Who) {
        let queue = self.client_mut(who).queue.take().unwrap_or_default();
        if std::mem::take(&mut self.client_mut(who).queued_in_vain) {
            return self.answer(who, Reply::refused("EXECABORT"), Vec::new());
        }
        let mut replies = Vec::new();
        self.facts.push(Fact::ExecBegins);
        for (command, sent_before) in queue {
            let mut turn = self.turn(who, sent_before, true);
            replies.push(self.run(&mut turn, &command));
            self.client_mut(who).db = turn.db;
        }
        self.facts.push(Fact::ExecEnds);
        self.leave_out_what_was_given_back(who);
        self.answer(who, Reply::Array(replies), Vec::new());
    }

    pub(super) fn turn(&self, who: Who, sent_before: u64, in_exec: bool) -> Turn {
        Turn {
            who,
            db: self.db_of(who),
            in_script: false,
            in_exec,
            sent_before,
            settles: Vec::new(),
        }
    }

    fn run(&mut self, turn: &mut Turn, command: &Command) -> Reply {
        if let Some(refusal) = self.refusal(turn, command) {
            return refusal;
        }
        if let Command::Script { commands, .. } = command {
            let (former, outer) = (turn.db, turn.in_script);
            turn.in_script = true;
            let replies = commands.iter().map(|command| self.run(turn, command));
            let replies = replies.collect();
            (turn.db, turn.in_script) = (former, outer);
            return Reply::Array(replies);
        }
        if !command.is_ours() {
            return self.run_servers(turn, command);
        }
        if turn.in_script {
            return Reply::refused("ERR");
        }
        let reply = self.run_ours(turn, command);
        self.withdraw_broken();
        self.facts.push(Fact::Ours {
            who: turn.who,
            db: turn.db,
            command: command.clone(),
            reply: reply.clone(),
        });
        reply
    }

    fn expiry(&mut self, who: Who, key: Name, then: Option<&(Who, Command)>) {
        let spot = Spot {
            db: self.db_of(who),
            name: key,
        };
        let there = self.exists(spot);
        self.answer(who, Reply::Int(there.into()), Vec::new());
        if there {
            self.lapse(spot);
        }
        if let Some((other, command)) = then {
            // Whether it is this command or the server that notices the lapse, nobody knows: what is
            // heard of it may be heard before its reply or after.
            self.flush_pending();
            self.send(*other, command);
            if let Some(Heard::Reply { settles, .. }) = self.last_reply(*other) {
                settles.clear();
            }
        }
    }
}
