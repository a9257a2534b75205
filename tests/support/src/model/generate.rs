//! Which step comes next: drawn at random, a little in favour of what makes things meet.

use super::around::Around;
use super::command::{Command, DATABASES, Kind, NAMES, Name, PREFIXES, Past, Spot, Who};
use super::sessions::Session;
use super::step::{Ending, Step};
use super::world::{Connection, World};
use crate::random::Random;

/// What worlds are made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// How many connections there can be at a time.
    pub places: usize,
    /// How many of [`NAMES`] are used.
    pub names: usize,
    /// Whether there is a server.
    pub server: bool,
    /// How many of a thousand commands are about locks and waits.
    pub locks: usize,
    /// How many of a thousand are about sessions.
    pub sessions: usize,
    /// How many of a thousand steps are about what somebody holds or waits for.
    pub meetings: usize,
    /// In so many steps at first nobody watches or waits.
    pub quiet: usize,
    pub around: Around,
}

pub struct Generator {
    pub(super) random: Random,
    pub(super) scope: Scope,
    drawn: usize,
}

impl Generator {
    pub fn new(seed: u64, scope: Scope) -> Generator {
        assert!(scope.names <= NAMES.len());
        let random = Random::new(seed);
        let drawn = 0;
        Generator {
            random,
            scope,
            drawn,
        }
    }

    /// A step that this world allows.
    pub fn step(&mut self, world: &World) -> Step {
        let is_quiet = self.drawn < self.scope.quiet;
        self.drawn += 1;
        loop {
            let step = self.draw(world);
            if world.allows(&step) && !(is_quiet && step.watches_or_waits()) {
                return step;
            }
        }
    }

    fn draw(&mut self, world: &World) -> Step {
        let who = self.random.below(self.scope.places);
        let Some(client) = world.client(who) else {
            let resp3 = self.random.per_mille(800);
            return Step::Connect { who, resp3 };
        };
        if !self.scope.server && self.random.per_mille(100) {
            return self.without_server(who);
        }
        if !world.grants.is_empty() && self.random.per_mille(300) {
            return self.about_replicas(world);
        }
        if world.is_blocked(who) && self.random.per_mille(900) {
            // It cannot say anything; somebody else can.
            return self.draw(world);
        }
        if let Some(step) = self.for_sessions(world, who) {
            return step;
        }
        if let Some(step) = self.around(world, who) {
            return step;
        }
        if let Some(step) = self.meeting(world, who) {
            return step;
        }
        let queueing = client.in_multi();
        match self.random.below(1000) {
            0..25 => Step::End {
                who,
                how: self.ending(),
            },
            25..45 if self.rarely() => self.expiry(who),
            45..47 if !self.scope.server => self.reload(world),
            47..120 => Step::Multi { who },
            120..360 if queueing => Step::Exec { who },
            360..380 if queueing => Step::Discard { who },
            380..440 => {
                let count = 2 + self.random.below(4);
                let commands = (0..count).map(|_| self.command(world, who)).collect();
                let commands = self.some_unanswered(commands);
                Step::Pipeline { who, commands }
            }
            440..455 if self.scope.server => self.restored_and_carried(who),
            _ => Step::Run {
                who,
                command: self.usual_command(world, client, who),
            },
        }
    }

    /// What makes sessions meet: many connections have one, and lose it; soon another one can go on with it, or it is
    /// too late.
    fn for_sessions(&mut self, world: &World, who: Who) -> Option<Step> {
        let holds = !world.holds_of(who).is_empty();
        let is_detached = |session: &Session| session.attached.is_none();
        if self.scope.sessions == 0 {
            None
        } else if world.sessions.iter().any(is_detached)
            && !self.scope.server
            && self.random.per_mille(60)
        {
            Some(Step::Pass { ms: 2 })
        } else if holds && world.session_of(who).is_some() {
            let how = self.ending();
            let ends = self.random.per_mille(80);
            ends.then_some(Step::End { who, how })
        } else if !holds && self.random.per_mille(120) {
            let command = match world.sessions.is_empty() || self.random.per_mille(500) {
                true => Command::Start {
                    grace_ms: self.grace_ms(),
                },
                false => Command::Resume {
                    session: self.session(world),
                    notify: self.notify(),
                },
            };
            Some(Step::Run { who, command })
        } else {
            None
        }
    }

    /// What takes a server milliseconds is done seldom there.
    fn rarely(&mut self) -> bool {
        !self.scope.server || self.random.per_mille(300)
    }

