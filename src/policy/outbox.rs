//! Queued pushes: which must wait, for whom and in what order, which are cancelled, and how many are kept.
//!
//! The server accounts for what was written, and closes clients over `client-output-buffer-limit`. Queued pushes it does not
//! see, so they have a limit of their own: pushes beyond it are dropped, and the client is closed.
//!
//! Does not call the server: all facts come as arguments.

use crate::engine::{ClientId, Key, KeyBuf, News, Push, Token};
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;

/// From this number of recipients on, batching is worth it: frames written to a client together cost half as much as one by
/// one.
const BATCH_RECIPIENTS: usize = 64;

/// Pushes queued for batching only.
const QUEUED_PUSHES_MAX: usize = 64;

/// Memory of the pushes that are queued for one client, at most.
pub const BYTES_MAX: usize = 64 << 20;

/// Memory of a queued push besides its name and label, at most: if it is a run of its own.
const PUSH_BYTES: usize = 256;

/// Queued pushes, in order. Once one is queued, all later ones are.
#[derive(Default)]
pub struct Outbox {
    waiting: VecDeque<Run>,
    count: usize,
    /// All clients that pushes are queued for, and perhaps others. None until it is needed.
    recipients: Option<HashSet<ClientId>>,
    /// Sequence number of the next queued push.
    next: u64,
    /// Their bytes, each push counted once. No client's share exceeds it.
    bytes: usize,
    /// Bytes per client, once the total makes counting necessary.
    shares: HashMap<ClientId, usize>,
    /// Clients whose pushes were partly dropped, to be closed.
    over_limit: HashSet<ClientId>,
    /// Pushes dropped over the limit, counted for each client.
    dropped: u64,
    cancelled: Cancelled,
    /// Some queued pushes are grants from inside a transaction, or about watches of prefixes.
    grants_in_exec: bool,
    sights_in_exec: bool,
    /// Clients whose transactions ran commands of the module since pushes were queued.
    in_exec: HashSet<ClientId>,
    /// A flush was seen whose reply may be outstanding.
    flushing: bool,
    /// Pushes withheld per client until the reply to its own flush.
    withheld: HashMap<ClientId, Kept>,
}

/// Pushes to the same clients.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub to: Vec<ClientId>,
    pub pushes: Vec<Push>,
    first: u64,
}

/// The circumstances of a push.
#[derive(Clone, Copy)]
pub struct Circumstances {
    /// The client whose command is executing and has not replied.
    pub executing_client: Option<ClientId>,
    pub in_exec: bool,
    /// The push must wait for the end of the current command or the beginning of the next.
    pub must_wait: bool,
}

/// What to do with a push.
#[derive(Debug, PartialEq, Eq)]
pub enum Post {
    /// Write it before this client's reply.
    InFront(ClientId, Push),
    Now(Vec<ClientId>, Push),
    /// It is queued: schedule its sending.
    Queued(Until),
    /// It is queued, and the batch is full: send all.
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After the current command, before its client's next one.
    Soon,
    /// With the next tick.
    Later,
}

/// What pushes are checked against that were queued in a transaction.
pub trait Facts {
    /// Whether a client watches a prefix that this is about.
    fn wants(&self, client: ClientId, push: &Push) -> bool;
    /// Whether a client has a key as it was granted with this token. O(1).
    fn holds(&self, client: ClientId, push: &Push, token: Token) -> bool;
    /// The tokens with which all that a client holds was granted: its keys may have other names now. O(its holds).
    fn granted(&self, client: ClientId) -> HashSet<Token>;
}

/// A client's withheld pushes.
#[derive(Default)]
struct Kept {
    pushes: Vec<Push>,
    bytes: usize,
}

