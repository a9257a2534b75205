//! A key that exists.

use super::command::{Name, Spot};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// Of so many elements.
    List(i64),
    Lock,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: Name,
    pub value: Value,
    /// It has a time to live.
    pub expires: bool,
}

impl Entry {
    pub fn new(spot: Spot, value: Value) -> Entry {
        Entry {
            name: spot.name,
            value,
            expires: false,
        }
    }
}
