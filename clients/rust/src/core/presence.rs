//! Presence and observers: the temporary keys of a prefix, and their changes.

use super::pushes::split;
use super::*;

/// All prefixes that a client watches.
#[derive(Debug, Default)]
pub struct Presences {
    watchers: HashMap<Id, Watcher>,
    /// In the order in which they began.
    prefixes: Vec<Prefix>,
}

#[derive(Debug)]
struct Watcher {
    prefix: Bytes,
    /// It observes the leader of this name alone.
    is_observer: bool,
    /// It was told who leads, or that nobody does.
    knows_leader: bool,
    /// Before its first snapshot: what it was told at another node.
    before: Option<Told>,
}

#[derive(Debug)]
struct Prefix {
    name: Bytes,
    by: Vec<Id>,
    /// What its watchers were told.
    members: Members,
    /// A snapshot that is not complete, from its first page on: what is pushed before that is of a former watch.
    next: Option<Members>,
    is_live: bool,
    /// Of the last snapshot that was asked for.
    serial: u64,
}

impl Presences {
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    pub fn prefixes(&self) -> Vec<Bytes> {
        self.prefixes
            .iter()
            .map(|prefix| prefix.name.clone())
            .collect()
    }

    /// A prefix that is watched.
    pub fn first(&self) -> Option<&Bytes> {
        self.prefixes.first().map(|prefix| &prefix.name)
    }

    /// Those of several slots.
    pub fn crossing(&self) -> Vec<Id> {
        let crosses = |prefix: &&Prefix| !cluster::has_hash_tag(&prefix.name);
        let prefixes = self.prefixes.iter().filter(crosses);
        prefixes
            .flat_map(|prefix| prefix.by.iter().copied())
            .collect()
    }

    /// Ends all of them.
    pub fn clear(&mut self) -> Vec<Id> {
        self.prefixes.clear();
        let mut ids: Vec<_> = self.watchers.drain().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }

    /// What a watcher was told before its first snapshot, once.
    fn take_before(&mut self, id: Id) -> Option<Members> {
        let before = self.watchers.get_mut(&id)?.before.take()?;
        Some(before.members.unwrap_or_default())
    }

    fn get(&mut self, name: &[u8]) -> Option<&mut Prefix> {
        self.prefixes.iter_mut().find(|prefix| prefix.name == name)
    }
}

impl Core {
    /// Begins to watch the temporary keys of this prefix, of which this was told already.
    pub fn presence(&mut self, id: Id, prefix: Bytes, told: Told) {
        self.watch_prefix(id, prefix, false, told);
    }

    /// Begins to watch who leads in the election of this name (P-ELECT-3).
    pub fn observe(&mut self, id: Id, name: Bytes, told: Told) {
        self.watch_prefix(id, name, true, told);
    }

    fn watch_prefix(&mut self, id: Id, name: Bytes, is_observer: bool, told: Told) {
        if self.is_closed {
            return self.refuse_watch(id, Error::Closed);
        }
        if self.config.is_cluster && !cluster::has_hash_tag(&name) {
            return self.refuse_watch(id, Error::CrossSlot);
        }
        let watcher = Watcher {
            prefix: name.clone(),
            is_observer,
            knows_leader: told.members.is_some(),
            before: Some(told),
        };
        self.presences.watchers.insert(id, watcher);
        self.need_connection();
        if let Some(prefix) = self.presences.get(&name) {
            prefix.by.push(id);
            if prefix.is_live {
                let members = prefix.members.clone();
                let before = self.presences.take_before(id).unwrap_or_default();
                self.tell_members(id, &before, &members);
            }
            return;
        }
        self.presences.prefixes.push(Prefix {
            name: name.clone(),
            by: vec![id],
            members: Members::new(),
            next: None,
            is_live: false,
            serial: 0,
        });
        self.send_prefix(&name, None);
    }

    /// The watcher goes.
    pub fn end_presence(&mut self, id: Id) {
        let Some(watcher) = self.presences.watchers.remove(&id) else {
            return;
        };
        let name = watcher.prefix;
        let Some(prefix) = self.presences.get(&name) else {
            return;
        };
        prefix.by.retain(|other| *other != id);
        if prefix.by.is_empty() {
            self.presences.prefixes.retain(|prefix| prefix.name != name);
            if self.is_up() {
                self.send(words!["UNWATCHTP", &name], Expect::Nothing);
            }
        }
    }

    /// P-PRES-1: a fresh snapshot, or its next page.
    pub(super) fn send_prefix(&mut self, name: &Bytes, after: Option<Bytes>) {
        if !self.is_up() {
            return;
        }
        self.serial += 1;
        let serial = self.serial;
        let Some(prefix) = self.presences.get(name) else {
            return;
        };
        prefix.serial = serial;
        let words = match after {
            Some(after) => words!["WATCHTP", name, "AFTER", &after],
            None => {
                prefix.next = None;
                prefix.is_live = false;
                words!["WATCHTP", name]
            }
        };
        let prefix = name.clone();
        self.send(words, Expect::Prefix { prefix, serial });
    }

