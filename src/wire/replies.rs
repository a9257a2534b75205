//! Replies to commands.

use crate::engine::{Bytes, Refusal, Reply, SnapshotPage, Token};
use crate::wire::host::Host;
use crate::wire::refusals;

pub fn send(host: &mut impl Host, reply: &Reply) {
    match reply {
        Reply::Integer(value) => host.integer(*value),
        Reply::Null => host.null(),
        Reply::States(states) => {
            if states.len() != 1 {
                host.array(states.len());
            }
            for present in states {
                host.bulk(if *present { b"EXIST" } else { b"NOEXIST" });
            }
        }
        Reply::Secret(secret) => host.bulk(secret),
        Reply::Made { name, token } => {
            host.array(2);
            host.bulk(name);
            host.integer(token.0 as i64);
        }
        // It is written with values: see `page`.
        Reply::Page(_) => host.null(),
        Reply::Refused(Refusal::Elsewhere { key }) => {
            host.error(&host.redirection(key.as_key()));
        }
        Reply::Refused(refusal) => host.error(&refusals::text(host, refusal)),
    }
}

/// A page of the snapshot of a prefix. `shown` has those of its keys that the caller may read, with their tokens and values;
/// `is_whole` unless there was no room for more.
pub fn page(
    host: &mut impl Host,
    page: &SnapshotPage,
    shown: &[(&Bytes, Token, Option<Bytes>)],
    is_whole: bool,
) {
    // It says no name that the user may not read, and need not: the server knows where the next page begins.
    let last = shown.last().map_or(&page.prefix.name, |(name, ..)| *name);
    host.array(2);
    host.bulk(if page.is_last && is_whole { b"" } else { last });
    host.array(shown.len());
    for (name, token, value) in shown {
        host.array(3);
        host.bulk(name);
        host.integer(token.0 as i64);
        match value {
            Some(value) => host.bulk(value),
            None => host.null(),
        }
    }
}
