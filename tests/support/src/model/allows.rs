//! Which steps can be taken in a world. Those that cannot are left out, so that a history from which
//! some steps were cut is a history still.
//!
//! Some are left out on servers since it is not said there what comes of them: which of two things
//! is quicker, the server's timer or the next command.

use super::command::{Command, Kind, Label, Mode, Name, Replies, Spot, Who};
use super::entry::Value;
use super::holds::Owner;
use super::starts::BRIEF_MS;
use super::step::{Ending, Step};
use super::world::{Connection, World};

/// Waits and leases shorter than this end within the step that begins them.
const SHORT_MS: u64 = 1000;

impl World {
    pub fn allows(&self, step: &Step) -> bool {
        self.allows_sequences(step) && self.allows_otherwise(step)
    }

    fn allows_otherwise(&self, step: &Step) -> bool {
        match step {
            Step::Connect { who, .. } => self.client(*who).is_none(),
            Step::End { who, how } => {
                // A server that answers nothing does not hang up either.
                let deaf = self.is_blocked(*who) || self.is_unanswered(*who);
                let quits = *how == Ending::Quit && deaf;
                self.client(*who).is_some() && !quits && self.is_said_who_goes_first([*who])
            }
            Step::Run { who, command } => self.is_ready(*who) && self.allows_command(*who, command),
            Step::Multi { who } => self.is_free(*who) && !self.is_told_only_messages(*who),
            Step::Discard { who } => self.is_in_multi(*who),
            Step::Exec { who } => {
                let queued = self.client(*who).and_then(|client| client.queue.as_ref());
                queued.is_some_and(|queued| {
                    let commands: Vec<&Command> = queued.iter().map(|(queued, _)| queued).collect();
                    self.allows_several(&commands)
                })
            }
            Step::Pipeline { who, commands } => {
                let (_, before) = commands.split_last().expect("a pipeline of something");
                let one = |command| self.allows_command(*who, command) && !is_single(command);
                let all: Vec<&Command> = commands.iter().collect();
                let skips = |command: &Command| matches!(command, Command::Replies { .. });
                let is_to_be_heard = |command: &Command| command.parts().iter().any(is_to_be_heard);
                self.is_free(*who)
                    && !self.is_told_only_messages(*who)
                    && !(commands.iter().any(skips) && commands.iter().any(is_to_be_heard))
                    && commands.iter().all(one)
                    && !before.iter().any(Command::blocks)
                    && self.allows_several(&all)
            }
            Step::Expiry { who, key, then } => self.allows_expiry(*who, *key, then.as_ref()),
            Step::Drop { who } => self.can_be_dropped(*who),
            Step::Refuse | Step::Propagated | Step::Replicas { .. } => self.slow,
            Step::Acknowledged { at, .. } => {
                self.slow && self.grants.get(*at).is_some_and(|grant| grant.placed)
            }
            Step::Reload { goes, comes, .. } => {
                let is_there = |who: &Who| self.client(*who).is_some();
                // In which order several keys come to who waits for them, of which each is gone until the last, is not said.
                let is_said = || self.waiters.iter().all(|waiter| waiter.spots.len() == 1);
                (self.slow || is_said())
                    && goes.as_ref().is_none_or(is_there)
                    && !comes.as_ref().is_some_and(is_there)
                    && !(self.slow && self.is_order_of_graces_open_after_load(*goes))
            }
            Step::Rights { user, rights } => {
                self.slow
                    || !self.watches_prefixes_in_multi(*user)
                        && self.is_order_of_losses_said(*user, rights)
            }
            Step::Restart { .. } => !self.slow,
            Step::QuarantineOver => !self.slow && self.quarantine_ends.is_some(),
            Step::Overdue {
                holder,
                key,
                label,
                then: (who, commands),
            } => {
                self.can_be_overdue(*holder, *key, *label)
                    && self.come_upon((*who, *holder), *key, commands)
            }
            Step::Between { .. } => self.allows_between(step),
            Step::Evict { .. }
            | Step::Work { .. }
            | Step::Resync { .. }
            | Step::Quarantine { .. }
            | Step::Pass { .. } => true,
        }
    }

