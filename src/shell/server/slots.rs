//! Slots that go without a word.
//!
//! A server that loses a slot deletes what is in it, and tells of each key. But Redis 7.0 tells nothing, and nothing is deleted
//! where slots are taken from a server by hand (`CLUSTER DELSLOTS`), or where one that was on its way to it never comes
//! (`SETSLOT ... STABLE`, or a third server gets it): then keys that were made with `ASKING` stay, where nobody finds them. So as
//! long as there can be such slots, the server is asked which ones it has. What is held and waited for in others ends.

use crate::engine::{Engine, Event, KeyBuf, Moment};
use crate::shell::bridge::dispatch::{self, tell, wake_in_ms};
use crate::shell::bridge::recheck;
use crate::shell::server::cluster::{self, own_line, slots_of};
use crate::shell::server::epochs;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::Ctx;

/// How often the server is asked.
const LOOK_MS: u64 = 1000;

/// For so long after somebody has said whose a slot is: a server may wait for its replicas before it does what it was told.
const AFTER_MS: u64 = 10_000;

const SLOTS: usize = 16_384;

#[derive(Default)]
pub struct Own {
    /// Those that the server said it has, or will have, when last asked.
    slots: Option<Set>,
    /// Some of them were on their way.
    coming: bool,
    looked: Moment,
    /// When somebody last said whose a slot is.
    changed: Option<Moment>,
}

/// A bit for each slot.
#[derive(Clone, PartialEq, Eq)]
struct Set(Box<[u64; SLOTS / 64]>);

impl Set {
    /// Those that a server has or that are on their way to it, as its own line of `CLUSTER NODES` tells; and whether there are
    /// any of the latter.
    fn of_line(line: &str) -> (Set, bool) {
        let mut set = Set(Box::new([0; SLOTS / 64]));
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

    fn has(&self, slot: usize) -> bool {
        self.0[slot / 64] & (1 << (slot % 64)) != 0
    }

    /// Whether it has all that the other one has.
    fn covers(&self, other: &Set) -> bool {
        let mut both = self.0.iter().zip(&*other.0);
        both.all(|(own, other)| other & !own == 0)
    }
}

/// Begins to look, once: when the first key is watched, held or waited for.
pub fn begin(ctx: Ctx<'_>) {
    if shell().server.get().is_cluster {
        epochs::notice_slots(ctx);
        wake_in_ms(0);
    }
}

/// Somebody is about to say whose a slot is.
pub fn change() {
    cluster::slots_change();
    shell().own_slots.with_mut(|own| {
        own.changed = Some(clock::now());
        own.looked = Moment::default();
    });
    wake_in_ms(0);
}

/// This server has another role: what it knows of its slots is of no use.
pub fn forget() {
    shell().own_slots.with_mut(|own| *own = Own::default());
}

/// Asks the server which slots it has, where it may have lost some without a word.
pub fn look(ctx: Ctx<'_>) {
    let (shell, now) = (shell(), clock::now());
    let server = shell.server.get();
    if !server.is_cluster || !shell.subscribed.get() || shell.is_replica.get() {
        return;
    }
    let (ago_ms, doubtful) = shell.own_slots.with(|own| {
        let is_late = |changed: Moment| now.ms_since(changed) < AFTER_MS;
        let doubtful = own.slots.is_none() || own.coming || own.changed.is_some_and(is_late);
        (now.ms_since(own.looked), doubtful)
    });
    if !doubtful && !server.slots_go_silently {
        return;
    }
    // What is about to be handed over is to be this server's still.
    let hands_over = |engine: &Engine| engine.is_awaited() && engine.has_work(now);
    if ago_ms < LOOK_MS && !shell.engine.with(hands_over) {
        return wake_in_ms(LOOK_MS - ago_ms);
    }
    wake_in_ms(LOOK_MS);
    let nodes = ctx.cluster_nodes();
    let (slots, coming) = Set::of_line(own_line(&nodes));
    let lost_some = shell.own_slots.with_mut(|own| {
        own.looked = now;
        own.coming = coming;
        own.slots.as_ref().is_none_or(|old| !slots.covers(old))
    });
    if lost_some && !shell.engine.with(Engine::is_idle) && !end_all_outside(ctx, &slots) {
        return wake_in_ms(dispatch::RETRY_MS);
    }
    shell.own_slots.with_mut(|own| own.slots = Some(slots));
}

/// Ends what is held and waited for in slots that are not among these; or only the latter, and says no, where nothing may be
/// written at the moment.
fn end_all_outside(ctx: Ctx<'_>, slots: &Set) -> bool {
    let known = shell().engine.with(Engine::keys_of_the_living);
    let is_outside = |key: &KeyBuf| !slots.has(usize::from(slot(&key.name)));
    let outside: Vec<_> = known.into_iter().filter(is_outside).collect();
    if shell().server.get().slots_go_silently {
        recheck::look_again(ctx, outside.clone());
    }
    let may_write = dispatch::may_write(ctx);
    for key in outside {
        let key = key.as_key();
        match may_write {
            true => tell(ctx, Event::Disowned { key }),
            false => tell(ctx, Event::Elsewhere { key }),
        }
    }
    may_write
}

/// The slot of a key: of what stands in its first braces, if anything does.
fn slot(name: &[u8]) -> u16 {
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
    fn slots_are_those_of_the_server() {
        let known = [("123456789", 12_739), ("a{123456789}b{c}", 12_739)];
        for (name, expected) in known {
            assert_eq!(slot(name.as_bytes()), expected, "{name}");
        }
        assert_eq!(slot(b""), 0);
        // Empty braces count as a part of the name.
        assert_ne!(slot(b"{}a"), slot(b""));
        assert_ne!(slot(b"{}a"), slot(b"{}b"));
        assert_ne!(slot(b"{a"), slot(b"a"));
    }

    #[test]
    fn a_line_tells_own_slots_and_those_on_their_way() {
        let line = "aaa 127.0.0.1:7001@17001 myself,master - 0 1 1 connected 0-99 200 [7->-bbb]";
        let (own, coming) = Set::of_line(line);
        assert!(!coming);
        let has = |set: &Set| [0, 7, 99, 100, 200, 300].map(|slot| set.has(slot));
        assert_eq!(has(&own), [true, true, true, false, true, false]);
        let (more, coming) = Set::of_line(&format!("{line} [300-<-bbb]"));
        assert!(coming);
        assert_eq!(has(&more), [true, true, true, false, true, true]);
        assert!(more.covers(&own) && !own.covers(&more) && own.covers(&own));
    }
}
