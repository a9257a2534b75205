//! Who counts what a client does.

use crate::error::{Error, Loss};
use std::time::Duration;

/// Is told what happens to the requests of a client, for metrics. Each method does nothing unless it is written.
///
/// It is called by whichever thread or task brings the news, and should return at once; what it panics with is logged. Of several keys
/// it is told the first.
pub trait Observer: Send + Sync {
    /// A request was granted, after this time.
    fn granted(&self, key: &[u8], waited: Duration) {
        let _ = (key, waited);
    }

    /// A request ended without a grant, after this time.
    fn refused(&self, key: &[u8], error: &Error, waited: Duration) {
        let _ = (key, error, waited);
    }

    /// The server has taken back what was held for this time.
    fn released(&self, key: &[u8], held: Duration) {
        let _ = (key, held);
    }

    /// What was held for this time is lost.
    fn lost(&self, key: &[u8], loss: &Loss, held: Duration) {
        let _ = (key, loss, held);
    }

    /// The server refused a release with an error of this code, and it is sent again. Once for each code.
    fn not_released(&self, key: &[u8], code: &str) {
        let _ = (key, code);
    }

    /// An attempt to connect failed.
    fn unreachable(&self, error: &Error) {
        let _ = error;
    }

    /// A session went on on a new connection.
    fn resumed(&self) {}

    /// The system has no clock that goes on in suspend: after that, a lock may be given to another while this machine believes in it
    /// for as long as the fence.
    fn no_boot_clock(&self) {}
}
