//! Plain holds, as nearly all are: the key's only hold, without an [`Extra`](crate::engine::state::rows::Extra).

use crate::engine::mode::Modes;
use crate::engine::state::clients::Clients;
use crate::engine::state::holds::{Grant, Holds};
use crate::engine::state::rows::{Header, HeldKey, Hold};
use crate::engine::storage::arena::Id;

impl Holds {
    /// Whether a hold is its key's only one and has no `Extra`. O(1).
    pub fn is_plain_and_only(&self, key: &HeldKey, id: Id<Hold>) -> bool {
        let is_it = key.hold_count == 1 && self.all[id].header.extra().is_none();
        is_it && !(cfg!(debug_assertions) && self.without_fast_paths)
    }

    /// Removes such a hold; the caller removes the key's record. O(1).
    pub fn remove_plain(&mut self, clients: &mut Clients, id: Id<Hold>) {
        let owner = &mut clients[self.all[id].client];
        owner.holding.remove(&mut self.all, id);
        owner.hold_count -= 1;
        let hold = self.all.remove(id);
        self.temporary -= usize::from(hold.header.is_temporary());
    }

    /// Hands such a hold over in place to the owner of a plain grant. O(1).
    pub fn transfer(
        &mut self,
        key: &mut HeldKey,
        clients: &mut Clients,
        id: Id<Hold>,
        grant: &Grant<'_>,
    ) {
        let terms = &grant.terms;
        key.set_held(Modes::of(&[terms.mode.kind()]));
        let hold = &mut self.all[id];
        let was_temporary = hold.header.is_temporary();
        let giver = &mut clients[std::mem::replace(&mut hold.client, grant.client)];
        hold.token = grant.token;
        hold.header = Header::new(terms.mode, terms.attributes, grant.since);
        giver.holding.remove(&mut self.all, id);
        giver.hold_count -= 1;
        let taker = &mut clients[grant.client];
        taker.holding.push(&mut self.all, id);
        taker.hold_count += 1;
        self.temporary -= usize::from(was_temporary);
        self.temporary += usize::from(!terms.mode.is_lock());
    }
}
