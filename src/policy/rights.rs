//! Tracks, from the commands that clients send, when ACL rights may last have changed.
//!
//! The filter sees a command before its execution, and a command in a transaction when it is queued, which may have been before
//! commands were tracked. So each EXEC may change rights. A postponed command (`CLIENT PAUSE`) may execute at any later time.

use crate::engine::Moment;
use hashbrown::HashMap;
use std::cell::Cell;

/// State of ACL tracking.
#[derive(Default)]
pub struct Rights {
    observing: Cell<bool>,
    /// A command has changed rights.
    ever_changed: Cell<bool>,
    /// When rights may last have changed.
    changed_at: Cell<Moment>,
}

/// What a user may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// When the server was asked.
    pub asked: Moment,
    /// Whether that was in a transaction: what the rest of it changes is noted as of its beginning.
    pub in_exec: bool,
    /// Another number for other rights.
    pub sight: u64,
}

/// What users may see, by their names.
#[derive(Default)]
pub struct Sights(HashMap<Box<[u8]>, Sight>);

impl Sights {
    const USERS_KEPT: usize = 1024;

    pub fn of(&self, user: &[u8]) -> Option<Sight> {
        self.0.get(user).copied()
    }

    /// Beyond that many one user is forgotten for each new one: each change asks for every watcher's user, and must find most of
    /// them.
    pub fn set(&mut self, user: &[u8], sight: Sight) {
        if self.0.len() >= Self::USERS_KEPT && !self.0.contains_key(user) {
            let one = self.0.keys().next().cloned();
            one.and_then(|one| self.0.remove(&one));
        }
        self.0.insert(user.into(), sight);
    }
}

/// Rights may change unseen at any time.
pub const ALWAYS: Moment = Moment(u64::MAX);

impl Rights {
    /// Whether commands are tracked.
    #[inline(always)]
    pub fn is_observing(&self) -> bool {
        self.observing.get()
    }

    /// Starts tracking commands. Returns whether they were tracked before. `acl_is_renamed`: the server knows ACL by
    /// another name, so changes cannot be seen.
    pub fn observe(&self, acl_is_renamed: impl FnOnce() -> bool) -> bool {
        if self.observing.replace(true) {
            return true;
        }
        if acl_is_renamed() {
            self.changed_at.set(ALWAYS);
        }
        false
    }

    /// Whether a command with this name may be one that [`note`](Self::note) is for. Cheap: it is asked of every command.
    #[inline(always)]
    pub fn may_change_by(name: &[u8]) -> bool {
        matches!(name, [b'a' | b'A', _, _] | [b'e' | b'E', _, _, _])
    }

    /// A client sends the command with this name and second word; `now` is a time after which every later wait begins.
    pub fn note(
        &self,
        name: &[u8],
        word: &[u8],
        is_paused: impl FnOnce() -> bool,
        now: impl FnOnce() -> Moment,
    ) {
        if name.eq_ignore_ascii_case(b"acl") {
            const CHANGING: [&[u8]; 3] = [b"setuser", b"deluser", b"load"];
            if !CHANGING.iter().any(|it| it.eq_ignore_ascii_case(word)) {
                return;
            }
            self.ever_changed.set(true);
        } else if !name.eq_ignore_ascii_case(b"exec") {
            return;
        }
        let at = match self.ever_changed.get() && is_paused() {
            true => ALWAYS,
            false => now(),
        };
        self.changed_at.set(self.changed_at.get().max(at));
    }

    /// Whether rights may have changed since a wait began.
    #[inline(always)]
    pub fn may_have_changed_since(&self, began: Moment) -> bool {
        began <= self.changed_at.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(rights: &Rights, line: &'static str, is_paused: bool, now: u64) {
        let mut words = line.split(' ').map(str::as_bytes);
        let [name, word] = [(); 2].map(|()| words.next().unwrap_or_default());
        if Rights::may_change_by(name) {
            rights.note(name, word, || is_paused, || Moment(now));
        }
    }

    #[test]
    fn only_what_changes_rights_matters() {
        let rights = Rights::default();
        assert!(!rights.observe(|| false) && rights.observe(|| false));
        for line in ["acl list", "acl", "set acl setuser", "get exec", "execute"] {
            given(&rights, line, false, 7);
            assert!(!rights.may_have_changed_since(Moment(1)), "{line}");
        }
        let lines = ["ACL SETUSER", "acl deluser", "Acl Load", "Exec"];
        for (line, now) in lines.into_iter().zip((10..).step_by(10)) {
            assert!(!rights.may_have_changed_since(Moment(now)), "{line}");
            given(&rights, line, false, now);
            assert!(rights.may_have_changed_since(Moment(now)), "{line}");
            assert!(!rights.may_have_changed_since(Moment(now + 1)), "{line}");
        }
    }

    #[test]
    fn of_too_many_users_most_are_known_all_the_same() {
        let mut sights = Sights::default();
        let name = |number: usize| number.to_be_bytes();
        let seen = |sight| Sight {
            asked: Moment(1),
            in_exec: false,
            sight,
        };
        for number in 0..2 * Sights::USERS_KEPT {
            sights.set(&name(number), seen(number as u64));
            assert_eq!(sights.of(&name(number)), Some(seen(number as u64)));
            let known = (0..=number).filter(|number| sights.of(&name(*number)).is_some());
            assert_eq!(known.count(), Sights::USERS_KEPT.min(number + 1));
        }
        let last = name(2 * Sights::USERS_KEPT - 1);
        sights.set(&last, seen(7));
        assert_eq!(sights.of(&last), Some(seen(7)));
        assert_eq!(sights.0.len(), Sights::USERS_KEPT);
    }

    #[test]
    fn what_is_postponed_may_change_rights_at_any_time() {
        for acl_is_renamed in [false, true] {
            let rights = Rights::default();
            rights.observe(|| acl_is_renamed);
            given(&rights, "exec", true, 3);
            assert_eq!(rights.may_have_changed_since(Moment(4)), acl_is_renamed);
            given(&rights, "acl setuser", true, 5);
            given(&rights, "exec", false, 6);
            assert!(rights.may_have_changed_since(Moment(7)));
        }
    }
}
