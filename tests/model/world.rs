//! A world: who is connected, which keys exist, who watches and owns what. It takes one step at a
//! time and says what everyone is to hear.

pub use super::changes::Change;
use super::command::{Command, DATABASES, Name, Spot, Who};
pub use super::entry::{Entry, Owner, Value};
use super::step::Step;
use super::told::{Heard, Push, Reply};

#[derive(Clone)]
pub struct Connection {
    /// Connections are numbered as they are made.
    pub number: u64,
    pub db: usize,
    pub resp3: bool,
    /// The transaction that is being queued; each command with the number that the next connection
    /// had then (`CLIENT KILL` says an id).
    queue: Option<Vec<(Command, u64)>>,
}

impl Connection {
    pub fn in_multi(&self) -> bool {
        self.queue.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    pub who: Who,
    pub spot: Spot,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub watches: usize,
    pub keys: usize,
}

/// Since the world was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub lost: u64,
    pub removed_by_disconnect: u64,
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
}

#[derive(Clone)]
pub struct World {
    pub databases: [Vec<Entry>; DATABASES],
    pub clients: Vec<Option<Connection>>,
    pub watches: Vec<Watch>,
    pub limits: Limits,
    pub totals: Totals,
    /// Endings leave their keys behind, to be removed later.
    pub slow: bool,
    made: u64,
    pub(super) facts: Vec<Fact>,
    heard: Vec<Vec<Heard>>,
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
    sent_before: u64,
    /// See [`Heard::Reply`].
    pub settles: Vec<Spot>,
}

/// What follows from a step.
pub struct Outcome {
    /// What each client is to hear. Of one that has ended, nothing is said.
    pub heard: Vec<Vec<Heard>>,
    pub facts: Vec<Fact>,
}

impl World {
    pub fn new(places: usize, limits: Limits, slow: bool) -> World {
        World {
            databases: Default::default(),
            clients: (0..places).map(|_| None).collect(),
            watches: Vec::new(),
            limits,
            totals: Totals::default(),
            slow,
            made: 0,
            facts: Vec::new(),
            heard: Vec::new(),
            pending: vec![Vec::new(); places],
        }
    }

    /// Whether a step can be taken here. Those that cannot are left out, so that a history from
    /// which some steps were cut is a history still.
    pub fn allows(&self, step: &Step) -> bool {
        let free = |who: Who| self.client(who).is_some_and(|client| !client.in_multi());
        let in_multi = |who: Who| self.client(who).is_some_and(Connection::in_multi);
        let not_oneself = |who: Who, command: &Command| *command != Command::Kill { who };
        match step {
            Step::Connect { who, .. } => self.client(*who).is_none(),
            Step::End { who, .. } => self.client(*who).is_some(),
            Step::Run { who, command } => self.client(*who).is_some() && not_oneself(*who, command),
            Step::Multi { who } => free(*who),
            Step::Exec { who } | Step::Discard { who } => in_multi(*who),
            Step::Pipeline { who, commands } => {
                free(*who) && commands.iter().all(|command| not_oneself(*who, command))
            }
            Step::Expiry {
                who, then: None, ..
            } => free(*who),
            Step::Expiry {
                who,
                then: Some((other, _)),
                ..
            } => free(*who) && free(*other) && self.db_of(*who) == self.db_of(*other),
            Step::Reload | Step::Evict { .. } | Step::Work { .. } | Step::Resync { .. } => true,
        }
    }

    pub fn take(&mut self, step: &Step) -> Outcome {
        self.heard.resize_with(self.clients.len(), Vec::new);
        self.happen(step);
        self.outcome()
    }

