//! What befalls a whole server: loads, leases that end without its notice, crashes and new starts.

use super::command::{Command, Label, Name, Who};
use super::replies::Reply;
use super::rights::Rights;
use super::step::Step;
use super::world::World;

/// The lease that ends without notice.
pub const BRIEF_MS: u64 = 8;

impl World {
    /// Nothing is different after it but that somebody has gone, and somebody has come.
    pub(super) fn reload_meanwhile(&mut self, goes: Option<Who>, comes: Option<Who>) {
        self.totals.loads += 1;
        goes.into_iter().for_each(|who| self.end(who));
        self.reload();
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

    /// Nobody is connected any more. Of what was held there is what sessions held.
    pub(super) fn restart(&mut self, quarantine: bool) {
        self.totals.restarts += 1;
        let pushes = self.waiters.iter().filter(|waiter| waiter.push).count();
        self.totals.pushes_given_up += pushes as u64;
        self.waiters.clear();
        self.watches.clear();
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
