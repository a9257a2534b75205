//! The list of sessions.

use crate::engine::state::rows::{Client, Session};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Moment, Origin, SessionId};

/// A line of SESSION.LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLine {
    pub id: SessionId,
    /// The attached connection; 0 while detached.
    pub client: ClientId,
    /// The last connection, while detached.
    pub origin: Option<Box<Origin>>,
    /// The rest of its grace; all of it while attached.
    pub grace_ms: u64,
    /// Temporary keys that it holds.
    pub keys: u64,
    /// Locks that it holds.
    pub holds: u64,
    pub waits: u64,
}

impl Engine {
    /// The sessions, by id. O(sessions + their holds).
    pub fn sessions(&self, now: Moment) -> Vec<SessionLine> {
        let living = self.sessions.iter();
        let living = living.filter(|(owner, _)| !self.sessions.is_over(*owner, now));
        let mut lines: Vec<_> = living
            .map(|(owner, session)| self.session_line(now, owner, session))
            .collect();
        lines.sort_unstable_by_key(|line| line.id);
        lines
    }

    fn session_line(&self, now: Moment, owner: Id<Client>, session: &Session) -> SessionLine {
        let record = &self.clients[owner];
        let (mut keys, mut holds) = (0, 0);
        for hold in self.holds.of_client(&self.clients, owner) {
            if !self.keys.is_retired(self.holds[hold].key) {
                match self.holds.mode(hold).is_lock() {
                    true => holds += 1,
                    false => keys += 1,
                }
            }
        }
        let attached = record.attached().map(|id| &self.clients[id]);
        SessionLine {
            id: session.id,
            client: record.id,
            origin: record.origin.clone(),
            grace_ms: session.left_ms(now),
            keys,
            holds,
            waits: attached.map_or(0, |connection| connection.wait_count.into()),
        }
    }
}
