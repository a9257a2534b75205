//! Lock modes and their compatibility, in one table.
//!
//! When you add a mode: a variant of [`Mode`] and of [`ModeKind`], and a row in [`MODES`], which is checked at compile time. Its
//! option is in `command/options.rs`.

use crate::engine::types::KeyState;

/// The mode in which a key is requested and held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A temporary key: exclusive, and an ordinary string.
    Temporary,
    Exclusive,
    Shared,
    /// `count` permits of a semaphore of `total`. `count` is from 1 to `total`.
    Permits {
        count: u32,
        total: u32,
    },
}

/// A mode without its numbers: the index in `MODES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeKind {
    Temporary,
    Exclusive,
    Shared,
    Permits,
}

struct Row {
    kind: ModeKind,
    /// In records.
    name: &'static str,
    /// In replies to operators.
    display_name: &'static str,
    /// The option that requests it.
    option: Option<&'static str>,
    /// The modes in which other owners can hold the key at the same time. (A semaphore must also have enough permits.)
    compatible: Modes,
    /// The modes in which a reentrant hold can be re-entered. Never from shared to exclusive: two readers that do so would deadlock.
    reenters_as: Modes,
    /// The state of the key while it is held.
    state: KeyState,
}

const MODES: [Row; 4] = [
    Row {
        kind: ModeKind::Temporary,
        name: "temporary",
        display_name: "temporary-key",
        option: None,
        compatible: Modes::NONE,
        reenters_as: Modes::NONE,
        state: KeyState::Other,
    },
    Row {
        kind: ModeKind::Exclusive,
        name: "exclusive",
        display_name: "exclusive",
        option: None,
        compatible: Modes::NONE,
        reenters_as: Modes::of(&[ModeKind::Exclusive, ModeKind::Shared]),
        state: KeyState::Lock,
    },
    Row {
        kind: ModeKind::Shared,
        name: "shared",
        display_name: "shared",
        option: Some("SHARED"),
        compatible: Modes::of(&[ModeKind::Shared]),
        reenters_as: Modes::of(&[ModeKind::Shared]),
        state: KeyState::Lock,
    },
    Row {
        kind: ModeKind::Permits,
        name: "permits",
        display_name: "permits",
        option: Some("PERMITS"),
        compatible: Modes::of(&[ModeKind::Permits]),
        reenters_as: Modes::of(&[ModeKind::Permits]),
        state: KeyState::Lock,
    },
];

/// What the engine relies on.
const _: () = {
    let mut place = 0;
    while place < MODES.len() {
        let row = &MODES[place];
        assert!(row.kind as usize == place, "rows are in order");
        let shared = &MODES[ModeKind::Shared as usize];
        let others = row.reenters_as.without(row.kind);
        assert!(
            others.is_within(Modes::of(&[ModeKind::Shared])),
            "only shared is re-entered in another mode: see `Extra::shared_below`"
        );
        assert!(
            others.is_empty() || row.compatible.is_within(shared.compatible),
            "a hold lowered to shared stays compatible with the other holds"
        );
        let mut other = 0;
        while other < MODES.len() {
            let (kind, other_row) = (MODES[other].kind, &MODES[other]);
            let compatible = row.compatible.has(kind);
            assert!(
                compatible == other_row.compatible.has(row.kind),
                "compatibility is symmetric"
            );
            assert!(
                !compatible || LOCKS.has(kind) == LOCKS.has(row.kind),
                "all holds of a key imply the same key state"
            );
            let both_multiple = row.compatible.has(row.kind) && other_row.compatible.has(kind);
            assert!(
                other == place || !(compatible && both_multiple),
                "of a key's modes, only one has several holds: see `Holds::unlink_from_key`"
            );
            other += 1;
        }
        place += 1;
    }
    place = 0;
    while place < Mode::IN_HEADER.len() {
        assert!(Mode::IN_HEADER[place].kind() as usize == place);
        place += 1;
    }
};

/// The modes of locks.
const LOCKS: Modes = LOCKS_AND_SINGLE_OWNER.0;

/// The modes that are compatible with none, not even with themselves.
const SINGLE_OWNER: Modes = LOCKS_AND_SINGLE_OWNER.1;

