//! Whether a fencing token belongs to a current hold.

use crate::engine::event::KeySnapshot;
use crate::engine::limits::HOLDS_SEARCHED;
use crate::engine::state::rows::Hold;
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{Moment, Token};

/// Why a token is not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// No token is current on a replica: only the master knows which owners live.
    Replica,
    /// The key has no current hold.
    Nobody,
    /// The token's grant waits for acknowledgements.
    Pending,
    /// The key has a current hold with this token; a shared lock or a semaphore may have more.
    HeldWith(Token),
}

impl Engine {
    /// Whether the key has a current hold with this token: its owner is connected, or a session within its grace; its lease has not
    /// expired, even if not ended yet; and the key's state is the one that its mode needs. O(1).
    pub fn check_token(
        &self,
        now: Moment,
        seen: KeySnapshot<'_>,
        token: Token,
    ) -> Result<(), Stale> {
        if self.is_replica {
            return Err(Stale::Replica);
        }
        let now = now.max(self.now);
        let is_current = |hold: &Id<Hold>| {
            self.holds.mode(*hold).matches_state(seen.state) && self.is_current(*hold, now)
        };
        let Some(key) = self.keys.find_held(seen.key) else {
            return Err(Stale::Nobody);
        };
        let held = self.holds.with_token(&self.keys, key, token);
        if held.filter(is_current).is_some() {
            return Ok(());
        }
        if held.is_some_and(|hold| self.holds.pending(hold).is_some()) {
            return Err(Stale::Pending);
        }
        let other = self.holds.all_of_key(&self.keys, key);
        let other = other.take(HOLDS_SEARCHED).find(is_current);
        Err(other.map_or(Stale::Nobody, |hold| {
            Stale::HeldWith(self.holds[hold].token)
        }))
    }

    fn is_current(&self, hold: Id<Hold>, now: Moment) -> bool {
        let owner = self.holds[hold].client;
        let lease = self.holds.lease(hold);
        self.is_living(hold)
            && self.is_settled(hold)
            && lease.is_none_or(|end| end > now)
            && !self.sessions.is_over(owner, now)
    }
}
