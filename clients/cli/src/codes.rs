//! The exit codes of `tether` itself. A command's own code is passed on as it is; where a signal ended the command, this process
//! ends by the same signal. 127 says that there is no such command, 126 that it cannot be executed. Those with a name in sysexits.h mean what that says.

/// EX_USAGE: invalid arguments, or the times do not fit together.
pub const USAGE: u8 = 64;
/// EX_UNAVAILABLE: no server answered.
pub const UNREACHABLE: u8 = 69;
/// EX_TEMPFAIL: the lock is taken, and the time to wait for it is over. Try again later.
pub const TAKEN: u8 = 75;
/// EX_CONFIG: the server refuses: no such module, no such right, a key of another type, a setting that does not fit.
pub const REFUSED: u8 = 78;
/// The lock was lost, and the command was killed or not started. sysexits.h ends at 78, and shells begin at 126.
pub const LOST: u8 = 79;
/// Something failed here, before the command was started or in guarding it, as `timeout` and `env` say it.
pub const FAILED: u8 = 125;
