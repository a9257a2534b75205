//! Watches of prefixes (WATCHTP): who watches one is told of each temporary key that comes, changes or goes.
//!
//! A key is *shown* while it is held by a settled hold of `Mode::Temporary`, whether or not its owner lives: it stands in the
//! keyspace until it is removed. Each rule that begins, hands over, moves or ends such a hold calls [`show`](Engine::show) or
//! [`hide`](Engine::hide). They do nothing until somebody watches a prefix in the key's database.
//!
//! A flush and SWAPDB only count: a prefix's watchers hear of it before they hear of anything else, or from the sweep.

use crate::engine::effect::{Effect, News, Over, Presence, PresenceChange, Push, Refusal};
use crate::engine::effect::{Gone, Reply, SnapshotPage, Viewer};
use crate::engine::event::WatchPrefix;
use crate::engine::limits::{Budget, SLOTS_INDEXED_PER_STEP};
use crate::engine::mode::Mode;
use crate::engine::state::keys::ShownPage;
use crate::engine::state::prefixes::Unseen;
use crate::engine::state::rows::{Client, Death, HeldKey, Hold, Prefix, PrefixWatch};
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Key, KeyBuf, Loss, Token};

impl Engine {
    // ---- keys ----

    /// A key was granted or inherited, or came to its name: shows it, if it is to be shown. If it is shown already, it has another
    /// owner or token.
    #[inline]
    pub(in crate::engine) fn show(&mut self, key: Id<HeldKey>, effects: &mut Vec<Effect>) {
        if self.keys.has_index() {
            self.show_indexed(key, effects);
        }
    }

    #[cold]
    #[inline(never)]
    fn show_indexed(&mut self, key: Id<HeldKey>, effects: &mut Vec<Effect>) {
        let Some(token) = self.token_to_show(key) else {
            return;
        };
        let change = match self.keys.set_shown(key) {
            Some(true) => PresenceChange::Added(token),
            Some(false) => PresenceChange::Set(token),
            None => return,
        };
        self.push_presence(key, change, effects);
    }

    /// The token of a key that is shown; before its hold ends. O(1).
    #[inline]
    pub(in crate::engine) fn shown_token(&self, key: Id<HeldKey>) -> Option<Token> {
        match self.keys.is_shown(key) {
            true => Some(self.holds[self.keys[key].holds.head()?].token),
            false => None,
        }
    }

    /// A shown key that had this token is gone, or is held in another way.
    pub(in crate::engine) fn hide(
        &mut self,
        key: Id<HeldKey>,
        token: Token,
        why: Gone,
        effects: &mut Vec<Effect>,
    ) {
        if self.keys.is_shown(key) {
            self.push_presence(key, PresenceChange::Gone(token, why), effects);
            self.keys.set_hidden(key);
        }
    }

    /// The same for a key whose hold has not ended yet.
    #[inline]
    pub(in crate::engine) fn hide_held(
        &mut self,
        key: Id<HeldKey>,
        why: Gone,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(token) = self.shown_token(key) {
            self.hide(key, token, why, effects);
        }
    }

    /// A hold of a key has ended, and the key was shown with this token before, if it was: hides it unless it was handed over as a
    /// temporary key.
    #[inline]
    pub(in crate::engine) fn hide_if_ended(
        &mut self,
        key: Id<HeldKey>,
        before: Option<Token>,
        why: Gone,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(token) = before
            && self.token_to_show(key).is_none()
        {
            self.hide(key, token, why, effects);
        }
    }

    /// The master's stream said who holds a key; it was shown with this token before, if it was.
    pub(in crate::engine) fn show_difference(
        &mut self,
        key: Id<HeldKey>,
        before: Option<Token>,
        effects: &mut Vec<Effect>,
    ) {
        if before.is_none() || before != self.token_to_show(key) {
            self.show(key, effects);
            self.hide_if_ended(key, before, Gone::Lost(Loss::Deleted), effects);
        }
    }

