//! Replies and pushes; whether what came is what was to come.

use super::command::{LABELS, Label, Name, Spot};
use super::mine::{Own, are_met_by};
use super::presence::Page;
use super::sequence::{bytes_of, learn};
use super::sessions::Number;
pub use super::tokens::Tokens;

/// The number of a grant: the model's word for its token.
pub type Serial = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ok,
    Queued,
    Null,
    Int(i64),
    /// That of this grant.
    Token(Serial),
    /// The name that a sequence has made, and the token of this grant.
    Made {
        name: Name,
        serial: Serial,
    },
    /// That of this session.
    Secret(Number),
    /// None, for the connection stands still.
    Blocked,
    Text(Vec<u8>),
    Array(Vec<Reply>),
    /// That of WATCHTP, and of UNWATCHTP: how many.
    Page(Page),
    Unwatched(Option<usize>, i64),
    /// That of LOCK.MINE.
    Mine(Vec<Own>),
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
    pub fn is_met_by(&self, got: &Reply, tokens: &mut Tokens) -> bool {
        match (self, got) {
            (Reply::Token(serial), Reply::Int(token)) => tokens.is(*serial, *token),
            (Reply::Made { name, serial }, Reply::Array(got)) => match &got[..] {
                [Reply::Text(text), Reply::Int(token)] => {
                    tokens.is(*serial, *token) && learn(*name, text, *token)
                }
                _ => false,
            },
            (Reply::Secret(session), Reply::Text(text)) => tokens.is_secret(*session, text),
            (Reply::Page(page), Reply::Array(_)) => page.is_met_by(got, tokens),
            (Reply::Mine(own), Reply::Array(_)) => are_met_by(own, got, tokens),
            (Reply::Unwatched(_, count), Reply::Int(got)) => count == got,
            (Reply::Refused(beginning), Reply::Refused(error)) => error.starts_with(beginning),
            (Reply::Array(expected), Reply::Array(got)) => {
                expected.len() == got.len()
                    && expected
                        .iter()
                        .zip(got)
                        .all(|(one, other)| one.is_met_by(other, tokens))
            }
            _ => self == got,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Added,
    Deleted,
    Lost(Kind, Loss),
    Granted(Kind, Serial),
    TimedOut(Kind),
    TurnedAway(Kind),
    /// By so many replicas, and not by as many as were wanted.
    NotAcknowledged(Kind, u32, u32),
    /// It had a session when it asked.
    Sessionless(Kind),
    Subscribed(bool),
    Message,
}

/// Why a hold ended by another hand than its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Lease,
    Deleted,
    Expired,
    Evicted,
    /// By a time to live that is over as soon as it is given: servers call it the one or the other.
    DeletedOrExpired,
    Flushed,
    Overwritten,
    /// `SESSION.KILL`.
    Ended,
}

impl Loss {
    /// Which of [`REASONS`](super::totals::REASONS) it is.
    pub fn reason(self) -> usize {
        match self {
            Loss::Lease => 0,
            Loss::Deleted | Loss::Expired | Loss::DeletedOrExpired => 1,
            Loss::Evicted => 2,
            Loss::Flushed => 3,
            Loss::Overwritten => 4,
            Loss::Ended => 6,
        }
    }

    /// The words for it, one of which is told.
    fn words(self) -> &'static [&'static str] {
        match self {
            Loss::Lease => &["lease"],
            Loss::Deleted => &["deleted"],
            Loss::Expired => &["expired"],
            Loss::Evicted => &["evicted"],
            Loss::DeletedOrExpired => &["deleted", "expired"],
            Loss::Flushed => &["flushed"],
            Loss::Overwritten => &["overwritten"],
            Loss::Ended => &["ended"],
        }
    }
}

/// Whose word a push begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Settp,
    Lock,
}

/// In whose words a grant is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Settp,
    SettpToken,
    Sequence(Name),
    Lock,
}

impl Form {
    pub fn granted(self, serial: Serial) -> Reply {
        match self {
            Form::Settp => Reply::Int(1),
            Form::SettpToken | Form::Lock => Reply::Token(serial),
            Form::Sequence(name) => Reply::Made { name, serial },
        }
    }

