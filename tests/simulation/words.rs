//! The engine's words in the model's.

use crate::model::acks::no_acks;
use crate::model::command::{LABELS, PREFIXES, Spot};
use crate::model::replies::{self, Kind, Reply};
use crate::model::sequence::{bytes_of, name_of};
use tether::engine::{
    Acquire, Bytes, ClientId, Db, Engine, Key, KeyBuf, Kind as Sort, Moment, News, PresenceChange,
    Push, Refusal, Reply as Said, Token, Waits,
};

pub fn key_of(db: usize, name: usize) -> Key<'static> {
    let db = Db(db as u32);
    let name = bytes_of(name);
    Key { db, name }
}

pub fn prefix_of(db: usize, prefix: usize) -> Key<'static> {
    let db = Db(db as u32);
    let name = PREFIXES[prefix];
    Key { db, name }
}

/// As the shell would send it, without values.
pub fn sight(name: &[u8], change: PresenceChange) -> String {
    let words = match change {
        PresenceChange::Added(token) => format!("ADD {}", token.0),
        PresenceChange::Set(token) => format!("SET {}", token.0),
        PresenceChange::Gone(token, why) => format!("DEL {} {}", token.0, why.name()),
        PresenceChange::Flushed => "FLUSHED".to_owned(),
        PresenceChange::Over(why) => format!("END {}", why.name()),
    };
    let text = std::str::from_utf8(name);
    let name = text.map_or_else(|_| name.escape_ascii().to_string(), str::to_owned);
    format!("watchtp {name} {words}")
}

pub fn spot_of(key: &KeyBuf) -> Spot {
    let name = name_of(&key.name);
    Spot {
        db: key.db.0 as usize,
        name: name.expect("one of the names"),
    }
}

/// As the shell would send it.
pub fn sentence(push: &Push) -> String {
    let kind = |sort: &Sort| match sort {
        Sort::Temporary => Kind::Settp,
        Sort::Lock => Kind::Lock,
    };
    let (news, words) = match push.news() {
        News::Presence(news) => return sight(&push.key.name, news.0),
        News::Added => (replies::News::Added, "ADD".to_owned()),
        News::Deleted => (replies::News::Deleted, "DEL".to_owned()),
        News::Lost(sort, why, _) => {
            let word = format!("LOST {}", format!("{why:?}").to_lowercase());
            (
                replies::News::Lost(kind(sort), replies::Loss::Deleted),
                word,
            )
        }
        News::TimedOut(sort) => (replies::News::TimedOut(kind(sort)), "TIMEOUT".to_owned()),
        News::Granted(sort, token) => (replies::News::Granted(kind(sort), 0), token.0.to_string()),
        News::Failed(sort, why) => {
            let code = match answer(Said::Refused((**why).clone())) {
                Reply::Refused(words) => words,
                other => panic!("{other:?} is no refusal"),
            };
            (
                replies::News::TimedOut(kind(sort)),
                format!("FAILED {code}"),
            )
        }
    };
    let label = LABELS.iter().position(|label| **label == *push.label());
    let push = replies::Push {
        spot: spot_of(&push.key),
        news,
        label: label.expect("one of the labels"),
        unnamed: false,
    };
    push.sentence(&words)
}

