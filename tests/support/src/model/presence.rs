//! Watches of prefixes (WATCHTP). A world says what a watch returns; what its connection is told afterwards is not foretold but
//! *believed*: whoever puts each push on top of the pages that it got must know after each step what is so.

use super::acks::Ack;
use super::command::{Mode, NAMES, PREFIXES, Prefix, Spot, Who};
use super::entry::Value;
use super::holds::Hold;
use super::replies::{Reply, Tokens, readable};
use super::rights::{Rights, User, user_of};
use super::sequence::{bytes_of, given, is_known, last_made};
use super::world::{Connection, Turn, World};
use std::collections::BTreeMap;

/// Values that are longer are not told.
const MAX_VALUE: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixWatch {
    pub who: Who,
    pub db: usize,
    pub prefix: Prefix,
    /// The name up to which it is told; none: all.
    pub told: Option<Vec<u8>>,
    /// Some of what it knows it was told without values.
    pub keys_only: bool,
    /// Of its user when it began.
    pub rights: Rights,
}

/// What a WATCHTP returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub prefix: Prefix,
    pub goes_on: bool,
    pub keys_only: bool,
    pub next: Vec<u8>,
    /// Names with the tokens' grants, and values.
    pub entries: Vec<(Vec<u8>, u64, Option<String>)>,
}

impl World {
    pub(super) fn watchtp(
        &mut self,
        turn: &Turn,
        prefix: Prefix,
        goes_on: bool,
        keys_only: bool,
    ) -> Reply {
        if turn.in_exec {
            return Reply::refused("ERR WATCHTP cannot be used in a transaction");
        }
        let (who, db) = (turn.who, turn.db);
        let is_it = |watch: &PrefixWatch| (watch.who, watch.db, watch.prefix) == (who, db, prefix);
        // That its rights are others is noticed by now.
        let is_over = self.prefixes_of(who).any(|watch| self.is_doubted(watch));
        self.prefixes.retain(|watch| !(is_over && watch.who == who));
        let own = self.prefixes.iter().find(|watch| is_it(watch)).cloned();
        if goes_on && own.is_none() {
            return Reply::refused("ERR this connection does not watch");
        }
        let count = self.watched_by(who).len() + self.prefixes_of(who).count();
        if own.is_none() && count >= self.limits.watches {
            return Reply::refused("ERR too many watches");
        }
        let own = own.filter(|_| goes_on);
        let was_bare = own.as_ref().is_some_and(|watch| watch.keys_only);
        let told = own.map(|watch| watch.told);
        let rights = self.rights[user_of(who)].clone();
        let mut keys: Vec<&Hold> = self.shown(&rights, db, prefix);
        match &told {
            None => {}
            Some(None) => keys.clear(),
            Some(Some(told)) => keys.retain(|hold| bytes_of(hold.spot.name) > &**told),
        }
        let is_last = keys.len() <= self.limits.page;
        keys.truncate(self.limits.page);
        let entries: Vec<_> = keys
            .into_iter()
            .map(|hold| {
                let name = bytes_of(hold.spot.name).to_vec();
                let value = self.value_told(hold.spot).filter(|_| !keys_only);
                (name, hold.serial, value)
            })
            .collect();
        let last = entries.last().map(|(name, ..)| name.clone());
        let told = last.filter(|_| !is_last);
        self.prefixes.retain(|watch| !is_it(watch));
        self.prefixes.push(PrefixWatch {
            who,
            db,
            prefix,
            told: told.clone(),
            keys_only: keys_only || was_bare,
            rights,
        });
        self.totals.pages += u64::from(!entries.is_empty());
        Reply::Page(Page {
            prefix,
            goes_on,
            keys_only,
            next: told.unwrap_or_default(),
            entries,
        })
    }

    pub(super) fn unwatchtp(&mut self, turn: &Turn, prefix: Option<Prefix>) -> Reply {
        let (who, db) = (turn.who, turn.db);
        let before = self.prefixes.len();
        let is_meant = |watch: &PrefixWatch| {
            watch.who == who && prefix.is_none_or(|prefix| (watch.db, watch.prefix) == (db, prefix))
        };
        self.prefixes.retain(|watch| !is_meant(watch));
        let count = (before - self.prefixes.len()) as i64;
        Reply::Unwatched(prefix, count)
    }

