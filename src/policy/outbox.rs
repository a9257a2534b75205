//! Queued pushes: which must wait, for whom and in what order, which are cancelled, and which exceed a limit.
//!
//! A client's limit is the server's `client-output-buffer-limit`, counted as the server counts: by the memory used here,
//! which exceeds the frames if keys are short. Pushes beyond it are dropped and the client is closed, even if the limit is
//! raised meanwhile.
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

/// Bytes per client that the server does not count, since each client has a static buffer; rounded up, so that a client
/// over this limit by frames alone is over the server's.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// Overhead of a run besides its pushes: its entry (the queue may have twice the capacity) and two allocations.
const RUN_BYTES: usize = 2 * size_of::<Run>() + 2 * ALLOCATION_BYTES;

/// Overhead of an allocation.
const ALLOCATION_BYTES: usize = 16;

/// The server's hard output-buffer limits, by client class; `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    normal: Option<usize>,
    subscribed: Option<usize>,
}

impl Limits {
    /// Parses the setting: class, hard limit, soft limit and soft seconds, for each class.
    pub fn read(setting: &str) -> Self {
        let words: Vec<_> = setting.split_ascii_whitespace().collect();
        let limit = |class| {
            let of_class = words.chunks(4).find(|words| words[0] == class)?;
            let hard: usize = of_class.get(1)?.parse().ok()?;
            (hard > 0).then_some(hard)
        };
        Limits {
            normal: limit("normal"),
            subscribed: limit("pubsub"),
        }
    }

    /// `None` if unlimited.
    pub fn of(self, is_subscribed: bool) -> Option<usize> {
        match is_subscribed {
            true => self.subscribed,
            false => self.normal,
        }
    }
}

/// Queued pushes, in order. Once one is queued, all later ones are.
#[derive(Default)]
pub struct Outbox {
    waiting: VecDeque<Run>,
    count: usize,
    /// Sequence number of the next queued push.
    next: u64,
    load: Load,
    cancelled: Cancelled,
    /// Some queued pushes are grants from inside a transaction.
    grants_in_exec: bool,
    /// Clients whose transactions ran commands of the module since pushes were queued.
    in_exec: HashSet<ClientId>,
    /// A flush was seen whose reply may be outstanding.
    flushing: bool,
    /// Pushes withheld per client: until the reply to its own flush, or the end of a command in which it wants no replies.
    withheld: HashMap<ClientId, Kept>,
    /// Clients that were closed, possibly in the middle of a command of their own.
    closing: Vec<ClientId>,
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
    /// The server would write a push before the reply of the current command, or into it.
    pub before_reply: bool,
    /// The push must wait for the end of the current command or the beginning of the next.
    pub deferring: bool,
}

/// What to do with a push.
#[derive(Debug, PartialEq, Eq)]
pub enum Post {
    /// Write it before this client's reply.
    InFront(ClientId, Push),
    Now(Vec<ClientId>, Push),
    /// It is queued: schedule its sending. Check [`Outbox::take_limit_unknown`].
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

/// Pushes to write, then clients to close.
#[derive(Default)]
pub struct Taken {
    pub runs: VecDeque<Run>,
    pub over_limit: Vec<ClientId>,
}

/// A client's withheld pushes.
#[derive(Default)]
struct Kept {
    pushes: Vec<Push>,
    share: Share,
}

impl Outbox {
    /// Whether no push is queued. O(1).
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.withheld.is_empty()
    }

    /// Decides how a push is sent.
    pub fn post(&mut self, to: Vec<ClientId>, push: Push, now: Circumstances) -> Post {
        if let (false, &[client]) = (now.in_exec, &*to)
            && now.executing_client == Some(client)
            && !is_watch(&push)
        {
            return Post::InFront(client, push);
        }
        // Sent before the client's next command, unlike by the timer.
        let soon = now.deferring && !now.in_exec;
        let must_wait = soon || now.before_reply || now.in_exec;
        let is_worth_batching = to.len() >= BATCH_RECIPIENTS && !self.flushing;
        if !must_wait && !is_worth_batching && self.waiting.is_empty() {
            return Post::Now(to, push);
        }
        self.grants_in_exec |= now.in_exec && is_grant(&push);
        self.enqueue(to, push);
        match must_wait {
            _ if soon => Post::Queued(Until::Soon),
            false if self.count >= QUEUED_PUSHES_MAX => Post::Flush,
            _ => Post::Queued(Until::Later),
        }
    }

    /// A command of the module begins in this client's transaction: it may release what the same transaction was granted.
    pub fn note_command_in_exec(&mut self, client: ClientId) {
        self.in_exec.insert(client);
    }

