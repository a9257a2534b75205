//! The value types that the whole engine shares: ids, keys, times, tokens, key states, reasons. They know nothing of its tables.

use crate::engine::storage::bytes::Bytes;
use std::fmt;
use std::num::NonZeroU32;

/// A connection, by the id that the server gave it. Never reused while the server lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// The id of no connection.
pub const NOBODY: ClientId = ClientId(0);

/// A session's id, the same on every server. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// The SHA-256 of a session's secret. The secret itself is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(pub [u8; 32]);

/// A database number (`SELECT`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Db(pub u32);

/// A key's database and name, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a> {
    pub db: Db,
    pub name: &'a [u8],
}

impl Key<'_> {
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

/// A key's database and name, owned.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyBuf {
    pub db: Db,
    pub name: Bytes,
}

impl KeyBuf {
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

/// A time of a monotonic clock, in microseconds; only differences have a meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

/// The longest duration of a request, in ms: 285,000 years.
pub const MAX_MS: u64 = (1 << 53) - 1;

/// The longest grace of a session: one day.
pub const MAX_GRACE_MS: u64 = 86_400_000;

impl Moment {
    pub fn after_ms(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Moment) -> u64 {
        self.us_since(earlier) / 1000
    }

    /// 0 if `earlier` is later.
    pub fn us_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A fencing token: greater than the token of every earlier grant of any key. Below 2^53, so that a client can keep it in a double.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

impl Token {
    /// Doubles cannot represent all integers above it.
    pub const MAX: u64 = (1 << 53) - 1;

    /// A token read from input; none if out of range.
    pub fn checked(number: u64) -> Option<Token> {
        (number <= Token::MAX).then_some(Token(number))
    }
}

/// The state of a key in the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Absent,
    /// A value of this module's lock type.
    Lock,
    /// Any other type. A temporary key is an ordinary string.
    Other,
}

impl KeyState {
    pub fn is_present(self) -> bool {
        self != KeyState::Absent
    }

    /// The reason why a hold is lost whose key is found in this state; `gone` if absent.
    pub(in crate::engine) fn loss_or(self, gone: Loss) -> Loss {
        match self {
            KeyState::Absent => gone,
            KeyState::Lock | KeyState::Other => Loss::Overwritten,
        }
    }
}

/// The cause of a keyspace change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A command of this connection.
    Client(ClientId),
    /// Expiry, eviction, the master's stream.
    Server,
}

/// The kind of a hold: `settp` or `lock` in pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Temporary,
    Lock,
}

/// The reply format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// 1 or 0.
    Settp,
    /// The token or 0.
    SettpToken,
    /// The name and the token. The name ends with the token: see `rules/sequence.rs`. Never with a wait.
    Sequence,
    /// The token or null.
    Lock,
    /// The same, for `LOCK.MACQUIRE`.
    Locks,
}

impl Form {
    pub fn kind(self) -> Kind {
        match self {
            Form::Settp | Form::SettpToken | Form::Sequence => Kind::Temporary,
            Form::Lock | Form::Locks => Kind::Lock,
        }
    }
}

/// How a request waits if it cannot be granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub limit_ms: Option<u64>,
    /// The result is pushed; the connection is not blocked.
    pub push: bool,
}

/// Where and in which format the result of a request is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub client: ClientId,
    pub form: Form,
    /// By a push; otherwise the connection is blocked.
    pub push: bool,
}

/// The acknowledgements that a grant requires before it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedAcks {
    pub replicas: NonZeroU32,
    /// Counted from the grant.
    pub timeout_ms: u32,
}

/// A right that a waiting client's user has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRight {
    /// To write a key that it waits for.
    Key,
    /// To the database of its keys.
    Database,
    /// To run the command by which it waits.
    Command(Form),
}

/// Whether a waiting client's user has lost a right: the client, its command, the start of the wait, and its keys. The engine's only
/// query; the answer must not depend on the engine, which is borrowed meanwhile.
pub type LostRight =
    dyn Fn(ClientId, Form, Moment, &mut dyn Iterator<Item = Key<'_>>) -> Option<NoRight>;

/// Why an owner lost a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Its lease expired.
    Lease,
    /// Its key was deleted, or is gone for an unknown reason.
    Deleted,
    /// Its key's TTL expired.
    Expired,
    Evicted,
    Flushed,
    Overwritten,
    /// Its key belongs to another server now.
    Moved,
    /// This server became a replica.
    Demoted,
    /// Another client ended its session.
    Ended,
    /// Its connection was closed, and its session, if any, was not resumed in time.
    Died,
    /// Its connection was closed by `CLIENT KILL`, and its session, if any, was not resumed in time.
    Killed,
    /// Its connection was one of the previous master, and this server was promoted.
    Promoted,
}

impl Loss {
    pub const ALL: [Loss; 12] = [
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
        Loss::Promoted,
    ];

    pub fn name(self) -> &'static str {
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

/// When a hold began, in units of 2 ms and 34 bits: it wraps around after 397 days, and so does the reported age of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(pub(in crate::engine) u64);

impl Since {
    pub(in crate::engine) const BITS: u32 = 34;
    const UNIT_MS: u64 = 2;
    pub(in crate::engine) const WRAP_MS: u64 = Self::UNIT_MS << Self::BITS;

    pub(in crate::engine) fn at(moment: Moment) -> Self {
        let units = Self::ms(moment).div_ceil(Self::UNIT_MS);
        Since(units & ((1 << Self::BITS) - 1))
    }

    fn ms(moment: Moment) -> u64 {
        moment.ms_since(Moment::default())
    }

    /// The age of the hold, or 1 ms less.
    pub fn held_ms(self, now: Moment) -> u64 {
        let since_ms = self.0 * Self::UNIT_MS;
        // `at` rounds up, so the beginning may be 1 ms ahead of `now`.
        let plus_one = (Self::ms(now) + 1).wrapping_sub(since_ms) % Self::WRAP_MS;
        plus_one.saturating_sub(1)
    }
}

/// A connection as the server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub addr: Box<str>,
    pub name: Box<str>,
    pub user: Box<str>,
}

impl Origin {
    const MAX_BYTES: usize = 128;

    /// Cuts each to 128 bytes.
    pub fn new(addr: &str, name: &str, user: &str) -> Self {
        Origin {
            addr: cut(addr),
            name: cut(name),
            user: cut(user),
        }
    }

    /// The summed lengths.
    pub fn bytes(&self) -> usize {
        self.addr.len() + self.name.len() + self.user.len()
    }
}

fn cut(text: &str) -> Box<str> {
    let mut end = text.len().min(Origin::MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_in_declaration_order() {
        for (place, loss) in Loss::ALL.iter().enumerate() {
            assert_eq!(*loss as usize, place);
        }
    }
}
