//! The users of connections, and what the engine asks of them.

use crate::model::command::Who;
use crate::model::rights::{Rights, USERS, User, user_of};
use crate::model::sequence::given;
use crate::words::spot_of;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tether::engine::{ClientId, Engine, Form, Key, Moment, NoRight};
use tether::policy::rights::Rights as Changes;

/// As the shell keeps them; the engine has one that is the same.
#[derive(Clone, Default)]
pub struct Users(Rc<RefCell<Table>>);

#[derive(Default)]
struct Table {
    users: HashMap<ClientId, User>,
    rights: [Rights; USERS],
    changes: Changes,
}

impl Users {
    /// From now on this engine asks about them.
    pub fn answer(&self, engine: &mut Engine) {
        let users = self.clone();
        engine.check_rights_by(Box::new(move |client, form, since, keys| {
            users.0.borrow().lost_right(client, form, since, keys)
        }));
    }

    pub fn connect(&self, client: ClientId, who: Who) {
        self.0.borrow_mut().users.insert(client, user_of(who));
    }

    pub fn change(&self, user: User, rights: &Rights, now: Moment) {
        let mut table = self.0.borrow_mut();
        table.rights[user] = rights.clone();
        let changes = &table.changes;
        changes.note(b"ACL", b"SETUSER", || false, || now);
    }
}

impl Table {
    fn lost_right(
        &self,
        client: ClientId,
        form: Form,
        since: Moment,
        keys: &mut dyn Iterator<Item = Key<'_>>,
    ) -> Option<NoRight> {
        if !self.changes.may_have_changed_since(since) {
            return None;
        }
        let Rights { hidden, asks_not } = &self.rights[self.users[&client]];
        let mut names = keys.map(|key| given(spot_of(&key.to_owned()).name));
        match names.any(|name| hidden.contains(&name)) {
            true => Some(NoRight::Key),
            false => asks_not.then_some(NoRight::Command(form)),
        }
    }
}