    /// The module removed these keys, which ended connections had left.
    pub fn removed(&mut self, spots: &[Spot]) -> Outcome {
        self.heard.resize_with(self.clients.len(), Vec::new);
        for spot in spots {
            self.remove_left_behind(*spot);
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

    fn happen(&mut self, step: &Step) {
        match step {
            Step::Connect { who, resp3 } => self.connect(*who, *resp3),
            Step::End { who, .. } => self.end(*who),
            Step::Run { who, command } => self.send(*who, command),
            Step::Multi { who } => {
                self.client_mut(*who).queue = Some(Vec::new());
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
            Step::Reload => self.reload(),
            Step::Evict { spot } => {
                if self.exists(*spot) {
                    self.lapse(*spot);
                }
            }
            Step::Work { .. } => {}
            Step::Resync { present, held } => self.resync(present, held),
        }
    }

    // ---- connections ----

    pub fn client(&self, who: Who) -> Option<&Connection> {
        self.clients[who].as_ref()
    }

    fn client_mut(&mut self, who: Who) -> &mut Connection {
        self.clients[who]
            .as_mut()
            .expect("only allowed steps are taken")
    }

    pub fn db_of(&self, who: Who) -> usize {
        self.client(who).map_or(0, |client| client.db)
    }

    fn connect(&mut self, who: Who, resp3: bool) {
        self.clients[who] = Some(Connection {
            number: self.made,
            db: 0,
            resp3,
            queue: None,
        });
        self.made += 1;
    }

    fn end(&mut self, who: Who) {
        self.clients[who] = None;
        self.heard[who].clear();
        self.pending[who].clear();
        self.watches.retain(|watch| watch.who != who);
        self.facts.push(Fact::Ended { who });
        self.leave_behind(who);
    }

    /// `CLIENT KILL ID`: how many it killed.
    pub(super) fn kill(&mut self, turn: &Turn, who: Who) -> Reply {
        let target = self.client(who);
        if target.is_none_or(|target| target.number >= turn.sent_before) {
            return Reply::Int(0);
        }
        self.end(who);
        Reply::Int(1)
    }

    // ---- commands ----

    fn send(&mut self, who: Who, command: &Command) {
        let sent_before = self.made;
        if let Some(queue) = &mut self.client_mut(who).queue {
            queue.push((command.clone(), sent_before));
            return self.answer(who, Reply::Queued, Vec::new());
        }
        let mut turn = self.turn(who, sent_before, false);
        let reply = self.run(&mut turn, command);
        self.client_mut(who).db = turn.db;
        self.answer(who, reply, turn.settles);
    }

    fn exec(&mut self, who: Who) {
        let queue = self.client_mut(who).queue.take().unwrap_or_default();
        let mut replies = Vec::new();
        self.facts.push(Fact::ExecBegins);
        for (command, sent_before) in queue {
            let mut turn = self.turn(who, sent_before, true);
            replies.push(self.run(&mut turn, &command));
            self.client_mut(who).db = turn.db;
        }
        self.facts.push(Fact::ExecEnds);
        self.answer(who, Reply::Array(replies), Vec::new());
    }

    fn turn(&self, who: Who, sent_before: u64, in_exec: bool) -> Turn {
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

    // ---- what is heard ----

    /// A reply, and then what has been caused so far.
    fn answer(&mut self, who: Who, reply: Reply, settles: Vec<Spot>) {
        self.heard[who].push(Heard::Reply { reply, settles });
        self.flush_pending();
    }

    fn last_reply(&mut self, who: Who) -> Option<&mut Heard> {
        let mut heard = self.heard[who].iter_mut().rev();
        heard.find(|heard| matches!(heard, Heard::Reply { .. }))
    }

    fn flush_pending(&mut self) {
        for (pending, heard) in self.pending.iter_mut().zip(&mut self.heard) {
            heard.extend(pending.drain(..).map(Heard::Pushes));
        }
    }

    /// One cause's pushes.
    pub(super) fn tell(&mut self, pushes: Vec<(Who, Push)>) {
        for who in 0..self.clients.len() {
            let group: Vec<Push> = pushes
                .iter()
                .filter(|(to, _)| *to == who)
                .map(|(_, push)| *push)
                .collect();
            if !group.is_empty() && self.client(who).is_some() {
                self.pending[who].push(group);
            }
        }
    }
}
