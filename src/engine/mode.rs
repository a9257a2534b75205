//! In what way a key is asked for and held, and which ways go together. All in which modes differ is in one table.
//!
//! When you add a mode: a variant of [`Mode`] and of [`ModeKind`], and a row in [`MODES`], which is checked when it is
//! compiled. Its option is read in `command/options.rs`, and told to clients in `command/table.rs`.

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

/// A mode without its numbers: its place in `MODES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeKind {
    Temporary,
    Exclusive,
    Shared,
    Permits,
}

/// What is said of a mode.
struct Row {
    kind: ModeKind,
    /// In records.
    word: &'static str,
    /// For operators.
    shown: &'static str,
    /// The option that asks for it.
    option: Option<&'static str>,
    /// The modes in which other owners can hold the key at once. (Of a semaphore there must also be enough permits.)
    compatible: Modes,
    /// The modes in which its owner, if it may, can take it again and so make its hold deeper. Never from shared to
    /// exclusive, for which two readers would wait for each other.
    reenters_as: Modes,
    /// What stands at the key.
    state: KeyState,
}

const MODES: [Row; 4] = [
    Row {
        kind: ModeKind::Temporary,
        word: "temporary",
        shown: "temporary-key",
        option: None,
        compatible: Modes::NONE,
        reenters_as: Modes::NONE,
        state: KeyState::Other,
    },
    Row {
        kind: ModeKind::Exclusive,
        word: "exclusive",
        shown: "exclusive",
        option: None,
        compatible: Modes::NONE,
        reenters_as: Modes::of(&[ModeKind::Exclusive, ModeKind::Shared]),
        state: KeyState::Lock,
    },
    Row {
        kind: ModeKind::Shared,
        word: "shared",
        shown: "shared",
        option: Some("SHARED"),
        compatible: Modes::of(&[ModeKind::Shared]),
        reenters_as: Modes::of(&[ModeKind::Shared]),
        state: KeyState::Lock,
    },
    Row {
        kind: ModeKind::Permits,
        word: "permits",
        shown: "permits",
        option: Some("PERMITS"),
        compatible: Modes::of(&[ModeKind::Permits]),
        reenters_as: Modes::of(&[ModeKind::Permits]),
        state: KeyState::Lock,
    },
];

/// What all of the engine relies on.
const _: () = {
    let mut place = 0;
    while place < MODES.len() {
        let row = &MODES[place];
        assert!(row.kind as usize == place, "rows stand in order");
        let shared = &MODES[ModeKind::Shared as usize];
        let deeper = row.reenters_as.without(row.kind);
        assert!(
            deeper.is_within(Modes::of(&[ModeKind::Shared])),
            "what is taken again in another mode is shared: see `Extra::shared_below`"
        );
        assert!(
            deeper.is_empty() || row.compatible.is_within(shared.compatible),
            "who holds it beside one that is lowered to shared goes with that, too"
        );
        let mut other = 0;
        while other < MODES.len() {
            let (kind, other_row) = (MODES[other].kind, &MODES[other]);
            let goes = row.compatible.has(kind);
            assert!(goes == other_row.compatible.has(row.kind), "symmetric");
            assert!(
                !goes || LOCKS.has(kind) == LOCKS.has(row.kind),
                "one thing stands at a key"
            );
            let are_many = row.compatible.has(row.kind) && other_row.compatible.has(kind);
            assert!(
                other == place || !(goes && are_many),
                "of the modes of one key only one is held by several: see `Holds::unlink_from_key`"
            );
            other += 1;
        }
        place += 1;
    }
    place = 0;
    while place < Mode::BRIEF.len() {
        assert!(Mode::BRIEF[place].kind() as usize == place);
        place += 1;
    }
};

/// Those that are locks.
const LOCKS: Modes = SORTED.0;

/// Those that go with no other, not even with themselves.
const SINGLE_OWNER: Modes = SORTED.1;

const SORTED: (Modes, Modes) = {
    let (mut locks, mut single_owner, mut place) = (Modes::NONE, Modes::NONE, 0);
    while place < MODES.len() {
        let row = &MODES[place];
        if matches!(row.state, KeyState::Lock) {
            locks = locks.with(row.kind);
        }
        if row.compatible.is_empty() {
            single_owner = single_owner.with(row.kind);
        }
        place += 1;
    }
    (locks, single_owner)
};

/// A set of modes: those in which a key is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes(u8);

impl Modes {
    pub const NONE: Modes = Modes(0);

