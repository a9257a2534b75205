//! Cluster slots: their owners, parsed from the server's reports, and when to poll for slots lost without an event.

use crate::engine::Moment;

/// The node that commands for a key that does not exist must go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// This node, also while it imports the slot.
    Here,
    /// Another node, with `ASKING`: this node migrates the slot to it.
    Leaving(String),
    There(String),
    /// No node owns the slot.
    Nowhere,
}

/// How long an owner is cached: many keys of one slot are removed in a row.
pub const OWNER_CACHE_MS: u64 = 50;

/// Cached slot ownership.
#[derive(Default)]
pub struct Slots {
    /// The last slot looked up, when, and its owner.
    last: Option<(u64, Moment, SlotOwner)>,
    /// On a replica: the slots that its master imports, first and last of each range. `None`: to be queried.
    importing: Option<Vec<SlotRange>>,
}

impl Slots {
    /// The cached owner of this slot, if it is fresh.
    pub fn last_owner(&self, slot: u64, now: Moment) -> Option<SlotOwner> {
        let (last, when, owner) = self.last.as_ref()?;
        (*last == slot && now.ms_since(*when) < OWNER_CACHE_MS).then(|| owner.clone())
    }

    pub fn set_last(&mut self, slot: u64, now: Moment, owner: SlotOwner) {
        self.last = Some((slot, now, owner));
    }

    /// A command is about to change slot ownership.
    pub fn config_changes(&mut self) {
        self.last = None;
    }

    /// An import of slots by this node's master began or ended: the slots must be queried again.
    pub fn migrations_changed(&mut self) {
        self.importing = None;
    }

    pub fn knows_importing(&self) -> bool {
        self.importing.is_some()
    }

    /// Sets the slots that the server reports as being imported.
    pub fn set_importing(&mut self, importing: Vec<SlotRange>) {
        self.importing = Some(importing);
    }

    pub fn imports_any(&self) -> bool {
        self.importing.iter().flatten().next().is_some()
    }

    pub fn is_importing(&self, slot: u64) -> bool {
        let mut ranges = self.importing.iter().flatten();
        ranges.any(|range| contains(*range, slot))
    }
}

/// Interval of polling the server for its slots.
const POLL_INTERVAL_MS: u64 = 1000;

/// How long to poll after a change of ownership: a server may wait for its replicas before it applies it.
const POLL_AFTER_CHANGE_MS: u64 = 10_000;

/// The slots that this node serves, as last polled.
#[derive(Default)]
pub struct ServedSlots {
    slots: Option<SlotSet>,
    /// Those of them that are being imported; after a change perhaps more.
    importing: Option<SlotSet>,
    /// See [`Served::unclear`].
    unclear: SlotSet,
    /// Whether some of them are being handed over.
    is_any_leaving: bool,
    polled_at: Moment,
    /// When a command last changed slot ownership.
    changed_at: Option<Moment>,
}

/// When to poll the server for its slots.
#[derive(Debug, PartialEq, Eq)]
pub enum Poll {
    /// Not before ownership changes.
    Never,
    InMs(u64),
    /// Now, and again after this many milliseconds.
    NowAndIn(u64),
}

impl ServedSlots {
    /// A command is about to change slot ownership.
    pub fn config_changes(&mut self, now: Moment) {
        self.changed_at = Some(now);
        self.polled_at = Moment::default();
    }

    /// A command is about to have this slot imported.
    pub fn imports(&mut self, slot: u64) {
        self.importing.get_or_insert_default().add(slot, slot);
    }

    /// Whether this key's slot may be being imported. O(length of the name) while any is.
    pub fn may_be_importing(&self, name: &[u8]) -> bool {
        let importing = self.importing.as_ref();
        importing.is_some_and(|slots| slots.has(slot_of(name)))
    }

    /// `may_lose_silently`: slots can be lost without an event. `is_urgent`: keys are about to be granted, and must still
    /// be this node's.
    pub fn next_poll(
        &self,
        now: Moment,
        may_lose_silently: bool,
        is_urgent: impl FnOnce() -> bool,
    ) -> Poll {
        let in_doubt = self.slots.is_none() || self.importing.is_some() || self.may_be_leaving(now);
        if !in_doubt && !may_lose_silently {
            return Poll::Never;
        }
        match now.ms_since(self.polled_at) {
            ago_ms if ago_ms < POLL_INTERVAL_MS && !is_urgent() => {
                Poll::InMs(POLL_INTERVAL_MS - ago_ms)
            }
            _ => Poll::NowAndIn(POLL_INTERVAL_MS),
        }
    }