    /// The token with which a key is to be shown, unless a flush has deleted it: the index of its space went with that. O(1).
    fn token_to_show(&self, key: Id<HeldKey>) -> Option<Token> {
        let hold = self.keys[key].holds.head()?;
        let Hold { client, token, .. } = self.holds[hold];
        // Nobody was ever told of the grant.
        let is_withdrawn = matches!(self.clients[client].death(), Some(Death::Withdrawn { .. }));
        let is_it = self.holds.mode(hold) == Mode::Temporary && self.is_settled(hold);
        (is_it && !is_withdrawn).then_some(token)
    }

    /// A value was written to this key. At the end of the step, and not by an effect.
    pub(in crate::engine) fn changed(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if let Some(held) = self.keys.find_held(key)
            && let Some(token) = self.shown_token(held)
        {
            let mut to = self.viewers(key, effects);
            to.retain(|viewer| !viewer.keys_only);
            push_presence_to(to, key.to_owned(), PresenceChange::Set(token), effects);
        }
    }

    /// Whether somebody watches a prefix of this key, and so may have to hear of a write to it. O(lengths).
    pub fn is_value_watched(&self, key: Key<'_>) -> bool {
        let held = match self.keys.has_index() {
            true => self.keys.find_held(key),
            false => None,
        };
        held.is_some_and(|held| self.keys.is_shown(held)) && !self.prefixes.of_name(key).is_empty()
    }

    // ---- watchers ----

    fn push_presence(
        &mut self,
        key: Id<HeldKey>,
        change: PresenceChange,
        effects: &mut Vec<Effect>,
    ) {
        let key = self.keys.key_of(key);
        if !self.prefixes.is_any_in(key.db) {
            return;
        }
        let key = key.to_owned();
        let to = self.viewers(key.as_key(), effects);
        push_presence_to(to, key, change, effects);
    }

    /// Who is told of a change of this key, each connection once. O(watchers).
    fn viewers(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) -> Vec<Viewer> {
        let mut prefixes = self.prefixes.of_name(key);
        prefixes.retain(|prefix| !self.refresh_prefix(*prefix, effects));
        let mut to = Vec::new();
        for prefix in &prefixes {
            self.add_viewers(*prefix, key.name, &mut to);
        }
        to
    }

    /// Adds who is told of this name as a watcher of this prefix; each connection once, whatever it watches. O(watchers).
    fn add_viewers(&mut self, prefix: Id<Prefix>, name: &[u8], to: &mut Vec<Viewer>) {
        for watch in self.prefixes.of_prefix(prefix) {
            let PrefixWatch {
                client,
                keys_only,
                sight,
                ..
            } = self.prefixes[watch];
            let client = &mut self.clients[client];
            if !client.sees() || !self.prefixes.is_told_of(watch, name) {
                continue;
            }
            let added = to.get_mut(client.viewer as usize);
            if let Some(viewer) = added.filter(|viewer| viewer.client == client.id) {
                viewer.keys_only &= keys_only;
                continue;
            }
            client.viewer = to.len() as u32;
            to.push(Viewer {
                client: client.id,
                keys_only,
                sight,
            });
        }
    }

    /// Tells a prefix's watchers first of a flush or SWAPDB that they have not heard of. Returns whether they watch it no longer.
    /// O(1), and O(watchers) where there was one.
    fn refresh_prefix(&mut self, prefix: Id<Prefix>, effects: &mut Vec<Effect>) -> bool {
        if !self.prefixes.is_any_behind() {
            return false;
        }
        match self.prefixes.see(prefix) {
            Unseen::Nothing => false,
            Unseen::Flush => {
                self.push_to_all(prefix, PresenceChange::Flushed, effects);
                false
            }
            Unseen::Swap => {
                self.end_prefix(prefix, Over::Swapped, effects);
                true
            }
        }
    }

    /// Pushes something about a prefix itself to all its watchers.
    fn push_to_all(
        &mut self,
        prefix: Id<Prefix>,
        change: PresenceChange,
        effects: &mut Vec<Effect>,
    ) {
        let watches = self.prefixes.of_prefix(prefix);
        let clients = watches.map(|watch| &self.clients[self.prefixes[watch].client]);
        let living = clients.filter(|client| client.is_living());
        let to: Vec<ClientId> = living.map(|client| client.id).collect();
        self.budget.spend(to.len());
        if !to.is_empty() {
            let key = self.prefixes.key_of(prefix).to_owned();
            let push = Push::new(key, News::of_presence(change, None), b"");
            effects.push(Effect::Push { to, push });
        }
    }

