//! Sessions: owners that outlive their connection for a grace period.
//!
//! A session has a record among the connections, which owns what its connection is granted. To resume it is to move that one
//! attachment: O(1), whether it holds one key or a million.

use crate::engine::state::clients::Clients;
use crate::engine::state::rows::{Client, Session};
use crate::engine::state::timers::Timers;
use crate::engine::storage::arena::Id;
use crate::engine::storage::index::{self, Index};
use crate::engine::types::{Digest, Moment, SessionId, Token};
use hashbrown::HashMap;
use subtle::ConstantTimeEq;

impl Session {
    /// The rest of its grace; all of it while it does not run.
    pub fn left_ms(&self, now: Moment) -> u64 {
        self.ends.map_or(self.grace_ms, |end| end.ms_since(now))
    }
}

/// Invariant: `all` has exactly the session records of [`Clients`] that have not ended; `by_id` and `by_digest` index each once; a
/// session with an end is detached; `users` has exactly the users who started one of them, each with their number.
#[derive(Default)]
pub(in crate::engine) struct Sessions {
    all: HashMap<Id<Client>, Session>,
    by_id: HashMap<SessionId, Id<Client>>,
    by_digest: Index<Client>,
    users: HashMap<Box<[u8]>, u32>,
}

impl Sessions {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// O(1).
    pub fn add(&mut self, owner: Id<Client>, id: SessionId, digest: Digest, grace_ms: u64) {
        let session = Session {
            id,
            digest,
            grace_ms,
            notify_after: Token::default(),
            attachment: 0,
            ends: None,
            user: None,
        };
        self.all.insert(owner, session);
        self.by_id.insert(id, owner);
        self.by_digest.insert(digest, owner);
    }

    /// Counts a session for the user who started it. O(1).
    pub fn count_for(&mut self, owner: Id<Client>, name: &[u8]) {
        if let Some(session) = self.all.get_mut(&owner) {
            session.user = Some(name.into());
            *self.users.entry_ref(name).or_default() += 1;
        }
    }

    /// The number of sessions that a user has started here. O(1).
    pub fn count_of(&self, user: &[u8]) -> u32 {
        self.users.get(user).copied().unwrap_or(0)
    }

    /// O(1), with an end O(log of ends).
    pub fn remove(&mut self, timers: &mut Timers, owner: Id<Client>) -> Option<Session> {
        self.set_end(timers, owner, None);
        let session = index::take(&mut self.all, &owner)?;
        index::take(&mut self.by_id, &session.id);
        self.by_digest.remove(session.digest, owner);
        if let Some(user) = &session.user
            && let Some(count) = self.users.get_mut(user)
        {
            *count -= 1;
            if *count == 0 {
                index::take(&mut self.users, user);
            }
        }
        Some(session)
    }

    /// O(1).
    pub fn get(&self, owner: Id<Client>) -> Option<&Session> {
        self.all.get(&owner)
    }

    /// O(1).
    pub fn numbered(&self, id: SessionId) -> Option<Id<Client>> {
        self.by_id.get(&id).copied()
    }

    /// The session with this digest. O(1). The hash is keyed, and the comparison takes constant time: neither leaks the digest.
    pub fn find(&self, digest: &Digest) -> Option<Id<Client>> {
        let is_it =
            |id| matches!(self.all.get(&id), Some(found) if found.digest.0.ct_eq(&digest.0).into());
        self.by_digest.find(digest, is_it)
    }

    /// Counts an attachment. O(1).
    pub fn count_attachment(&mut self, owner: Id<Client>) {
        if let Some(session) = self.all.get_mut(&owner) {
            session.attachment = session.attachment.wrapping_add(1);
        }
    }

    /// Sets the token after which its connection gets LOST. O(1).
    pub fn set_notify_after(&mut self, owner: Id<Client>, token: Token) {
        if let Some(session) = self.all.get_mut(&owner) {
            session.notify_after = token;
        }
    }

    /// Sets or clears the end of its grace. O(log graces).
    pub fn set_end(&mut self, timers: &mut Timers, owner: Id<Client>, end: Option<Moment>) {
        if let Some(session) = self.all.get_mut(&owner) {
            let previous = std::mem::replace(&mut session.ends, end);
            timers.graces.set(owner, previous, end);
        }
    }

    /// Whether its grace has expired by now.
    pub fn is_over(&self, owner: Id<Client>, now: Moment) -> bool {
        let session = self.all.get(&owner);
        session.is_some_and(|session| session.ends.is_some_and(|end| end <= now))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id<Client>, &Session)> {
        self.all.iter().map(|(owner, session)| (*owner, session))
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, clients: &Clients, timers: &Timers) {
        let mut living = 0;
        for (id, record) in clients.iter() {
            if let Some(session) = record.session() {
                assert_eq!(clients[session].attached(), Some(id));
                assert_eq!(record.hold_count, 0);
            }
            if let Some(attached) = record.attached() {
                assert_eq!(clients[attached].session(), Some(id));
                assert_eq!(clients[attached].id, record.id);
            }
            if record.is_session() {
                assert!((record.wait_count, record.watches()) == (0, 0));
                assert!(self.all.contains_key(&id));
                living += 1;
            }
        }
        assert_eq!((living, self.by_id.len()), (self.len(), self.len()));
        assert_eq!(self.by_digest.len(), self.len());
        for (owner, session) in self.iter() {
            assert_eq!(self.numbered(session.id), Some(owner));
            assert_eq!(self.find(&session.digest), Some(owner));
            assert!(session.ends.is_none() || clients[owner].attached().is_none());
        }
        let ends = self.iter();
        let ends = ends.filter_map(|(owner, session)| Some((session.ends?, owner)));
        timers.graces.check(ends);
        let mut users = HashMap::new();
        for user in self.all.values().filter_map(|session| session.user.clone()) {
            *users.entry(user).or_default() += 1;
        }
        assert_eq!(users, self.users);
    }
}
