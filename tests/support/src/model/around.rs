//! Steps that only a server can take, drawn at random: rights, what connections want to hear, loads and new starts, leases
//! that nobody saw end, locks that go from place to place.

use super::command::{Ask, Command, DATABASES, Kind, Label, Mode, Name, Replies, Spot, Who};
use super::generate::Generator;
use super::rights::{Rights, USERS, user_of};
use super::sequence::given;
use super::step::Step;
use super::world::{Connection, World};

/// How much of that there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around {
    /// How many of a thousand steps change rights.
    pub rights: usize,
    /// Or are about what a connection wants to hear.
    pub hearing: usize,
    /// Or let a lease end without notice.
    pub overdue: usize,
    /// Or have other keys end while one goes by another name, where there is a module that does that.
    pub between: usize,
    /// How many of a thousand commands are about prefixes, besides the usual ones.
    pub prefixes: usize,
    /// Whether the server writes down all that is done, and can be started again with it.
    pub files: bool,
}

impl Generator {
    pub(super) fn around(&mut self, world: &World, who: Who) -> Option<Step> {
        let Around {
            rights,
            hearing,
            overdue,
            between,
            files,
            prefixes: _,
        } = self.scope.around;
        if hearing > 0
            && (world.is_unanswered(who) || world.is_told_only_messages(who))
            && self.random.per_mille(250)
        {
            // Else most would be said in vain.
            return Some(self.hear(world, who));
        }
        if world.quarantine_ends.is_some() && self.random.per_mille(15) {
            return Some(Step::QuarantineOver);
        }
        if world.quarantine_ends.is_some() && self.scope.meetings > 0 && self.random.per_mille(450)
        {
            let command = self.ask_for_any();
            return Some(Step::Run { who, command });
        }
        if self.random.per_mille(rights) {
            Some(self.change_rights(world))
        } else if self.random.per_mille(hearing) {
            Some(self.hear(world, who))
        } else if self.random.per_mille(overdue) {
            self.overdue(world, who)
        } else if self.random.per_mille(between) {
            self.between(world, who)
        } else if self.scope.server && self.random.per_mille(2) {
            Some(self.reload(world))
        } else if files && self.random.per_mille(4) {
            let quarantine = self.random.per_mille(600);
            Some(Step::Restart { quarantine })
        } else {
            None
        }
    }

    /// Soon back again.
    fn change_rights(&mut self, world: &World) -> Step {
        let limited = |user: &usize| world.rights[*user] != Rights::default();
        let limited: Vec<usize> = (0..USERS).filter(limited).collect();
        let rights = Rights::default();
        if !limited.is_empty() && self.random.per_mille(500) {
            let user = self.random.pick(&limited);
            return Step::Rights { user, rights };
        }
        let asks_not = self.random.per_mille(150);
        let waits = world.waiters.iter();
        let waits: Vec<_> = waits
            .map(|waiter| (user_of(waiter.who), waiter.spots[0].name))
            .collect();
        if !waits.is_empty() && self.random.per_mille(600) {
            let (user, name) = self.random.pick(&waits);
            let hidden = vec![given(name)];
            let rights = Rights { hidden, asks_not };
            return Step::Rights { user, rights };
        }
        let user = self.random.below(USERS);
        let seen = world.seen_by(user);
        let hidden = vec![match seen.is_empty() || self.random.per_mille(400) {
            true => self.name(),
            false => given(self.random.pick(&seen)),
        }];
        let rights = Rights { hidden, asks_not };
        Step::Rights { user, rights }
    }

    fn hear(&mut self, world: &World, who: Who) -> Step {
        let client = world.client(who).expect("it was drawn among those there");
        let often = self.random.per_mille(500);
        let command = match client.replies {
            Replies::None => Command::Replies { how: Replies::All },
            _ if client.subscribed && (often || !client.resp3) => Command::Unsubscribe,
            _ => self
                .random
                .weighted(&[
                    (2, &Command::Replies { how: Replies::None }),
                    (
                        2,
                        &Command::Replies {
                            how: Replies::NotNext,
                        },
                    ),
                    (4, &Command::Subscribe),
                    (4, &Command::Publish),
                ])
                .clone(),
        };
        Step::Run { who, command }
    }

    /// Of commands in one piece one may want no reply.
    pub(super) fn some_unanswered(&mut self, mut commands: Vec<Command>) -> Vec<Command> {
        if self.scope.around.hearing > 0 && self.random.per_mille(150) {
            let at = self.random.below(commands.len());
            let how = Replies::NotNext;
            commands.insert(at, Command::Replies { how });
        }
        commands
    }

    /// Some of the time its own, or one for which this one waits.
    fn overdue(&mut self, world: &World, who: Who) -> Option<Step> {
        let locks = world
            .holds
            .iter()
            .filter(|hold| hold.mode != Mode::Temporary);
        let locks: Vec<_> = locks.collect();
        if locks.is_empty() {
            return None;
        }
        let hold = locks[self.random.below(locks.len())];
        let (Spot { name: key, .. }, label) = (hold.spot, hold.label);
        let holder = world.voice(hold.owner)?;
        let waits = world.queue(hold.spot).first().map(|waiter| waiter.who);
        let who = match self.random.per_mille(600) {
            true => waits.unwrap_or(who),
            false => who,
        };
        let mut commands = vec![self.coming_upon(key, label)];
        if self.random.per_mille(300) {
            commands.extend((0..1 + self.random.below(3)).map(|_| self.command(world, who)));
        }
        let then = (who, commands);
        Some(Step::Overdue {
            holder,
            key,
            label,
            then,
        })
    }

