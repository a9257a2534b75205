//! Replies and pushes; whether what came is what was to come.

use super::command::{NAMES, Spot};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ok,
    Queued,
    Null,
    Int(i64),
    Text(Vec<u8>),
    Array(Vec<Reply>),
    /// An error; of an expected one only the beginning is given.
    Refused(String),
}

impl Reply {
    pub fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    pub fn refused(beginning: &str) -> Reply {
        Reply::Refused(beginning.into())
    }

    /// Whether `got` is what this one expects.
    pub fn is_met_by(&self, got: &Reply) -> bool {
        match (self, got) {
            (Reply::Refused(beginning), Reply::Refused(error)) => error.starts_with(beginning),
            (Reply::Array(expected), Reply::Array(got)) => {
                expected.len() == got.len()
                    && expected
                        .iter()
                        .zip(got)
                        .all(|(one, other)| one.is_met_by(other))
            }
            _ => self == got,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Added,
    Deleted,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    pub spot: Spot,
    pub news: News,
}

impl Push {
    /// Its elements joined by spaces. Which database it is about, a push does not say.
    pub fn sentence(&self) -> String {
        let (kind, news) = match self.news {
            News::Added => ("watchex", "ADD"),
            News::Deleted => ("watchex", "DEL"),
            News::Lost => ("settp", "LOST"),
        };
        let name = NAMES[self.spot.name];
        match std::str::from_utf8(name) {
            Ok(name) => format!("{kind} {name} {news}"),
            Err(_) => format!("{kind} {} {news}", name.escape_ascii()),
        }
    }
}

/// What a client is to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Reply {
        reply: Reply,
        /// What was caused before for watches of these keys is heard before this reply.
        settles: Vec<Spot>,
    },
    /// What one cause has it hear, in any order.
    Pushes(Vec<Push>),
}

/// What a client heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    Reply(Reply),
    Push(String),
}

/// Holds what came against what was to come. Pushes may be later than their cause's reply, never
/// earlier; a reply that settles a key's past comes after all that was caused before.
pub fn check(expected: &[Heard], got: &[Arrival]) -> Result<(), String> {
    if expected.is_empty() && got.is_empty() {
        return Ok(());
    }
    compare(expected, got)
        .map_err(|what| format!("{what}\n  expected: {expected:?}\n  heard:    {got:?}"))
}

fn compare(expected: &[Heard], got: &[Arrival]) -> Result<(), String> {
    let replies: Vec<&Reply> = got.iter().filter_map(Arrival::reply).collect();
    let wanted: Vec<&Reply> = expected.iter().filter_map(Heard::reply).collect();
    if let Some((want, got)) = wanted.iter().zip(&replies).find(|(w, g)| !w.is_met_by(g)) {
        return Err(format!("the reply is {got:?} and not {want:?}"));
    }
    if wanted.len() != replies.len() {
        let (want, got) = (wanted.len(), replies.len());
        return Err(format!("{got} replies and not {want}"));
    }
    let mut pushes = with_replies_before(got).into_iter();
    let mut replies_before = 0;
    for (place, heard) in expected.iter().enumerate() {
        let Heard::Pushes(group) = heard else {
            replies_before += 1;
            continue;
        };
        let mut open: Vec<(usize, &Push)> = group
            .iter()
            .map(|push| (latest(&expected[place..], replies_before, push), push))
            .collect();
        open.sort_by_key(|(latest, _)| *latest);
        for _ in group {
            let Some((sentence, at)) = pushes.next() else {
                return Err(format!(
                    "these pushes are missing, and later ones: {open:?}"
                ));
            };
            let Some(found) = open
                .iter()
                .position(|(_, push)| push.sentence() == sentence)
            else {
                return Err(format!("the push {sentence:?} instead of one of {open:?}"));
            };
            let (latest, push) = open.remove(found);
            if at < replies_before || at > latest {
                return Err(format!(
                    "{push:?} after {at} replies, and not after {replies_before} to {latest}"
                ));
            }
        }
    }
    match pushes.next() {
        Some((sentence, _)) => Err(format!("the push {sentence:?} is too much")),
        None => Ok(()),
    }
}

/// Each push with the number of replies before it.
fn with_replies_before(got: &[Arrival]) -> Vec<(&str, usize)> {
    let mut replies = 0;
    let mut pushes = Vec::new();
    for arrival in got {
        match arrival {
            Arrival::Reply(_) => replies += 1,
            Arrival::Push(sentence) => pushes.push((sentence.as_str(), replies)),
        }
    }
    pushes
}

/// How many replies there may be at most before this push; `rest` is what is to be heard from its
/// group on.
fn latest(rest: &[Heard], before: usize, push: &Push) -> usize {
    let later = rest.iter().filter_map(|heard| match heard {
        Heard::Reply { settles, .. } => Some(settles),
        Heard::Pushes(_) => None,
    });
    let is_watch = push.news != News::Lost;
    before
        + later
            .take_while(|settles| !(is_watch && settles.contains(&push.spot)))
            .count()
}

impl Heard {
    fn reply(&self) -> Option<&Reply> {
        match self {
            Heard::Reply { reply, .. } => Some(reply),
            Heard::Pushes(_) => None,
        }
    }
}

impl Arrival {
    fn reply(&self) -> Option<&Reply> {
        match self {
            Arrival::Reply(reply) => Some(reply),
            Arrival::Push(_) => None,
        }
    }
}
