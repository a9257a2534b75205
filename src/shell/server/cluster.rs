//! In a cluster: whether a key is this server's to make, and whose it is if not.
//!
//! Slots move from server to server while keys in them are held and waited for. The server routes
//! commands by itself, but a connection that stands still has given its command already, and a key
//! that is handed over is made without one.

use crate::engine::{Event, Hand, Key, Loss, Moment};
use crate::shell::bridge::dispatch::{self, tell};
use crate::shell::bridge::recheck::{self, Why};
use crate::shell::persistence::lock_type;
use crate::shell::server::{attribution, epochs};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Ctx, Refusal, Text};

/// Where commands for a key that is not there are to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Here; also as long as its slot is on its way to here.
    Here,
    /// There, with `ASKING`: its slot is on its way to there.
    Leaving(String),
    There(String),
    /// Nobody has the slot.
    Nowhere,
}

/// How long an answer about a slot is good for: many keys of one slot go one after the other.
const FRESH_MS: u64 = 50;

#[derive(Default)]
pub struct Slots {
    /// The last slot that was looked for, when, and where it was.
    last: Option<(u64, Moment, Place)>,
    /// On a replica: the slots that are on their way to its master, first and last of each range. None: to be asked for.
    coming: Option<Vec<(u64, u64)>>,
}

/// Where a key is to be asked for that is not there.
pub fn place(ctx: Ctx<'_>, key: Key<'_>) -> Place {
    match refusal(ctx, key) {
        Refusal::None => Place::Here,
        refusal => place_of_refused(ctx, key, refusal),
    }
}

fn refusal(ctx: Ctx<'_>, key: Key<'_>) -> Refusal {
    match shell().server.get().is_cluster {
        true => ctx.refusal(key.db, Text::new(key.name).as_str()),
        false => Refusal::None,
    }
}

fn place_of_refused(ctx: Ctx<'_>, key: Key<'_>, refusal: Refusal) -> Place {
    let slot = ctx.slot(Text::new(key.name).as_str());
    let now = clock::now();
    let last = shell().slots.with(|slots| slots.last.clone());
    if let Some((last, when, place)) = last
        && last == slot
        && now.ms_since(when) < FRESH_MS
    {
        return place;
    }
    let place = find(&ctx.cluster_nodes(), slot, uses_host_names(ctx));
    // Of what is this server's own it is not told when that ends. (Who is redirected all the same has to do with a slot that
    // is on its way to here.)
    if (refusal, &place) != (Refusal::Down, &Place::Here) {
        let last = Some((slot, now, place.clone()));
        shell().slots.with_mut(|slots| slots.last = last);
    }
    place
}

fn uses_host_names(ctx: Ctx<'_>) -> bool {
    let kind = ctx.server_setting(c"cluster-preferred-endpoint-type");
    kind.is_some_and(|kind| kind == "hostname")
}

/// Reads `CLUSTER NODES`.
fn find(nodes: &str, slot: u64, by_host_name: bool) -> Place {
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
            return Place::Here;
        }
        if let Some((number, target)) = open.split_once("->-")
            && is(number, slot)
        {
            let line = nodes.lines().find(|line| line.starts_with(target));
            return line
                .and_then(address)
                .map_or(Place::Nowhere, Place::Leaving);
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
        Some(line) if line == mine => Place::Here,
        Some(line) => address(line).map_or(Place::Nowhere, Place::There),
        None => Place::Nowhere,
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
pub fn slots_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ').skip(8)
}

fn is(number: &str, slot: u64) -> bool {
    number.parse() == Ok(slot)
}

/// Tells a connection that has stood still where to ask, in the words in which the server sends
/// others there.
pub fn redirection(ctx: Ctx<'_>, key: Key<'_>) -> String {
    let slot = ctx.slot(Text::new(key.name).as_str());
    match place(ctx, key) {
        Place::There(address) => format!("MOVED {slot} {address}"),
        Place::Leaving(address) => format!("ASK {slot} {address}"),
        Place::Here => "TRYAGAIN the key's slot was on its way to another server".to_owned(),
        Place::Nowhere => "CLUSTERDOWN Hash slot not served".to_owned(),
    }
}

/// Whose hand it was, if it seems to be a connection's. What goes with its slot goes by nobody's command, but whoever gave
/// the last one looks like it.
pub fn hand_of_removal(ctx: Ctx<'_>, key: Key<'_>, by: Hand) -> Hand {
    let Hand::Client(client) = by else {
        return by;
    };
    let refusal = refusal(ctx, key);
    let is_own = refusal == Refusal::None
        || match place_of_refused(ctx, key, refusal) {
            Place::There(_) | Place::Nowhere => false,
            // This may have been so a moment ago only.
            Place::Here | Place::Leaving(_) => attribution::is_in_hand(ctx, client),
        };
    if is_own { by } else { Hand::Nobody }
}

/// How a key went that is not there, and neither lapsed nor was evicted. (What MIGRATE deletes follows its slot.)
pub fn loss_of_removal(ctx: Ctx<'_>, key: Key<'_>) -> Loss {
    match place(ctx, key) {
        Place::There(_) | Place::Nowhere => Loss::Moved,
        Place::Leaving(_) if attribution::is_migrating(ctx) => Loss::Moved,
        Place::Here | Place::Leaving(_) => Loss::Deleted,
    }
}

