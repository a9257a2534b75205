//! Slots of a cluster: whose they are, as the server's own reports say, and which a server has lost without a word.

use crate::engine::Moment;

/// Where commands for a key that is not there are to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// Here; also as long as its slot is on its way to here.
    Here,
    /// There, with `ASKING`: its slot is on its way to there.
    Leaving(String),
    There(String),
    /// Nobody has the slot.
    Nowhere,
}

/// How long an answer about a slot is good for: many keys of one slot go one after the other.
pub const FRESH_MS: u64 = 50;

/// What was last found out of slots.
#[derive(Default)]
pub struct Slots {
    /// The last slot that was looked for, when, and where it was.
    last: Option<(u64, Moment, SlotOwner)>,
    /// On a replica: the slots that are on their way to its master, first and last of each range. None: to be asked for.
    coming: Option<Vec<(u64, u64)>>,
}

impl Slots {
    /// Where this slot was a moment ago, if that was found out then.
    pub fn last_place(&self, slot: u64, now: Moment) -> Option<SlotOwner> {
        let (last, when, place) = self.last.as_ref()?;
        (*last == slot && now.ms_since(*when) < FRESH_MS).then(|| place.clone())
    }

    pub fn found(&mut self, slot: u64, now: Moment, place: SlotOwner) {
        self.last = Some((slot, now, place));
    }

    /// Somebody is about to say whose a slot is.
    pub fn change(&mut self) {
        self.last = None;
    }

    /// A move of slots to this server's master has begun or ended: which ones come is to be asked for.
    pub fn moves_have_changed(&mut self) {
        self.coming = None;
    }

    pub fn knows_what_comes(&self) -> bool {
        self.coming.is_some()
    }

    /// What the server says is on its way.
    pub fn come(&mut self, coming: Vec<(u64, u64)>) {
        self.coming = Some(coming);
    }

    pub fn is_any_coming(&self) -> bool {
        self.coming.iter().flatten().next().is_some()
    }

    pub fn is_coming(&self, slot: u64) -> bool {
        let mut ranges = self.coming.iter().flatten();
        ranges.any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// How often the server is asked which slots it has.
const LOOK_MS: u64 = 1000;

/// For so long after somebody has said whose a slot is: a server may wait for its replicas before it does what it was told.
const AFTER_MS: u64 = 10_000;

/// What a server knows of its own slots.
#[derive(Default)]
pub struct Own {
    /// Those that the server said it has, or will have, when last asked.
    slots: Option<SlotSet>,
    /// Some of them were on their way.
    coming: bool,
    looked: Moment,
    /// When somebody last said whose a slot is.
    changed: Option<Moment>,
}

/// When the server is to be asked which slots it has.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask {
    /// As soon as something is heard of slots.
    Never,
    InMs(u64),
    /// Now, and again after so many milliseconds.
    NowAndIn(u64),
}

impl Own {
    /// Somebody is about to say whose a slot is.
    pub fn change(&mut self, now: Moment) {
        self.changed = Some(now);
        self.looked = Moment::default();
    }

    /// `in_doubt_always`: slots can go without a word. `at_once`: keys are about to be handed over, which are to be this
    /// server's still.
    pub fn when_to_ask(
        &self,
        now: Moment,
        in_doubt_always: bool,
        at_once: impl FnOnce() -> bool,
    ) -> Ask {
        let is_late = |changed: Moment| now.ms_since(changed) < AFTER_MS;
        let in_doubt = self.slots.is_none() || self.coming || self.changed.is_some_and(is_late);
        if !in_doubt && !in_doubt_always {
            return Ask::Never;
        }
        match now.ms_since(self.looked) {
            ago_ms if ago_ms < LOOK_MS && !at_once() => Ask::InMs(LOOK_MS - ago_ms),
            _ => Ask::NowAndIn(LOOK_MS),
        }
    }

    /// What the server has said. Whether some may be gone that it had before.
    pub fn said(&mut self, now: Moment, slots: &SlotSet, coming: bool) -> bool {
        self.looked = now;
        self.coming = coming;
        self.slots.as_ref().is_none_or(|old| !slots.covers(old))
    }

