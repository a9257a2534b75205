//! Commands about locks, waits and sessions, drawn at random, a little in favour of what somebody holds.

use super::command::{Acks, Ask, Command, Label, Mode, Name, Raised, Task, Wait, Who};
use super::generate::Generator;
use super::sessions::Number;
use super::world::World;

impl Generator {
    pub(super) fn about_locks(&mut self, world: &World, who: Who) -> Command {
        match self.random.below(100) {
            0..32 => {
                let mode = self.mode();
                let key = self.name();
                let ask = self.ask_as(world, who);
                Command::Acquire { key, mode, ask }
            }
            32..36 => self.sequence(world, who),
            36..46 => self.settp(world, who),
            46..55 => {
                let key = self.name();
                let keys = self.names_with(key);
                let ask = self.ask_as(world, who);
                Command::Macquire { keys, ask }
            }
            55..76 => {
                let (key, label) = self.something_held(world, who);
                let all = self.random.per_mille(250);
                Command::Release { key, label, all }
            }
            76..80 => {
                let (key, label) = self.something_held(world, who);
                let to = self.raised();
                Command::Raise { key, label, to }
            }
            80..85 => {
                let (key, label) = self.something_held(world, who);
                let lease_ms = self.lease_ms();
                Command::Extend {
                    key,
                    label,
                    lease_ms,
                }
            }
            85..89 => {
                let (key, label) = self.something_asked_for(world, who);
                Command::Cancel { key, label }
            }
            89..94 => {
                let keys = match self.random.below(2) {
                    0 => self.names(),
                    _ => vec![self.something_held(world, who).0],
                };
                Command::Deltp { keys }
            }
            _ => {
                let blocked = (0..self.scope.places).filter(|who| world.is_blocked(*who));
                let blocked: Vec<Who> = blocked.collect();
                let who = match blocked.is_empty() {
                    true => self.random.below(self.scope.places),
                    false => self.random.pick(&blocked),
                };
                let error = self.random.per_mille(500);
                Command::Unblock { who, error }
            }
        }
    }

    fn sequence(&mut self, world: &World, who: Who) -> Command {
        Command::Sequence {
            key: self.name(),
            value: self.value(),
            notify: self.notify(),
            acks: self.acks(world, who),
        }
    }

    fn settp(&mut self, world: &World, who: Who) -> Command {
        let wait = self.wait();
        let token = self.random.per_mille(400);
        let notify = self.notify();
        let task = self.task();
        let acks = self.acks(world, who);
        Command::Settp {
            key: self.name(),
            value: self.value(),
            token,
            notify,
            task,
            wait,
            acks,
        }
    }

    pub(super) fn about_sessions(&mut self, world: &World, who: Who) -> Command {
        let has_one = world.session_of(who).is_some();
        let at = match has_one || world.started == 0 {
            true => self.random.below(400),
            false => self.random.below(1000),
        };
        match at {
            0..200 if has_one => Command::EndSession,
            0..30 => Command::EndSession,
            200..260 if has_one => Command::Detach,
            30..40 => Command::Detach,
            260..300 if world.started > 0 && !self.scope.server => Command::KillSession {
                session: self.session(world),
            },
            300..1000 if world.started > 0 => Command::Resume {
                session: self.session(world),
                notify: self.notify(),
            },
            _ => Command::Start {
                grace_ms: self.grace_ms(),
            },
        }
    }

    /// Mostly one that nobody has.
    pub(super) fn session(&mut self, world: &World) -> Number {
        let all = || world.sessions.iter();
        let detached = all().filter(|session| session.attached.is_none());
        let detached: Vec<Number> = detached.map(|session| session.number).collect();
        let living: Vec<Number> = all().map(|session| session.number).collect();
        let (nearly_always, often) = (self.random.per_mille(750), self.random.per_mille(700));
        if nearly_always && !detached.is_empty() {
            self.random.pick(&detached)
        } else if often && !living.is_empty() {
            self.random.pick(&living)
        } else {
            self.random.below(world.started as usize) as Number
        }
    }

    /// On a server either over at once or never.
    pub(super) fn grace_ms(&mut self) -> u64 {
        match self.scope.server {
            true => self.random.pick(&[5, 86_400_000, 86_400_000]),
            false => self.random.pick(&[1, 1, 2, 3, 10, 60]),
        }
    }