pub fn answer(reply: Said) -> Reply {
    let state = |present: &bool| Reply::text(if *present { "EXIST" } else { "NOEXIST" });
    let refusal = match reply {
        Said::Integer(number) => return Reply::Int(number),
        Said::Null => return Reply::Null,
        Said::Made { name, token } => {
            let (name, token) = (Reply::Text(name.to_vec()), Reply::Int(token.0 as i64));
            return Reply::Array(vec![name, token]);
        }
        Said::Page(page) => {
            let next = page.entries.last().filter(|_| !page.is_last);
            let next = next.map_or(Vec::new(), |(name, _)| name.to_vec());
            let entry = |(name, token): &(Bytes, Token)| {
                let token = Reply::Int(token.0 as i64);
                Reply::Array(vec![Reply::Text(name.to_vec()), token, Reply::Null])
            };
            let entries = page.entries.iter().map(entry).collect();
            return Reply::Array(vec![Reply::Text(next), Reply::Array(entries)]);
        }
        Said::Secret(secret) => {
            // Those of the machine are their sessions' numbers.
            let number = std::str::from_utf8(&secret)
                .ok()
                .and_then(|text| text.parse().ok());
            return Reply::Secret(number.expect("the secret that the engine was told"));
        }
        Said::States(states) => {
            return match &states[..] {
                [present] => state(present),
                all => Reply::Array(all.iter().map(state).collect()),
            };
        }
        Said::Refused(refusal) => refusal,
    };
    if let Refusal::NoAcks { got, wanted } = refusal {
        return no_acks(got, wanted);
    }
    Reply::refused(match refusal {
        Refusal::TooManyWatchBytes { .. } => "ERR the names watched by",
        Refusal::TooManyWatches { .. } => "ERR too many watches",
        Refusal::TooManyKeys { .. } => "ERR too many keys",
        Refusal::SequenceTaken => "ERR the names that this sequence",
        Refusal::TooManySessions { .. } => "ERR too many sessions",
        Refusal::TooManyExtras { .. } => "ERR too many locks",
        Refusal::IndexIncomplete => "TRYAGAIN",
        Refusal::NotWatched => "ERR this connection does not watch",
        Refusal::TooManyPrefixes { .. } => "ERR this connection watches too many",
        Refusal::TooManyPrefixLengths { .. } => "ERR too many lengths",
        Refusal::WrongType => "WRONGTYPE",
        Refusal::NotHeld => "NOTHELD",
        Refusal::HeldOtherwise => "ERR this owner holds the lock in another way",
        Refusal::TooDeep { .. } => "ERR this owner has acquired the lock",
        Refusal::OtherTotal { .. } => "ERR the semaphore has another total",
        Refusal::HeldAlready { .. } => "ERR this owner holds '",
        Refusal::HeldApart => "ERR this owner holds these locks",
        Refusal::Deadlock { .. } | Refusal::Standstill(_) => "DEADLOCK",
        Refusal::Reentry | Refusal::WaitsForIt => "DEADLOCK this owner",
        Refusal::Quarantine { .. } => "QUARANTINE",
        Refusal::NoAcks { .. } => "NOACKS",
        Refusal::TokenAhead { .. } => "ERR the token is more than a second ahead",
        Refusal::NoSession | Refusal::AcksWithoutSession => "NOSESSION",
        Refusal::HasSession => "ERR this connection has a session already",
        Refusal::HoldsAlready => "ERR this connection holds keys already",
        Refusal::WaitsAlready => "ERR this connection waits for keys",
        Refusal::Elsewhere { .. } => "MOVED",
        Refusal::Unblocked => "UNBLOCKED",
        Refusal::CannotBlock => "ERR",
        Refusal::NoRight(_) => "NOPERM",
    })
}

/// What is wrong with the cycle because of which a request is refused, if anything is: each in it
/// must wait for the next, which holds the key or waits for it, too.
pub fn refuse_circle(engine: &Engine, ask: &Acquire<'_>, reply: &Said) -> Option<String> {
    let Said::Refused(Refusal::Deadlock { cycle }) = reply else {
        return None;
    };
    let caller = cycle.first().is_some_and(|link| link.client == ask.client);
    let asked = |key: &KeyBuf| ask.seen.iter().any(|seen| seen.key == key.as_key());
    let of_key = |key: &KeyBuf| engine.inspect(Moment(0), key.as_key(), usize::MAX);
    let waits = |link: &Waits| {
        let waiters = of_key(&link.key).map_or(Vec::new(), |inspection| inspection.waiters);
        waiters.iter().any(|waiter| waiter.client == link.client)
    };
    let is_in_the_way = |key: &KeyBuf, client: ClientId| {
        of_key(key).is_some_and(|inspection| {
            let mut holders = inspection.holders.iter();
            let mut waiters = inspection.waiters.iter();
            holders.any(|holder| holder.client == client)
                || waiters.any(|waiter| waiter.client == client)
        })
    };
    let holds_together = |(at, link): (usize, &Waits)| {
        let next = &cycle[(at + 1) % cycle.len()];
        let waits = if at == 0 {
            asked(&link.key)
        } else {
            waits(link)
        };
        waits && is_in_the_way(&link.key, next.client)
    };
    let good = caller && cycle.iter().enumerate().all(holds_together);
    (!good).then(|| format!("!no cycle: {cycle:?}"))
}