    /// All watches of a prefix end.
    fn end_prefix(&mut self, prefix: Id<Prefix>, why: Over, effects: &mut Vec<Effect>) {
        self.push_to_all(prefix, PresenceChange::Over(why), effects);
        let watches: Vec<_> = self.prefixes.of_prefix(prefix).collect();
        for watch in watches {
            self.remove_prefix_watch(watch);
        }
    }

    fn remove_prefix_watch(&mut self, watch: Id<PrefixWatch>) {
        let client = self.prefixes[watch].client;
        self.prefixes.remove(&mut self.clients, watch);
        if !self.clients[client].is_living() {
            self.clients.watch_reaped(client);
        }
    }

    /// Removes the oldest watch of an ended connection that has one.
    pub(in crate::engine) fn reap_prefix_watch(&mut self, client: Id<Client>) {
        if let Some(watch) = self.clients[client].prefixes.head() {
            self.remove_prefix_watch(watch);
        }
    }

    /// All watches of prefixes end, and nothing is shown.
    pub(in crate::engine) fn end_all_prefixes(&mut self, why: Over, effects: &mut Vec<Effect>) {
        for prefix in self.prefixes.iter().collect::<Vec<_>>() {
            self.end_prefix(prefix, why, effects);
        }
        self.keys.drop_indexes();
    }

    /// The prefix belongs to another server now.
    pub(in crate::engine) fn prefix_elsewhere(
        &mut self,
        prefix: Key<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(prefix) = self.prefixes.find(prefix) {
            self.end_prefix(prefix, Over::Moved, effects);
        }
    }

    /// All watched prefixes. O(their number).
    pub fn watched_prefixes(&self) -> Vec<KeyBuf> {
        let all = self.prefixes.iter();
        all.map(|prefix| self.prefixes.key_of(prefix).to_owned())
            .collect()
    }

    /// Whether any prefix is watched. O(1).
    pub fn watches_prefixes(&self) -> bool {
        self.prefixes.len() > 0
    }

    /// Whether a connection is still to get this push, which has waited: it may have ended or begun watches since. O(lengths).
    pub fn wants(&self, client: ClientId, push: &Push) -> bool {
        let News::Presence(news) = push.news() else {
            return true;
        };
        let (change, _) = **news;
        let key = push.key.as_key();
        let watches = || {
            let prefix = self.prefixes.find(key);
            let client = self.clients.find(client);
            prefix
                .zip(client)
                .is_some_and(|(prefix, client)| self.prefixes.watch_of(prefix, client).is_some())
        };
        match change {
            PresenceChange::Flushed => watches(),
            PresenceChange::Over(_) => !watches(),
            _ => self.is_viewer(client, key),
        }
    }

    /// Whether a connection watches a prefix of this name and is told of it. O(lengths).
    fn is_viewer(&self, client: ClientId, key: Key<'_>) -> bool {
        let Some(client) = self.clients.find(client) else {
            return false;
        };
        let prefixes = self.prefixes.of_name(key);
        let mut watches = prefixes
            .iter()
            .filter_map(|prefix| self.prefixes.watch_of(*prefix, client));
        self.clients[client].sees()
            && watches.any(|watch| self.prefixes.is_told_of(watch, key.name))
    }

    /// These connections may not see any longer what they saw when they began to watch: from now on they are told of no key, and
    /// within the budget that their watches are over.
    pub(in crate::engine) fn lose_sight(
        &mut self,
        clients: &[ClientId],
        effects: &mut Vec<Effect>,
    ) {
        for id in clients {
            if let Some(client) = self.clients.find(*id) {
                self.prefixes.set_blind(&mut self.clients, client);
            }
        }
        self.end_blind(effects);
    }

