//! The words that all of the engine shares: who, which key, when, what stands there, why a hold was lost. No bare integer
//! leaves this file, and nothing here knows what the engine keeps.

use crate::engine::storage::bytes::Bytes;
use std::fmt;
use std::num::NonZeroU32;

/// A connection, by the id that the server gave it. Never reused while the server lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// An id that no connection has.
pub const NOBODY: ClientId = ClientId(0);

/// A session, on every server that is told of it. No two ever have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// What is kept of a session's secret: SHA-256, from which the secret cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(pub [u8; 32]);

/// A database's number (`SELECT`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Db(pub u32);

/// A key, borrowed: any bytes, in one database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a> {
    pub db: Db,
    pub name: &'a [u8],
}

impl Key<'_> {
    /// The same key, owned.
    pub fn to_owned(self) -> KeyBuf {
        KeyBuf {
            db: self.db,
            name: self.name.into(),
        }
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.db.0, self.name.escape_ascii())
    }
}

/// A key, owned.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyBuf {
    pub db: Db,
    pub name: Bytes,
}

impl KeyBuf {
    /// The same key, borrowed.
    pub fn as_key(&self) -> Key<'_> {
        Key {
            db: self.db,
            name: &self.name,
        }
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

/// A moment, in microseconds on a clock that never goes back; only differences mean something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

/// The longest time that can be told: some 285 thousand years.
pub const MOST_MS: u64 = (1 << 53) - 1;

/// The longest grace of a session: a day.
pub const LONGEST_GRACE_MS: u64 = 86_400_000;

impl Moment {
    /// The moment so many milliseconds later.
    pub fn after_ms(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// The milliseconds from an earlier moment to this one; 0 if it is not earlier.
    pub fn ms_since(self, earlier: Moment) -> u64 {
        self.us_since(earlier) / 1000
    }

    /// The microseconds from an earlier moment to this one; 0 if it is not earlier.
    pub fn us_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Proof of a grant, greater than that of every grant before it, for any key. Below 2^53, so that
/// every client's numbers can hold it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

impl Token {
    /// No server gives a greater one, and no client can hold all of those above it.
    pub const MOST: u64 = (1 << 53) - 1;

    /// A token in words that somebody else wrote; none if it cannot be one.
    pub fn checked(number: u64) -> Option<Token> {
        (number <= Token::MOST).then_some(Token(number))
    }
}

/// What stands at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Absent,
    /// A lock, made by us.
    Lock,
    /// Any other type. A temporary key is a string like others.
    Other,
}

impl KeyState {
    pub fn is_present(self) -> bool {
        self != KeyState::Absent
    }

    /// Why what a look shows here is not what was held; `gone` if nothing is there.
    pub(in crate::engine) fn loss_or(self, gone: Loss) -> Loss {
        match self {
            KeyState::Absent => gone,
            KeyState::Lock | KeyState::Other => Loss::Overwritten,
        }
    }
}

/// Who changed the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A connection's, by a command of the server.
    Client(ClientId),
    /// Somebody's whom it is no use to name: expiry, eviction, a master's stream.
    Server,
}

/// `settp` or `lock`, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Temporary,
    Lock,
}

/// In whose words a grant is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// 1 or 0.
    Settp,
    /// The token or 0.
    SettpToken,
    /// The token or null.
    Lock,
    /// The same, asked for by `LOCK.MACQUIRE`.
    Locks,
}

impl Form {
    /// Whether it is about a temporary key or a lock.
    pub fn kind(self) -> Kind {
        match self {
            Form::Settp | Form::SettpToken => Kind::Temporary,
            Form::Lock | Form::Locks => Kind::Lock,
        }
    }
}

/// How a request waits that cannot be granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For how long at most.
    pub limit_ms: Option<u64>,
    /// Its connection is not blocked, and is told by a push.
    pub push: bool,
}

/// To whom it is told what becomes of a request, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub client: ClientId,
    pub form: Form,
    /// By a push; otherwise its connection is blocked.
    pub push: bool,
}

/// How many replicas are to acknowledge a grant before it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedAcks {
    pub replicas: NonZeroU32,
    /// From the grant on.
    pub timeout_ms: u32,
}

