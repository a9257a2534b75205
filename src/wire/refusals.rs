//! The texts of refusals.

use crate::command::shown;
use crate::engine::{Refusal, Waits};
use crate::wire::host::Host;

/// A refusal as a push contains it: the error code, or the whole error if a client needs what follows the code.
pub fn code(host: &impl Host, refusal: &Refusal) -> String {
    let whole = match refusal {
        // Its text names the executing client's user.
        Refusal::NoRight(_) => return "NOPERM".to_owned(),
        Refusal::Elsewhere { key } => host.redirection(key.as_key()),
        refusal => text(host, refusal),
    };
    match whole.split_once(' ') {
        Some((code, _)) if !matches!(code, "MOVED" | "ASK" | "NOACKS") => code.to_owned(),
        _ => whole,
    }
}

const SEQUENCE_TAKEN: &str =
    "ERR the names that this sequence would make next are taken; ask again";

/// The whole error of a reply.
pub fn text(host: &impl Host, refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooManyWatchBytes { limit, of_client } => watch_bytes(*limit, *of_client),
        Refusal::TooManyWatches { limit } => format!(
            "ERR too many watches for one connection (tether.max-watches-per-client is {limit})"
        ),
        Refusal::TooManyKeys { limit } => format!(
            "ERR too many keys held or waited for by one connection (tether.max-keys-per-client is {limit})"
        ),
        Refusal::SequenceTaken => SEQUENCE_TAKEN.to_owned(),
        Refusal::TooManySessions { limit, of_user } => too_many_sessions(*limit, *of_user),
        Refusal::TooManyExtras { limit } => too_many_extras(*limit),
        Refusal::WrongType => {
            "WRONGTYPE Operation against a key holding the wrong kind of value".to_owned()
        }
        Refusal::Elsewhere { key } => {
            format!("TRYAGAIN '{}' is another server's", shown(&key.name))
        }
        Refusal::NoRight(right) => host.no_right(*right),
        Refusal::CannotBlock => "ERR this server blocks no client that is subscribed; \
             give PUSH beside WAIT, or ask on a connection without subscriptions"
            .to_owned(),
        // In the server's wording, since either may reply first.
        Refusal::Unblocked => "UNBLOCKED force unblock from blocking operation, \
             instance state changed (master -> replica?)"
            .to_owned(),
        Refusal::NotHeld => "NOTHELD this owner does not hold the lock".to_owned(),
        Refusal::HeldOtherwise => {
            "ERR this owner holds the lock in another way; release it first".to_owned()
        }
        Refusal::TooDeep { limit } => {
            format!("ERR this owner has acquired the lock {limit} times; release it first")
        }
        Refusal::OtherTotal { total } => {
            format!("ERR the semaphore has another total: it is {total}")
        }
        Refusal::HeldAlready { key } => format!(
            "ERR this owner holds '{}' already; release it first",
            shown(&key.name)
        ),
        Refusal::HeldApart => {
            "ERR this owner holds these locks with different tokens; acquire each of them again".to_owned()
        }
        Refusal::Quarantine { left_ms } => format!(
            "QUARANTINE {left_ms} ms are left in which this server grants nothing"
        ),
        Refusal::NoAcks { got, wanted } => format!("NOACKS {got} of {wanted}"),
        Refusal::AcksWithoutSession => {
            "NOSESSION option ACKS needs a session: a promoted replica keeps nothing else (SESSION.START)".to_owned()
        }
        Refusal::TokenAhead { most } => format!(
            "ERR the token is more than a second ahead of this server's clock and of what it has given: it goes up to {}",
            most.0
        ),
        Refusal::NoSession => "NOSESSION there is no such session; it may have ended".to_owned(),
        Refusal::HasSession => "ERR this connection has a session already".to_owned(),
        Refusal::HoldsAlready => {
            "ERR this connection holds keys already, which would belong to no session".to_owned()
        }
        Refusal::WaitsAlready => {
            "ERR this connection waits for keys; resume on one that does not".to_owned()
        }
        Refusal::Reentry => "DEADLOCK this owner has the lock itself; \
             to take it more than once, use REENTRANT each time"
            .to_owned(),
        Refusal::WaitsForIt => "DEADLOCK this owner waits for the key already".to_owned(),
        Refusal::Standstill(waits) => would_block_itself(waits),
        Refusal::Deadlock { cycle } => deadlock(host, cycle),
        about_prefixes => prefix_error(about_prefixes),
    }
}