    /// Mostly a held key goes, and others that are held end meanwhile.
    fn between(&mut self, world: &World, who: Who) -> Option<Step> {
        let db = world.db_of(who);
        let there: Vec<Spot> = world
            .spots()
            .into_iter()
            .filter(|spot| spot.db == db)
            .collect();
        let held = there.iter().copied().filter(|spot| world.is_held(*spot));
        let held: Vec<Spot> = held.collect();
        if there.len() < 2 || held.is_empty() {
            return None;
        }
        let goes_held = self.random.per_mille(800);
        let from = self
            .random
            .pick(if goes_held { &held } else { &there })
            .name;
        let to = self.name();
        let mut over: Vec<Name> = there.iter().map(|spot| spot.name).collect();
        over.retain(|name| *name != from && self.random.per_mille(600));
        let is_deleted = |name: &Name| *name != to && self.random.per_mille(500);
        let (deleted, mut over): (Vec<Name>, Vec<Name>) = over.into_iter().partition(is_deleted);
        if deleted.is_empty() && self.random.per_mille(50) {
            over = vec![from];
        }
        let mut command = match self.random.below(10) {
            0..6 => Command::Rename { from, to },
            6 => Command::Renamenx { from, to },
            _ => Command::Move {
                key: from,
                db: 1 - db,
            },
        };
        if self.random.per_mille(300) {
            let mut commands = vec![command];
            commands.extend((0..self.random.below(3)).map(|_| self.command(world, who)));
            commands.retain(|part| !matches!(part, Command::Kill { .. } | Command::Unblock { .. }));
            let written = self.random.per_mille(500);
            command = Command::Script { commands, written };
        }
        let is_one = over.len() + deleted.len() > 0;
        is_one.then_some(Step::Between {
            who,
            over,
            deleted,
            command,
        })
    }

    /// A command about that key, or that ends what is over by itself.
    fn coming_upon(&mut self, key: Name, label: Label) -> Command {
        let ask = Ask {
            label: self.random.pick(&[0, label]),
            task: self.task(),
            reentrant: self.random.per_mille(500),
            notify: self.notify(),
            wait: self.wait(),
            ..Ask::default()
        };
        match self.random.below(14) {
            0 | 1 => Command::Cancel { key, label },
            2 => Command::Deltp { keys: vec![key] },
            3 => Command::Release {
                key,
                label,
                all: true,
            },
            4 | 5 => Command::Settp {
                acks: None,
                key,
                value: self.value(),
                token: true,
                notify: ask.notify,
                task: ask.task,
                wait: ask.wait,
            },
            6 => Command::Extend {
                key,
                label,
                lease_ms: 100_000,
            },
            7 | 8 => {
                let mode = self.mode();
                Command::Acquire { key, mode, ask }
            }
            9 => {
                let keys = self.names_with(key);
                Command::Macquire { keys, ask }
            }
            10 => Command::Start {
                grace_ms: self.grace_ms(),
            },
            11 => Command::EndSession,
            12 => self.by_the_server(key),
            _ => Command::Script {
                commands: vec![self.by_the_server(key), Command::Cancel { key, label }],
                written: self.random.per_mille(500),
            },
        }
    }

    fn by_the_server(&mut self, key: Name) -> Command {
        let to = self.name();
        match self.random.below(6) {
            0 | 1 => Command::Del { keys: vec![key] },
            2 => Command::Exists { key },
            3 => Command::Rename { from: key, to },
            4 => Command::Persist { key },
            _ => Command::Set {
                key,
                value: self.value(),
            },
        }
    }

    pub(super) fn reload(&mut self, world: &World) -> Step {
        let places = 0..self.scope.places;
        let (there, free): (Vec<Who>, Vec<Who>) =
            places.partition(|who| world.client(*who).is_some());
        let mut one = |of: Vec<Who>| {
            let meets = !of.is_empty() && self.random.per_mille(600);
            meets.then(|| self.random.pick(&of))
        };
        let (goes, comes) = (one(there), one(free).filter(|_| self.scope.server));
        let appended = self.scope.around.files && self.random.per_mille(500);
        Step::Reload {
            appended,
            goes,
            comes,
        }
    }

    /// A lock that is restored, and goes from place to place in the same step.
    pub(super) fn restored_and_carried(&mut self, who: Who) -> Step {
        let (kind, replace, mut key) = (Kind::Lock, true, self.name());
        let mut commands = vec![Command::Restore { key, kind, replace }];
        for _ in 0..1 + self.random.below(3) {
            let (from, other, db) = (key, self.name(), self.random.below(DATABASES));
            commands.push(match self.random.below(10) {
                0..6 => {
                    key = other;
                    Command::Rename { from, to: key }
                }
                6..8 => Command::Move { key, db },
                8 => Command::Rename {
                    from: other,
                    to: key,
                },
                _ => Command::Swapdb,
            });
        }
        let written = self.random.per_mille(500);
        match self.random.per_mille(500) {
            true => Step::Pipeline { who, commands },
            false => Step::Run {
                who,
                command: Command::Script { commands, written },
            },
        }
    }

    /// In a transaction, what was restored or carried goes on its way.
    fn is_carried(client: &Connection) -> Option<usize> {
        match client.queued_last()? {
            Command::Restore {
                key,
                kind: Kind::Lock,
                ..
            }
            | Command::Rename { to: key, .. } => Some(*key),
            _ => None,
        }
    }

    pub(super) fn carried_on(&mut self, client: &Connection) -> Option<Command> {
        let key = Generator::is_carried(client).filter(|_| self.scope.server)?;
        match self.random.below(4) {
            0 => Some(Command::Rename {
                from: key,
                to: self.name(),
            }),
            1 => Some(Command::Move {
                key,
                db: self.random.below(DATABASES),
            }),
            _ => None,
        }
    }
}
