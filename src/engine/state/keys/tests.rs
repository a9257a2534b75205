//! Keys, names and databases beside a model that says the same in the plainest way.

use super::*;
use crate::engine::types::ClientId;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn records_are_small() {
    assert_eq!(size_of::<Option<HeldKey>>(), 48);
    assert_eq!(size_of::<Option<Name>>(), 56);
}

#[test]
fn a_flush_and_an_exchange_leave_no_key_where_it_was() {
    let mut keys = Keys::default();
    let [here, there] = [0, 3].map(|db| Key {
        db: Db(db),
        name: b"k",
    });
    let lookup = keys.lookup(here);
    let held = keys.get_or_insert_held(lookup, here);
    let name = keys.get_or_insert_name(lookup, here, KeyState::Lock);
    keys[name].set_ready(true);
    assert_eq!(keys.name_of(held), Some(name));
    keys.swap_databases(here.db, there.db);
    assert_eq!(
        [here, there].map(|key| keys.find_held(key)),
        [None, Some(held)]
    );
    assert!(keys.key_of(held) == there && keys.is_stale(name) && keys.has_stale_unknown());
    keys.retire(Some(here.db), Cause::Server);
    assert!(!keys.is_retired(held) && keys.is_absent_if_stale(name) && !keys.has_stale_unknown());
    keys.retire(None, Cause::Server);
    assert!(keys.is_retired(held) && keys.find_held(there).is_none());
    let again = keys.get_or_insert_held(keys.lookup(there), there);
    assert!(again != held && keys.key_of(held) == keys.key_of(again));
    keys.check(None);
    keys.remove_held(held);
    assert!(!keys.has_retired());
    keys.detach(again);
    keys.check(Some(again));
    keys.attach(again, here);
    assert_eq!(keys.held_at(name), Some(again));
    keys.check(None);
}

/// Few, so that all of them meet.
const DBS: u32 = 3;
const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"a name that stands in memory of its own"];

/// The number of a database and of a name.
type Place = (u32, usize);

fn key((db, name): Place) -> Key<'static> {
    let (db, name) = (Db(db), NAMES[name]);
    Key { db, name }
}

fn places() -> impl Iterator<Item = Place> {
    (0..DBS).flat_map(|db| (0..NAMES.len()).map(move |name| (db, name)))
}

#[derive(Clone, Debug)]
enum Step {
    Hold(Place),
    HoldAtName(Place),
    HoldAll(Vec<Place>),
    Remove(usize),
    /// Nowhere: it is lost on its way.
    Move(usize, Option<Place>),
    AddName(Place, KeyState),
    RemoveName(Place),
    Renew(Place),
    Retire(Option<u32>),
    Exchange(u32, u32),
    LoseSight,
}

fn steps() -> impl Strategy<Value = Step> {
    let place = || (0..DBS, 0..NAMES.len());
    let state = proptest::sample::select(vec![KeyState::Absent, KeyState::Lock, KeyState::Other]);
    prop_oneof![
        4 => place().prop_map(Step::Hold),
        2 => place().prop_map(Step::HoldAtName),
        1 => proptest::collection::vec(place(), 0..6).prop_map(Step::HoldAll),
        5 => any::<usize>().prop_map(Step::Remove),
        2 => (any::<usize>(), proptest::option::weighted(0.8, place())).prop_map(|(which, to)| Step::Move(which, to)),
        4 => (place(), state).prop_map(|(at, state)| Step::AddName(at, state)),
        3 => place().prop_map(Step::RemoveName),
        2 => place().prop_map(Step::Renew),
        2 => proptest::option::of(0..DBS).prop_map(Step::Retire),
        2 => (0..DBS, 0..DBS).prop_map(|(one, other)| Step::Exchange(one, other)),
        1 => Just(Step::LoseSight),
    ]
}

/// A name that is known.
struct Named {
    id: Id<Name>,
    state: KeyState,
    /// Not known since: whether that was a flush, after which nothing stands there.
    stale: Option<bool>,
}

/// What [`Keys`] says, in the plainest way.
#[derive(Default)]
struct Model {
    held: BTreeMap<Place, Id<HeldKey>>,
    /// In the order in which they went.
    retired: Vec<(Id<HeldKey>, Place, Retired)>,
    names: BTreeMap<Place, Named>,
    flushes: u32,
}

