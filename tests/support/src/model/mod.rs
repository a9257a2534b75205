//! What the module ought to do, as simply as it can be said: plain vectors, searched from end to end.
//!
//! Written from the contract (docs/commands.md) and not from the engine. Two test programs share
//! it: `tests/simulation` holds the engine against it, `tests/history` real servers. Both draw
//! their steps from [`generate`], so a world that fails in one can be tried in the other.
//!
//! ```text
//!   command.rs   what a client can say, ours and the server's own
//!   step.rs      what can happen in a world    allows.rs    where it can
//!   generate.rs  which of it happens next      requests.rs  which of it is about locks
//!   around.rs    which of it is neither: rights, replies, subscriptions, loads, starts
//!   meetings.rs  which of it lets keys go from hand to hand
//!   world.rs     who is connected, which keys exist, who watches what; one step at a time
//!   entry.rs     a key that exists
//!   holds.rs     who holds what                queues.rs    who waits for what, and is served
//!   acks.rs      grants that replicas are to acknowledge
//!   sessions.rs  owners that outlive their connection
//!   connections.rs  what a connection is     speaking.rs  what it wants to hear
//!   rights.rs    what a user may do          starts.rs    what nobody saw end, and new servers
//!   stuck.rs     cycles                        rules.rs     what must be true of every world
//!   changes.rs   the few things that can happen to a key, and who hears of them
//!   ours.rs, locks.rs   the module's commands  servers.rs   the server's commands
//!   replies.rs      replies and pushes; whether what came is what was to come
//!   hearing.rs   who is to hear what of a step  tokens.rs    which token belongs to which grant
//!   closing.rs   the end of a history, in which everyone who waits is served
//!   totals.rs    how often what came about
//!   presence.rs  watches of prefixes, and what who has one must believe      mine.rs   what a connection has
//!   shrink.rs    the shortest history that still fails         brief.rs   words for ledgers
//! ```
//!
//! When a command is added: its words in `command.rs`, a weight in `generate.rs` or `requests.rs`, its meaning in
//! `ours.rs` or `locks.rs`, its bytes in `tests/history/wire.rs`, its fact in `tests/simulation/machine.rs`.

pub mod brief;
pub mod command;
pub mod generate;
pub mod replies;
pub mod shrink;
pub mod step;
pub mod world;

pub mod acks;
mod allows;
pub mod around;
pub mod changes;
mod closing;
mod connections;
pub mod endings;
mod entry;
mod hearing;
pub mod holds;
mod locks;
mod meetings;
pub mod mine;
mod ours;
pub mod presence;
pub mod queues;
mod requests;
pub mod rights;
mod rules;
pub mod sequence;
mod servers;
pub mod sessions;
pub mod speaking;
pub mod starts;
mod stuck;
mod tokens;
mod totals;