    /// Ends the oldest watch of a connection that may not see any longer what it saw.
    fn end_unseen(
        &mut self,
        client: Id<Client>,
        watch: Id<PrefixWatch>,
        effects: &mut Vec<Effect>,
    ) {
        let prefix = self.prefixes[watch].prefix;
        if self.refresh_prefix(prefix, effects) {
            return;
        }
        let key = self.prefixes.key_of(prefix).to_owned();
        let change = PresenceChange::Over(Over::NoPermission);
        let push = Push::new(key, News::of_presence(change, None), b"");
        let to = vec![self.clients[client].id];
        effects.push(Effect::Push { to, push });
        self.remove_prefix_watch(watch);
    }

    // ---- commands ----

    /// WATCHTP.
    pub(in crate::engine) fn watch_prefix(
        &mut self,
        ask: WatchPrefix<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let client = self.client_record(ask.client, effects);
        if !ask.goes_on {
            // A fresh snapshot: of what was before, its connection is told no more.
            self.forget_prefix(client, ask.prefix);
        }
        let first = self.clients[client].prefixes.head();
        let has_other_sight = first.is_some_and(|watch| self.prefixes[watch].sight != ask.sight);
        if has_other_sight || self.clients[client].is_blind {
            // All that is over before what begins.
            while let Some(watch) = self.clients[client].prefixes.head() {
                self.end_unseen(client, watch, effects);
            }
            self.clients[client].is_blind = false;
        }
        let reply = match self.try_watch_prefix(client, ask, effects) {
            Ok(page) => Reply::Page(Box::new(page)),
            Err(refusal) => Reply::Refused(refusal),
        };
        effects.push(Effect::Reply(reply));
    }

    /// Ends a connection's watch of a prefix without a word; returns whether there was one.
    fn forget_prefix(&mut self, client: Id<Client>, prefix: Key<'_>) -> bool {
        let found = self.prefixes.find(prefix);
        let watch = found.and_then(|found| self.prefixes.watch_of(found, client));
        if let Some(watch) = watch {
            self.remove_prefix_watch(watch);
        }
        watch.is_some()
    }