    pub fn prefixes_of(&self, who: Who) -> impl Iterator<Item = &PrefixWatch> {
        self.prefixes.iter().filter(move |watch| watch.who == who)
    }

    /// Whether somebody watches prefixes elsewhere: of which database a push is, it does not say.
    pub(super) fn watches_prefixes_elsewhere(&self, who: Who) -> bool {
        let db = self.db_of(who);
        self.prefixes_of(who).any(|watch| watch.db != db)
    }

    /// Whether somebody of this user watches prefixes and queues commands.
    pub(super) fn watches_prefixes_in_multi(&self, user: User) -> bool {
        let mut all = self.prefixes.iter().map(|watch| watch.who);
        all.any(|who| user_of(who) == user && self.client(who).is_some_and(Connection::in_multi))
    }

    /// Whether its user's rights are others now: then it is over, which is noticed with the next change or page. (The simulation
    /// has no readers.)
    fn is_doubted(&self, watch: &PrefixWatch) -> bool {
        !self.slow && watch.rights != self.rights[user_of(watch.who)]
    }

    pub(super) fn is_any_prefix_doubted(&self) -> bool {
        self.prefixes.iter().any(|watch| self.is_doubted(watch))
    }

    /// The temporary keys of a database with this prefix that one with these rights may read, in order.
    fn shown(&self, rights: &Rights, db: usize, prefix: Prefix) -> Vec<&Hold> {
        let is_shown = |hold: &&Hold| {
            hold.mode == Mode::Temporary
                && hold.ack == Ack::Settled
                && hold.spot.db == db
                && (self.slow || !rights.hidden.contains(&given(hold.spot.name)))
                && is_known(hold.spot.name)
                && bytes_of(hold.spot.name).starts_with(PREFIXES[prefix])
        };
        let mut shown: Vec<&Hold> = self.holds.iter().filter(is_shown).collect();
        shown.sort_by_key(|hold| bytes_of(hold.spot.name));
        shown
    }

    /// A key's value as it is told. (The simulation has none.)
    fn value_told(&self, spot: Spot) -> Option<String> {
        let entry = self.entry(spot).filter(|_| !self.slow);
        match entry.map(|entry| &entry.value) {
            Some(Value::Text(text)) if text.len() <= MAX_VALUE => Some(text.clone()),
            _ => None,
        }
    }
}

/// What a connection comes to know of its watches, in order.
#[derive(Clone, Debug)]
pub enum Sight {
    Page(SeenPage),
    /// A watch was ended, or all.
    Unwatched(Option<Prefix>),
    /// A push, its elements joined by spaces.
    Push(String),
}

#[derive(Clone, Debug)]
pub struct SeenPage {
    prefix: Prefix,
    goes_on: bool,
    keys_only: bool,
    /// The name to go on with.
    next: Vec<u8>,
    /// Names with tokens and values.
    entries: Vec<(Vec<u8>, i64, Option<String>)>,
}

