//! In what way a key is asked for and held, and which ways go together.

use crate::engine::types::KeyState;

/// The way in which a key is asked for, and then held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A temporary key: exclusive, and shows itself as a string.
    Temporary,
    /// A lock for one.
    Exclusive,
    /// A lock for readers: any number of them.
    Shared,
    /// A semaphore: so many of its permits. `count` is from 1 to `total`.
    Permits { count: u32, total: u32 },
}

/// What a request says besides, and the hold that it becomes keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Its owner may take the lock again.
    pub reentrant: bool,
    /// Its owner is to be told when it loses it.
    pub notify: bool,
}

impl Mode {
    /// Whether the key is a lock while it is held in this way, and not a string.
    pub fn is_lock(self) -> bool {
        self != Mode::Temporary
    }

    /// Whether two different owners can hold a key in these ways at once, as far as the ways alone
    /// say it (a semaphore's permits must also suffice). Symmetric.
    pub fn is_compatible_with(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Permits { total, .. }, Mode::Permits { total: others, .. }) => total == others,
            _ => false,
        }
    }

    /// Whether an owner that holds a lock in this way, and may take it again, can take it in that one, too, and
    /// so make its hold deeper: in the same way again, or from exclusive to shared; never from shared to
    /// exclusive, for which two readers would wait for each other.
    pub(in crate::engine) fn reenters_as(self, asked: Mode) -> bool {
        let same = self == asked || (self == Mode::Exclusive && asked == Mode::Shared);
        self.is_lock() && same
    }

    /// What stands at a key that is held in this way.
    pub(in crate::engine) fn stands(self) -> KeyState {
        if self.is_lock() {
            KeyState::Lock
        } else {
            KeyState::Other
        }
    }

    /// Whether a key can be held in this way with this standing there. A temporary key may have
    /// been overwritten with anything; a lock that was is gone.
    pub(in crate::engine) fn stands_as(self, standing: KeyState) -> bool {
        match self {
            Mode::Temporary => standing.is_present(),
            _ => standing == KeyState::Lock,
        }
    }

    /// The permits that it takes.
    pub fn permits(self) -> u32 {
        match self {
            Mode::Permits { count, .. } => count,
            _ => 0,
        }
    }
}