    /// Whether this node may be handing a slot over, key by key: a key of it that does not exist is the other node's to create.
    pub fn may_be_leaving(&self, now: Moment) -> bool {
        self.is_any_leaving || self.changed_recently(now)
    }

    fn changed_recently(&self, now: Moment) -> bool {
        let changed = self.changed_at;
        changed.is_some_and(|changed| now.ms_since(changed) < POLL_AFTER_CHANGE_MS)
    }

    /// Stores a poll's result. Returns whether some slots may be lost.
    pub fn polled(&mut self, now: Moment, served: Served) -> bool {
        let Served {
            slots,
            importing,
            is_any_leaving,
            unclear,
        } = served;
        self.polled_at = now;
        self.is_any_leaving = is_any_leaving;
        // A command that changed something recently may not have been applied yet.
        let is_recent = self.changed_recently(now);
        let mut named = self.importing.take().filter(|_| is_recent);
        if let (Some(named), Some(importing)) = (&mut named, &importing) {
            named.add_all(importing);
        }
        self.importing = named.or(importing);
        let mut all = slots.clone();
        all.add_all(&unclear);
        let was_unclear = std::mem::replace(&mut self.unclear, unclear);
        if let Some(old) = &mut self.slots
            && !all.covers(&was_unclear)
        {
            // What was created there is lost.
            old.add_all(&was_unclear);
        }
        self.slots.as_ref().is_none_or(|old| !slots.covers(old))
    }

    /// A watch begins in a slot that is served now. The next poll that does not find the slot has lost it, even if it came and
    /// went between two polls.
    pub fn begins_in(&mut self, slot: u64) {
        if let Some(slots) = &mut self.slots {
            slots.add(slot, slot);
        }
    }

    /// Everything in lost slots has ended.
    pub fn confirm(&mut self, slots: SlotSet) {
        self.slots = Some(slots);
    }
}

const SLOTS: usize = 16_384;

/// What a node serves.
#[derive(Clone, Default)]
pub struct Served {
    /// Those that it owns or imports.
    pub slots: SlotSet,
    /// Those of them that it imports, if any.
    pub importing: Option<SlotSet>,
    /// Whether it is handing any of them over.
    is_any_leaving: bool,
    /// Those that it was to hand over, and another node has taken. It may be importing them back: `CLUSTER NODES` does not say that of
    /// a slot that is to be handed over.
    unclear: SlotSet,
}

impl Served {
    /// From its line of `CLUSTER NODES`.
    fn of_line(line: &str) -> Served {
        let mut served = Served::default();
        for field in slot_fields(line) {
            match field {
                SlotField::Owned((first, last)) => served.slots.add(first, last),
                SlotField::Importing(slot) => {
                    let importing = served.importing.get_or_insert_default();
                    importing.add(slot, slot);
                    served.slots.add(slot, slot);
                }
                // What it owns comes before.
                SlotField::Leaving(slot, _) if !served.slots.has(slot) => {
                    served.unclear.add(slot, slot);
                }
                SlotField::Leaving(..) => served.is_any_leaving = true,
            }
        }
        served
    }

    /// From its `CLUSTER NODES`; of a replica, what its master serves. None if the server tells nothing, since `CLUSTER` is renamed.
    pub fn of(nodes: &str) -> Option<Served> {
        let own = Some(own_line(nodes)).filter(|line| !line.is_empty())?;
        let master = own.split(' ').nth(3).filter(|id| *id != "-");
        let line = master.and_then(|id| nodes.lines().find(|line| line.starts_with(id)));
        Some(Served::of_line(line.unwrap_or(own)))
    }
}

/// A bitmap of slots.
#[derive(Clone)]
pub struct SlotSet(Box<[u64; SLOTS / 64]>);

impl Default for SlotSet {
    fn default() -> Self {
        SlotSet(Box::new([0; SLOTS / 64]))
    }
}

impl SlotSet {
    pub fn add(&mut self, first: u64, last: u64) {
        for slot in first..=last.min(SLOTS as u64 - 1) {
            self.0[slot as usize / 64] |= 1 << (slot % 64);
        }
    }

