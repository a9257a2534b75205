//! The module's side of what replies are written with: see `wire/`.

use crate::engine::{ClientId, Key, NoRight};
use crate::shell::server::{cluster, rights};
use crate::shell::sys::raw::Ctx;
use crate::wire::Host;

impl Host for Ctx<'_> {
    fn integer(&mut self, value: i64) {
        self.reply_integer(value);
    }

    fn null(&mut self) {
        self.reply_null();
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.reply_bulk(bytes);
    }

    fn array(&mut self, length: usize) {
        self.reply_array(length);
    }

    fn map(&mut self, length: usize) {
        self.reply_map(length);
    }

    fn error(&mut self, message: &str) {
        self.reply_error(message);
    }

    fn redirection(&self, key: Key<'_>) -> String {
        cluster::redirection(*self, key)
    }

    fn no_right(&self, right: NoRight) -> String {
        rights::error_text(*self, right)
    }

    fn may_see(&self, key: Key<'_>, commands: &[&[u8]]) -> bool {
        rights::may_see(*self, key, commands)
    }

    fn origin(&self, client: ClientId) -> Option<(String, String, String)> {
        self.client_origin(client)
    }
}
