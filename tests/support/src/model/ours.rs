//! The module's commands.

use super::acks::Ack;
use super::command::{Command, Label, Mode, Name, Spot, Who};
use super::replies::Reply;
use super::world::{Turn, Watch, World};

impl World {
    pub(super) fn run_ours(&mut self, turn: &mut Turn, command: &Command) -> Reply {
        if command.is_write() && self.slow {
            turn.spots(command.named())
                .into_iter()
                .for_each(|spot| self.end_leases_at(spot));
        } else if command.is_write() {
            self.end_leases(usize::MAX, &[]);
        }
        match command {
            Command::Settp { .. } => self.settp(turn, command),
            Command::Sequence { .. } => self.make_next(turn, command),
            Command::Acquire { key, mode, ask } => self.acquire(turn, &[*key], *mode, ask),
            Command::Macquire { keys, ask } => self.acquire(turn, keys, Mode::Exclusive, ask),
            Command::Release { key, label, all } => self.release_lock(turn, *key, *label, *all),
            Command::Extend {
                key,
                label,
                lease_ms,
            } => self.extend(turn, *key, *label, *lease_ms),
            Command::Raise { key, label, to } => self.raise(turn, *key, *label, *to),
            Command::Cancel { key, label } => self.cancel(turn, *key, *label),
            Command::Deltp { keys } => self.deltp(turn, keys),
            Command::Watchex { keys } => self.watchex(turn, keys),
            Command::Unwatchex { keys } => self.unwatchex(turn, keys),
            Command::Watchtp {
                prefix,
                goes_on,
                keys_only,
            } => self.watchtp(turn, *prefix, *goes_on, *keys_only),
            Command::Unwatchtp { prefix } => self.unwatchtp(turn, *prefix),
            Command::Mine => {
                let own = self.mine(turn.who);
                self.totals.lists += u64::from(!own.is_empty());
                Reply::Mine(own)
            }
            Command::Start { grace_ms } => self.start_session(turn.who, *grace_ms),
            Command::Resume { session, notify } => self.resume(turn.who, *session, *notify),
            Command::EndSession => self.end_session(turn.who),
            Command::Detach => self.detach_session(turn.who),
            Command::KillSession { session } => self.kill_session(*session),
            other => unreachable!("{other:?} is the server's"),
        }
    }

    fn deltp(&mut self, turn: &Turn, keys: &[Name]) -> Reply {
        let mut deleted = 0;
        for spot in turn.spots(keys) {
            self.give_up(turn.who, spot, |waiter| waiter.mode == Mode::Temporary);
            let own = self.own_hold(turn.who, 0, spot);
            if let Some(at) = own.filter(|at| self.holds[*at].mode == Mode::Temporary) {
                // One that was not acknowledged yet is a wait.
                deleted += i64::from(self.holds[at].ack == Ack::Settled);
                self.give_up_pending(turn.who, 0, spot);
                self.release(at);
            }
        }
        Reply::Int(deleted)
    }

    fn cancel(&mut self, turn: &Turn, key: Name, label: Label) -> Reply {
        let spot = turn.spot(key);
        let waited = self.give_up(turn.who, spot, |waiter| waiter.label == label);
        if self.give_up_pending(turn.who, label, spot) || waited {
            self.totals.cancels += 1;
            return Reply::Int(1);
        }
        match self.own_hold(turn.who, label, spot) {
            Some(at) if self.holds[at].ack == Ack::Settled => Reply::Token(self.holds[at].serial),
            _ => Reply::Int(0),
        }
    }

    fn watchex(&mut self, turn: &mut Turn, keys: &[Name]) -> Reply {
        let spots = turn.spots(keys);
        let mut all = self.watched_by(turn.who);
        all.extend(&spots);
        all.sort_unstable();
        all.dedup();
        let count = all.len() + self.prefixes_of(turn.who).count();
        if count > self.limits.watches && all.len() > self.watched_by(turn.who).len() {
            return Reply::refused("ERR too many watches");
        }
        for spot in &spots {
            let watch = Watch {
                who: turn.who,
                spot: *spot,
            };
            if !self.watches.contains(&watch) {
                self.watches.push(watch);
            }
        }
        let state = |spot| {
            Reply::text(if self.exists(spot) {
                "EXIST"
            } else {
                "NOEXIST"
            })
        };
        let mut states: Vec<Reply> = spots.iter().map(|spot| state(*spot)).collect();
        if !turn.in_exec {
            turn.settles = spots;
        }
        match states.len() {
            1 => states.remove(0),
            _ => Reply::Array(states),
        }
    }

    fn unwatchex(&mut self, turn: &mut Turn, keys: &[Name]) -> Reply {
        let spots = match keys {
            [] => self.watched_by(turn.who),
            keys => turn.spots(keys),
        };
        let before = self.watches.len();
        let who = turn.who;
        self.watches
            .retain(|watch| watch.who != who || !spots.contains(&watch.spot));
        if turn.in_exec {
            // What this transaction caused before would be heard after its reply.
            for group in &mut self.pending[who] {
                group.retain(|push| !push.is_watch() || !spots.contains(&push.spot));
            }
            self.pending[who].retain(|group| !group.is_empty());
        } else {
            turn.settles = spots;
        }
        Reply::Int((before - self.watches.len()) as i64)
    }

    pub fn watched_by(&self, who: Who) -> Vec<Spot> {
        let watches = self.watches.iter().filter(|watch| watch.who == who);
        watches.map(|watch| watch.spot).collect()
    }
}

impl Turn {
    pub fn spot(&self, name: Name) -> Spot {
        Spot { db: self.db, name }
    }

    pub fn spots(&self, names: &[Name]) -> Vec<Spot> {
        names.iter().map(|name| self.spot(*name)).collect()
    }
}