/// A key has gone: who waits for it is sent after it, where it is no longer this server's to make.
pub fn follow(ctx: Ctx<'_>, key: Key<'_>) {
    if !shell().server.get().is_cluster {
        return;
    }
    let is_waited_for = shell().engine.with(|engine| engine.has_waiters(key));
    if is_waited_for && place(ctx, key) != Place::Here {
        tell(ctx, Event::Elsewhere { key });
    }
}

/// Before keys are handed over that were free for a while: a slot that goes meanwhile takes keys along, but not one that is
/// not there. Of so many at most.
pub fn send_away_whoever_is_late(ctx: Ctx<'_>, most: usize) {
    if !shell().server.get().is_cluster {
        return;
    }
    let about_to_be = shell()
        .engine
        .with(|engine| engine.keys_about_to_be_served(most));
    for key in about_to_be {
        follow(ctx, key.as_key());
    }
}

/// This server has a master from now on: who waits here is to ask that one.
pub fn send_all_away(ctx: Ctx<'_>) {
    let waited_for = shell().engine.with(|engine| engine.keys_waited_for());
    for key in waited_for {
        let key = key.as_key();
        tell(ctx, Event::Elsewhere { key });
    }
}

/// Whether a key that a master's stream names is in a slot that is on its way to that master: Valkey 9 passes on to a replica
/// what its master is told by the slot's former one, word by word. Between the two commands that begin and end such a move
/// that is so for all that the stream says of its slots.
pub fn is_coming(ctx: Ctx<'_>, name: &[u8]) -> bool {
    if !shell().server.get().moves_slots_in_one_go || !shell().server.get().is_cluster {
        return false;
    }
    let slots = &shell().slots;
    let are_known = slots.with(|slots| slots.coming.is_some());
    if !are_known {
        let coming = coming_to_master(&ctx.slot_migrations());
        slots.with_mut(|slots| slots.coming = Some(coming));
    }
    let any =
        |slots: &Slots, is: &dyn Fn(&(u64, u64)) -> bool| slots.coming.iter().flatten().any(is);
    if !slots.with(|slots| any(slots, &|_| true)) {
        return false;
    }
    let slot = ctx.slot(Text::new(name).as_str());
    slots.with(|slots| any(slots, &|(first, last)| (*first..=*last).contains(&slot)))
}

/// Somebody is about to say whose a slot is.
pub fn slots_change() {
    shell().slots.with_mut(|slots| slots.last = None);
}

/// A move of slots to this server's master has begun or ended, or a file has told of one.
pub fn moves_have_changed() {
    epochs::slots_come();
    shell().slots.with_mut(|slots| slots.coming = None);
}

/// Reads `CLUSTER GETSLOTMIGRATIONS` of a replica.
fn coming_to_master(moves: &[Vec<String>]) -> Vec<(u64, u64)> {
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

/// A lock that came by RESTORE, or with a slot: nobody here holds it, so it goes. While its slot
/// is still another server's, that one's stream may yet name it.
pub fn look_at_restored(ctx: Ctx<'_>, key: Key<'_>) {
    if !lock_type::is_there(ctx, key) {
        return;
    }
    if shell().is_replica.get() || place(ctx, key) == Place::Here {
        lock_type::nobodys(ctx, key);
    } else {
        recheck::put_off(key, Why::RESTORED);
        dispatch::wake_in_ms(FRESH_MS);
    }
}

/// A key was overwritten, or lost its time to live.
pub fn overwritten(key: Key<'_>) {
    let shell = shell();
    if !shell.is_replica.get() && shell.engine.with(|engine| engine.has_backstop(key)) {
        recheck::soon(key, Why::UNTIMED);
    }
}

/// A temporary key whose time to live somebody may have taken away.
pub fn look_at_untimed(ctx: Ctx<'_>, key: Key<'_>) {
    let name = Text::new(key.name);
    if ctx.has_no_end(key.db, name.as_str()) {
        tell(ctx, Event::Untimed { key });
    }
}

/// Nobody has renewed keys for a while, or another server has.
pub fn renew_all(ctx: Ctx<'_>) {
    if !shell().is_replica.get() {
        tell(ctx, Event::RenewAll);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
aaa 127.0.0.1:7001@17001,one.example,shard-id=x myself,master - 0 1 1 connected 0-99 200 [7->-bbb] [300-<-bbb]
bbb 127.0.0.1:7002@17002,,tls-port=0 master - 0 1 2 connected 100-199 300
ccc ::1:7003@17003,three.example master - 0 1 3 connected 400-500
ddd 127.0.0.1:7004@17004 slave bbb 0 1 3 connected";

    #[test]
    fn the_owner_of_each_slot_is_found() {
        let there = |address: &str| Place::There(address.to_owned());
        for (slot, expected) in [
            (0, Place::Here),
            (200, Place::Here),
            (7, Place::Leaving("127.0.0.1:7002".to_owned())),
            (300, Place::Here),
            (150, there("127.0.0.1:7002")),
            (450, there("::1:7003")),
            (201, Place::Nowhere),
        ] {
            assert_eq!(find(NODES, slot, false), expected, "slot {slot}");
        }
        assert_eq!(find(NODES, 450, true), there("three.example:7003"));
        assert_eq!(find(NODES, 150, true), there("127.0.0.1:7002"));
        assert_eq!(find("", 0, false), Place::Nowhere);
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
}