    pub fn not_granted(self) -> Reply {
        match self {
            Form::Settp | Form::SettpToken => Reply::Int(0),
            Form::Lock | Form::Sequence(_) => Reply::Null,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    pub spot: Spot,
    pub news: News,
    /// That of the request or hold which it is about.
    pub label: Label,
    /// The key's name is not for who hears it.
    pub unnamed: bool,
}

impl Push {
    /// Its elements joined by spaces, with this for its news. Which database it is about, a push does not say.
    pub fn sentence(&self, news: &str) -> String {
        let mut news = news.as_bytes().to_vec();
        if self.label > 0 {
            news.push(b' ');
            news.extend(LABELS[self.label]);
        }
        let name = if self.unnamed {
            b""
        } else {
            bytes_of(self.spot.name)
        };
        let (name, news) = (readable(name), readable(&news));
        format!("{} {name} {news}", self.word())
    }

    fn word(&self) -> &'static str {
        match self.news {
            News::Added | News::Deleted => "watchex",
            News::Subscribed(true) => "subscribe",
            News::Subscribed(false) => "unsubscribe",
            News::Message => "message",
            News::Lost(kind, _)
            | News::Granted(kind, _)
            | News::TimedOut(kind)
            | News::TurnedAway(kind)
            | News::NotAcknowledged(kind, ..)
            | News::Sessionless(kind) => match kind {
                Kind::Settp => "settp",
                Kind::Lock => "lock",
            },
        }
    }

    /// Whether it may not come before this one, of the same cause. Of waits whose time is over at once it is not said whose
    /// was first.
    fn comes_after(&self, other: &Push) -> bool {
        let is_over = |push: &Push| {
            matches!(
                push.news,
                News::TimedOut(_) | News::NotAcknowledged(..) | News::Sessionless(_)
            )
        };
        let are_over = is_over(self) && is_over(other);
        (self.word(), self.spot) == (other.word(), other.spot) && !are_over
    }

    /// Whether it tells a watcher of coming and going.
    pub fn is_watch(&self) -> bool {
        matches!(self.news, News::Added | News::Deleted)
    }

    /// Whether this is what was heard.
    fn is(&self, heard: &str, tokens: &mut Tokens) -> bool {
        match self.news {
            News::Added => heard == self.sentence("ADD"),
            News::Deleted => heard == self.sentence("DEL"),
            News::TimedOut(_) => heard == self.sentence("TIMEOUT"),
            News::TurnedAway(_) => heard == self.sentence("FAILED NOPERM"),
            News::NotAcknowledged(_, got, wanted) => {
                heard == self.sentence(&format!("FAILED NOACKS {got} of {wanted}"))
            }
            News::Sessionless(_) => heard == self.sentence("FAILED NOSESSION"),
            News::Subscribed(true) => heard == self.sentence(":1"),
            News::Subscribed(false) => heard == self.sentence(":0"),
            News::Message => heard == self.sentence("hi"),
            News::Lost(_, loss) => {
                let mut words = loss.words().iter();
                words.any(|word| heard == self.sentence(&format!("LOST {word}")))
            }
            News::Granted(_, serial) => {
                let mut words = heard.split(' ').rev();
                let numbers = words.find_map(|word| word.parse().ok());
                numbers.is_some_and(|token: i64| {
                    heard == self.sentence(&token.to_string()) && tokens.is(serial, token)
                })
            }
        }
    }
}

/// As the tests' harness shows an element.
pub(super) fn readable(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes);
    text.map_or_else(|_| bytes.escape_ascii().to_string(), str::to_owned)
}

/// What a client is to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Reply {
        reply: Reply,
        /// What was caused before for watches of these keys is heard before this reply.
        settles: Vec<Spot>,
        /// It ends a wait. A server may write it a little later than what is pushed meanwhile.
        late: bool,
    },
    /// As `Pushes`, before the reply that follows.
    InFront(Vec<Push>),
    /// What one cause has it hear, in any order; only what is of one kind and about one key comes as
    /// it stands here.
    Pushes(Vec<Push>),
}

/// What a client heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    Reply(Reply),
    Push(String),
}

/// Holds what came against what was to come. Pushes may be later than their cause's reply, never
/// earlier, unless they are to be in front of it; a reply that settles a key's past comes after all that was caused before.
pub fn check(expected: &[Heard], got: &[Arrival], tokens: &mut Tokens) -> Result<(), String> {
    if expected.is_empty() && got.is_empty() {
        return Ok(());
    }
    compare(expected, got, tokens)
        .map_err(|what| format!("{what}\n  expected: {expected:?}\n  heard:    {got:?}"))
}

fn compare(expected: &[Heard], got: &[Arrival], tokens: &mut Tokens) -> Result<(), String> {
    let replies: Vec<&Reply> = got.iter().filter_map(Arrival::reply).collect();
    let wanted: Vec<&Reply> = expected.iter().filter_map(Heard::reply).collect();
    let mut pairs = wanted.iter().zip(&replies);
    if let Some((want, got)) = pairs.find(|(want, got)| !want.is_met_by(got, tokens)) {
        return Err(format!("the reply is {got:?} and not {want:?}"));
    }
    if wanted.len() != replies.len() {
        let (want, got) = (wanted.len(), replies.len());
        return Err(format!("{got} replies and not {want}"));
    }
    let mut pushes = with_replies_before(got).into_iter();
    let (mut replies_before, mut late_before) = (0, 0);
    for (place, heard) in expected.iter().enumerate() {
        let (group, in_front) = match heard {
            Heard::Pushes(group) => (group, false),
            Heard::InFront(group) => (group, true),
            Heard::Reply { late, .. } => {
                replies_before += 1;
                late_before += usize::from(*late);
                continue;
            }
        };
        let mut open: Vec<(usize, &Push)> = group
            .iter()
            .map(|push| match in_front {
                true => (replies_before, push),
                false => (latest(&expected[place..], replies_before, push), push),
            })
            .collect();
        open.sort_by_key(|(latest, _)| *latest);
        for _ in group {
            let Some((sentence, at)) = pushes.next() else {
                return Err(format!(
                    "these pushes are missing, and later ones: {open:?}"
                ));
            };
            let Some(found) = open.iter().enumerate().position(|(place, (_, push))| {
                let mut before = open[..place].iter();
                !before.any(|(_, other)| push.comes_after(other)) && push.is(sentence, tokens)
            }) else {
                return Err(format!("the push {sentence:?} instead of one of {open:?}"));
            };
            let (latest, push) = open.remove(found);
            if at + late_before < replies_before || at > latest {
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
        Heard::Pushes(_) | Heard::InFront(_) => None,
    });
    let is_watch = push.is_watch();
    before
        + later
            .take_while(|settles| !(is_watch && settles.contains(&push.spot)))
            .count()
}

impl Heard {
    fn reply(&self) -> Option<&Reply> {
        match self {
            Heard::Reply { reply, .. } => Some(reply),
            Heard::Pushes(_) | Heard::InFront(_) => None,
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
