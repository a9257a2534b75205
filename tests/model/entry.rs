//! A key that exists.

use super::command::{Name, Spot, Who};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// Of so many elements.
    List(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: Name,
    pub value: Value,
    /// It has a time to live.
    pub expires: bool,
    pub owner: Option<Owner>,
}

impl Entry {
    pub fn new(spot: Spot, value: Value) -> Entry {
        Entry {
            name: spot.name,
            value,
            expires: false,
            owner: None,
        }
    }
}

/// To whom a key is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Connection(Who),
    /// A connection that is no more; the key waits to be removed.
    Ended,
    /// A connection of a server whose data set this one took over. Here it is no more, either.
    Former,
}

impl Owner {
    pub fn is_gone(self) -> bool {
        matches!(self, Owner::Ended | Owner::Former)
    }
}
