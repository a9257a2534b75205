//! What a reply is written with, and what its texts need to know of the server.

use crate::engine::{ClientId, Key, NoRight};

/// The server, as far as replies to one caller go.
pub trait Host {
    fn integer(&mut self, value: i64);
    fn null(&mut self);
    fn bulk(&mut self, bytes: &[u8]);
    fn array(&mut self, length: usize);
    /// So many pairs; on RESP2 an array of them.
    fn map(&mut self, length: usize);
    /// The message begins with its error code.
    fn error(&mut self, message: &str);

    /// The error that sends the caller on to the server that has this key.
    fn redirection(&self, key: Key<'_>) -> String;
    fn no_right(&self, right: NoRight) -> String;
    /// Whether the caller may see this key, by one of these commands if it is of another database.
    fn may_see(&self, key: Key<'_>, commands: &[&[u8]]) -> bool;
    /// Address, name and user of a connection.
    fn origin(&self, client: ClientId) -> Option<(String, String, String)>;
}