fn too_many_extras(limit: usize) -> String {
    format!(
        "ERR too many keys are held or waited for with a label, a task, a lease, permits or a \
             depth (a server remembers {limit})"
    )
}

fn prefix_error(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NotWatched => {
            "ERR this connection does not watch the prefix; begin without AFTER".to_owned()
        }
        Refusal::TooManyPrefixes { limit } => {
            format!("ERR this connection watches too many prefixes (at most {limit})")
        }
        Refusal::TooManyPrefixLengths { limit } => format!(
            "ERR too many lengths of prefixes are watched in this database (at most {limit})"
        ),
        _ => "TRYAGAIN the index of this database's temporary keys is being built".to_owned(),
    }
}

fn would_block_itself(waits: &Waits) -> String {
    format!(
        "DEADLOCK {} would block behind its own connection, which has '{}' or waits for it \
         with another label; wait with PUSH",
        describe_owner(waits, true),
        shown(&waits.key.name)
    )
}

fn watch_bytes(limit: u32, of_client: bool) -> String {
    let (whose, setting) = match of_client {
        true => ("one connection", "max-watch-bytes-per-client"),
        false => ("all connections", "max-watch-bytes"),
    };
    format!("ERR the names watched by {whose} are too long together (tether.{setting} is {limit})")
}

fn too_many_sessions(limit: u32, of_user: bool) -> String {
    match of_user {
        true => {
            format!("ERR too many sessions of one user (tether.max-sessions-per-user is {limit})")
        }
        false => format!("ERR too many sessions (tether.max-sessions is {limit})"),
    }
}

/// A client and, if the caller may see it, its task or label. One task may wait under another label than that by which it holds.
fn describe_owner(waits: &Waits, has_right: bool) -> String {
    let id = waits.client.0;
    let (what, name) = match &waits.task {
        Some(task) => ("task", task),
        None => ("owner", &waits.label),
    };
    match &**name {
        [] => format!("client {id}"),
        name if has_right => format!("client {id} ({what} '{}')", shown(name)),
        _ => format!("client {id} (an owner that you may not see)"),
    }
}

/// Names only keys that the caller may read, and the labels and tasks of their owners, as LOCK.INFO does.
fn deadlock(host: &impl Host, cycle: &[Waits]) -> String {
    /// More links help no reader.
    const LINKS_SHOWN_MAX: usize = 64;
    let mut links: Vec<_> = cycle
        .iter()
        .zip(cycle.iter().cycle().skip(1))
        .take(LINKS_SHOWN_MAX)
        .map(|(waits, next)| {
            let commands: [&[u8]; 3] = [b"lock.info", b"lock.acquire", b"settp"];
            let has_right = host.may_see(waits.key.as_key(), &commands);
            let owner = describe_owner(next, has_right);
            match has_right {
                true => format!("waits for '{}' of {owner}", shown(&waits.key.name)),
                false => format!("waits for a key that you may not read of {owner}"),
            }
        })
        .collect();
    if cycle.len() > LINKS_SHOWN_MAX {
        let more = cycle.len() - LINKS_SHOWN_MAX;
        links.push(format!("is the first of {more} more"));
    }
    let first = cycle.first().map(|waits| describe_owner(waits, true));
    format!(
        "DEADLOCK {} {}",
        first.unwrap_or_default(),
        links.join(", which ")
    )
}