    fn allows_expiry(&self, who: Who, key: Name, then: Option<&(Who, Command)>) -> bool {
        let spot = Spot {
            db: self.db_of(who),
            name: key,
        };
        let then = then.is_none_or(|(other, command)| {
            let meet = self.db_of(who) == self.db_of(*other);
            let said = self.slow || !self.is_waited_for(spot);
            self.is_heard(*other) && meet && said && self.allows_command(*other, command)
        });
        self.is_heard(who) && self.may(who, &Command::Expire { key }) && then
    }

    fn allows_between(&self, step: &Step) -> bool {
        let Step::Between {
            who,
            over,
            deleted,
            command,
        } = step
        else {
            return false;
        };
        self.is_heard(*who)
            && self.can_come_between(*who, [over, deleted], command)
            && self.allows_command(*who, command)
    }

    /// Whether it can say something.
    fn is_ready(&self, who: Who) -> bool {
        // Before or after which of its own replies it hears that it waits no longer, is not said.
        self.client(who).is_some()
            && !self.is_blocked(who)
            && (self.slow || !self.is_to_be_turned_away(who))
    }

    fn is_in_multi(&self, who: Who) -> bool {
        self.client(who).is_some_and(Connection::in_multi)
    }

    fn is_free(&self, who: Who) -> bool {
        self.is_ready(who) && !self.is_in_multi(who)
    }

    /// It is free, and hears what it is answered.
    fn is_heard(&self, who: Who) -> bool {
        self.is_free(who) && !self.is_unanswered(who) && !self.is_told_only_messages(who)
    }

    fn can_be_overdue(&self, holder: Who, name: Name, label: Label) -> bool {
        let db = self.db_of(holder);
        let own = self.own_hold(holder, label, Spot { db, name });
        let lease_ms = BRIEF_MS;
        let extend = Command::Extend {
            key: name,
            label,
            lease_ms,
        };
        !self.slow
            && self.is_heard(holder)
            && own.is_some_and(|at| self.holds[at].mode != Mode::Temporary)
            && self.may(holder, &extend)
    }

    /// Whether it is said what comes of it. For ours the lease is over if they name that key, or ask what their own connection
    /// holds. For the server's the key is there; whether it ends before those are served who may follow is not said.
    fn come_upon(&self, (who, holder): (Who, Who), key: Name, commands: &[Command]) -> bool {
        let Some(first) = commands.first() else {
            return false;
        };
        let db = self.db_of(who);
        let is_waited_for = |name: &Name| self.is_waited_for(Spot { db, name: *name });
        let meets = match first.is_ours() {
            true if first.named().is_empty() => first.is_write() && who == holder,
            true => first.is_write() && first.named().contains(&key),
            false => {
                let named: Vec<Name> = first.parts().iter().flat_map(Command::keys).collect();
                named.contains(&key) && !named.iter().any(is_waited_for)
            }
        };
        let all: Vec<&Command> = commands.iter().collect();
        let alone = |command: &Command| {
            is_single(command) || matches!(command, Command::Replies { .. } | Command::Kill { .. })
        };
        let allowed = |command: &Command| {
            !self.slow_only(command) && self.allows_command(who, command) && !alone(command)
        };
        self.is_heard(who)
            && meets
            && self.may(who, first)
            && commands.iter().all(allowed)
            && (commands.len() == 1 || self.allows_several(&all))
    }

    fn allows_command(&self, who: Who, command: &Command) -> bool {
        if !self.allows_about_hearing(who, command) || !self.allows_to_let_go(who, command) {
            return false;
        }
        if !self.allows_prefixes(who, command) {
            return false;
        }
        let in_multi = self.is_in_multi(who);
        if in_multi && self.is_any_prefix_doubted() && is_about_watches(command) {
            return false;
        }
        let oneself = *command == Command::Kill { who };
        // In which order leases end that end at once is not said.
        let open = !self.slow && command.is_write() && self.is_order_of_leases_open();
        let alone = in_multi && (is_single(command) || self.slow_only(command));
        let dying = command.parts().iter().filter_map(killed);
        !(oneself || open || alone)
            && command.parts().iter().all(|part| self.knows_session(part))
            && self.is_said_who_goes_first(dying)
            && (self.slow || (self.allows_script(command) && !self.overwrites_several(command)))
            && !(self.slow_only(command) && command.wait().is_some() && is_leased_shortly(command))
    }

