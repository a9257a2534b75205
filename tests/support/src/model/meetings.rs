//! Steps that let keys go from hand to hand, drawn at random: one asks for what another has, and who has what others wait for
//! gives it back, takes it once more, or waits no longer.

use super::command::{Ask, Command, Mode, Spot, Wait, Who};
use super::generate::Generator;
use super::holds::Hold;
use super::step::{Ending, Step};
use super::world::World;

/// From so many waits on, more are seldom added.
const MANY: usize = 2;

impl Generator {
    pub(super) fn meeting(&mut self, world: &World, who: Who) -> Option<Step> {
        if !self.random.per_mille(self.scope.meetings) {
            return None;
        }
        let asks = match world.waiters.len() {
            0 => 950,
            1..MANY => 250,
            _ => 50,
        };
        if self.random.per_mille(30) {
            self.wait_no_longer(world)
        } else if self.random.per_mille(asks) {
            Some(self.ask_for_a_held_one(world, who))
        } else {
            self.give_an_awaited_one(world)
        }
    }

    /// Another's, or to have it once more, or one that nobody holds.
    fn ask_for_a_held_one(&mut self, world: &World, who: Who) -> Step {
        let db = world.db_of(who);
        let own = self.random.per_mille(200);
        let is_meant = |hold: &&Hold| {
            let held_by = world.voice(hold.owner);
            hold.spot.db == db && (held_by == Some(who)) == own
        };
        let meant = world.holds.iter().filter(is_meant);
        let meant: Vec<&Hold> = meant.collect();
        let at = self.random.below(meant.len() + 1);
        let Some(hold) = meant.get(at) else {
            let command = self.ask_for_any();
            return Step::Run { who, command };
        };
        let key = hold.spot.name;
        let push = self.random.per_mille(650);
        let limit_ms = self.random.weighted(&[(9, 0), (2, 100_000)]);
        let wait = Some(Wait { limit_ms, push });
        let command = match hold.mode {
            Mode::Temporary => Command::Settp {
                key,
                value: self.value(),
                token: self.random.per_mille(400),
                notify: self.notify(),
                task: self.task(),
                wait,
                acks: self.acks(world, who),
            },
            held if own => Command::Acquire {
                key,
                mode: self.random.weighted(&[(4, held), (1, Mode::Shared)]),
                ask: Ask {
                    label: hold.label,
                    task: self.task(),
                    reentrant: true,
                    wait: wait.filter(|_| limit_ms > 0),
                    ..Ask::default()
                },
            },
            held => {
                let ask = Ask {
                    wait,
                    ..self.ask_as(world, who)
                };
                let exclusive = Mode::Exclusive;
                match self.random.per_mille(150) {
                    true => Command::Macquire {
                        keys: self.names_with(key),
                        ask,
                    },
                    false => Command::Acquire {
                        key,
                        mode: self
                            .random
                            .weighted(&[(3, exclusive), (2, held), (1, Mode::Shared)]),
                        ask,
                    },
                }
            }
        };
        Step::Run { who, command }
    }

    pub(super) fn ask_for_any(&mut self) -> Command {
        let (key, notify) = (self.name(), self.notify());
        let waits = self.random.per_mille(500);
        let wait = self.wait().filter(|_| waits);
        let (reentrant, label) = (self.random.per_mille(600), self.label());
        let task = self.task();
        match self.random.per_mille(200) {
            true => Command::Settp {
                key,
                value: self.value(),
                token: false,
                notify,
                task,
                wait,
                acks: None,
            },
            false => Command::Acquire {
                key,
                mode: self.mode(),
                ask: Ask {
                    label,
                    task,
                    reentrant,
                    notify,
                    wait,
                    ..Ask::default()
                },
            },
        }
    }

    fn wait_no_longer(&mut self, world: &World) -> Option<Step> {
        let waits = world.waiters.iter().filter(|waiter| waiter.push);
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return None;
        }
        let waiter = waits[self.random.below(waits.len())];
        let (who, label, Spot { db, name: key }) = (waiter.who, waiter.label, waiter.spots[0]);
        let command = match world.db_of(who) == db {
            true => Command::Cancel { key, label },
            false => Command::Select { db },
        };
        Some(Step::Run { who, command })
    }

    fn give_an_awaited_one(&mut self, world: &World) -> Option<Step> {
        let can_give = |who: Who| world.client(who).is_some() && !world.is_blocked(who);
        let is_meant = |hold: &&Hold| {
            let held_by = world.voice(hold.owner);
            world.is_waited_for(hold.spot) && held_by.is_some_and(can_give)
        };
        let meant = world.holds.iter().filter(is_meant);
        let meant: Vec<&Hold> = meant.collect();
        if meant.is_empty() {
            return None;
        }
        let hold = meant[self.random.below(meant.len())];
        let who = world.voice(hold.owner)?;
        let (Spot { db, name: key }, label) = (hold.spot, hold.label);
        if self.random.per_mille(60) {
            let how = Ending::Close;
            return Some(Step::End { who, how });
        }
        let command = if world.db_of(who) != db {
            Command::Select { db }
        } else if world.session_of(who).is_some() && self.random.per_mille(60) {
            Command::EndSession
        } else if hold.mode == Mode::Temporary {
            Command::Deltp { keys: vec![key] }
        } else if self.random.per_mille(50) {
            let lease_ms = self.lease_ms();
            Command::Extend {
                key,
                label,
                lease_ms,
            }
        } else {
            let all = self.random.per_mille(850);
            Command::Release { key, label, all }
        };
        Some(Step::Run { who, command })
    }
}