impl Model {
    fn lose_sight_of(&mut self, dbs: &[u32], is_empty: bool) {
        for ((db, _), name) in &mut self.names {
            if dbs.contains(db) {
                name.stale = Some(is_empty);
            }
        }
    }

    fn retire(&mut self, db: Option<u32>, by: Cause) {
        self.flushes += 1;
        let number = self.flushes;
        let dbs: Vec<_> = (0..DBS)
            .filter(|of| db.is_none_or(|db| db == *of))
            .collect();
        let gone = self.held.iter().filter(|((of, _), _)| dbs.contains(of));
        let gone = gone.map(|(place, id)| (*id, *place, Retired { by, number }));
        self.retired.extend(gone);
        self.held.retain(|(of, _), _| !dbs.contains(of));
        self.lose_sight_of(&dbs, true);
    }

    fn exchange(&mut self, one: u32, other: u32) {
        let exchanged = |db: u32| match db {
            db if db == one => other,
            db if db == other => one,
            db => db,
        };
        let held = std::mem::take(&mut self.held).into_iter();
        self.held = held
            .map(|((db, name), id)| ((exchanged(db), name), id))
            .collect();
        self.lose_sight_of(&[one, other], false);
    }

    fn all(&self) -> Vec<(Id<HeldKey>, Place)> {
        let held = self.held.iter().map(|(place, id)| (*id, *place));
        let retired = self.retired.iter().map(|(id, place, _)| (*id, *place));
        held.chain(retired).collect()
    }

    fn check(&self, keys: &Keys) {
        keys.check(None);
        let counts = (keys.held_count(), keys.name_count());
        assert_eq!(counts, (self.all().len(), self.names.len()));
        for place in places() {
            self.check_place(keys, place);
        }
        for (place, held) in &self.held {
            assert_eq!(keys.retired_by(*held), None);
            let name = self.names.get(place).map(|name| name.id);
            assert_eq!(keys.name_of(*held), name);
        }
        for (held, _, retired) in &self.retired {
            assert_eq!(keys.retired_by(*held), Some(*retired));
            assert_eq!(keys.name_of(*held), None);
        }
        for (held, place) in self.all() {
            assert_eq!(keys.key_of(held), key(place));
        }
        assert_eq!(keys.has_retired(), !self.retired.is_empty());
        assert_eq!(keys.retirements(), self.flushes);
        let is_any = |stale: Option<bool>| self.names.values().any(|name| name.stale == stale);
        assert_eq!(keys.has_stale_absent(), is_any(Some(true)));
        assert_eq!(keys.has_stale_unknown(), is_any(Some(false)));
        assert_eq!(keys.has_stale(), is_any(Some(true)) || is_any(Some(false)));
        self.check_walk(keys);
    }

    fn check_place(&self, keys: &Keys, place: Place) {
        let (held, name) = (self.held.get(&place).copied(), self.names.get(&place));
        let id = name.map(|name| name.id);
        let lookup = keys.lookup(key(place));
        assert_eq!((lookup.held, lookup.name), (held, id));
        assert_eq!(keys.find_held(key(place)), held);
        assert_eq!(keys.find_name(key(place)), id);
        let retired = self.retired.iter().filter(|(_, at, _)| *at == place);
        assert!(keys.retired_at(key(place)).eq(retired.map(|(id, ..)| *id)));
        if let Some(name) = name {
            assert_eq!(keys.held_at(name.id), held);
            assert_eq!(keys.is_stale(name.id), name.stale.is_some());
            assert!(
                name.stale
                    .is_none_or(|empty| keys.is_absent_if_stale(name.id) == empty)
            );
            let row = &keys[name.id];
            assert_eq!(row.key(), key(place));
            assert_eq!(row.is_present(), name.state.is_present());
            assert_eq!(row.is_foreign(), name.state == KeyState::Other);
        }
    }

