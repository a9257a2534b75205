//! What LOCK.LOG tells of each hold that its owner did not end, against the model's word.
//!
//! The observer may read all keys, and looks a second time as a user who may not. Nobody here has so much that entries are merged: each is that of one hold.

use crate::harness::{Client, Frame};
use crate::look::word;
use crate::model::command::{LABELS, NAMES, Who};
use crate::model::endings::Ending;
use crate::model::replies::Tokens;
use crate::model::rights::{User, user_of};
use crate::model::sequence::bytes_of;
use crate::model::world::{REASONS, World};
use crate::players::user;

/// The user whose eyes are lent.
const LIMITED: User = 0;

/// How much of the log was compared.
#[derive(Clone, Default)]
pub struct Compared {
    /// The id of the last entry.
    last: i64,
    /// The entries whose key nobody has been granted since, and which endings they are.
    open: Vec<(i64, usize)>,
    /// How many of the model's endings.
    endings: usize,
    /// How many waits had ended by then since their users might not have that any more.
    waits_lost: u64,
}

/// An entry, by the names of its fields.
#[derive(Clone, Debug)]
struct Entry(Vec<Frame>);

/// The latest come first.
fn entries_since(observer: &mut Client, id: i64) -> Vec<Entry> {
    entries(&observer.run(&question(id)))
}

fn question(since: i64) -> String {
    format!("LOCK.LOG SINCE {since} COUNT 100000")
}

fn entries(reply: &Frame) -> Vec<Entry> {
    let entries = reply.items();
    entries.iter().map(|entry| Entry(entry.items())).collect()
}

/// The ids of those that this user is shown.
fn shown_to(observer: &mut Client, user: &str, since: i64) -> Vec<i64> {
    let (lend, question, give_back) =
        (["AUTH", user, ""], question(since), ["AUTH", "default", ""]);
    observer.send(lend);
    observer.send(&question);
    observer.send(give_back);
    observer.reply_to(lend);
    let shown = entries(&observer.reply_to(&question));
    observer.reply_to(give_back);
    shown.iter().map(|entry| entry.number("id")).collect()
}

impl Entry {
    fn get(&self, name: &str) -> &Frame {
        let mut pairs = self.0.chunks_exact(2);
        let found =
            pairs.find(|pair| matches!(&pair[0], Frame::Bulk(field) if field == name.as_bytes()));
        &found.unwrap_or_else(|| panic!("no {name} in {self:?}"))[1]
    }

    fn number(&self, name: &str) -> i64 {
        self.get(name).number()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.get(name).clone().bytes()
    }

    /// `turned_away` waited until this step, for whatever key.
    fn is_of(&self, ending: &Ending, ids: &[i64], turned_away: u64) -> bool {
        let waiters = ending.waiters as i64;
        let waiters = waiters..=waiters + turned_away as i64;
        let reason = self.get("reason").text();
        self.number("db") == ending.spot.db as i64
            && self.bytes("key") == bytes_of(ending.spot.name)
            && self.bytes("label") == LABELS[ending.label]
            && self.get("mode").text() == word(ending.mode)
            && REASONS[ending.reason].contains(&&*reason)
            && waiters.contains(&self.number("waiters"))
            && self.number("count") == 1
            && self.is_by(ending.who, ids)
    }

    /// Whose connection is no more: the model does not say which it was.
    fn is_by(&self, who: Option<Who>, ids: &[i64]) -> bool {
        who.is_none_or(|who| {
            self.number("client") == ids[who] && self.get("user").text() == user(user_of(who))
        })
    }
}