    /// Queues a push, except for clients whose limit it exceeds.
    pub fn enqueue(&mut self, mut to: Vec<ClientId>, push: Push) {
        let bytes = cost(&push);
        if self.load.all + bytes > UNCOUNTED_BYTES || self.load.counts_shares() {
            self.count_shares(&mut to, bytes);
        }
        if to.is_empty() {
            return;
        }
        self.load.all += bytes;
        if self.waiting.back().is_none_or(|last| last.to != to) {
            self.load.add_run(&to);
        }
        self.append(to, push);
    }

    fn append(&mut self, to: Vec<ClientId>, push: Push) {
        self.count += 1;
        self.next += 1;
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

    /// Charges the recipients of a push, and removes those whose limit it exceeds.
    #[cold]
    fn count_shares(&mut self, to: &mut Vec<ClientId>, bytes: usize) {
        if !self.load.counts_shares() {
            self.count_all();
        }
        let is_over = to.iter().any(|id| self.load.would_be_over(*id, bytes));
        if is_over && !self.cancelled.is_empty() {
            self.drop_cancelled();
            self.count_all();
        }
        to.retain(|id| self.load.admit(*id, bytes));
    }

    /// Recounts the queued bytes of each client.
    fn count_all(&mut self) {
        for share in self.load.shares.values_mut() {
            share.bytes = 0;
        }
        self.load.all = 0;
        for run in &self.waiting {
            let bytes = run.pushes.iter().map(cost).sum();
            self.load.all += bytes;
            for id in &run.to {
                self.load.admit(*id, bytes);
            }
            self.load.add_run(&run.to);
        }
    }

    /// Takes the clients whose limit must be looked up, each once.
    pub fn take_limit_unknown(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.load.limit_unknown)
    }

    pub fn is_any_limit_unknown(&self) -> bool {
        !self.load.limit_unknown.is_empty()
    }

    /// Sets a client's limit, in bytes; `None`: unlimited.
    pub fn limit(&mut self, client: ClientId, limit: Option<usize>) {
        let kept = self.withheld.get_mut(&client).map(|kept| &mut kept.share);
        let waiting = self.load.shares.get_mut(&client);
        for share in kept.into_iter().chain(waiting) {
            share.limit = Limit::Bytes(
                limit.map_or(usize::MAX, |limit| limit.saturating_add(UNCOUNTED_BYTES)),
            );
        }
    }

    /// Takes all queued pushes.
    pub fn take(&mut self, holds: impl Fn(ClientId, &Push, Token) -> bool) -> Taken {
        self.drop_stale(holds);
        self.count = 0;
        let over_limit = self.load.over();
        self.load = Load::default();
        Taken {
            runs: std::mem::take(&mut self.waiting),
            over_limit,
        }
    }

    /// A client was closed: must be repeated when no command is executing. During the client's own command the server only
    /// marks it to be closed after its next reply, and that command may block.
    pub fn retry_close(&mut self, client: ClientId) {
        self.closing.push(client);
    }

