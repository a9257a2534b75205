//! The hash key of a task: a connection or a session, with the task's name.

use crate::engine::state::rows::Client;
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use hashbrown::Equivalent;

/// Owned, as a map's key.
pub(in crate::engine) type TaskKey = (Id<Client>, Bytes);

/// Borrowed, for a lookup without a copy of the name.
#[derive(Hash)]
pub(in crate::engine) struct Task<'a>(pub Id<Client>, pub &'a [u8]);

impl Equivalent<TaskKey> for Task<'_> {
    fn equivalent(&self, (client, name): &TaskKey) -> bool {
        self.0 == *client && *self.1 == **name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::HashMap;

    #[test]
    fn a_task_is_found_by_its_name() {
        let client = Id::of_number(7).unwrap();
        let mut map: HashMap<TaskKey, u32> = HashMap::new();
        for name in [&b""[..], b"one", b"two"] {
            map.insert((client, Bytes::from(name)), name.len() as u32);
        }
        assert_eq!(map.get(&Task(client, b"")), Some(&0));
        assert_eq!(map.get(&Task(client, b"two")), Some(&3));
        assert_eq!(map.get(&Task(client, b"three")), None);
    }
}