    pub(super) fn mode(&mut self) -> Mode {
        let total = self.random.weighted(&[(9, 3), (1, 2)]);
        let count = 1 + self.random.below(total as usize) as u32;
        let permits = Mode::Permits { count, total };
        self.random
            .weighted(&[(4, Mode::Exclusive), (4, Mode::Shared), (3, permits)])
    }

    pub(super) fn ask(&mut self) -> Ask {
        let lease = self.random.per_mille(150);
        Ask {
            label: self.label(),
            task: self.task(),
            lease_ms: lease.then(|| self.lease_ms()),
            reentrant: self.random.per_mille(500),
            notify: self.notify(),
            wait: self.wait(),
            acks: None,
        }
    }

    /// Some ask for acknowledgements.
    pub(super) fn ask_as(&mut self, world: &World, who: Who) -> Ask {
        let (ask, acks) = (self.ask(), self.acks(world, who));
        let reentrant = ask.reentrant && acks.is_none();
        Ask {
            reentrant,
            acks,
            ..ask
        }
    }

    /// Mostly one that has a session. Servers have no replicas, so that nothing is pending there.
    pub(super) fn acks(&mut self, world: &World, who: Who) -> Option<Acks> {
        let often = match world.session_of(who) {
            Some(_) => 600,
            None => 10,
        };
        let often = if self.scope.server { often / 4 } else { often };
        let asks = self.scope.sessions > 0 && self.random.per_mille(often);
        asks.then(|| Acks {
            replicas: self.random.pick(&[1, 1, 1, 2, 2, 3]),
            timeout_ms: self.random.pick(&[1, 4, 12, 40, 200, 1000]),
        })
    }

    pub(super) fn notify(&mut self) -> bool {
        self.random.per_mille(400)
    }

    fn raised(&mut self) -> Raised {
        let above = 1 + self.random.below(1000) as u32;
        self.random.weighted(&[
            (6, Raised::Above(above)),
            (2, Raised::Least),
            (1, Raised::TooFar),
        ])
    }

    pub(super) fn label(&mut self) -> Label {
        self.random.weighted(&[(6, 0), (2, 1), (1, 2)])
    }

    /// So that several owners are one task, and one owner is several.
    pub(super) fn task(&mut self) -> Option<Task> {
        let label = self.label();
        self.random.per_mille(350).then_some(label)
    }

    pub(super) fn lease_ms(&mut self) -> u64 {
        match self.scope.server {
            true => self.random.pick(&[5, 100_000, 200_000]),
            false => self.random.pick(&[1, 3, 10, 30, 100]),
        }
    }

    pub(super) fn wait(&mut self) -> Option<Wait> {
        let limits: &[u64] = match self.scope.server {
            true => &[0, 0, 0, 100_000, 5],
            false => &[0, 0, 1, 4, 12, 40],
        };
        let waits = self.random.per_mille(600);
        waits.then(|| Wait {
            limit_ms: self.random.pick(limits),
            push: self.random.per_mille(500),
        })
    }

    /// Mostly what this one waits for in its database, or holds there.
    fn something_asked_for(&mut self, world: &World, who: Who) -> (Name, Label) {
        let waits = world.waiters.iter().filter(|waiter| waiter.who == who);
        let spots = waits.flat_map(|waiter| waiter.spots.iter().map(|spot| (*spot, waiter.label)));
        let here = spots.filter(|(spot, _)| spot.db == world.db_of(who));
        let asked: Vec<(Name, Label)> = here.map(|(spot, label)| (spot.name, label)).collect();
        match asked.is_empty() || self.random.per_mille(250) {
            true => self.something_held(world, who),
            false => self.random.pick(&asked),
        }
    }

    /// Mostly what this one holds in its database.
    fn something_held(&mut self, world: &World, who: Who) -> (Name, Label) {
        let held = world.holds_of(who).into_iter();
        let held = held.filter(|hold| hold.spot.db == world.db_of(who));
        let held: Vec<(Name, Label)> = held.map(|hold| (hold.spot.name, hold.label)).collect();
        match held.is_empty() || self.random.per_mille(150) {
            true => (self.name(), self.label()),
            false => self.random.pick(&held),
        }
    }
}