    /// Takes the clients to close again.
    pub fn take_closing(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.closing)
    }

    /// Takes one client's queued pushes, in order.
    pub fn take_fresh_for(
        &mut self,
        client: ClientId,
        holds: impl Fn(ClientId, &Push, Token) -> bool,
    ) -> Vec<Push> {
        self.drop_stale(holds);
        self.take_for(client)
    }

    /// The same for a client that executes no command, whose pushes cannot be stale.
    pub fn take_for(&mut self, client: ClientId) -> Vec<Push> {
        let mut own = Vec::new();
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

    fn drop_stale(&mut self, holds: impl Fn(ClientId, &Push, Token) -> bool) {
        self.drop_cancelled();
        let in_exec = std::mem::take(&mut self.in_exec);
        if std::mem::take(&mut self.grants_in_exec) {
            self.drop_released_grants(&in_exec, holds);
        }
    }

    fn drop_cancelled(&mut self) {
        if self.cancelled.is_empty() {
            return;
        }
        let cancelled = std::mem::take(&mut self.cancelled);
        self.count = 0;
        for run in std::mem::take(&mut self.waiting) {
            for (number, push) in (run.first..).zip(run.pushes) {
                let mut to = run.to.clone();
                to.retain(|id| !cancelled.has(number, *id, &push));
                if !to.is_empty() {
                    self.append(to, push);
                }
            }
        }
    }

    /// Drops queued grants that the same transaction has released: its replies say so, and no push says that they were
    /// lost. Grants to other clients are sent: they have not seen those replies, and may no longer hold the key only
    /// because their session has moved.
    fn drop_released_grants(
        &mut self,
        in_exec: &HashSet<ClientId>,
        holds: impl Fn(ClientId, &Push, Token) -> bool,
    ) {
        let is_anothers = |client| !in_exec.is_empty() && !in_exec.contains(&client);
        let hold =
            |client: ClientId, push: &Push| (client, push.key.clone(), push.label().to_vec());
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

    /// Withholds pushes to a client, and all that follow. Returns false, once, if they exceed its limit: then all are
    /// dropped, and the client must be closed.
    pub fn withhold(&mut self, client: ClientId, pushes: &[Push]) -> bool {
        let kept = self.withheld.entry(client).or_default();
        for push in pushes {
            let was_over = kept.share.is_over;
            if kept.share.admit(cost(push)) {
                kept.pushes.push(push.clone());
            } else if !was_over {
                kept.pushes = Vec::new();
                return false;
            }
        }
        if kept.share.needs_limit() {
            self.load.limit_unknown.push(client);
        }
        true
    }

    /// The server will close this client: drops its pushes, and keeps none until then.
    pub fn drop_all(&mut self, client: ClientId) {
        let kept = self.withheld.entry(client).or_default();
        kept.pushes = Vec::new();
        kept.share.is_over = true;
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

/// Queued bytes.
#[derive(Default)]
struct Load {
    /// The total, each push counted once. No share exceeds it.
    all: usize,
    /// Bytes per client, once the total makes counting necessary.
    shares: HashMap<ClientId, Share>,
    limit_unknown: Vec<ClientId>,
}

impl Load {
    /// Whether bytes are counted per client.
    fn counts_shares(&self) -> bool {
        !self.shares.is_empty()
    }

    fn would_be_over(&self, client: ClientId, bytes: usize) -> bool {
        let share = self.shares.get(&client);
        share.is_some_and(|share| !share.is_over && share.bytes + bytes > share.limit.bytes())
    }

    /// Charges a client, unless that exceeds its limit.
    fn admit(&mut self, client: ClientId, bytes: usize) -> bool {
        let share = self.shares.entry(client).or_default();
        let admitted = share.admit(bytes);
        if share.needs_limit() {
            self.limit_unknown.push(client);
        }
        admitted
    }

    /// Charge the per-run overhead to every recipient, since it may not be one of the previous run; the limit is enforced
    /// at the next push.
    fn add_run(&mut self, to: &[ClientId]) {
        self.all += RUN_BYTES;
        for id in to {
            if let Some(share) = self.shares.get_mut(id) {
                share.bytes += RUN_BYTES;
            }
        }
    }

    /// Clients whose pushes were partly dropped.
    fn over(&self) -> Vec<ClientId> {
        let over = self.shares.iter().filter(|(_, share)| share.is_over);
        let mut over: Vec<_> = over.map(|(client, _)| *client).collect();
        over.sort_unstable();
        over
    }
}

/// Queued bytes of one client.
#[derive(Clone, Copy, Default)]
struct Share {
    bytes: usize,
    limit: Limit,
    /// Further pushes were dropped.
    is_over: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Limit {
    #[default]
    Unknown,
    Requested,
    Bytes(usize),
}

impl Limit {
    fn bytes(self) -> usize {
        match self {
            Limit::Bytes(bytes) => bytes,
            Limit::Unknown | Limit::Requested => usize::MAX,
        }
    }
}

impl Share {
    fn admit(&mut self, bytes: usize) -> bool {
        self.is_over |= self.bytes + bytes > self.limit.bytes();
        if !self.is_over {
            self.bytes += bytes;
        }
        !self.is_over
    }

    /// Whether its limit must be looked up. True once.
    fn needs_limit(&mut self) -> bool {
        let needs_limit = self.limit == Limit::Unknown && self.bytes > UNCOUNTED_BYTES;
        if needs_limit {
            self.limit = Limit::Requested;
        }
        needs_limit
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

/// A push's memory: twice its size, since a growing run has spare capacity, plus its allocations. Not less than on the
/// wire.
fn cost(push: &Push) -> usize {
    let label = match push.label().len() {
        0 => 0,
        label => size_of::<(News, Box<[u8]>)>() + label + 2 * ALLOCATION_BYTES,
    };
    2 * size_of::<Push>() + push.key.name.len() + ALLOCATION_BYTES + label
}

fn is_watch(push: &Push) -> bool {
    matches!(push.news(), News::Added | News::Deleted)
}

fn is_grant(push: &Push) -> bool {
    matches!(push.news(), News::Granted(..))
}

#[cfg(test)]
mod tests;