impl Sight {
    /// Of a reply that was expected, and how it was met.
    pub fn of(expected: &Reply, got: &Reply) -> Vec<Sight> {
        match (expected, got) {
            (Reply::Page(page), Reply::Array(parts)) => match &parts[..] {
                [Reply::Text(next), Reply::Array(entries)] => {
                    vec![Sight::Page(SeenPage {
                        prefix: page.prefix,
                        goes_on: page.goes_on,
                        keys_only: page.keys_only,
                        next: next.clone(),
                        entries: entries.iter().filter_map(entry).collect(),
                    })]
                }
                _ => Vec::new(),
            },
            // One of that prefix in another database stays.
            (Reply::Unwatched(..), Reply::Int(0)) => Vec::new(),
            (Reply::Unwatched(prefix, _), _) => vec![Sight::Unwatched(*prefix)],
            (Reply::Array(expected), Reply::Array(got)) => {
                let pairs = expected.iter().zip(got);
                pairs
                    .flat_map(|(one, other)| Sight::of(one, other))
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

fn entry(entry: &Reply) -> Option<(Vec<u8>, i64, Option<String>)> {
    let Reply::Array(parts) = entry else {
        return None;
    };
    let [Reply::Text(name), Reply::Int(token), value] = &parts[..] else {
        return None;
    };
    let value = match value {
        Reply::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    Some((name.clone(), *token, value))
}

/// Whether a push is about watches of prefixes.
pub fn is_sight(sentence: &str) -> bool {
    sentence.starts_with("watchtp ")
}

type Keys = BTreeMap<Vec<u8>, (i64, Option<String>)>;

#[derive(Clone, Debug, Default)]
struct Belief {
    told: Option<Vec<u8>>,
    /// Its last page was without values: from then on it is told of no change of a value alone.
    keys_only: bool,
    keys: Keys,
}

/// What each connection believes, by its pages and pushes.
#[derive(Clone, Debug, Default)]
pub struct Beliefs {
    all: BTreeMap<(Who, Prefix), Belief>,
    /// How many pushes were heard.
    pub pushes: u64,
}

impl Beliefs {
    /// This one has seen this.
    pub fn see(&mut self, who: Who, sights: &[Sight]) -> Result<(), String> {
        for sight in sights {
            match sight {
                Sight::Page(page) => self.see_page(who, page)?,
                Sight::Unwatched(prefix) => {
                    let is_meant =
                        |of: Who, its: Prefix| of == who && prefix.is_none_or(|one| one == its);
                    self.all.retain(|(of, its), _| !is_meant(*of, *its));
                }
                Sight::Push(sentence) => {
                    self.pushes += 1;
                    self.see_push(who, sentence)
                        .map_err(|what| format!("{sentence:?} of {who}: {what}; {self:?}"))?;
                }
            }
        }
        Ok(())
    }

    fn see_page(&mut self, who: Who, page: &SeenPage) -> Result<(), String> {
        let SeenPage {
            prefix,
            goes_on,
            keys_only,
            next,
            entries,
        } = page;
        let belief = self.all.entry((who, *prefix)).or_default();
        if !goes_on {
            belief.keys.clear();
        }
        for (name, token, value) in entries {
            if belief
                .told
                .as_ref()
                .is_some_and(|told| *goes_on && name <= told)
            {
                return Err(format!("{name:?} was told already"));
            }
            belief.keys.insert(name.clone(), (*token, value.clone()));
        }
        belief.told = (!next.is_empty()).then(|| next.clone());
        belief.keys_only = *keys_only;
        Ok(())
    }

    fn see_push(&mut self, who: Who, sentence: &str) -> Result<(), String> {
        let (_, rest) = sentence.split_once(' ').ok_or("no push")?;
        let about = |name: &[u8]| {
            let rest = rest.strip_prefix(&*readable(name))?;
            rest.strip_prefix(' ').map(str::to_owned)
        };
        for (prefix, name) in PREFIXES.iter().enumerate() {
            match about(name).as_deref() {
                Some("FLUSHED") => {
                    let belief = self.all.get_mut(&(who, prefix));
                    let belief = belief.ok_or("it does not watch that")?;
                    belief.keys.clear();
                    return Ok(());
                }
                Some(words) if words.starts_with("END ") => {
                    let belief = self.all.remove(&(who, prefix));
                    return belief.map(|_| ()).ok_or("it does not watch that".into());
                }
                _ => {}
            }
        }
        let mut names: Vec<&[u8]> = NAMES.to_vec();
        names.extend(last_made(usize::MAX).into_iter().map(bytes_of));
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let found = names.iter().find_map(|name| Some((*name, about(name)?)));
        let (name, words) = found.ok_or("no such key")?;
        self.see_change(who, name, &words)
    }

    fn see_change(&mut self, who: Who, name: &[u8], words: &str) -> Result<(), String> {
        let mut parts = words.splitn(3, ' ');
        let what = parts.next().unwrap_or_default();
        let token: i64 = parts
            .next()
            .and_then(|token| token.parse().ok())
            .ok_or("no token")?;
        let last = parts.next().map(str::to_owned);
        let is_concerned = |(of, prefix): &(Who, Prefix), belief: &Belief| {
            let told = |told: &Vec<u8>| name <= &**told;
            *of == who
                && name.starts_with(PREFIXES[*prefix])
                && belief.told.as_ref().is_none_or(told)
        };
        let all = self.all.iter();
        let mut concerned = all.filter(|(key, belief)| is_concerned(key, belief));
        let hears_of_values = concerned.any(|(_, belief)| !belief.keys_only);
        let mut is_told = false;
        for (key, belief) in &mut self.all {
            if !is_concerned(key, belief) {
                continue;
            }
            is_told = true;
            let before = belief.keys.get(name).map(|(token, _)| *token);
            let is_right = match what {
                "ADD" => before.is_none(),
                "SET" => before.is_some_and(|before| hears_of_values || before != token),
                _ => before == Some(token),
            };
            if !is_right {
                return Err(format!("it believed {before:?}"));
            }
            match what {
                "ADD" | "SET" => drop(belief.keys.insert(name.to_vec(), (token, last.clone()))),
                "DEL" => drop(belief.keys.remove(name)),
                _ => return Err("no such word".into()),
            }
        }
        match is_told {
            true => Ok(()),
            false => Err("it does not watch that".into()),
        }
    }

    /// Its connection has ended: another may take its place.
    pub fn forget(&mut self, who: Who) {
        self.all.retain(|(of, _), _| *of != who);
    }

    /// What everyone believes is so, and what nobody believes to watch any more is watched no longer.
    pub fn compare(&mut self, world: &mut World, tokens: &mut Tokens) -> Result<(), String> {
        self.all.retain(|(who, _), _| world.client(*who).is_some());
        let mut watches = std::mem::take(&mut world.prefixes);
        watches.retain(|watch| {
            !world.is_doubted(watch) || self.all.contains_key(&(watch.who, watch.prefix))
        });
        world.prefixes = watches;
        let world = &*world;
        for watch in &world.prefixes {
            let PrefixWatch {
                who, db, prefix, ..
            } = watch;
            let Some(belief) = self.all.get(&(*who, *prefix)) else {
                return Err(format!("{watch:?} is not known to its connection"));
            };
            let is_told = |hold: &&Hold| {
                let told = watch.told.as_ref();
                told.is_none_or(|told| bytes_of(hold.spot.name) <= &**told)
            };
            let shown = world.shown(&watch.rights, *db, *prefix);
            let shown: Vec<&Hold> = shown.into_iter().filter(is_told).collect();
            let mut is_so = belief.told == watch.told && belief.keys.len() == shown.len();
            for hold in &shown {
                let known = belief.keys.get(bytes_of(hold.spot.name));
                is_so &= known.is_some_and(|(token, value)| {
                    // Of one that was keys only before, the value may be that of then.
                    let told = world.value_told(hold.spot).filter(|_| !watch.keys_only);
                    // Those of a former server are not counted.
                    let is_its = hold.serial == 0 || tokens.is(hold.serial, *token);
                    is_its && (*value == told || world.slow || watch.keys_only)
                });
            }
            if !is_so {
                return Err(format!(
                    "{watch:?} believes {belief:?} and there is {shown:?}"
                ));
            }
        }
        let watched =
            |who: Who, prefix: Prefix| world.prefixes_of(who).any(|watch| watch.prefix == prefix);
        let mut all = self.all.keys();
        match all.find(|(who, prefix)| !watched(*who, *prefix)) {
            Some(one) => Err(format!("{one:?} believes to watch, and does not")),
            None => Ok(()),
        }
    }
}

impl Page {
    /// Whether this is what was returned.
    pub fn is_met_by(&self, got: &Reply, tokens: &mut Tokens) -> bool {
        let entry = |(name, serial, value): &(Vec<u8>, u64, Option<String>)| {
            let value = value.as_ref().map_or(Reply::Null, |text| Reply::text(text));
            // That of a key that a former server's connection held is not known.
            let token = Reply::Token(*serial);
            (
                Reply::Array(vec![Reply::Text(name.clone()), token, value]),
                *serial == 0,
            )
        };
        let Reply::Array(parts) = got else {
            return false;
        };
        let [Reply::Text(next), Reply::Array(entries)] = &parts[..] else {
            return false;
        };
        *next == self.next
            && entries.len() == self.entries.len()
            && self.entries.iter().zip(entries).all(|(expected, got)| {
                let (expected, is_former) = entry(expected);
                match (is_former, got) {
                    (true, Reply::Array(parts)) => {
                        parts.first() == Some(&Reply::Text(self_name(&expected)))
                    }
                    _ => expected.is_met_by(got, tokens),
                }
            })
    }
}

fn self_name(entry: &Reply) -> Vec<u8> {
    match entry {
        Reply::Array(parts) => match parts.first() {
            Some(Reply::Text(name)) => name.clone(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