    fn add_all(&mut self, other: &SlotSet) {
        let both = self.0.iter_mut().zip(&*other.0);
        both.for_each(|(own, other)| *own |= other);
    }

    pub fn has(&self, slot: u64) -> bool {
        self.0[slot as usize / 64] & (1 << (slot % 64)) != 0
    }

    /// Whether this set contains the other one.
    pub fn covers(&self, other: &SlotSet) -> bool {
        let mut both = self.0.iter().zip(&*other.0);
        both.all(|(own, other)| other & !own == 0)
    }
}

/// Finds a slot's owner in the output of `CLUSTER NODES`.
pub fn find(nodes: &str, slot: u64, by_host_name: bool) -> SlotOwner {
    let address = |line: &str| {
        let words = line.split(' ').nth(1)?;
        let (address, rest) = words.split_once('@')?;
        let host = rest.split(',').nth(1).filter(|host| !host.is_empty());
        let (_, port) = address.rsplit_once(':')?;
        Some(match host {
            Some(host) if by_host_name => format!("{host}:{port}"),
            _ => address.to_owned(),
        })
    };
    let has_slot = |line: &&str| {
        let mut fields = slot_fields(line);
        fields.any(|field| matches!(field, SlotField::Owned(range) if contains(range, slot)))
    };
    let mine = own_line(nodes);
    for field in slot_fields(mine) {
        match field {
            SlotField::Importing(number) if number == slot => return SlotOwner::Here,
            // Unless another node has taken it.
            SlotField::Leaving(number, target) if number == slot && has_slot(&mine) => {
                let line = nodes.lines().find(|line| line.starts_with(target));
                return line
                    .and_then(address)
                    .map_or(SlotOwner::Nowhere, SlotOwner::Leaving);
            }
            _ => {}
        }
    }
    match nodes.lines().find(has_slot) {
        Some(line) if line == mine => SlotOwner::Here,
        Some(line) => address(line).map_or(SlotOwner::Nowhere, SlotOwner::There),
        None => SlotOwner::Nowhere,
    }
}

/// This node's own line, found by its flag: names may contain any word.
fn own_line(nodes: &str) -> &str {
    let is_myself = |line: &&str| {
        let flags = line.split(' ').nth(2).unwrap_or_default();
        flags.split(',').any(|flag| flag == "myself")
    };
    nodes.lines().find(is_myself).unwrap_or_default()
}

/// Whether this node is another one's replica, from its `CLUSTER NODES`.
pub fn is_replica(nodes: &str) -> bool {
    let flags = own_line(nodes).split(' ').nth(2).unwrap_or_default();
    flags.split(',').any(|flag| flag == "slave")
}

/// The first and the last slot.
pub type SlotRange = (u64, u64);

/// What a node's line says of slots.
#[derive(Debug, PartialEq, Eq)]
enum SlotField<'a> {
    Owned(SlotRange),
    Importing(u64),
    /// Migrating to the node of this id.
    Leaving(u64, &'a str),
}

/// The slot fields of a line; the fields before them change all the time.
fn slot_fields(line: &str) -> impl Iterator<Item = SlotField<'_>> {
    line.split(' ').skip(8).filter_map(|word| {
        let Some(open) = word.strip_prefix('[') else {
            return slot_range(word).map(SlotField::Owned);
        };
        let open = open.strip_suffix(']')?;
        match open.split_once("-<-") {
            Some((slot, _)) => slot.parse().ok().map(SlotField::Importing),
            None => {
                let (slot, target) = open.split_once("->-")?;
                Some(SlotField::Leaving(slot.parse().ok()?, target))
            }
        }
    })
}

/// `first-last`, or a single slot.
fn slot_range(word: &str) -> Option<SlotRange> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn contains((first, last): SlotRange, slot: u64) -> bool {
    (first..=last).contains(&slot)
}

/// The slots that the master imports, from a replica's `CLUSTER GETSLOTMIGRATIONS`.
pub fn slots_importing_to_master(moves: &[Vec<String>]) -> Vec<SlotRange> {
    fn value<'a>(of: &'a [String], name: &str) -> &'a str {
        let mut pairs = of.chunks_exact(2);
        let found = pairs.find(|pair| pair[0] == name);
        found.map_or("", |pair| &pair[1])
    }
    let importing = moves.iter().filter(|of| {
        value(of, "operation") == "IMPORT" && value(of, "state") == "occurring-on-primary"
    });
    let ranges = importing.flat_map(|of| value(of, "slot_ranges").split(' '));
    ranges.filter_map(slot_range).collect()
}