const LOCKS_AND_SINGLE_OWNER: (Modes, Modes) = {
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

/// A set of modes, e.g. of all holds of a key.
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

    /// Whether a key held in these modes admits no other owner.
    pub const fn is_single_owner(self) -> bool {
        self.0 & SINGLE_OWNER.0 != 0
    }

    /// Whether a key held in these modes is a lock.
    pub const fn is_lock(self) -> bool {
        self.0 & LOCKS.0 != 0
    }

    /// The state of a key held in these modes.
    pub fn key_state(self) -> KeyState {
        match self.is_lock() {
            true => KeyState::Lock,
            false => KeyState::Other,
        }
    }

    /// Whether a key in this state can be held in these modes. A temporary key may have been overwritten with a value of any type;
    /// an overwritten lock is lost.
    pub fn matches_state(self, state: KeyState) -> bool {
        match self.is_lock() {
            true => state == KeyState::Lock,
            false => state.is_present(),
        }
    }

    /// The mode that is compatible with the fewest others.
    pub fn most_restrictive(self) -> Option<ModeKind> {
        let rows = MODES.iter().filter(|row| self.has(row.kind));
        let row = rows.min_by_key(|row| row.compatible.0.count_ones());
        row.map(|row| row.kind)
    }
}

impl ModeKind {
    pub const COUNT: usize = MODES.len();

    /// Whether two owners can hold a key in these modes at the same time. Symmetric.
    pub(in crate::engine) fn is_compatible_with(self, other: ModeKind) -> bool {
        MODES[self as usize].compatible.has(other)
    }

    /// Its name in records.
    pub fn name(self) -> &'static str {
        MODES[self as usize].name
    }

    /// Its name in replies to operators.
    pub fn display_name(self) -> &'static str {
        MODES[self as usize].display_name
    }

    /// The option that requests it.
    pub const fn option(self) -> &'static str {
        match MODES[self as usize].option {
            Some(option) => option,
            None => panic!("a mode without an option"),
        }
    }

    pub fn from_name(name: &[u8]) -> Option<Self> {
        let mut rows = MODES.iter();
        let row = rows.find(|row| row.name.as_bytes() == name);
        row.map(|row| row.kind)
    }
}

impl Mode {
    /// The modes that a hold's header encodes itself: the most frequent ones, which have no numbers.
    pub(in crate::engine) const IN_HEADER: [Mode; 3] =
        [Mode::Temporary, Mode::Exclusive, Mode::Shared];

    #[inline]
    pub(in crate::engine) const fn fits_header(self) -> bool {
        (self.kind() as usize) < Mode::IN_HEADER.len()
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

    /// None if this kind needs permits and they are missing, or has none and they are given.
    pub fn of(kind: ModeKind, permits: Option<(u32, u32)>) -> Option<Mode> {
        match (kind, permits) {
            (ModeKind::Temporary, None) => Some(Mode::Temporary),
            (ModeKind::Exclusive, None) => Some(Mode::Exclusive),
            (ModeKind::Shared, None) => Some(Mode::Shared),
            (ModeKind::Permits, Some((count, total))) => Some(Mode::Permits { count, total }),
            _ => None,
        }
    }

    /// Whether a key held in this mode is a lock, not a string.
    #[inline]
    pub fn is_lock(self) -> bool {
        LOCKS.has(self.kind())
    }

    /// Whether it is compatible with these modes of other owners. (A semaphore's total must also be the same, and its permits
    /// suffice.)
    #[inline]
    pub(in crate::engine) fn is_compatible_with_all(self, held: Modes) -> bool {
        held.is_within(MODES[self.kind() as usize].compatible)
    }

    /// Whether other owners can hold the key at the same time, in any mode.
    pub(in crate::engine) fn admits_others(self) -> bool {
        !SINGLE_OWNER.has(self.kind())
    }

    /// Whether two owners can hold a key in these modes at the same time. (A semaphore's permits must also suffice.) Symmetric.
    pub fn is_compatible_with(self, other: Mode) -> bool {
        let is_same_semaphore = match (self, other) {
            (Mode::Permits { total, .. }, Mode::Permits { total: others, .. }) => total == others,
            _ => true,
        };
        is_same_semaphore && self.kind().is_compatible_with(other.kind())
    }

    /// Whether a reentrant hold in this mode can be re-entered in that one.
    pub fn reenters_as(self, asked: Mode) -> bool {
        let row = &MODES[self.kind() as usize];
        row.reenters_as.has(asked.kind()) && (self == asked || self.kind() != asked.kind())
    }

    /// The state of a key held in this mode.
    #[inline]
    pub(in crate::engine) fn key_state(self) -> KeyState {
        Modes::of(&[self.kind()]).key_state()
    }

    /// See [`Modes::matches_state`].
    pub(in crate::engine) fn matches_state(self, state: KeyState) -> bool {
        Modes::of(&[self.kind()]).matches_state(state)
    }

    /// The number of permits it takes.
    #[inline]
    pub fn permits(self) -> u32 {
        match self {
            Mode::Permits { count, .. } => count,
            _ => 0,
        }
    }
}