    /// Replicas come to know of grants, come and go.
    fn about_replicas(&mut self, world: &World) -> Step {
        let at = self.random.below(world.grants.len());
        match self.random.below(100) {
            _ if self.random.per_mille(20) => self.replicas(),
            0..40 if !world.grants[at].placed => Step::Propagated,
            _ => Step::Acknowledged {
                at,
                replicas: self.random.below(world.replicas as usize + 1) as u32,
            },
        }
    }

    fn replicas(&mut self) -> Step {
        let count = self.random.pick(&[0, 1, 2, 2, 2, 3]);
        Step::Replicas { count }
    }

    fn without_server(&mut self, who: Who) -> Step {
        match self.random.below(100) {
            0..55 => Step::Work {
                most: self.random.pick(&[1, 1, 2, 64]),
            },
            55..75 => Step::Pass {
                ms: self.random.pick(&[1, 2, 5, 20]),
            },
            75..77 => Step::Drop { who },
            77..79 => Step::Refuse,
            79..80 => Step::Quarantine {
                ms: self.random.pick(&[1, 5, 20]),
            },
            80..83 if self.scope.sessions > 0 => self.replicas(),
            80..96 => {
                let db = self.random.below(DATABASES);
                let name = self.name();
                let spot = Spot { db, name };
                Step::Evict { spot }
            }
            _ => self.resync(),
        }
    }

    fn resync(&mut self) -> Step {
        let names = self.scope.names;
        let all = (0..DATABASES).flat_map(|db| (0..names).map(move |name| Spot { db, name }));
        let present: Vec<Spot> = all.filter(|_| self.random.per_mille(500)).collect();
        let held = present.iter().copied();
        let held: Vec<Spot> = held.filter(|_| self.random.per_mille(300)).collect();
        let locks = held.iter().copied();
        let locks = locks.filter(|_| self.random.per_mille(400)).collect();
        Step::Resync {
            present,
            held,
            locks,
        }
    }

    fn ending(&mut self) -> Ending {
        let (paused, lapsed) = if self.scope.server { (1, 3) } else { (0, 0) };
        self.random.weighted(&[
            (10, Ending::Close),
            (5, Ending::Reset),
            (5, Ending::Quit),
            (paused, Ending::WhilePaused),
            (lapsed, Ending::AfterLapse),
        ])
    }

    fn expiry(&mut self, who: Who) -> Step {
        let key = self.name();
        let keys = vec![key];
        let value = self.value();
        let command = match self.random.below(7) {
            0 => {
                return Step::Expiry {
                    who,
                    key,
                    then: None,
                };
            }
            1 | 2 => Command::Settp {
                key,
                value,
                token: false,
                notify: self.notify(),
                task: self.task(),
                wait: None,
                acks: None,
            },
            3 => Command::Watchex { keys },
            4 => Command::Set { key, value },
            5 => Command::Del { keys },
            _ => Command::Exists { key },
        };
        let other = self.random.below(self.scope.places);
        let then = Some((other, command));
        Step::Expiry { who, key, then }
    }

    /// Somebody in the other database soon comes back, so that most meet.
    fn usual_command(&mut self, world: &World, client: &Connection, who: Who) -> Command {
        if client.db != 0 && self.random.per_mille(60) {
            return Command::Select { db: 0 };
        }
        if let Some(command) = self.carried_on(client) {
            return command;
        }
        if self.random.per_mille(50) {
            return self.script(world, who);
        }
        self.command(world, who)
    }

    fn script(&mut self, world: &World, who: Who) -> Command {
        let count = 1 + self.random.below(4);
        let mut commands = Vec::new();
        while commands.len() < count {
            let command = self.command(world, who);
            if !matches!(command, Command::Kill { .. } | Command::Unblock { .. }) {
                commands.push(command);
            }
        }
        let written = self.random.per_mille(500);
        Command::Script { commands, written }
    }

