//! Sessions begin, are resumed, and end.

use crate::engine::effect::{Effect, Refusal, Reply};
use crate::engine::event::Start;
use crate::engine::limits::{RELEASES_PER_PENDING_HOLD, RELEASES_PER_SESSION_END};
use crate::engine::record::SessionRecord;
use crate::engine::state::rows::{Client, Session};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Digest, Loss, SessionId, Token};

impl Engine {
    /// What this connection is granted from now on belongs to a session.
    pub(in crate::engine) fn start_session(&mut self, start: Start<'_>, effects: &mut Vec<Effect>) {
        self.sweep_holds_by(start.client, effects);
        if let Some(refusal) = self.has_something(start.client) {
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        if let Err(refusal) = self.check_sessions(start.user) {
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        let connection = self.attend(start.client, effects);
        let id = SessionId(self.take_token(effects).0);
        let session = self.clients.add_session();
        self.sessions.add(session, id, start.digest, start.grace_ms);
        self.sessions.count_for(session, start.user);
        self.clients.attach(session, connection);
        effects.push(Effect::Replicate(Box::new(SessionRecord::Session {
            id,
            digest: start.digest,
            grace_ms: start.grace_ms,
        })));
        effects.push(Effect::Reply(Reply::Secret(start.secret.into())));
    }

    /// Why this connection cannot have a session.
    fn has_something(&self, client: ClientId) -> Option<Refusal> {
        let record = &self.clients[self.clients.find(client)?];
        if record.session.is_some() {
            return Some(Refusal::HasSession);
        }
        (record.hold_count > 0).then_some(Refusal::HoldsAlready)
    }

    /// The session with this digest goes on with this connection. O(1).
    pub(in crate::engine) fn resume(
        &mut self,
        client: ClientId,
        digest: &Digest,
        notify: bool,
        effects: &mut Vec<Effect>,
    ) {
        let reply = match self.try_resume(client, digest, notify, effects) {
            Ok(session) => Reply::Integer(self.count_held_by(session)),
            Err(refusal) => Reply::Refused(refusal),
        };
        effects.push(Effect::Reply(reply));
    }

    fn try_resume(
        &mut self,
        client: ClientId,
        digest: &Digest,
        notify: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Id<Client>, Refusal> {
        self.sweep_holds_by(client, effects);
        let connection = self.clients.find(client);
        let session = self.sessions.find(digest);
        if let Some(session) = session {
            self.sweep_holds_of(session, effects);
        }
        if let (Some(connection), Some(session)) = (connection, session)
            && self.clients[session].attached == Some(connection)
        {
            if notify {
                self.sessions.set_hears_after(session, Token::default());
            }
            return Ok(session);
        }
        if let Some(refusal) = self.has_something(client) {
            return Err(refusal);
        }
        // Its waits would become the session's, and could close a cycle that no request closed.
        if connection.is_some_and(|connection| self.clients[connection].wait_count > 0) {
            return Err(Refusal::WaitsAlready);
        }
        let session = session.filter(|session| !self.sessions.is_over(*session, self.now));
        let session = session.ok_or(Refusal::NoSession)?;
        let connection = self.attend(client, effects);
        if let Some(former) = self.clients[session].attached {
            self.withdraw_asked_by(self.clients[former].id, effects);
        }
        self.clients.detach(session);
        self.go_on_with(session, connection, notify, effects);
        Ok(session)
    }

    /// A connection speaks for a session from now on, for which nobody does.
    pub(in crate::engine) fn go_on_with(
        &mut self,
        session: Id<Client>,
        connection: Id<Client>,
        notify: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.clients.attach(session, connection);
        let record = &mut self.clients[session];
        (record.origin, record.ended_by) = (None, None);
        self.sessions.set_end(&mut self.timers, session, None);
        self.sessions.count_attachment(session);
        let hears_after = match notify {
            true => Token::default(),
            false => self.tokens.last(),
        };
        self.sessions.set_hears_after(session, hears_after);
        self.guard(connection, effects);
    }

    /// Releases all that a session holds. Whoever waits is served; the connection itself too, for its own. What is more than
    /// [`RELEASES_PER_SESSION_END`] is orphaned, as that of an ended connection.
    pub(in crate::engine) fn end_session(
        &mut self,
        client: ClientId,
        later: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.sweep_holds_by(client, effects);
        let connection = self.clients.find(client);
        let Some(session) = connection.and_then(|id| self.clients[id].session) else {
            return effects.push(Effect::Reply(Reply::Refused(Refusal::NoSession)));
        };
        let count = self.count_held_by(session);
        self.end_held_by(session, later, effects);
        effects.push(Effect::Reply(Reply::Integer(count)));
    }

    /// Ends a session whoever has it: its owners lose what it holds, and are told so as far as they asked. O(N) with N what
    /// it holds; what is more than [`RELEASES_PER_SESSION_END`] is orphaned, as above.
    pub(in crate::engine) fn kill_session(
        &mut self,
        id: SessionId,
        later: bool,
        effects: &mut Vec<Effect>,
    ) {
        let session = self.sessions.numbered(id);
        let session = session.filter(|session| !self.sessions.is_over(*session, self.now));
        let Some(session) = session else {
            return effects.push(Effect::Reply(Reply::Refused(Refusal::NoSession)));
        };
        self.sweep_holds_of(session, effects);
        let count = self.count_held_by(session);
        let holds: Vec<_> = self.holds.of_client(&self.clients, session).collect();
        for hold in holds {
            // What a flush took is counted as that when its turn comes.
            if !self.keys.is_retired(self.holds[hold].key) {
                self.notify_lost(hold, Loss::Ended, effects);
            }
        }
        self.end_held_by(session, later, effects);
        effects.push(Effect::Reply(Reply::Integer(count)));
    }

    /// A connection lets go of its session, whose grace begins. What it waits for it gets itself. O(1).
    pub(in crate::engine) fn detach(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        self.sweep_holds_by(client, effects);
        let connection = self.clients.find(client);
        let Some(session) = connection.and_then(|id| self.clients[id].session) else {
            return effects.push(Effect::Reply(Reply::Refused(Refusal::NoSession)));
        };
        self.withdraw_asked_by(client, effects);
        let count = self.count_held_by(session);
        self.begin_grace(session);
        effects.push(Effect::Reply(Reply::Integer(count)));
    }

    /// A session is over. What it holds is released, up to [`RELEASES_PER_SESSION_END`]; the rest is orphaned. What its connection is granted
    /// now is that one's own.
    fn end_held_by(&mut self, session: Id<Client>, later: bool, effects: &mut Vec<Effect>) {
        self.clients.detach(session);
        let mut left = if later { 0 } else { RELEASES_PER_SESSION_END };
        while left > 0 && !self.has_granted_enough() {
            let Some(hold) = self.clients[session].holding.head() else {
                break;
            };
            let cost = if self.is_settled(hold) {
                1
            } else {
                RELEASES_PER_PENDING_HOLD
            };
            left = left.saturating_sub(cost);
            if !self.sweep_hold(hold, effects) {
                self.release(hold, effects);
            }
        }
        if let Some(former) = self.sessions.remove(&mut self.timers, session) {
            effects.push(Effect::Replicate(Box::new(SessionRecord::SessionEnded(
                former.id,
            ))));
        }
        if self.clients[session].hold_count > 0 {
            self.clients.end(session, None);
        } else {
            self.clients.remove_session(session);
        }
    }

    /// The connection that was attached to a session, if one was, is no more: its grace begins.
    pub(in crate::engine) fn begin_grace(&mut self, session: Id<Client>) {
        self.clients.detach(session);
        let Some(Session { grace_ms, .. }) = self.sessions.get(session) else {
            return;
        };
        // On a replica, and while the data are not all there, nobody's time is counted.
        let is_counted = !self.is_replica && !self.loading;
        let end = is_counted.then(|| self.now.after_ms(grace_ms));
        self.sessions.set_end(&mut self.timers, session, end);
    }

    /// Each session has its whole grace from now on, if nobody is attached and its grace does not run.
    pub(in crate::engine) fn begin_all_graces(&mut self) {
        let detached = self.sessions.iter().map(|(session, _)| session);
        let detached: Vec<_> = detached
            .filter(|id| self.clients[*id].attached.is_none() && !self.sessions.is_running_out(*id))
            .collect();
        for session in detached {
            self.begin_grace(session);
        }
    }

    /// Ends up to so many sessions whose grace is over. What they hold is orphaned.
    pub(in crate::engine) fn end_graces(&mut self, most: usize, effects: &mut Vec<Effect>) {
        for _ in 0..most {
            match self.timers.first_grace() {
                Some((end, session)) if end <= self.now => {
                    if let Some(former) = self.sessions.remove(&mut self.timers, session) {
                        effects.push(Effect::Replicate(Box::new(SessionRecord::SessionEnded(
                            former.id,
                        ))));
                    }
                    let killed = self.clients[session].ended_by.take();
                    self.clients[session].ended_after = self.keys.retirements();
                    self.clients.end(session, killed.or(Some(Loss::Died)));
                }
                _ => return,
            }
        }
    }
}