impl Outbox {
    /// Whether no push is queued. O(1).
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.withheld.is_empty()
    }

    /// How many pushes are queued, whoever their recipients are. O(clients with withheld pushes).
    pub fn len(&self) -> usize {
        let withheld = self.withheld.values().map(|kept| kept.pushes.len());
        self.count + withheld.sum::<usize>()
    }

    /// How many pushes were dropped since the start, counted for each client. O(1).
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Decides how a push is sent.
    pub fn post(&mut self, to: Vec<ClientId>, push: Push, now: Circumstances) -> Post {
        if let (false, &[client]) = (now.in_exec, &*to)
            && now.executing_client == Some(client)
            && !is_watch(&push)
            && !is_sight(&push)
        {
            return Post::InFront(client, push);
        }
        let must_wait = now.must_wait || now.in_exec;
        let is_worth_batching = to.len() >= BATCH_RECIPIENTS;
        let is_empty = self.waiting.is_empty() && self.over_limit.is_empty();
        if !must_wait && !is_worth_batching && is_empty {
            return Post::Now(to, push);
        }
        self.grants_in_exec |= now.in_exec && is_grant(&push);
        self.sights_in_exec |= now.in_exec && is_sight(&push);
        self.enqueue(to, push);
        let is_full = self.count >= QUEUED_PUSHES_MAX;
        if is_full && !must_wait {
            return Post::Flush;
        }
        // Sent before the client's next command, unlike by the timer.
        let soon = now.must_wait && !now.in_exec && (is_full || !is_worth_batching);
        Post::Queued(if soon { Until::Soon } else { Until::Later })
    }

    /// A command of the module begins in this client's transaction: it may release what the same transaction was granted.
    pub fn note_command_in_exec(&mut self, client: ClientId) {
        self.in_exec.insert(client);
    }

    /// Queues a push, except for clients that it takes over the limit.
    pub fn enqueue(&mut self, mut to: Vec<ClientId>, push: Push) {
        let bytes = cost(&push);
        self.bytes += bytes;
        if self.bytes > BYTES_MAX || !self.over_limit.is_empty() {
            self.count_shares(&mut to, bytes);
        }
        if !to.is_empty() {
            self.append(to, push);
        }
    }

    fn append(&mut self, to: Vec<ClientId>, push: Push) {
        self.count += 1;
        self.next += 1;
        if let Some(recipients) = &mut self.recipients {
            recipients.extend(&to);
        }
        match self.waiting.back_mut() {
            // Repeated toggles go to the same watchers, and very many leases may have one owner.
            Some(last) if last.to == to => last.pushes.push(push),
            _ => self.waiting.push_back(Run {
                to,
                pushes: vec![push],
                first: self.next - 1,
            }),
        }
    }

    /// Charges the recipients of a push, and removes those over the limit.
    #[cold]
    fn count_shares(&mut self, to: &mut Vec<ClientId>, bytes: usize) {
        let (shares, over_limit) = (&mut self.shares, &mut self.over_limit);
        if shares.is_empty() {
            for run in &self.waiting {
                let bytes: usize = run.pushes.iter().map(cost).sum();
                for client in &run.to {
                    *shares.entry(*client).or_default() += bytes;
                }
            }
        }
        let all = to.len();
        to.retain(|client| {
            let share = shares.entry(*client).or_default();
            *share += bytes;
            if *share > BYTES_MAX {
                over_limit.insert(*client);
            }
            !over_limit.contains(client)
        });
        self.dropped += (all - to.len()) as u64;
    }

    pub fn is_any_over_limit(&self) -> bool {
        !self.over_limit.is_empty()
    }

    /// Takes the clients to close. Until then further pushes to them are dropped.
    pub fn take_over_limit(&mut self) -> HashSet<ClientId> {
        std::mem::take(&mut self.over_limit)
    }

    /// Takes all queued pushes.
    pub fn take(&mut self, facts: &impl Facts) -> VecDeque<Run> {
        self.drop_stale(facts);
        self.count = 0;
        self.bytes = 0;
        self.shares.clear();
        self.recipients = None;
        std::mem::take(&mut self.waiting)
    }

    /// Takes one client's queued pushes, in order.
    pub fn take_fresh_for(&mut self, client: ClientId, facts: &impl Facts) -> Vec<Push> {
        self.drop_stale(facts);
        self.take_for(client)
    }

    /// The same for a client that executes no command, whose pushes cannot be stale. A transaction may answer very many clients, most
    /// of whom have none. O(queued runs) for a client that has some, and for the first one; O(1) for others.
    pub fn take_for(&mut self, client: ClientId) -> Vec<Push> {
        let mut own = Vec::new();
        let waiting = &self.waiting;
        let all = || waiting.iter().flat_map(|run| run.to.iter().copied());
        let recipients = self.recipients.get_or_insert_with(|| all().collect());
        if !recipients.remove(&client) {
            return own;
        }
        for run in &mut self.waiting {
            let all = run.to.len();
            run.to.retain(|id| *id != client);
            if run.to.len() < all {
                own.extend_from_slice(&run.pushes);
            }
        }
        own
    }

    /// Cancels the queued pushes of a client's watches on these keys, or on all. O(keys).
    pub fn cancel(&mut self, client: ClientId, keys: Option<&[Key<'_>]>) {
        if !self.waiting.is_empty() {
            self.cancelled.add(self.next, client, keys);
        }
    }

    fn drop_stale(&mut self, facts: &impl Facts) {
        let cancelled = std::mem::take(&mut self.cancelled);
        if !cancelled.is_empty() {
            self.retain(|number, id, push| !cancelled.has(number, id, push));
        }
        let in_exec = std::mem::take(&mut self.in_exec);
        if std::mem::take(&mut self.grants_in_exec) {
            self.drop_released_grants(&in_exec, facts);
        }
        if std::mem::take(&mut self.sights_in_exec) {
            // The same transaction may have ended the watch of a prefix.
            self.retain(|_, id, push| !is_sight(push) || facts.wants(id, push));
        }
    }

    /// Keeps of each queued push those of its recipients for whom this is so, by its number.
    fn retain(&mut self, is_sent: impl Fn(u64, ClientId, &Push) -> bool) {
        self.count = 0;
        for run in std::mem::take(&mut self.waiting) {
            for (number, push) in (run.first..).zip(run.pushes) {
                let mut to = run.to.clone();
                to.retain(|id| is_sent(number, *id, &push));
                if !to.is_empty() {
                    self.append(to, push);
                }
            }
        }
    }

    /// Drops queued grants that the same transaction has released: its replies say so, and no push says that they were
    /// lost. Grants to other clients are sent: they have not seen those replies, and may no longer hold the key only
    /// because their session has moved. O(queued pushes, and the holds of each client that lacks what it was granted).
    fn drop_released_grants(&mut self, in_exec: &HashSet<ClientId>, facts: &impl Facts) {
        let is_anothers = |client| !in_exec.is_empty() && !in_exec.contains(&client);
        let hold =
            |client: ClientId, push: &Push| (client, push.key.clone(), push.label().to_vec());
        let mut granted = HashMap::new();
        let mut holds = |client, push: &Push, token| {
            facts.holds(client, push, token) || {
                let granted = granted.entry(client);
                let granted = granted.or_insert_with(|| facts.granted(client));
                granted.contains(&token)
            }
        };
        let mut lost = HashSet::new();
        let mut is_sent = |client, push: &Push| match push.news() {
            News::Lost(..) => {
                lost.insert(hold(client, push));
                true
            }
            News::Granted(_, token) => {
                let is_lost = lost.remove(&hold(client, push));
                is_lost || is_anothers(client) || holds(client, push, *token)
            }
            _ => true,
        };
        // Backwards: a loss follows its grant.
        for run in self.waiting.iter_mut().rev() {
            if let &[client] = &*run.to {
                let all = run.pushes.drain(..).rev();
                let mut sent: Vec<_> = all.filter(|push| is_sent(client, push)).collect();
                sent.reverse();
                run.pushes = sent;
            }
        }
    }

    // ---- withheld pushes ----

    /// A flush is in progress, and the server may reply to it later.
    pub fn expect_late_flush_reply(&mut self) {
        self.flushing = true;
    }

    /// Whether the reply to a flush may be outstanding.
    pub fn is_flushing(&self) -> bool {
        self.flushing
    }

    /// All flushes without withheld pushes have their reply.
    pub fn flush_replied(&mut self) {
        self.flushing = !self.withheld.is_empty();
    }

    /// Whether pushes may have to be withheld.
    pub fn may_withhold(&self) -> bool {
        self.flushing || !self.withheld.is_empty()
    }

    pub fn is_withheld(&self, client: ClientId) -> bool {
        self.withheld.contains_key(&client)
    }

    /// Withholds pushes to a client, and all that follow, up to the limit.
    pub fn withhold(&mut self, client: ClientId, pushes: &[Push]) {
        let kept = self.withheld.entry(client).or_default();
        for (place, push) in pushes.iter().enumerate() {
            kept.bytes += cost(push);
            if kept.bytes > BYTES_MAX {
                self.over_limit.insert(client);
                self.dropped += (pushes.len() - place) as u64;
                return;
            }
            kept.pushes.push(push.clone());
        }
    }

    /// All clients with withheld pushes.
    pub fn all_withheld(&self) -> Vec<ClientId> {
        self.withheld.keys().copied().collect()
    }

    /// Takes a client's withheld pushes, which may be sent now.
    pub fn take_withheld(&mut self, client: ClientId) -> Vec<Push> {
        let kept = self.withheld.remove(&client);
        kept.map(|kept| kept.pushes).unwrap_or_default()
    }
}