    pub(super) fn command(&mut self, world: &World, who: Who) -> Command {
        if self.scope.server && self.random.per_mille(20) {
            return Command::Mine;
        }
        let prefixes = self.scope.around.prefixes;
        if prefixes > 0 && self.random.per_mille(prefixes) {
            return self.watchtp();
        }
        if self.random.per_mille(self.scope.sessions) {
            return self.about_sessions(world, who);
        }
        if self.random.per_mille(self.scope.locks) {
            return self.about_locks(world, who);
        }
        match self.random.below(100) {
            0..38 => self.ours(),
            38..57 => self.coming(),
            57..74 => self.changing_places(),
            74..93 => self.going(),
            93..95 => Command::Expire { key: self.name() },
            95 => Command::Persist { key: self.name() },
            96 => Command::Exists { key: self.name() },
            97 => Command::Select {
                db: self.random.below(DATABASES),
            },
            _ => {
                // Never oneself: what is heard of one's own end is nobody's promise.
                let other = 1 + self.random.below(self.scope.places.max(2) - 1);
                Command::Kill {
                    who: (who + other) % self.scope.places.max(2),
                }
            }
        }
    }

    fn watchtp(&mut self) -> Command {
        Command::Watchtp {
            prefix: self.random.below(PREFIXES.len()),
            goes_on: self.random.per_mille(400),
            keys_only: self.random.per_mille(200),
        }
    }

    fn ours(&mut self) -> Command {
        match self.random.below(46) {
            0..2 => Command::Sequence {
                key: self.name(),
                value: self.value(),
                notify: self.notify(),
                acks: None,
            },
            37..44 => self.watchtp(),
            44 => Command::Unwatchtp {
                prefix: match self.random.below(3) {
                    0 => None,
                    _ => Some(self.random.below(PREFIXES.len())),
                },
            },
            2..19 => Command::Settp {
                key: self.name(),
                value: self.value(),
                token: false,
                notify: self.notify(),
                task: self.task(),
                wait: None,
                acks: None,
            },
            19..22 => Command::Deltp { keys: self.names() },
            22..33 => Command::Watchex { keys: self.names() },
            33..37 => Command::Unwatchex { keys: self.names() },
            _ => Command::Unwatchex { keys: Vec::new() },
        }
    }

    fn coming(&mut self) -> Command {
        let key = self.name();
        let value = self.value();
        match self.random.below(19) {
            0..5 => Command::Set { key, value },
            5..8 => Command::Setnx { key, value },
            8 => Command::Append { key },
            9..11 => Command::Mset { keys: self.names() },
            11..14 => Command::Lpush { key },
            _ => Command::Restore {
                key,
                kind: self.kind(),
                replace: self.random.per_mille(500),
            },
        }
    }

    fn kind(&mut self) -> Kind {
        match self.scope.server {
            true => self.random.pick(&[Kind::Text, Kind::List, Kind::Lock]),
            false => self.random.pick(&[Kind::Text, Kind::List]),
        }
    }

    fn changing_places(&mut self) -> Command {
        let (from, to) = (self.name(), self.name());
        match self.random.below(17) {
            0..5 => Command::Rename { from, to },
            5..8 => Command::Renamenx { from, to },
            8..12 => Command::Copy {
                from,
                to,
                db: self.random.below(DATABASES),
                replace: self.random.per_mille(500),
            },
            12..15 => Command::Move {
                key: from,
                db: self.random.below(DATABASES),
            },
            15 => Command::Sort { from, to },
            _ => Command::Swapdb,
        }
    }

    fn going(&mut self) -> Command {
        const PASTS: [Past; 5] = [
            Past::Expire,
            Past::Pexpire,
            Past::Expireat,
            Past::Pexpireat,
            Past::Getex,
        ];
        let key = self.name();
        match self.random.below(19) {
            0..6 => Command::Del { keys: self.names() },
            6 => Command::Unlink { keys: self.names() },
            7 | 8 => Command::Getdel { key },
            9..11 => Command::Lpop { key },
            11 => Command::Sunionstore { to: key },
            12..15 => Command::Lapse {
                key,
                how: self.random.pick(&PASTS),
            },
            15 => Command::RestoreLapsed { key },
            16 => Command::Flushdb,
            17 => Command::Flushall,
            _ => Command::Del { keys: vec![key] },
        }
    }

    pub(super) fn name(&mut self) -> Name {
        self.random.below(self.scope.names)
    }

    /// Mostly one; the same one may be named twice.
    pub(super) fn names(&mut self) -> Vec<Name> {
        let count = self.random.weighted(&[(6, 1), (3, 2), (1, 3)]);
        (0..count).map(|_| self.name()).collect()
    }

    /// This one and perhaps others, none of them twice.
    pub(super) fn names_with(&mut self, key: Name) -> Vec<Name> {
        let mut names = vec![key];
        for name in self.names() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    pub(super) fn value(&mut self) -> u32 {
        self.random.below(1000) as u32
    }
}