    pub(super) fn prefix_answered(&mut self, name: &Bytes, serial: u64, reply: Frame) {
        let Some(prefix) = self.presences.get(name).filter(|it| it.serial == serial) else {
            return;
        };
        let (after, entries) = match &reply {
            Frame::Error(error)
                if errors::is_momentary(error)
                    || errors::is_unwritable(error)
                    || errors::code(error) == "ASK" =>
            {
                return self.try_again(Retry::Prefix(name.clone()));
            }
            Frame::Error(error) => return self.prefix_refused(name, error),
            Frame::Array(items) => match &items[..] {
                [Frame::Bytes(after), Frame::Array(entries), ..] => (after, entries),
                _ => return self.leave(), // P-FRAME-2
            },
            _ => return self.leave(),
        };
        let next = prefix.next.get_or_insert_default();
        for entry in entries {
            let Frame::Array(entry) = entry else { continue };
            let [key, token, value] = [0, 1, 2].map(|at| entry.get(at));
            let member = Member {
                token: token.and_then(Frame::number).unwrap_or(0),
                value: value.and_then(Frame::bytes).map(<[u8]>::to_vec),
            };
            if let Some(key) = key.and_then(Frame::bytes) {
                next.insert(key.to_vec(), member);
            }
        }
        if !after.is_empty() {
            return self.send_prefix(name, Some(after.clone()));
        }
        prefix.is_live = true;
        let next = prefix.next.take().unwrap_or_default();
        let former = std::mem::replace(&mut prefix.members, next.clone());
        for id in prefix.by.clone() {
            let before = self.presences.take_before(id);
            self.tell_members(id, before.as_ref().unwrap_or(&former), &next);
        }
    }

    fn prefix_refused(&mut self, name: &Bytes, error: &str) {
        let at = self
            .presences
            .prefixes
            .iter()
            .position(|it| it.name == *name);
        let Some(prefix) = at.map(|at| self.presences.prefixes.remove(at)) else {
            return;
        };
        for id in prefix.by {
            let watcher = self.presences.watchers.remove(&id);
            let told = watcher.and_then(|watcher| watcher.before);
            let told = told.unwrap_or_else(|| Told {
                members: Some(prefix.members.clone()),
                ..Told::default()
            });
            let error = Error::Refused(error.to_owned());
            self.tell(Event::Ended { id, error, told });
        }
    }

    /// P-PRES-3: the difference.
    fn tell_members(&mut self, id: Id, former: &Members, next: &Members) {
        let keys: BTreeSet<_> = former.keys().chain(next.keys()).collect();
        for key in keys {
            let change = match (former.get(key), next.get(key)) {
                (was, is) if was == is => continue,
                (None, Some(member)) => MemberChange::Added(member.clone()),
                (Some(_), Some(member)) => MemberChange::Set(member.clone()),
                _ => MemberChange::Gone("unknown".to_owned()),
            };
            self.tell_member(id, key, change);
        }
        let Some(watcher) = self.presences.watchers.get_mut(&id) else {
            return;
        };
        if watcher.is_observer && !std::mem::replace(&mut watcher.knows_leader, true) {
            let leader = None;
            self.tell(Event::Leader { id, leader });
        }
    }

    fn tell_member(&mut self, id: Id, key: &Bytes, change: MemberChange) {
        let Some(watcher) = self.presences.watchers.get_mut(&id) else {
            return;
        };
        let key = key.clone();
        if !watcher.is_observer {
            let event = PresenceEvent { key, change };
            return self.tell(Event::Presence { id, event });
        }
        // P-ELECT-3: longer names are those of others.
        if watcher.prefix == key {
            watcher.knows_leader = true;
            let leader = match change {
                MemberChange::Added(member) | MemberChange::Set(member) => Some(member),
                MemberChange::Gone(_) => None,
            };
            self.tell(Event::Leader { id, leader });
        }
    }

    /// A push about a temporary key, or about a prefix.
    pub(super) fn member_changed(&mut self, key: &[u8], text: &[u8]) {
        let (word, rest) = split(text);
        let (token, value) = split(rest);
        let token = std::str::from_utf8(token)
            .ok()
            .and_then(|token| token.parse().ok());
        let key = key.to_vec();
        let member = || Member {
            token: token.unwrap_or(0),
            value: rest.contains(&b' ').then(|| value.to_vec()),
        };
        let change = match word {
            b"FLUSHED" => return self.prefix_flushed(&key),
            b"END" => return self.send_prefix(&key, None), // P-PRES-3
            b"ADD" => MemberChange::Added(member()),
            b"SET" => MemberChange::Set(member()),
            b"DEL" => MemberChange::Gone(String::from_utf8_lossy(value).into_owned()),
            _ => return,
        };
        // P-PRES-2
        let mut told = Vec::new();
        for prefix in &mut self.presences.prefixes {
            if !key.starts_with(&prefix.name) {
                continue;
            }
            let members = match prefix.is_live {
                true => Some(&mut prefix.members),
                false => prefix.next.as_mut(),
            };
            let Some(members) = members else { continue };
            match &change {
                MemberChange::Gone(_) => _ = members.remove(&key),
                MemberChange::Added(member) | MemberChange::Set(member) => {
                    members.insert(key.clone(), member.clone());
                }
            }
            if prefix.is_live {
                told.extend(prefix.by.iter().copied());
            }
        }
        for id in told {
            self.tell_member(id, &key, change.clone());
        }
    }

    /// P-PRES-4.
    fn prefix_flushed(&mut self, name: &Bytes) {
        let Some(prefix) = self.presences.get(name) else {
            return;
        };
        if !prefix.is_live {
            prefix.next = prefix.next.take().map(|_| Members::new());
            return;
        }
        let former = std::mem::take(&mut prefix.members);
        let by = prefix.by.clone();
        for key in former.keys() {
            for id in &by {
                self.tell_member(*id, key, MemberChange::Gone("flushed".to_owned()));
            }
        }
    }
}