    /// All that was in slots that are gone has ended.
    pub fn settled(&mut self, slots: SlotSet) {
        self.slots = Some(slots);
    }
}

const SLOTS: usize = 16_384;

/// A bit for each slot.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet(Box<[u64; SLOTS / 64]>);

impl SlotSet {
    /// Those that a server has or that are on their way to it, as its own line of `CLUSTER NODES` tells; and whether there are
    /// any of the latter.
    pub fn of_line(line: &str) -> (SlotSet, bool) {
        let mut set = SlotSet(Box::new([0; SLOTS / 64]));
        let mut coming = false;
        for word in slots_of(line) {
            if let Some((slot, _)) = word
                .strip_prefix('[')
                .and_then(|open| open.split_once("-<-"))
            {
                coming = true;
                set.add(slot, slot);
            } else {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                set.add(first, last);
            }
        }
        (set, coming)
    }

    fn add(&mut self, first: &str, last: &str) {
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse()) {
            for slot in first..=usize::min(last, SLOTS - 1) {
                self.0[slot / 64] |= 1 << (slot % 64);
            }
        }
    }

    pub fn has(&self, slot: usize) -> bool {
        self.0[slot / 64] & (1 << (slot % 64)) != 0
    }

    /// Whether it has all that the other one has.
    pub fn covers(&self, other: &SlotSet) -> bool {
        let mut both = self.0.iter().zip(&*other.0);
        both.all(|(own, other)| other & !own == 0)
    }
}

/// Reads `CLUSTER NODES`.
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
    let mine = own_line(nodes);
    for word in slots_of(mine) {
        let open = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
        let Some(open) = open else { continue };
        if open.split_once("-<-").is_some_and(|(s, _)| is(s, slot)) {
            return SlotOwner::Here;
        }
        if let Some((number, target)) = open.split_once("->-")
            && is(number, slot)
        {
            let line = nodes.lines().find(|line| line.starts_with(target));
            return line
                .and_then(address)
                .map_or(SlotOwner::Nowhere, SlotOwner::Leaving);
        }
    }
    let has_slot = |line: &&str| {
        slots_of(line).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (first.parse::<u64>(), last.parse::<u64>()) {
                (Ok(first), Ok(last)) => (first..=last).contains(&slot),
                _ => false,
            }
        })
    };
    match nodes.lines().find(has_slot) {
        Some(line) if line == mine => SlotOwner::Here,
        Some(line) => address(line).map_or(SlotOwner::Nowhere, SlotOwner::There),
        None => SlotOwner::Nowhere,
    }
}

/// What this server says of itself. Names can have any words in them, so what counts is the flag.
pub fn own_line(nodes: &str) -> &str {
    let is_myself = |line: &&str| {
        let flags = line.split(' ').nth(2).unwrap_or_default();
        flags.split(',').any(|flag| flag == "myself")
    };
    nodes.lines().find(is_myself).unwrap_or_default()
}

/// The slots that a server has, and those that are on their way: what stands before them changes all the time.
fn slots_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ').skip(8)
}

fn is(number: &str, slot: u64) -> bool {
    number.parse() == Ok(slot)
}

/// Reads `CLUSTER GETSLOTMIGRATIONS` of a replica.
pub fn coming_to_master(moves: &[Vec<String>]) -> Vec<(u64, u64)> {
    fn value<'a>(of: &'a [String], name: &str) -> &'a str {
        let mut pairs = of.chunks_exact(2);
        let found = pairs.find(|pair| pair[0] == name);
        found.map_or("", |pair| &pair[1])
    }
    let coming = moves.iter().filter(|of| {
        value(of, "operation") == "IMPORT" && value(of, "state") == "occurring-on-primary"
    });
    let mut slots = Vec::new();
    for of in coming {
        for range in value(of, "slot_ranges").split(' ') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
                slots.push((first, last));
            }
        }
    }
    slots
}