/// Cancelled watch pushes: per client, all pushes before this sequence number, and per key.
#[derive(Default)]
struct Cancelled(HashMap<ClientId, (u64, HashMap<KeyBuf, u64>)>);

impl Cancelled {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, before: u64, client: ClientId, keys: Option<&[Key<'_>]>) {
        let (all, some) = self.0.entry(client).or_default();
        match keys {
            None => *all = before,
            Some(keys) => some.extend(keys.iter().map(|key| (Key::to_owned(*key), before))),
        }
    }

    fn has(&self, number: u64, client: ClientId, push: &Push) -> bool {
        let cancelled = self.0.get(&client).filter(|_| is_watch(push));
        cancelled.is_some_and(|(all, some)| {
            number < *all || some.get(&push.key).is_some_and(|before| number < *before)
        })
    }
}

/// A push's memory, at most. Not less than on the wire.
fn cost(push: &Push) -> usize {
    let value = match push.news() {
        News::Presence(news) => news.1.as_ref().map_or(0, |value| value.len()),
        _ => 0,
    };
    PUSH_BYTES + push.key.name.len() + push.label().len() + value
}

/// Whether it is about watches of prefixes.
fn is_sight(push: &Push) -> bool {
    matches!(push.news(), News::Presence(_))
}

fn is_watch(push: &Push) -> bool {
    matches!(push.news(), News::Added | News::Deleted)
}

fn is_grant(push: &Push) -> bool {
    matches!(push.news(), News::Granted(..))
}

#[cfg(test)]
mod tests;
