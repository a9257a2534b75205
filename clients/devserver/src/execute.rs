//! A command of a client, from its words to all that follows from it.

use crate::machine::{Executing, Machine};
use crate::own;
use crate::plain::may_come_first;
use crate::resp::Writer;
use tether::command::KeyPlaces;
use tether::engine::{ClientId, Event, Key, NOBODY};

impl Machine {
    pub fn execute(&mut self, client: ClientId, words: &[Vec<u8>]) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some((name, arguments)) = words.split_first() else {
            return;
        };
        let Some(connection) = self.connections.get(client) else {
            return;
        };
        let (wire, db) = (connection.wire.clone(), connection.db);
        let mut writer = Writer {
            resp3: connection.resp3,
            ..Writer::default()
        };
        let may_speak = connection.may_speak || may_come_first(name);
        self.expire();
        let mut changes = Vec::new();
        let mut is_blocked = false;
        if !may_speak {
            writer.error("NOAUTH Authentication required.");
        } else if name.eq_ignore_ascii_case(b"dev") {
            self.pull(client, arguments, &mut writer);
        } else if let Some(spec) = own::find(name).filter(|_| self.options.has_module) {
            let has_key = spec.keys == KeyPlaces::First;
            let key = arguments.first().filter(|_| has_key);
            let executing = Executing {
                key: key.map(|name| Key { db, name }),
                value: None,
                writer,
                changes: Vec::new(),
                is_blocked: false,
            };
            let executed = own::execute(self, client, spec, arguments, executing);
            (writer, changes, is_blocked) =
                (executed.writer, executed.changes, executed.is_blocked);
        } else {
            (writer, changes) = self.run_plain(client, &words, writer);
        }
        wire.is_blocked.set(is_blocked);
        wire.send(&writer.bytes);
        self.tell_changes(client, &changes);
        self.settle();
    }

    /// `CLIENT UNBLOCK`: as when the time to wait is over.
    pub fn unblock(&mut self, client: ClientId) {
        let mut executing = Executing::default();
        self.handle_in(Some(&mut executing), Event::Unblocked { client });
        if let Some(connection) = self.connections.get(client).filter(|_| client != NOBODY) {
            connection.wire.is_blocked.set(false);
            connection.wire.send(&executing.writer.bytes);
        }
    }
}
