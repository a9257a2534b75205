//! SESSION.START, RESUME, DETACH, END and KILL.

use crate::engine::effect::{Effect, Gone, Refusal, Reply};
use crate::engine::event::Start;
use crate::engine::record::SessionRecord;
use crate::engine::state::rows::{Client, Death, Session};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Digest, Loss, SessionId, Token};

impl Engine {
    /// Starts a session and attaches it to this connection.
    pub(in crate::engine) fn start_session(&mut self, start: Start<'_>, effects: &mut Vec<Effect>) {
        self.sweep_holds_by(start.client, effects);
        if let Some(refusal) = self.has_something(start.client) {
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        if let Err(refusal) = self.check_sessions(start.user) {
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        let connection = self.client_record(start.client, effects);
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

    /// The refusal, if this connection has a session or holds already.
    fn has_something(&self, client: ClientId) -> Option<Refusal> {
        let record = &self.clients[self.clients.find(client)?];
        if record.session().is_some() {
            return Some(Refusal::HasSession);
        }
        (record.hold_count > 0).then_some(Refusal::HoldsAlready)
    }

    /// Attaches this connection to the session with this digest. O(1).
    pub(in crate::engine) fn resume(
        &mut self,
        client: ClientId,
        digest: &Digest,
        notify: bool,
        effects: &mut Vec<Effect>,
    ) {
        let reply = match self.try_resume(client, digest, notify, effects) {
            Ok(session) => Reply::Integer(self.clients[session].hold_count.into()),
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
            && self.clients[session].attached() == Some(connection)
        {
            if notify {
                self.sessions.set_notify_after(session, Token::default());
            }
            return Ok(session);
        }
        if let Some(refusal) = self.has_something(client) {
            return Err(refusal);
        }
        // Its waits would become the session's, and could close a cycle unnoticed.
        if connection.is_some_and(|connection| self.clients[connection].wait_count > 0) {
            return Err(Refusal::WaitsAlready);
        }
        let session = session.filter(|session| !self.sessions.is_over(*session, self.now));
        let session = session.ok_or(Refusal::NoSession)?;
        let connection = self.client_record(client, effects);
        let previous = self.clients[session].attached();
        if let Some(previous) = previous {
            self.withdraw_asked_by(self.clients[previous].id, effects);
        }
        self.clients.detach(session);
        if let Some(previous) = previous {
            self.mark_own_waits_ready(previous);
        }
        self.attach_session(session, connection, notify, effects);
        Ok(session)
    }

    /// Attaches a connection to a detached session.
    pub(in crate::engine) fn attach_session(
        &mut self,
        session: Id<Client>,
        connection: Id<Client>,
        notify: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.clients.attach(session, connection);
        let record = &mut self.clients[session];
        (record.origin, record.killed) = (None, false);
        self.sessions.set_end(&mut self.timers, session, None);
        self.sessions.count_attachment(session);
        let notify_after = match notify {
            true => Token::default(),
            false => self.tokens.last(),
        };
        self.sessions.set_notify_after(session, notify_after);
        self.track_disconnect(connection, effects);
    }

    /// Ends the caller's session and releases its holds, within the budget; the rest is orphaned. Waiters are served, those of the
    /// connection itself included.
    pub(in crate::engine) fn end_session(
        &mut self,
        client: ClientId,
        later: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.sweep_holds_by(client, effects);
        let connection = self.clients.find(client);
        let Some(session) = connection.and_then(|id| self.clients[id].session()) else {
            return effects.push(Effect::Reply(Reply::Refused(Refusal::NoSession)));
        };
        let count = self.clients[session].hold_count.into();
        self.end_held_by(session, later, Gone::Released, effects);
        effects.push(Effect::Reply(Reply::Integer(count)));
    }

    /// Ends any session, with LOST to owners that asked for it. O(holds); releases as `end_session` does.
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
        // Whatever a flush took is lost by that.
        self.sweep_most_holds_of(session, usize::MAX, effects);
        let count = self.clients[session].hold_count.into();
        let holds: Vec<_> = self.holds.of_client(&self.clients, session).collect();
        for hold in holds {
            self.notify_lost(hold, Loss::Ended, effects);
        }
        self.end_held_by(session, later, Gone::Lost(Loss::Ended), effects);
        effects.push(Effect::Reply(Reply::Integer(count)));
    }

    /// Detaches a connection from its session, whose grace begins. The connection's waits are its own again. O(1), and its
    /// waits and pending grants within the budget.
    pub(in crate::engine) fn detach(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        self.sweep_holds_by(client, effects);
        let connection = self.clients.find(client);
        let attached = connection.and_then(|id| Some((id, self.clients[id].session()?)));
        let Some((connection, session)) = attached else {
            return effects.push(Effect::Reply(Reply::Refused(Refusal::NoSession)));
        };
        self.withdraw_asked_by(client, effects);
        let count = self.clients[session].hold_count.into();
        self.begin_grace(session);
        self.mark_own_waits_ready(connection);
        effects.push(Effect::Reply(Reply::Integer(count)));
    }

    /// Ends a session: releases its holds, within the budget, and orphans the rest. Later grants belong to the connection itself.
    fn end_held_by(
        &mut self,
        session: Id<Client>,
        later: bool,
        why: Gone,
        effects: &mut Vec<Effect>,
    ) {
        self.clients.detach(session);
        while !later
            && let Some(hold) = self.clients[session].holding.head()
            && self.budget.spend(self.steps_to_release(hold))
        {
            if !self.sweep_hold(hold, effects) {
                self.release(hold, why, effects);
            }
        }
        if let Some(former) = self.sessions.remove(&mut self.timers, session) {
            effects.push(Effect::Replicate(Box::new(SessionRecord::SessionEnded(
                former.id,
            ))));
        }
        if self.clients[session].hold_count > 0 {
            self.clients.end(session, Death::Closed);
        } else {
            self.clients.remove_session(session);
        }
    }

    /// Detaches a session and starts its grace.
    pub(in crate::engine) fn begin_grace(&mut self, session: Id<Client>) {
        self.clients.detach(session);
        let Some(&Session { grace_ms, .. }) = self.sessions.get(session) else {
            return;
        };
        // Grace does not run on a replica, nor while loading.
        let is_counted = !self.is_replica && !self.loading;
        let end = is_counted.then(|| self.now.after_ms(grace_ms));
        self.sessions.set_end(&mut self.timers, session, end);
    }

    /// Starts the grace of each detached session: none runs on a replica, or while data are loaded.
    pub(in crate::engine) fn begin_all_graces(&mut self) {
        let detached = self.sessions.iter().map(|(session, _)| session);
        let detached: Vec<_> = detached
            .filter(|id| self.clients[*id].attached().is_none())
            .collect();
        for session in detached {
            self.begin_grace(session);
        }
    }

    /// Ends sessions whose grace has expired; their holds are orphaned.
    pub(in crate::engine) fn end_graces(&mut self, effects: &mut Vec<Effect>) {
        while let Some(session) = self.timers.graces.first_until(self.now)
            && self.budget.spend(1)
        {
            if let Some(former) = self.sessions.remove(&mut self.timers, session) {
                let ended = SessionRecord::SessionEnded(former.id);
                effects.push(Effect::Replicate(Box::new(ended)));
            }
            self.lose_client(session);
        }
    }
}