    /// What one says of what it wants to hear stands alone, but for that it wants no next reply.
    fn allows_about_hearing(&self, who: Who, command: &Command) -> bool {
        let in_script = matches!(command, Command::Script { .. });
        let Some(client) = self.client(who) else {
            return true;
        };
        let alone = !in_script && !client.in_multi();
        let answered = client.replies == Replies::All;
        command.parts().iter().all(|part| match part {
            Command::Replies { how: Replies::All } => alone && client.replies == Replies::None,
            Command::Replies { how: Replies::None } => alone && answered,
            Command::Replies { .. } => alone && client.replies != Replies::None,
            Command::Subscribe => alone && answered && !client.subscribed,
            Command::Unsubscribe => alone && answered && client.subscribed,
            Command::Publish => alone && !client.subscribed,
            _ => answered || !is_to_be_heard(part),
        })
    }

    /// Of which database a push about a prefix is, is not said; and what a sequence's keys are called is known after EXEC's reply.
    fn allows_prefixes(&self, who: Who, command: &Command) -> bool {
        let watches = |part: &Command| matches!(part, Command::Watchtp { .. });
        let unknown =
            |part: &Command| matches!(part, Command::Select { .. } | Command::Sequence { .. });
        let is_queued = |is_meant: &dyn Fn(&Command) -> bool| {
            let client = self.client(who);
            client.is_some_and(|client| client.queued().any(is_meant))
        };
        let heard = !self.is_unanswered(who) && !self.is_told_only_messages(who);
        let elsewhere = self.watches_prefixes_elsewhere(who);
        command.parts().iter().all(|part| match part {
            part if watches(part) => heard && !elsewhere && !is_queued(&unknown),
            part if unknown(part) => !is_queued(&watches),
            _ => true,
        })
    }

    /// A session's grace begins, as with the end of its connection.
    fn allows_to_let_go(&self, who: Who, command: &Command) -> bool {
        let lets_go = command.parts().contains(&Command::Detach);
        let grace_ms = self.session_of(who).map(|session| session.grace_ms);
        !lets_go
            || !self.is_in_multi(who)
                && self.is_said_who_goes_first([who])
                && (self.slow || grace_ms.is_none_or(|ms| ms >= SHORT_MS))
    }

    /// On a server: it is not said what comes of it together with other commands.
    fn slow_only(&self, command: &Command) -> bool {
        let short = |ms: Option<u64>| ms.is_some_and(|ms| ms > 0 && ms < SHORT_MS);
        let wait = command.wait().map(|wait| wait.limit_ms);
        let dying = killed(command).and_then(|who| self.session_of(who));
        let grace = dying.map(|session| session.grace_ms);
        // Which token is the greatest then is not known before.
        let raises = matches!(command, Command::Raise { .. });
        !self.slow && (raises || short(wait) || short(command.lease_ms()) || short(grace))
    }

    /// Its secret was heard of before the command is sent.
    fn knows_session(&self, command: &Command) -> bool {
        match command {
            Command::Resume { session, .. } | Command::KillSession { session } => {
                *session < self.started
            }
            _ => true,
        }
    }

    /// Not two sessions' graces are over at the same moment. (On servers either they are not over at all, or at once.)
    fn is_said_who_goes_first(&self, dying: impl IntoIterator<Item = Who>) -> bool {
        !(self.slow && self.is_order_of_graces_open(dying.into_iter()))
    }

    fn allows_script(&self, command: &Command) -> bool {
        match command {
            Command::Script { commands, .. } => {
                let commands: Vec<&Command> = commands.iter().collect();
                self.allows_several(&commands)
            }
            _ => true,
        }
    }

    /// On a server: who loses a lock that is written over is told a moment later.
    fn overwrites_several(&self, command: &Command) -> bool {
        matches!(command, Command::Mset { keys } if keys.len() > 1) && self.is_any_lock()
    }