    fn check_walk(&self, keys: &Keys) {
        let arena = keys.held_arena();
        let mut cursor = Cursor::default();
        let walked = (0..arena.slot_count()).filter_map(|_| cursor.visit(arena));
        let mut walked: Vec<_> = walked.collect();
        walked.sort();
        let mut all: Vec<_> = self.all().into_iter().map(|(id, _)| id).collect();
        all.sort();
        assert_eq!(walked, all);
    }

    fn step(&mut self, keys: &mut Keys, step: Step) {
        match step {
            Step::Hold(at) => {
                let held = keys.get_or_insert_held(keys.lookup(key(at)), key(at));
                assert_eq!(*self.held.entry(at).or_insert(held), held);
            }
            Step::HoldAtName(at) => {
                if let Some(name) = self.names.get(&at) {
                    let held = keys.get_or_insert_held_at(name.id);
                    assert_eq!(*self.held.entry(at).or_insert(held), held);
                }
            }
            Step::HoldAll(all) => {
                let asked: Vec<_> = all.iter().map(|at| key(*at)).collect();
                for (at, made) in all.into_iter().zip(keys.insert_all_held(&asked)) {
                    let is_known = self.held.contains_key(&at) || self.names.contains_key(&at);
                    assert_eq!(made.is_none(), is_known);
                    self.held.extend(made.map(|made| (at, made)));
                }
            }
            Step::Remove(which) => self.remove(keys, which),
            Step::Move(which, to) => self.rename(keys, which, to),
            Step::AddName(at, state) => self.add_name(keys, at, state),
            Step::RemoveName(at) => {
                if let Some(name) = self.names.remove(&at) {
                    keys.remove_name_if_unreferenced(name.id);
                    assert_eq!(keys.find_name(key(at)), Some(name.id));
                    keys[name.id].set_ready(false);
                    keys.remove_name_if_unreferenced(name.id);
                }
            }
            Step::Renew(at) => {
                if let Some(name) = self.names.get_mut(&at) {
                    assert_eq!(keys.mark_fresh(name.id), name.stale.take().is_some());
                }
            }
            Step::Retire(db) => {
                let by = Cause::Client(ClientId(u64::from(self.flushes)));
                keys.retire(db.map(Db), by);
                self.retire(db, by);
            }
            Step::Exchange(one, other) => {
                keys.swap_databases(Db(one), Db(other));
                self.exchange(one, other);
            }
            Step::LoseSight => {
                keys.forget_states();
                self.lose_sight_of(&[0, 1, 2], false);
            }
        }
    }

    fn remove(&mut self, keys: &mut Keys, which: usize) {
        let all = self.all();
        let Some((held, place)) = all.get(which % all.len().max(1)) else {
            return;
        };
        let Key { db, name } = key(*place);
        assert_eq!(keys.remove_held(*held), (db, Bytes::from(name)));
        self.held.retain(|_, id| id != held);
        self.retired.retain(|(id, ..)| id != held);
    }

    /// What is held at the new name is lost before.
    fn rename(&mut self, keys: &mut Keys, which: usize, to: Option<Place>) {
        let count = self.held.len().max(1);
        let Some(from) = self.held.keys().nth(which % count).copied() else {
            return;
        };
        let held = self.held.remove(&from).expect("it is there");
        keys.detach(held);
        keys.check(Some(held));
        assert_eq!(keys.find_held(key(from)), None);
        assert_eq!(keys.key_of(held), key(from));
        let Some(to) = to else {
            keys.remove_held(held);
            return;
        };
        if let Some(there) = self.held.insert(to, held) {
            keys.remove_held(there);
        }
        keys.attach(held, key(to));
    }

    fn add_name(&mut self, keys: &mut Keys, at: Place, state: KeyState) {
        let lookup = keys.lookup(key(at));
        let id = keys.get_or_insert_name(lookup, key(at), state);
        keys[id].set_ready(true);
        let stale = None;
        let name = self.names.entry(at).or_insert(Named { id, state, stale });
        assert_eq!(name.id, id);
    }
}

proptest! {
    #[test]
    fn keys_and_names_are_found_where_they_are_whatever_was_flushed_exchanged_or_renamed(
        steps in proptest::collection::vec(steps(), 1..80)
    ) {
        let mut keys = Keys::default();
        let mut model = Model::default();
        for step in steps {
            model.step(&mut keys, step);
            model.check(&keys);
        }
    }
}
