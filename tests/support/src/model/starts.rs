//! What befalls a whole server: loads, leases that end without its notice, crashes and new starts.

use super::command::{Command, Label, Name, Spot, Who};
use super::replies::{Loss, Reply};
use super::rights::Rights;
use super::step::Step;
use super::world::World;
use std::collections::BTreeSet;

/// The lease that ends without notice.
pub const BRIEF_MS: u64 = 8;

impl World {
    /// Somebody goes meanwhile, and somebody comes.
    pub(super) fn reload_meanwhile(&mut self, goes: Option<Who>, comes: Option<Who>) {
        self.totals.loads += 1;
        self.reload(goes);
        if !self.slow {
            // In which order what connections held goes is not said.
            let outer = self.gathered.replace(Vec::new());
            assert!(outer.is_none());
            self.remove_left_behind(usize::MAX);
            let pushes = self.gathered.take().unwrap_or_default();
            self.tell(pushes);
        }
        comes.into_iter().for_each(|who| self.connect(who, true));
    }

    /// It gives its lock a lease, which is over before the commands come; nothing else is.
    pub(super) fn overdue(
        &mut self,
        holder: Who,
        key: Name,
        label: Label,
        (who, commands): &(Who, Vec<Command>),
    ) {
        self.totals.overdue += 1;
        let turn = self.turn(holder, self.made, false);
        let reply = self.extend(&turn, key, label, BRIEF_MS);
        assert_eq!(reply, Reply::Int(1), "only who holds it can");
        self.answer(holder, reply, Vec::new());
        self.pass(BRIEF_MS);
        let who = *who;
        if let [command] = &commands[..] {
            return self.send(who, command);
        }
        self.totals.overdue_in_exec += 1;
        self.happen(&Step::Multi { who });
        commands.iter().for_each(|command| self.send(who, command));
        self.happen(&Step::Exec { who });
    }

    /// The command comes upon keys that are over, and others are deleted.
    pub(super) fn between(&mut self, who: Who, [over, deleted]: [&[Name]; 2], command: &Command) {
        let db = self.db_of(who);
        let spots = |names: &[Name]| names.iter().map(|name| Spot { db, name: *name }).collect();
        (self.over, self.to_be_deleted) = (spots(over), spots(deleted));
        self.send(who, command);
        let left = self.over.len() + self.to_be_deleted.len();
        assert_eq!(left, 0, "the key was to go on its way");
    }

    /// Whoever names a key that is over sees to its end.
    pub(super) fn notice(&mut self, spot: Spot) {
        if let Some(at) = self.over.iter().position(|over| *over == spot) {
            self.over.remove(at);
            self.lapse(spot);
        }
    }

    /// A key that this one carries has left its old name.
    pub(super) fn meddle(&mut self, who: Who, from: Spot) {
        let over = std::mem::take(&mut self.over);
        let deleted = std::mem::take(&mut self.to_be_deleted);
        if self.is_held(from) {
            self.totals.between += (over.len() + deleted.len()) as u64;
        }
        over.into_iter().for_each(|spot| self.lapse(spot));
        for spot in deleted {
            self.delete(who, spot, Loss::Deleted);
        }
    }

    /// Nobody waits for what is over or deleted: whether its waiter is served before others hear of what the command does is not
    /// said; nor whether what the module deletes is whose command it is in. And the key must go on its way, unless itself is
    /// what is over.
    pub(super) fn can_come_between(
        &self,
        who: Who,
        [over, deleted]: [&[Name]; 2],
        command: &Command,
    ) -> bool {
        let db = self.db_of(who);
        let carries = &command.parts()[0];
        let Some((from, to)) = way_of(carries, db) else {
            return false;
        };
        let is_over = |spot: Spot| spot.db == db && over.contains(&spot.name);
        let taken = self.exists(to) && !is_over(to);
        let replaces = matches!(carries, Command::Rename { .. });
        let goes = self.exists(from) && from != to && (replaces || !taken);
        let spots = |names: &[Name]| {
            let spots = names.iter().map(|name| Spot { db, name: *name });
            spots.collect::<Vec<_>>()
        };
        let (over, deleted) = (spots(over), spots(deleted));
        let is_own = |spot: &Spot| {
            let mut holds = self.holds.iter().filter(|hold| hold.spot == *spot);
            holds.any(|hold| self.voice(hold.owner) == Some(who))
        };
        let all: BTreeSet<Spot> = over.iter().chain(&deleted).copied().collect();
        let is_there = |spot: &Spot| self.exists(*spot) && !self.is_waited_for(*spot);
        !self.slow
            && goes
            && all.len() == over.len() + deleted.len()
            && (!over.contains(&from) || all.len() == 1)
            && !deleted
                .iter()
                .any(|spot| [from, to].contains(spot) || is_own(spot))
            && (self.is_held(from) || all.iter().any(|spot| self.is_held(*spot)))
            && all.iter().all(is_there)
            && self.may(who, carries)
            && self.may(who, command)
    }

    /// Nobody is connected any more. Of what was held there is what sessions held.
    pub(super) fn restart(&mut self, quarantine: bool) {
        self.totals.restarts += 1;
        let pushes = self.waiters.iter().filter(|waiter| waiter.push).count();
        self.totals.pushes_given_up += pushes as u64;
        self.waiters.clear();
        self.watches.clear();
        self.prefixes.clear();
        for who in 0..self.clients.len() {
            if self.client(who).is_some() {
                self.end(who);
            }
        }
        let now = self.now;
        for session in &mut self.sessions {
            session.ends = Some(now + session.grace_ms);
        }
        // Users are made by a command, and in no file.
        self.rights.fill(Rights::default());
        // The files say under which name a key is held, not under which it was asked for.
        self.holds.iter_mut().for_each(|hold| hold.renamed = false);
        self.quarantine_ends = quarantine.then_some(u64::MAX);
    }
}

/// Where a key that is renamed or moved goes from, and where to.
fn way_of(command: &Command, db: usize) -> Option<(Spot, Spot)> {
    match *command {
        Command::Rename { from, to } | Command::Renamenx { from, to } => {
            Some((Spot { db, name: from }, Spot { db, name: to }))
        }
        Command::Move { key, db: to } => Some((Spot { db, name: key }, Spot { db: to, name: key })),
        _ => None,
    }
}