/// The slot of a key: of what stands in its first braces, if anything does.
pub fn slot_of(name: &[u8]) -> u16 {
    let find = |byte: u8, from: &[u8]| from.iter().position(|other| *other == byte);
    let tag = find(b'{', name).and_then(|open| {
        let rest = &name[open + 1..];
        find(b'}', rest).map(|close| &rest[..close])
    });
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(name);
    // CRC-16 as in XMODEM.
    let crc = hashed.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc >> 15 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % SLOTS as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_while_a_slot_may_be_gone() {
        let at = |ms: u64| Moment(ms * 1000);
        let (own, _) = SlotSet::of_line("a b c d e f g h 0-99");
        let (fewer, _) = SlotSet::of_line("a b c d e f g h 0-98");
        let mut known = Own::default();
        let ask = |known: &Own, ms| known.when_to_ask(at(ms), false, || false);
        assert_eq!(ask(&known, 5000), Ask::NowAndIn(1000));
        assert!(known.said(at(5000), &own, false), "nothing was known");
        assert_eq!(ask(&known, 5400), Ask::InMs(600));
        assert_eq!(
            known.when_to_ask(at(5400), false, || true),
            Ask::NowAndIn(1000)
        );
        known.settled(own.clone());
        assert_eq!(ask(&known, 7000), Ask::Never);
        assert_eq!(
            known.when_to_ask(at(7000), true, || false),
            Ask::NowAndIn(1000)
        );
        assert!(!known.said(at(7000), &own, true));
        assert_eq!(ask(&known, 8000), Ask::NowAndIn(1000), "one is on its way");
        assert!(known.said(at(8000), &fewer, false));
        known.settled(fewer);
        known.change(at(9000));
        assert_eq!(ask(&known, 9001), Ask::NowAndIn(1000));
        assert_eq!(ask(&known, 18_999), Ask::NowAndIn(1000));
        assert_eq!(ask(&known, 19_000), Ask::Never);
    }

    #[test]
    fn an_answer_about_a_slot_is_good_for_a_moment() {
        let at = |ms: u64| Moment(ms * 1000);
        let mut slots = Slots::default();
        slots.found(7, at(100), SlotOwner::Nowhere);
        assert_eq!(slots.last_place(7, at(149)), Some(SlotOwner::Nowhere));
        assert_eq!(slots.last_place(8, at(149)), None);
        assert_eq!(slots.last_place(7, at(150)), None);
        slots.change();
        assert_eq!(slots.last_place(7, at(100)), None);
        assert!(!slots.knows_what_comes() && !slots.is_any_coming());
        slots.come(vec![(3, 5)]);
        assert!(slots.is_any_coming() && slots.is_coming(5) && !slots.is_coming(6));
        slots.moves_have_changed();
        assert!(!slots.knows_what_comes() && !slots.is_coming(5));
    }

    const NODES: &str = "\
aaa 127.0.0.1:7001@17001,one.example,shard-id=x myself,master - 0 1 1 connected 0-99 200 [7->-bbb] [300-<-bbb]
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
        assert_eq!(coming_to_master(&moves), [(7, 7), (10, 20), (70, 70)]);
        assert_eq!(coming_to_master(&[]), []);
    }

    #[test]
    fn this_server_is_found_by_its_flag_whatever_others_are_called() {
        let nodes =
            format!("eee 127.0.0.1:7005@17005,myself.example master - 0 1 5 connected 9\n{NODES}");
        assert!(own_line(&nodes).starts_with("aaa "));
        let own: Vec<_> = slots_of(own_line(&nodes)).collect();
        assert_eq!(own, ["0-99", "200", "[7->-bbb]", "[300-<-bbb]"]);
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
        let (own, coming) = SlotSet::of_line(line);
        assert!(!coming);
        let has = |set: &SlotSet| [0, 7, 99, 100, 200, 300].map(|slot| set.has(slot));
        assert_eq!(has(&own), [true, true, true, false, true, false]);
        let (more, coming) = SlotSet::of_line(&format!("{line} [300-<-bbb]"));
        assert!(coming);
        assert_eq!(has(&more), [true, true, true, false, true, true]);
        assert!(more.covers(&own) && !own.covers(&more) && own.covers(&own));
    }
}