/// A user is shown the entries of the keys that it may read.
fn compare_what_is_hidden(
    observer: &mut Client,
    entries: &[Entry],
    world: &World,
    since: i64,
) -> Result<(), String> {
    let hidden: Vec<&[u8]> = world.rights[LIMITED]
        .hidden
        .iter()
        .map(|name| NAMES[*name])
        .collect();
    if hidden.is_empty() || entries.is_empty() {
        return Ok(());
    }
    // The names that sequences have made of them, too.
    let is_hidden = |key: &[u8]| {
        let made = key.split_last_chunk::<16>().map(|(given, _)| given);
        hidden.contains(&key) || made.is_some_and(|given| hidden.contains(&given))
    };
    let is_shown = |entry: &&Entry| !is_hidden(&entry.bytes("key"));
    let expected = entries.iter().filter(is_shown);
    let expected: Vec<i64> = expected.map(|entry| entry.number("id")).collect();
    let shown = shown_to(observer, &user(LIMITED), since);
    if shown != expected {
        return Err(format!(
            "without {hidden:?} the entries {shown:?} are shown and not {expected:?}"
        ));
    }
    Ok(())
}

impl Compared {
    /// All that was written down and has ended so far is past.
    pub fn begin(&mut self, observer: &mut Client, world: &World) {
        let last = observer.run("LOCK.LOG COUNT 1").items();
        let last = last.first().map(|entry| Entry(entry.items()).number("id"));
        *self = Compared {
            last: last.unwrap_or(0),
            open: Vec::new(),
            endings: world.endings.len(),
            waits_lost: world.totals.waits_lost,
        };
    }

    /// The entries of this step are the endings of this step, in whatever order; and who is granted a key is the next holder in
    /// the entries of those that lost it.
    pub fn compare(
        &mut self,
        observer: &mut Client,
        world: &World,
        ids: &[i64],
        tokens: &mut Tokens,
    ) -> Result<(), String> {
        let oldest = self.open.first().map_or(self.last, |(id, _)| id - 1);
        let mut entries = entries_since(observer, oldest);
        compare_what_is_hidden(observer, &entries, world, oldest)?;
        entries.reverse();
        let is_new = |entry: &&Entry| entry.number("id") > self.last;
        let mut new: Vec<Entry> = entries.iter().filter(is_new).cloned().collect();
        let mut endings: Vec<usize> = (self.endings..world.endings.len()).collect();
        if new.len() != endings.len() {
            let expected = &world.endings[self.endings..];
            return Err(format!("{new:?} is logged and not {expected:?}"));
        }
        self.last += new.len() as i64;
        self.endings = world.endings.len();
        // Is somebody turned away who waited, it is not said whether that is before a hold goes for which it waited, or after.
        let turned_away = world.totals.waits_lost - self.waits_lost;
        self.waits_lost = world.totals.waits_lost;
        // Those whose token was heard of come first, and of the others tokens rise with the grants.
        new.sort_by_key(|entry| entry.number("token"));
        endings.sort_by_key(|at| world.endings[*at].serial);
        for entry in &new {
            let meant = endings.iter().position(|at| {
                let ending = &world.endings[*at];
                entry.is_of(ending, ids, turned_away)
                    && tokens.is(ending.serial, entry.number("token"))
            });
            let Some(at) = meant else {
                let expected: Vec<&Ending> = endings.iter().map(|at| &world.endings[*at]).collect();
                return Err(format!("{entry:?} is logged, and none of {expected:?}"));
            };
            let at = endings.remove(at);
            self.open.push((entry.number("id"), at));
        }
        self.open.sort_unstable();
        self.compare_next_holders(&entries, world, tokens)
    }

    fn compare_next_holders(
        &mut self,
        entries: &[Entry],
        world: &World,
        tokens: &mut Tokens,
    ) -> Result<(), String> {
        // Both have the first ones first.
        let mut entries = entries.iter();
        for (id, at) in &self.open {
            let ending = &world.endings[*at];
            let entry = entries.find(|entry| entry.number("id") == *id);
            let Some(entry) = entry else {
                return Err(format!("entry {id} is gone, of {ending:?}"));
            };
            let is_right = match (ending.next, entry.get("next-token")) {
                (None, Frame::Null) => true,
                (Some(serial), Frame::Integer(token)) => tokens.is(serial, *token),
                _ => false,
            };
            if !is_right {
                return Err(format!("{entry:?} is logged and not {ending:?}"));
            }
        }
        self.open
            .retain(|(_, at)| world.endings[*at].next.is_none());
        Ok(())
    }
}
