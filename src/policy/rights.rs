//! Tracks, from the commands that clients send, whether ACL rights may have changed since the last check of the waiters.
//!
//! The filter sees a command before its execution, and a command in a transaction when it is queued. So once rights have
//! changed, each EXEC may change them again. A postponed command (`CLIENT PAUSE`) may execute at any later time.

use std::cell::Cell;

/// State of ACL tracking.
#[derive(Default)]
pub struct Rights {
    /// A check may be due before the next event.
    check_due: Cell<bool>,
    observing: Cell<bool>,
    /// Rights may have changed since the last check began.
    changed: Cell<bool>,
    /// A command has changed rights before.
    ever_changed: Cell<bool>,
    /// Rights may change unseen at any time, so every event needs a check.
    may_change_unseen: Cell<bool>,
}

impl Rights {
    /// Whether a check may be due. Called before each event.
    #[inline(always)]
    pub fn is_check_due(&self) -> bool {
        self.check_due.get()
    }

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
            self.may_change_unseen.set(true);
            self.mark_changed(|| false);
        }
        false
    }

    /// A client sends this command; `word` returns its second word.
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
                self.ever_changed.set(true);
                self.mark_changed(is_paused);
            }
        } else if name.len() == 4 && self.ever_changed.get() && name.eq_ignore_ascii_case(b"exec") {
            self.mark_changed(is_paused);
        }
    }

    #[cold]
    fn mark_changed(&self, is_paused: impl FnOnce() -> bool) {
        if is_paused() {
            self.may_change_unseen.set(true);
        }
        self.changed.set(true);
        self.check_due.set(true);
    }

    /// Begins a check; events handled meanwhile need none. Returns whether rights may have changed since the last one.
    pub fn begin_check(&self, in_exec: bool) -> bool {
        self.check_due.set(false);
        let changed = self.changed.get();
        if changed {
            // The command that changes them may still follow in this transaction.
            self.changed.set(self.may_change_unseen.get() || in_exec);
        }
        changed
    }

    /// Ends a check. `more_to_check`: some waiters are unchecked.
    pub fn end_check(&self, more_to_check: bool) {
        self.check_due.set(self.changed.get() || more_to_check);
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
            assert!(!rights.is_check_due(), "{line}");
        }
        for line in ["ACL SETUSER", "acl deluser", "Acl Load"] {
            given(&rights, line, false);
            assert!(rights.is_check_due(), "{line}");
            assert!(rights.begin_check(false) && !rights.is_check_due());
            rights.end_check(false);
            assert!(!rights.is_check_due(), "{line}");
        }
    }

    #[test]
    fn a_transaction_may_change_rights_again() {
        let rights = Rights::default();
        given(&rights, "acl setuser", false);
        assert!(
            rights.begin_check(true),
            "it may be still to come in this transaction"
        );
        rights.end_check(false);
        assert!(rights.is_check_due() && rights.begin_check(false));
        rights.end_check(true);
        assert!(rights.is_check_due(), "not everybody was looked at");
        assert!(!rights.begin_check(false));
        rights.end_check(false);
        given(&rights, "exec", false);
        assert!(rights.is_check_due());
    }

    #[test]
    fn what_is_postponed_may_change_rights_at_any_time() {
        for acl_is_renamed in [false, true] {
            let rights = Rights::default();
            rights.observe(|| acl_is_renamed);
            given(&rights, "acl setuser", !acl_is_renamed);
            for _ in 0..3 {
                assert!(rights.is_check_due() && rights.begin_check(false));
                rights.end_check(false);
            }
        }
    }
}