    /// Commands that follow each other at once.
    fn allows_several(&self, commands: &[&Command]) -> bool {
        let parts = || commands.iter().flat_map(|command| command.parts());
        let waits = parts().any(|part| part.wait().is_some());
        let carries = |part: &Command| {
            use Command::{Move, Rename, Renamenx, Swapdb};
            matches!(part, Rename { .. } | Renamenx { .. } | Move { .. } | Swapdb)
        };
        if waits && parts().any(carries) {
            return false;
        }
        if !self.slow && parts().any(Command::is_write) && self.is_order_of_leases_open() {
            return false;
        }
        let watches = |part: &Command| matches!(part, Command::Watchtp { .. });
        let selects = |part: &Command| matches!(part, Command::Select { .. });
        if parts().any(watches) && parts().any(selects) {
            return false;
        }
        // When it is noticed that a watch of a prefix is over is not said.
        if self.is_any_prefix_doubted() && parts().any(is_about_watches) {
            return false;
        }
        let lets_go = parts().any(|part| *part == Command::Detach);
        if lets_go || !self.is_said_who_goes_first(parts().filter_map(killed)) {
            return false;
        }
        if self.slow {
            return true;
        }
        if !self.kills_holders_last(parts()) {
            return false;
        }
        let flushes = |part: &Command| matches!(part, Command::Flushdb | Command::Flushall);
        let kills = |part: &Command| killed(part).is_some();
        let awaited = waits || !self.waiters.is_empty();
        let locks = parts()
            .any(|part| matches!(part, Command::Acquire { .. } | Command::Macquire { .. }))
            || parts().any(restores_lock)
            || self.is_any_lock();
        let overwrites = |part: &Command| {
            use Command::{Mset, Set, Sort};
            matches!(part, Set { .. } | Mset { .. } | Sort { .. })
        };
        let ends = awaited && parts().any(|part| flushes(part) || kills(part));
        // A lock that nobody holds goes a moment later, or when somebody's connection ends: before or after others are served since
        // databases were exchanged, or somebody is turned away who waits and may not any more.
        let swaps = |part: &Command| *part == Command::Swapdb;
        let unordered = parts().any(kills)
            || (awaited && parts().any(swaps))
            || self.is_anybody_to_be_turned_away();
        let ends = ends || (parts().any(restores_lock) && unordered);
        let overwrites = locks && parts().any(overwrites);
        !(ends || overwrites || parts().any(|part| self.slow_only(part)))
    }

    /// What a killed connection holds is there until the commands that follow at once are over: they would find it. What these
    /// store there stays.
    fn kills_holders_last<'a>(&self, parts: impl Iterator<Item = &'a Command>) -> bool {
        let is_holder = |who| {
            let mut owners = self.holds.iter().map(|hold| hold.owner);
            owners.any(|owner| owner == Owner::Connection(who))
        };
        let mut later = parts.skip_while(|part| !killed(part).is_some_and(is_holder));
        let stores = |part: &Command| matches!(part, Command::Set { .. } | Command::Mset { .. });
        later.all(|part| killed(part).is_some() || stores(part))
    }

    fn is_any_lock(&self) -> bool {
        let locks = |waiter: &super::queues::Waiter| waiter.value == Value::Lock;
        let mut entries = self.databases.iter().flatten();
        entries.any(|entry| entry.value == Value::Lock) || self.waiters.iter().any(locks)
    }

    fn can_be_dropped(&self, who: Who) -> bool {
        let granted = self.just_granted[who];
        let mut own = self.holds.iter();
        self.slow
            && granted.is_some()
            && self.client(who).is_some()
            && own.any(|hold| Some(hold.serial) == granted && hold.whole_depth() == 1)
    }
}

fn restores_lock(command: &Command) -> bool {
    let kind = Kind::Lock;
    matches!(command, Command::Restore { kind: restored, .. } if *restored == kind)
}

fn killed(command: &Command) -> Option<Who> {
    match command {
        Command::Kill { who } => Some(*who),
        _ => None,
    }
}

fn is_single(command: &Command) -> bool {
    match command {
        Command::Replies { how } => *how != Replies::NotNext,
        Command::Unblock { .. } | Command::Subscribe | Command::Unsubscribe | Command::Publish => {
            true
        }
        _ => false,
    }
}

/// What somebody does only if it hears of it: it starts a session, and what it believes of prefixes follows from the replies.
fn is_to_be_heard(command: &Command) -> bool {
    use Command::{Start, Unwatchtp, Watchtp};
    matches!(command, Start { .. } | Watchtp { .. } | Unwatchtp { .. })
}

fn is_about_watches(command: &Command) -> bool {
    use Command::{Unwatchex, Unwatchtp, Watchex, Watchtp};
    let is_watch = |part: &Command| {
        matches!(
            part,
            Watchex { .. } | Unwatchex { .. } | Watchtp { .. } | Unwatchtp { .. }
        )
    };
    command.parts().iter().any(is_watch)
}

fn is_leased_shortly(command: &Command) -> bool {
    command.lease_ms().is_some_and(|ms| ms < SHORT_MS)
}