    fn try_watch_prefix(
        &mut self,
        client: Id<Client>,
        ask: WatchPrefix<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<SnapshotPage, Refusal> {
        let prefix = ask.prefix;
        let watched = self.prefixes.find(prefix);
        let watched = watched.filter(|watched| !self.refresh_prefix(*watched, effects));
        let watch = watched.and_then(|watched| self.prefixes.watch_of(watched, client));
        let told = match (ask.goes_on, watch) {
            (false, _) => None,
            (true, Some(watch)) => Some(self.prefixes.told(watch).cloned()),
            (true, None) => return Err(Refusal::NotWatched),
        };
        if !self.keys.is_indexed(prefix.db) {
            self.budget = Budget::of(self.limits.steps_per_event * SLOTS_INDEXED_PER_STEP);
            self.build_indexes();
            if !self.keys.is_indexed(prefix.db) {
                return Err(Refusal::IndexIncomplete);
            }
        }
        let page = match &told {
            // It has the whole snapshot.
            Some(None) => ShownPage {
                keys: Vec::new(),
                is_last: true,
            },
            Some(Some(after)) => self.shown_page(prefix, Some(&**after), ask.at_most),
            None => self.shown_page(prefix, None, ask.at_most),
        };
        let last = page.keys.last().filter(|_| !page.is_last);
        let last = last.map(|key| self.keys.key_of(*key).name.into());
        self.check_prefix(client, prefix, watch, last.as_ref())?;
        let watch = watch.unwrap_or_else(|| {
            self.prefixes
                .add(&mut self.clients, prefix, client, ask.sight)
        });
        self.prefixes.set_told(&mut self.clients, watch, last);
        self.prefixes[watch].keys_only = ask.keys_only;
        let entry = |key: &Id<HeldKey>| {
            let name = self.keys.key_of(*key).name;
            let token = self.token_to_show(*key).unwrap_or_default();
            (Bytes::from(name), token)
        };
        Ok(SnapshotPage {
            client: ask.client,
            prefix: prefix.to_owned(),
            keys_only: ask.keys_only,
            entries: page.keys.iter().map(entry).collect(),
            is_last: page.is_last,
        })
    }

    fn shown_page(&self, prefix: Key<'_>, after: Option<&[u8]>, at_most: usize) -> ShownPage {
        let most = self.limits.keys_per_page.min(at_most).max(1);
        self.keys.shown_page(prefix, after, most)
    }

    /// The shell returned only a part of the last page, up to this name.
    pub(in crate::engine) fn page_cut(&mut self, client: ClientId, prefix: Key<'_>, last: &[u8]) {
        if let Some(client) = self.clients.find(client)
            && let Some(prefix) = self.prefixes.find(prefix)
            && let Some(watch) = self.prefixes.watch_of(prefix, client)
        {
            let told = Some(last.into());
            self.prefixes.set_told(&mut self.clients, watch, told);
        }
    }

    /// UNWATCHTP, of one prefix or of all.
    pub(in crate::engine) fn unwatch_prefix(
        &mut self,
        client: ClientId,
        prefix: Option<Key<'_>>,
        effects: &mut Vec<Effect>,
    ) {
        let client = self.clients.find(client);
        let removed = match (client, prefix) {
            (None, _) => 0,
            (Some(client), Some(prefix)) => i64::from(self.forget_prefix(client, prefix)),
            (Some(client), None) => {
                let count = self.clients[client].prefix_count;
                while let Some(watch) = self.clients[client].prefixes.head() {
                    self.remove_prefix_watch(watch);
                }
                count.into()
            }
        };
        effects.push(Effect::Reply(Reply::Integer(removed)));
    }

    // ---- slices ----

    /// Tells the watchers of prefixes of flushes and exchanges of databases, within the budget.
    pub(in crate::engine) fn sweep_prefixes(&mut self, effects: &mut Vec<Effect>) {
        while self.prefixes.is_any_behind() && self.budget.spend(1) {
            if let Some(prefix) = self.prefixes.next_behind() {
                self.refresh_prefix(prefix, effects);
            }
            self.prefixes.pass_behind();
        }
    }

    /// Whether a connection may have to be told that its watches are over. O(1).
    pub fn is_any_blind(&self) -> bool {
        self.prefixes.is_any_blind()
    }

    /// Tells blind connections, within the budget, that their watches are over.
    pub(in crate::engine) fn end_blind(&mut self, effects: &mut Vec<Effect>) {
        while let Some(client) = self.prefixes.first_blind(&self.clients)
            && self.budget.spend(1)
        {
            match self.clients[client].prefixes.head() {
                Some(watch) => self.end_unseen(client, watch, effects),
                None => self.clients[client].is_blind = false,
            }
        }
    }

    /// Whether any index is being built. O(1).
    pub fn is_building_index(&self) -> bool {
        self.keys.is_building_index()
    }

    /// Builds the indexes that were asked for, within the budget.
    pub(in crate::engine) fn build_indexes(&mut self) {
        while self.keys.is_building_index() && self.budget.spend(1) {
            if let Some(key) = self.keys.next_to_index()
                && self.token_to_show(key).is_some()
            {
                self.keys.set_shown(key);
            }
        }
    }
}

/// For tests.
impl Engine {
    /// Panics unless the indexes that are built have exactly the keys that are to be shown. O(held keys).
    pub(in crate::engine) fn check_presence(&self) {
        for key in self.keys.all_held() {
            let is_moving = self.in_transit == Some(key);
            if !is_moving && self.keys.is_indexed_whole(key) {
                assert_eq!(
                    self.keys.is_shown(key),
                    self.token_to_show(key).is_some(),
                    "{:?}",
                    self.keys.key_of(key)
                );
            }
        }
    }
}

fn push_presence_to(
    to: Vec<Viewer>,
    key: KeyBuf,
    change: PresenceChange,
    effects: &mut Vec<Effect>,
) {
    if !to.is_empty() {
        let presence = Presence { to, key, change };
        effects.push(Effect::Presence(Box::new(presence)));
    }
}
