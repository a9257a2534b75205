//! What looks at a server, and `tether kick`.
//!
//! - server.rs: the connection, and why there is none    reply.rs: what replies hold    text.rs: names, times and tables for people
//! - names.rs: the names of connections
//! - list.rs: `tether ls`    who.rs: `tether who`    watch.rs: `tether watch`    kick.rs: `tether kick`
//! - why.rs: `tether why`    log.rs: `tether log`    sessions.rs: `tether sessions`
//! - presence.rs: `tether presence`
//! - doctor/: `tether doctor`    metrics/: `tether metrics`    top/: `tether top`

mod doctor;
mod kick;
mod list;
mod log;
mod metrics;
mod names;
mod presence;
mod pushed;
mod reply;
mod server;
mod sessions;
mod text;
mod top;
mod watch;
mod who;
mod why;

pub use doctor::doctor;
pub use kick::kick;
pub use list::list;
pub use log::log;
pub use metrics::metrics;
pub use presence::presence;
pub use server::field;
pub use sessions::sessions;
pub use top::top;
pub use watch::watch;
pub use who::{held_by, who};
pub use why::why;

use crate::output::Page;
use crate::{codes, output};
use serde_json::Value;
use server::{Failure, Server};
use std::io;

/// Nothing was found, or something is wrong: as `grep` and `diff` say it.
const NOTHING: u8 = 1;

/// The exit code for how it ended.
pub fn code(ended: Result<u8, Failure>) -> u8 {
    let (code, why) = match ended {
        Ok(code) => return code,
        // Whoever read the output has enough (`tether ls | head`).
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return 0,
        Err(Failure::Output(error)) => (codes::FAILED, error.to_string()),
        Err(Failure::Failed(why)) => (codes::FAILED, why),
        Err(Failure::Unreachable(why)) => (codes::UNREACHABLE, why),
        Err(Failure::Refused(why) | Failure::NoModule(why)) => (codes::REFUSED, why),
    };
    output::complain(why);
    code
}

/// What a replica cannot tell.
const REPLICA: &str = "it knows what sessions hold, and nothing of connections";

/// The exit code where something was found, or nothing; on a replica with this note, since what it does not know of can be
/// there all the same.
fn found(server: &mut Server, is_any: bool, note: &str) -> Result<u8, Failure> {
    match (is_any, server.is_replica()?) {
        (false, true) => return Err(Failure::Refused(server.as_replica(note))),
        (true, true) => output::complain(server.as_replica(note)),
        (_, false) => {}
    }
    Ok(if is_any { 0 } else { NOTHING })
}

fn print_page(page: &Page) -> Result<(), Failure> {
    Ok(page.print()?)
}

fn print(text: &str) -> Result<(), Failure> {
    Ok(output::lines(text)?)
}

/// A line with one JSON object.
fn print_json(value: &Value) -> Result<(), Failure> {
    Ok(output::json(value)?)
}
