//! The exit codes of `tether` itself. A command's own code is passed on as it is, 128 + n where signal n ended it, 127 where
//! there is no such command, 126 where it cannot be executed. Those with a name in sysexits.h mean what that says.

/// EX_USAGE: the arguments make no sense, or the times do not fit together.
pub const USAGE: u8 = 64;
/// EX_UNAVAILABLE: no server answered.
pub const UNREACHABLE: u8 = 69;
/// EX_TEMPFAIL: the lock is taken, and the time to wait for it is over. Try again later.
pub const TAKEN: u8 = 75;
/// EX_CONFIG: the server refuses: no such module, no such right, a key of another type, a setting that does not fit.
pub const REFUSED: u8 = 78;
/// The lock was lost while the command ran, and the command was ended. sysexits.h ends at 78, and shells begin at 126.
pub const LOST: u8 = 79;
/// Something failed here, before the command was started or in guarding it, as `timeout` and `env` say it.
pub const FAILED: u8 = 125;