    pub const fn of(kinds: &[ModeKind]) -> Self {
        let (mut modes, mut place) = (Modes::NONE, 0);
        while place < kinds.len() {
            modes = modes.with(kinds[place]);
            place += 1;
        }
        modes
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn has(self, kind: ModeKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    pub const fn with(self, kind: ModeKind) -> Self {
        Modes(self.0 | 1 << kind as u8)
    }

    pub const fn without(self, kind: ModeKind) -> Self {
        Modes(self.0 & !(1 << kind as u8))
    }

    pub const fn is_within(self, others: Modes) -> bool {
        self.0 & !others.0 == 0
    }

    /// Whether a key is held so by one owner, beside whom there can be no other.
    pub const fn is_single_owner(self) -> bool {
        self.0 & SINGLE_OWNER.0 != 0
    }

    /// Whether a key that is held in these ways is a lock.
    pub const fn is_lock(self) -> bool {
        self.0 & LOCKS.0 != 0
    }

    /// What stands at a key that is held in these ways.
    pub fn key_state(self) -> KeyState {
        match self.is_lock() {
            true => KeyState::Lock,
            false => KeyState::Other,
        }
    }

    /// Whether a key can be held in these ways with this state there. A temporary key may have
    /// been overwritten with anything; a lock that was is gone.
    pub fn matches_state(self, state: KeyState) -> bool {
        match self.is_lock() {
            true => state == KeyState::Lock,
            false => state.is_present(),
        }
    }

    /// The first of them in the table's order: the one that says most of the key.
    pub fn first(self) -> Option<ModeKind> {
        let place = self.0.trailing_zeros() as usize;
        MODES.get(place).map(|row| row.kind)
    }
}

impl ModeKind {
    /// How many there are.
    pub const COUNT: usize = MODES.len();

    /// Whether two owners can hold a key in these modes at once. Symmetric.
    pub(in crate::engine) fn is_compatible_with(self, other: ModeKind) -> bool {
        MODES[self as usize].compatible.has(other)
    }

    /// As records have it.
    pub fn word(self) -> &'static str {
        MODES[self as usize].word
    }

    /// As operators read it.
    pub fn shown(self) -> &'static str {
        MODES[self as usize].shown
    }

    /// The option that asks for it.
    pub const fn option(self) -> &'static str {
        match MODES[self as usize].option {
            Some(option) => option,
            None => panic!("no option asks for it"),
        }
    }

    /// The mode with this word.
    pub fn with_word(word: &[u8]) -> Option<Self> {
        let mut rows = MODES.iter();
        let row = rows.find(|row| row.word.as_bytes() == word);
        row.map(|row| row.kind)
    }
}

impl Mode {
    /// Those that a hold's header has room for: the most frequent ones, which have no numbers.
    pub(in crate::engine) const BRIEF: [Mode; 3] = [Mode::Temporary, Mode::Exclusive, Mode::Shared];

    /// Whether that is one of them.
    #[inline]
    pub(in crate::engine) const fn is_brief(self) -> bool {
        (self.kind() as usize) < Mode::BRIEF.len()
    }

    #[inline]
    pub const fn kind(self) -> ModeKind {
        match self {
            Mode::Temporary => ModeKind::Temporary,
            Mode::Exclusive => ModeKind::Exclusive,
            Mode::Shared => ModeKind::Shared,
            Mode::Permits { .. } => ModeKind::Permits,
        }
    }

    /// The mode of this kind, with these numbers if it has any, and without them if it has none.
    pub fn of(kind: ModeKind, permits: Option<(u32, u32)>) -> Option<Mode> {
        match (kind, permits) {
            (ModeKind::Temporary, None) => Some(Mode::Temporary),
            (ModeKind::Exclusive, None) => Some(Mode::Exclusive),
            (ModeKind::Shared, None) => Some(Mode::Shared),
            (ModeKind::Permits, Some((count, total))) => Some(Mode::Permits { count, total }),
            _ => None,
        }
    }

    /// Whether the key is a lock while it is held in this way, and not a string.
    #[inline]
    pub fn is_lock(self) -> bool {
        LOCKS.has(self.kind())
    }

    /// Whether it goes with these modes, in which others hold the key. (Of a semaphore the total must be the same, too, and there
    /// must be enough permits.)
    #[inline]
    pub(in crate::engine) fn is_compatible_with_all(self, held: Modes) -> bool {
        held.is_within(MODES[self.kind() as usize].compatible)
    }

    /// Whether others can hold the key at once, in whatever way.
    pub(in crate::engine) fn admits_others(self) -> bool {
        !SINGLE_OWNER.has(self.kind())
    }

    /// Whether two different owners can hold a key in these ways at once, as far as the ways alone
    /// say it (a semaphore's permits must also suffice). Symmetric.
    pub fn is_compatible_with(self, other: Mode) -> bool {
        let is_same_semaphore = match (self, other) {
            (Mode::Permits { total, .. }, Mode::Permits { total: others, .. }) => total == others,
            _ => true,
        };
        is_same_semaphore && self.kind().is_compatible_with(other.kind())
    }

    /// Whether an owner that holds a lock in this way, and may take it again, can take it in that one, too.
    pub fn reenters_as(self, asked: Mode) -> bool {
        let row = &MODES[self.kind() as usize];
        row.reenters_as.has(asked.kind()) && (self == asked || self.kind() != asked.kind())
    }

    /// What stands at a key that is held in this way.
    #[inline]
    pub(in crate::engine) fn key_state(self) -> KeyState {
        Modes::of(&[self.kind()]).key_state()
    }

    /// The same as [`Modes::matches_state`].
    pub(in crate::engine) fn matches_state(self, state: KeyState) -> bool {
        Modes::of(&[self.kind()]).matches_state(state)
    }

    /// The permits that it takes.
    #[inline]
    pub fn permits(self) -> u32 {
        match self {
            Mode::Permits { count, .. } => count,
            _ => 0,
        }
    }
}