/// What is hashed in place of a name: the content of its first braces, if not empty.
pub fn hash_tag(name: &[u8]) -> Option<&[u8]> {
    let find = |byte: u8, from: &[u8]| from.iter().position(|other| *other == byte);
    let open = find(b'{', name)?;
    let rest = &name[open + 1..];
    let tag = &rest[..find(b'}', rest)?];
    (!tag.is_empty()).then_some(tag)
}

/// The slot of a key.
pub fn slot_of(name: &[u8]) -> u64 {
    let hashed = hash_tag(name).unwrap_or(name);
    // CRC-16 as in XMODEM.
    let crc = hashed.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc >> 15 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    u64::from(crc) % SLOTS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_with_a_whole_hash_tag_are_in_its_slot() {
        for (prefix, is_whole) in [
            ("{a}", true),
            ("m:{a}:", true),
            ("{a}{}", true),
            ("}{a}", true),
            ("", false),
            ("m", false),
            ("{a", false),
            ("{}", false),
            ("{}{a}", false),
            ("a}", false),
        ] {
            assert_eq!(hash_tag(prefix.as_bytes()).is_some(), is_whole, "{prefix}");
            let slots =
                ["", "x", "}", "{y}"].map(|rest| slot_of(format!("{prefix}{rest}").as_bytes()));
            assert!(!is_whole || slots.iter().all(|slot| *slot == slots[0]));
        }
    }

    #[test]
    fn a_slot_that_comes_and_goes_between_two_polls_is_lost_if_something_began_in_it() {
        let nodes = |slots: &str| format!("aa 1:1@1 myself,master - 0 0 1 connected {slots}");
        let set = |slots: &str| Served::of(&nodes(slots)).expect("slots");
        let mut served = ServedSlots::default();
        let polled = |served: &mut ServedSlots, slots: &str| {
            let lost = served.polled(Moment(1), set(slots));
            served.confirm(set(slots).slots);
            lost
        };
        assert!(polled(&mut served, "0-9"), "what was before is not known");
        assert!(!polled(&mut served, "0-9"));
        served.begins_in(5);
        assert!(!polled(&mut served, "0-9"));
        served.begins_in(12);
        assert!(polled(&mut served, "0-9"));
        assert!(!polled(&mut served, "0-9"));
    }

    #[test]
    fn a_slot_that_was_to_leave_and_was_taken_is_lost_when_that_is_over() {
        let line = |slots: &str| Served::of_line(&format!("a b c d e f g h {slots}"));
        let mut served = ServedSlots::default();
        let polled = |served: &mut ServedSlots, slots: &str| {
            let lost = served.polled(Moment(1), line(slots));
            if !lost {
                served.confirm(line(slots).slots);
            }
            lost
        };
        served.confirm(line("0-9").slots);
        assert!(!polled(&mut served, "0-9 [9->-bbb]"));
        assert!(polled(&mut served, "0-8 [9->-bbb]"));
        served.confirm(line("0-8").slots);
        // It may be imported back now, which the server does not say.
        assert!(!polled(&mut served, "0-8 [9->-bbb]"));
        assert!(polled(&mut served, "0-8"));
        assert!(polled(&mut served, "0-8"), "until that is confirmed");
        served.confirm(line("0-8").slots);
        assert!(!polled(&mut served, "0-8 [9->-bbb]"));
        assert!(!polled(&mut served, "0-9"), "it has come back");
    }

    #[test]
    fn a_slot_counts_as_imported_from_the_command_on_and_until_the_server_says_that_it_is_not() {
        let at = |ms: u64| Moment(ms * 1000);
        let key = b"123456789"; // of slot 12,739
        let mut served = ServedSlots::default();
        let importing = Served::of_line("a b c d e f g h 0-99 [12739-<-bbb]");
        let none = Served::of_line("a b c d e f g h 0-99");
        served.config_changes(at(1000));
        assert!(!served.may_be_importing(key));
        served.imports(12_739);
        assert!(served.may_be_importing(key) && !served.may_be_importing(b"a"));
        served.polled(at(10_999), none.clone());
        assert!(served.may_be_importing(key), "it may be applied late");
        served.polled(at(11_000), importing.clone());
        assert!(served.may_be_importing(key));
        served.polled(at(12_000), none);
        assert!(!served.may_be_importing(key));
        served.config_changes(at(13_000));
        served.polled(at(13_001), importing);
        assert!(served.may_be_importing(key));
    }

    #[test]
    fn a_slot_may_be_leaving_from_the_command_on_and_as_long_as_the_server_says_so() {
        let at = |ms: u64| Moment(ms * 1000);
        let mut served = ServedSlots::default();
        let leaving = Served::of_line("a b c d e f g h 0-99 [9->-bbb]");
        let none = Served::of_line("a b c d e f g h 0-99");
        served.polled(at(1000), none.clone());
        assert!(!served.may_be_leaving(at(1000)));
        served.config_changes(at(1000));
        served.polled(at(1001), none.clone());
        assert!(served.may_be_leaving(at(1001)), "it may be applied late");
        served.polled(at(11_000), leaving);
        assert!(served.may_be_leaving(at(60_000)));
        served.polled(at(60_000), none);
        assert!(!served.may_be_leaving(at(60_000)));
    }

    #[test]
    fn a_replica_serves_its_masters_slots() {
        let nodes = "aa 1:1@1 master - 0 0 1 connected 0-9\n\
                     bb 1:2@2 myself,slave aa 0 0 1 connected\n\
                     cc 1:3@3 master - 0 0 2 connected 10-19";
        let served = |nodes: &str| {
            let Served { slots, .. } = Served::of(nodes).unwrap();
            [5, 15].map(|slot| slots.has(slot))
        };
        assert_eq!(served(nodes), [true, false]);
        assert!(is_replica(nodes) && !is_replica(""));
        assert!(Served::of("").is_none());
        let nodes = nodes.replace("bb 1:2@2 myself,slave aa", "bb 1:2@2 slave aa");
        let nodes = nodes.replace("cc 1:3@3 master", "cc 1:3@3 myself,master");
        assert_eq!(served(&nodes), [false, true]);
        assert!(!is_replica(&nodes));
    }

    #[test]
    fn the_server_is_asked_while_a_slot_may_be_gone() {
        let at = |ms: u64| Moment(ms * 1000);
        let own = Served::of_line("a b c d e f g h 0-99");
        let fewer = Served::of_line("a b c d e f g h 0-98");
        let mut known = ServedSlots::default();
        let ask = |known: &ServedSlots, ms| known.next_poll(at(ms), false, || false);
        assert_eq!(ask(&known, 5000), Poll::NowAndIn(1000));
        assert!(known.polled(at(5000), own.clone()), "nothing was known");
        assert_eq!(ask(&known, 5400), Poll::InMs(600));
        assert_eq!(
            known.next_poll(at(5400), false, || true),
            Poll::NowAndIn(1000)
        );
        known.confirm(own.slots);
        assert_eq!(ask(&known, 7000), Poll::Never);
        assert_eq!(
            known.next_poll(at(7000), true, || false),
            Poll::NowAndIn(1000)
        );
        let importing = Served::of_line("a b c d e f g h 0-99 [100-<-bbb]");
        assert!(!known.polled(at(7000), importing));
        assert_eq!(ask(&known, 8000), Poll::NowAndIn(1000), "one is on its way");
        assert!(known.polled(at(8000), fewer.clone()));
        known.confirm(fewer.slots);
        known.config_changes(at(9000));
        assert_eq!(ask(&known, 9001), Poll::NowAndIn(1000));
        assert_eq!(ask(&known, 18_999), Poll::NowAndIn(1000));
        assert_eq!(ask(&known, 19_000), Poll::Never);
    }

    #[test]
    fn an_answer_about_a_slot_is_good_for_a_moment() {
        let at = |ms: u64| Moment(ms * 1000);
        let mut slots = Slots::default();
        slots.set_last(7, at(100), SlotOwner::Nowhere);
        assert_eq!(slots.last_owner(7, at(149)), Some(SlotOwner::Nowhere));
        assert_eq!(slots.last_owner(8, at(149)), None);
        assert_eq!(slots.last_owner(7, at(150)), None);
        slots.config_changes();
        assert_eq!(slots.last_owner(7, at(100)), None);
        assert!(!slots.knows_importing() && !slots.imports_any());
        slots.set_importing(vec![(3, 5)]);
        assert!(slots.imports_any() && slots.is_importing(5) && !slots.is_importing(6));
        slots.migrations_changed();
        assert!(!slots.knows_importing() && !slots.is_importing(5));
    }

    const NODES: &str = "\
aaa 127.0.0.1:7001@17001,one.example,shard-id=x myself,master - 0 1 1 connected 0-99 200 [7->-bbb] [300-<-bbb] [450->-bbb]
bbb 127.0.0.1:7002@17002,,tls-port=0 master - 0 1 2 connected 100-199 300
ccc ::1:7003@17003,three.example master - 0 1 3 connected 400-500
ddd 127.0.0.1:7004@17004 slave bbb 0 1 3 connected";

    #[test]
    fn the_owner_of_each_slot_is_found() {
        let there = |address: &str| SlotOwner::There(address.to_owned());
        for (slot, expected) in [
            (0, SlotOwner::Here),
            (200, SlotOwner::Here),
            (7, SlotOwner::Leaving("127.0.0.1:7002".to_owned())),
            (300, SlotOwner::Here),
            (150, there("127.0.0.1:7002")),
            (450, there("::1:7003")),
            (201, SlotOwner::Nowhere),
        ] {
            assert_eq!(find(NODES, slot, false), expected, "slot {slot}");
        }
        assert_eq!(find(NODES, 450, true), there("three.example:7003"));
        assert_eq!(find(NODES, 150, true), there("127.0.0.1:7002"));
        assert_eq!(find("", 0, false), SlotOwner::Nowhere);
    }

    #[test]
    fn the_slots_that_are_on_their_way_to_a_master_are_found() {
        let row = |operation: &str, slots: &str, state: &str| {
            let words = [
                "operation",
                operation,
                "slot_ranges",
                slots,
                "create_time",
                "",
                "state",
                state,
            ];
            words.map(str::to_owned).to_vec()
        };
        let moves = [
            row("IMPORT", "7 10-20", "occurring-on-primary"),
            row("IMPORT", "30-40", "success"),
            row("EXPORT", "50-60", "occurring-on-primary"),
            row("IMPORT", "70-70", "occurring-on-primary"),
        ];
        assert_eq!(
            slots_importing_to_master(&moves),
            [(7, 7), (10, 20), (70, 70)]
        );
        assert_eq!(slots_importing_to_master(&[]), []);
    }

    #[test]
    fn this_server_is_found_by_its_flag_whatever_others_are_called() {
        let nodes =
            format!("eee 127.0.0.1:7005@17005,myself.example master - 0 1 5 connected 9\n{NODES}");
        assert!(own_line(&nodes).starts_with("aaa "));
        let own: Vec<_> = slot_fields(own_line(&nodes)).collect();
        let expected = [
            SlotField::Owned((0, 99)),
            SlotField::Owned((200, 200)),
            SlotField::Leaving(7, "bbb"),
            SlotField::Importing(300),
            SlotField::Leaving(450, "bbb"),
        ];
        assert_eq!(own, expected);
    }

    #[test]
    fn slots_are_those_of_the_server() {
        let known = [("123456789", 12_739), ("a{123456789}b{c}", 12_739)];
        for (name, expected) in known {
            assert_eq!(slot_of(name.as_bytes()), expected, "{name}");
        }
        assert_eq!(slot_of(b""), 0);
        // Empty braces count as a part of the name.
        assert_ne!(slot_of(b"{}a"), slot_of(b""));
        assert_ne!(slot_of(b"{}a"), slot_of(b"{}b"));
        assert_ne!(slot_of(b"{a"), slot_of(b"a"));
    }

    #[test]
    fn a_line_tells_own_slots_and_those_on_their_way() {
        let line = "aaa 127.0.0.1:7001@17001 myself,master - 0 1 1 connected 0-99 200 [7->-bbb]";
        let Served {
            slots: own,
            importing,
            ..
        } = Served::of_line(line);
        assert!(importing.is_none());
        let has = |set: &SlotSet| [0, 7, 99, 100, 200, 300].map(|slot| set.has(slot));
        assert_eq!(has(&own), [true, true, true, false, true, false]);
        let Served {
            slots: more,
            importing,
            ..
        } = Served::of_line(&format!("{line} [300-<-bbb]"));
        assert_eq!(importing.map(|slots| has(&slots)[5]), Some(true));
        assert_eq!(has(&more), [true, true, true, false, true, true]);
        assert!(more.covers(&own) && !own.covers(&more) && own.covers(&own));
    }
}