/// What a user may not do any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRight {
    /// To write a key that it waits for.
    Key,
    /// To give the command with which it has begun to wait.
    Command(Form),
}

/// Asks whether a user has lost a right: whose request it is, by which command, since when it waits, and for which keys. This is
/// the one thing that the engine asks. The answer must not depend on the engine, which is borrowed meanwhile.
pub type LostRight =
    dyn Fn(ClientId, Form, Moment, &mut dyn Iterator<Item = Key<'_>>) -> Option<NoRight>;

/// Why a hold ended that its owner did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Its lease is over.
    Lease,
    /// Its key was deleted; or went, and nobody said how.
    Deleted,
    /// Its key's time to live is over.
    Expired,
    Evicted,
    Flushed,
    /// Another key was put in its key's place.
    Overwritten,
    /// Its key is another server's.
    Moved,
    /// This server is a replica.
    Demoted,
    /// Somebody else ended its session.
    Ended,
    /// Its connection ended, and its session was not resumed in time if it had one.
    Died,
    /// The same, by `CLIENT KILL`.
    Killed,
    /// It was that of a connection of a master in whose place this server is now. Only the log says it.
    Promoted,
}

impl Loss {
    /// Those that are counted.
    pub const ALL: [Loss; 11] = [
        Loss::Lease,
        Loss::Deleted,
        Loss::Expired,
        Loss::Evicted,
        Loss::Flushed,
        Loss::Overwritten,
        Loss::Moved,
        Loss::Demoted,
        Loss::Ended,
        Loss::Died,
        Loss::Killed,
    ];

    /// As clients and operators read it.
    pub fn word(self) -> &'static str {
        match self {
            Loss::Lease => "lease",
            Loss::Deleted => "deleted",
            Loss::Expired => "expired",
            Loss::Evicted => "evicted",
            Loss::Flushed => "flushed",
            Loss::Overwritten => "overwritten",
            Loss::Moved => "moved",
            Loss::Demoted => "demoted",
            Loss::Ended => "ended",
            Loss::Died => "died",
            Loss::Killed => "killed",
            Loss::Promoted => "promoted",
        }
    }
}

/// When a hold began: in which two milliseconds, in so few bits that it comes around again after a year. Longer than that no
/// hold is told to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(pub(in crate::engine) u64);

impl Since {
    pub(in crate::engine) const BITS: u32 = 34;
    const UNIT_MS: u64 = 2;
    pub(in crate::engine) const AROUND_MS: u64 = Self::UNIT_MS << Self::BITS;

    pub(in crate::engine) fn at(moment: Moment) -> Self {
        let units = Self::ms(moment).div_ceil(Self::UNIT_MS);
        Since(units & ((1 << Self::BITS) - 1))
    }

    fn ms(moment: Moment) -> u64 {
        moment.ms_since(Moment::default())
    }

    /// For how many milliseconds it is held; or one less, and never more.
    pub fn held_ms(self, now: Moment) -> u64 {
        let since_ms = self.0 * Self::UNIT_MS;
        // The beginning may be told one too late.
        let and_one = (Self::ms(now) + 1).wrapping_sub(since_ms) % Self::AROUND_MS;
        and_one.saturating_sub(1)
    }
}

/// What the server says of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub addr: Box<str>,
    pub name: Box<str>,
    pub user: Box<str>,
}

impl Origin {
    const LONGEST: usize = 128;

    /// Names that are longer than 128 bytes are cut.
    pub fn new(addr: &str, name: &str, user: &str) -> Self {
        Origin {
            addr: cut(addr),
            name: cut(name),
            user: cut(user),
        }
    }

    /// How much memory they take.
    pub fn bytes(&self) -> usize {
        self.addr.len() + self.name.len() + self.user.len()
    }
}

fn cut(text: &str) -> Box<str> {
    let mut most = text.len().min(Origin::LONGEST);
    while !text.is_char_boundary(most) {
        most -= 1;
    }
    text[..most].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_in_their_order() {
        for (place, loss) in Loss::ALL.iter().enumerate() {
            assert_eq!(*loss as usize, place);
        }
    }
}
