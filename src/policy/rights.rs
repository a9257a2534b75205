//! Whether rights may have changed since somebody began to wait, as far as the commands tell that somebody gives.
//!
//! A command is seen before it is executed, and one of a transaction when it is queued. So once rights have changed
//! each EXEC may change them, too. A command that is postponed (`CLIENT PAUSE`) is executed nobody knows when.

use std::cell::Cell;

/// What was noted.
#[derive(Default)]
pub struct Rights {
    /// There may be something to do before an event is told.
    matter: Cell<bool>,
    observing: Cell<bool>,
    /// Rights may have changed since the engine was told so.
    noted: Cell<bool>,
    /// They have changed before.
    have_changed: Cell<bool>,
    /// They may change at any time.
    unseen: Cell<bool>,
}

impl Rights {
    /// Whether rights may have to be looked at. Asked before each event.
    #[inline(always)]
    pub fn matter(&self) -> bool {
        self.matter.get()
    }

    /// Whether commands are noted.
    #[inline(always)]
    pub fn is_observing(&self) -> bool {
        self.observing.get()
    }

    /// From now on commands are noted. Whether they were before. `blind`: what changes rights goes by a name of its own here.
    pub fn observe(&self, blind: impl FnOnce() -> bool) -> bool {
        if self.observing.replace(true) {
            return true;
        }
        if blind() {
            self.unseen.set(true);
            self.changes(|| false);
        }
        false
    }

    /// Somebody gives this command, of which `word` tells the second word.
    #[inline(always)]
    pub fn note<'a>(
        &self,
        name: &[u8],
        word: impl FnOnce() -> Option<&'a [u8]>,
        is_paused: impl FnOnce() -> bool,
    ) {
        let is_acl = name.len() == 3 && name.eq_ignore_ascii_case(b"acl");
        if is_acl {
            const CHANGING: [&[u8]; 3] = [b"setuser", b"deluser", b"load"];
            let is_it = |word: &[u8]| CHANGING.iter().any(|it| it.eq_ignore_ascii_case(word));
            if word().is_some_and(is_it) {
                self.have_changed.set(true);
                self.changes(is_paused);
            }
        } else if name.len() == 4 && self.have_changed.get() && name.eq_ignore_ascii_case(b"exec") {
            self.changes(is_paused);
        }
    }

    #[cold]
    fn changes(&self, is_paused: impl FnOnce() -> bool) {
        if is_paused() {
            self.unseen.set(true);
        }
        self.noted.set(true);
        self.matter.set(true);
    }

    /// A look at rights begins: what is told meanwhile needs none. Whether the engine is to be told that they have changed.
    pub fn begin_look(&self, in_exec: bool) -> bool {
        self.matter.set(false);
        let noted = self.noted.get();
        if noted {
            // The command that changes them may be still to come in this transaction.
            self.noted.set(self.unseen.get() || in_exec);
        }
        noted
    }

    /// The look is over. `has_doubts`: not everybody was looked at.
    pub fn end_look(&self, has_doubts: bool) {
        self.matter.set(self.noted.get() || has_doubts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(rights: &Rights, line: &'static str, is_paused: bool) {
        let mut words = line.split(' ').map(str::as_bytes);
        let name = words.next().unwrap_or_default();
        rights.note(name, || words.next(), || is_paused);
    }

    #[test]
    fn only_what_changes_rights_matters() {
        let rights = Rights::default();
        assert!(!rights.observe(|| false) && rights.observe(|| false));
        for line in ["acl list", "acl", "exec", "set acl setuser", "get exec"] {
            given(&rights, line, false);
            assert!(!rights.matter(), "{line}");
        }
        for line in ["ACL SETUSER", "acl deluser", "Acl Load"] {
            given(&rights, line, false);
            assert!(rights.matter(), "{line}");
            assert!(rights.begin_look(false) && !rights.matter());
            rights.end_look(false);
            assert!(!rights.matter(), "{line}");
        }
    }

    #[test]
    fn a_transaction_may_change_rights_again() {
        let rights = Rights::default();
        given(&rights, "acl setuser", false);
        assert!(
            rights.begin_look(true),
            "it may be still to come in this transaction"
        );
        rights.end_look(false);
        assert!(rights.matter() && rights.begin_look(false));
        rights.end_look(true);
        assert!(rights.matter(), "not everybody was looked at");
        assert!(!rights.begin_look(false));
        rights.end_look(false);
        given(&rights, "exec", false);
        assert!(rights.matter());
    }

    #[test]
    fn what_is_postponed_may_change_rights_at_any_time() {
        for blind in [false, true] {
            let rights = Rights::default();
            rights.observe(|| blind);
            given(&rights, "acl setuser", !blind);
            for _ in 0..3 {
                assert!(rights.matter() && rights.begin_look(false));
                rights.end_look(false);
            }
        }
    }
}
