//! The hash key of an owner: a connection or a session, with a label.

use crate::engine::state::rows::Client;
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use hashbrown::Equivalent;

/// Owned, as a map's key.
pub(in crate::engine) type OwnerKey = (Id<Client>, Bytes);

/// Borrowed, for a lookup without a copy of the label.
#[derive(Hash)]
pub(in crate::engine) struct Owner<'a>(pub Id<Client>, pub &'a [u8]);

impl Equivalent<OwnerKey> for Owner<'_> {
    fn equivalent(&self, (client, label): &OwnerKey) -> bool {
        self.0 == *client && *self.1 == **label
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::HashMap;

    #[test]
    fn an_owner_is_found_by_its_label() {
        let client = Id::of_number(7).unwrap();
        let mut map: HashMap<OwnerKey, u32> = HashMap::new();
        for label in [&b""[..], b"one", b"two"] {
            map.insert((client, Bytes::from(label)), label.len() as u32);
        }
        assert_eq!(map.get(&Owner(client, b"")), Some(&0));
        assert_eq!(map.get(&Owner(client, b"two")), Some(&3));
        assert_eq!(map.get(&Owner(client, b"three")), None);
    }
}
