//! Rights: what the users of connections may do.

use super::command::{Command, Name, Spot, Who};
use super::holds::Hold;
use super::queues::Waiter;
use super::replies::Reply;
use super::sequence::given;
use super::step::Step;
use super::world::{Turn, World};

/// The connections of a place have one of these users.
pub type User = usize;
pub const USERS: usize = 3;

pub fn user_of(who: Who) -> User {
    who % USERS
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The keys that it may not name.
    pub hidden: Vec<Name>,
    /// It may not ask for keys.
    pub asks_not: bool,
}

impl Rights {
    fn allow(&self, command: &Command) -> bool {
        let asks = matches!(
            command,
            Command::Settp { .. }
                | Command::Sequence { .. }
                | Command::Acquire { .. }
                | Command::Macquire { .. }
        );
        let hidden = |name: &Name| self.hidden.contains(&given(*name));
        !(command.keys().iter().any(hidden) || asks && self.asks_not)
    }
}

impl Command {
    /// The keys that it names, except within a script.
    pub fn keys(&self) -> Vec<Name> {
        match self {
            Command::Watchex { keys }
            | Command::Unwatchex { keys }
            | Command::Mset { keys }
            | Command::Del { keys }
            | Command::Unlink { keys } => keys.clone(),
            Command::Set { key, .. }
            | Command::Setnx { key, .. }
            | Command::Append { key }
            | Command::Lpush { key }
            | Command::Restore { key, .. }
            | Command::Move { key, .. }
            | Command::Getdel { key }
            | Command::Lpop { key }
            | Command::Sunionstore { to: key }
            | Command::Lapse { key, .. }
            | Command::RestoreLapsed { key }
            | Command::Expire { key }
            | Command::Persist { key }
            | Command::Exists { key } => vec![*key],
            Command::Rename { from, to }
            | Command::Renamenx { from, to }
            | Command::Copy { from, to, .. }
            | Command::Sort { from, to } => vec![*from, *to],
            _ => self.named().to_vec(),
        }
    }
}

impl World {
    /// Somebody may do all again.
    pub(super) fn rights_again(&self) -> Option<Step> {
        let limited = |user: &User| self.rights[*user] != Rights::default();
        let user = (0..USERS).find(limited)?;
        let rights = Rights::default();
        Some(Step::Rights { user, rights })
    }

    pub(super) fn change_rights(&mut self, user: User, rights: &Rights) {
        let before = std::mem::replace(&mut self.rights[user], rights.clone());
        let is_lost = |name: &Name| {
            let name = given(*name);
            rights.hidden.contains(&name) && !before.hidden.contains(&name)
        };
        let lost = self.seen_by(user).into_iter().filter(is_lost);
        self.totals.rights_lost += lost.count() as u64;
    }

    /// The keys that its connections hold or watch.
    pub(super) fn seen_by(&self, user: User) -> Vec<Name> {
        let watches = self.watches.iter().map(|watch| (watch.who, watch.spot));
        let voice = |hold: &Hold| Some((self.voice(hold.owner)?, hold.spot));
        let holds = self.holds.iter().filter_map(voice);
        let its = watches
            .chain(holds)
            .filter(|(who, _)| user_of(*who) == user);
        its.map(|(_, spot)| spot.name).collect()
    }

    pub fn may(&self, who: Who, command: &Command) -> bool {
        self.rights[user_of(who)].allow(command)
    }

    /// Whether this connection's user may neither read nor write that key.
    pub(super) fn hides(&self, who: Who, spot: Spot) -> bool {
        self.rights[user_of(who)].hidden.contains(&given(spot.name))
    }

    /// Who waits and may not have it any more is turned away when its turn comes. Whose turn comes first, where several keys become
    /// free in one step, is not said, so there are not two such.
    pub(super) fn is_order_of_losses_said(&self, user: User, rights: &Rights) -> bool {
        let loses = |waiter: &&Waiter| match user_of(waiter.who) == user {
            true => waiter.loses(rights),
            false => self.has_lost_rights(waiter),
        };
        self.waiters.iter().filter(loses).count() < 2
    }

    /// Whether this one's user may no longer have what it waits for.
    pub(super) fn has_lost_rights(&self, waiter: &Waiter) -> bool {
        waiter.loses(&self.rights[user_of(waiter.who)])
    }

    /// Whether this connection waits for what its user may no longer have.
    pub fn is_to_be_turned_away(&self, who: Who) -> bool {
        let mut all = self.waiters.iter().filter(|waiter| waiter.who == who);
        all.any(|waiter| self.has_lost_rights(waiter))
    }

    /// Whether a connection of this user queues commands.
    pub fn is_anybody_in_multi(&self, user: User) -> bool {
        let mut all = (0..self.clients.len()).filter(|who| user_of(*who) == user);
        all.any(|who| self.client(who).is_some_and(|client| client.in_multi()))
    }

    pub(super) fn is_anybody_to_be_turned_away(&self) -> bool {
        let mut all = self.waiters.iter();
        all.any(|waiter| self.has_lost_rights(waiter))
    }

    /// What the server says instead of executing a command.
    pub(super) fn refusal(&self, turn: &Turn, command: &Command) -> Option<Reply> {
        if !self.may(turn.who, command) {
            let code = if turn.in_script { "ERR" } else { "NOPERM" };
            return Some(Reply::refused(code));
        }
        let outside = !turn.in_script && self.is_told_only_messages(turn.who);
        outside.then(|| Reply::refused("ERR Can't execute"))
    }

    /// A transaction does not take in what is refused already.
    pub(super) fn refused_in_multi(&mut self, who: Who, command: &Command) -> Option<Reply> {
        let queues = self.client(who).is_some_and(|client| client.in_multi());
        if !queues || self.may(who, command) {
            return None;
        }
        self.client_mut(who).queued_in_vain = true;
        Some(Reply::refused("NOPERM"))
    }
}

impl Waiter {
    /// With these rights it could not ask for it.
    fn loses(&self, rights: &Rights) -> bool {
        let hidden = |spot: &Spot| rights.hidden.contains(&given(spot.name));
        rights.asks_not || self.spots.iter().any(hidden)
    }
}

/// The words of the server's rules for these rights.
pub fn rules(rights: &Rights) -> Vec<&'static str> {
    /// What fits each of the names, and none of the others.
    const PATTERNS: [&str; super::command::NAMES.len()] = ["~a", "~ab", "~abc", "~", "~?????"];
    /// The same for the names that are made of them.
    const MADE: [&str; PATTERNS.len()] = [
        "~a????????????????",
        "~ab????????????????",
        "~abc????????????????",
        "~????????????????",
        "~?????????????????????",
    ];
    // Also those of the sets that are never there.
    let mut rules = vec!["resetkeys", "+@all", "~no*such"];
    for (name, patterns) in PATTERNS.iter().zip(MADE).enumerate() {
        if !rights.hidden.contains(&name) {
            rules.extend([*patterns.0, patterns.1]);
        }
    }
    if rights.asks_not {
        rules.extend(["-settp", "-lock.acquire", "-lock.macquire"]);
    }
    rules
}
