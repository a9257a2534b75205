//! What waits to be pushed: what has to wait, for whom and in what order, what has become void meanwhile, and what is dropped
//! since it is too much.
//!
//! How much may wait for a connection is what the server lets wait for it itself, its `client-output-buffer-limit`, counted as
//! the server counts: by the memory that it takes here, which is more than its frames where keys are short. What is beyond is
//! not kept, and the connection is closed, also where the limit was raised meanwhile.
//!
//! Knows no server: what it must be told of one comes with its functions.

use crate::engine::{ClientId, Key, KeyBuf, News, Push, Token};
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;

/// From so many watchers on it is worth it to wait for what else goes to the same ones: what is written
/// to a connection at once costs half of what it costs one by one.
const MANY: usize = 64;

/// So many pushes wait at most where they need not.
const MOST: usize = 64;

/// So much of what is pushed to a connection the server does not count: it goes to a buffer that each has. And some more, so
/// that whoever is over our bound by frames alone is over the server's.
const UNCOUNTED: usize = 64 << 10;

/// What a run takes by itself, besides its pushes: its place, of which there may be twice as many as there are runs, and two
/// pieces of memory.
const RUN: usize = 2 * size_of::<Run>() + 2 * PIECE;

/// What an allocator adds to a piece of memory.
const PIECE: usize = 16;

/// How much the server lets wait for a connection, by what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    normal: Option<usize>,
    subscribed: Option<usize>,
}

impl Limits {
    /// Reads the server's setting: a class, its hard limit, its soft limit and that one's seconds, for each class.
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

    /// None where there is none.
    pub fn of(self, is_subscribed: bool) -> Option<usize> {
        match is_subscribed {
            true => self.subscribed,
            false => self.normal,
        }
    }
}

/// Pushes that wait, in order. Once one waits, all later ones do.
#[derive(Default)]
pub struct Outbox {
    waiting: VecDeque<Run>,
    count: usize,
    /// The number of the next push that waits.
    next: u64,
    load: Load,
    void: Void,
    /// Some of those that wait tell of a grant that came in the middle of a transaction.
    grants_in_exec: bool,
    /// Those in whose transactions commands of ours were executed since something waits.
    in_exec: HashSet<ClientId>,
    /// A flush was seen that may not have been answered yet.
    flushing: bool,
    /// What waits by itself: for the answer to a connection's own flush, or for the end of a command in which it wants no
    /// replies.
    kept_back: HashMap<ClientId, Kept>,
    /// Those that were closed, perhaps in the middle of a command of their own.
    closing: Vec<ClientId>,
}

/// Pushes that go to the same connections.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub to: Vec<ClientId>,
    pub pushes: Vec<Push>,
    first: u64,
}

/// What counts when something is told.
#[derive(Clone, Copy)]
pub struct Circumstances {
    /// The connection whose command is being executed, and has not replied.
    pub turn: Option<ClientId>,
    pub in_exec: bool,
    /// The server would write a push in front of the reply of the current command, or into it.
    pub late: bool,
    /// What is told is to wait for the end of the current command, or for the beginning of the next one.
    pub holding: bool,
}

/// What is to be done with a push.
#[derive(Debug, PartialEq, Eq)]
pub enum Post {
    /// Write it in front of the reply of this connection, which has not replied.
    InFront(ClientId, Push),
    Now(Vec<ClientId>, Push),
    /// It waits: see to it that it does not wait for too long. There may be [`Outbox::doubtful`] ones.
    Waits(Until),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The current command is over, and the next one of its connection not begun.
    Soon,
    /// The server comes to it.
    Later,
    /// Nothing: there is so much that it is to be sent.
    Full,
}

/// What is to be written, and then who is to be closed.
#[derive(Default)]
pub struct Taken {
    pub runs: VecDeque<Run>,
    pub too_much: Vec<ClientId>,
}

/// What was kept back of a connection's.
#[derive(Default)]
struct Kept {
    pushes: Vec<Push>,
    share: Share,
}

impl Outbox {
    /// Whether anything waits. O(1).
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.kept_back.is_empty()
    }

    /// Something is told.
    pub fn post(&mut self, to: Vec<ClientId>, push: Push, now: Circumstances) -> Post {
        if let (false, &[client]) = (now.in_exec, &*to)
            && now.turn == Some(client)
            && !is_watch(&push)
        {
            return Post::InFront(client, push);
        }
        // Before the next command of the connection, unlike the timer.
        let soon = now.holding && !now.in_exec;
        let late = soon || now.late || now.in_exec;
        let is_worth_it = to.len() >= MANY && !self.flushing;
        if !late && !is_worth_it && self.waiting.is_empty() {
            return Post::Now(to, push);
        }
        self.grants_in_exec |= now.in_exec && is_grant(&push);
        self.put(to, push);
        Post::Waits(match late {
            _ if soon => Until::Soon,
            false if self.count >= MOST => Until::Full,
            _ => Until::Later,
        })
    }

    /// A command of ours begins in a transaction of this connection's: it may give back what the same transaction was granted.
    pub fn may_give_back(&mut self, client: ClientId) {
        self.in_exec.insert(client);
    }

    /// Has a push wait, as far as it is not too much for those to whom it goes.
    pub fn put(&mut self, mut to: Vec<ClientId>, push: Push) {
        let bytes = cost(&push);
        if self.load.all + bytes > UNCOUNTED || self.load.is_shared_out() {
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
            // What is toggled many times at once goes to the same watchers each time, and very many leases can be one owner's.
            Some(last) if last.to == to => last.pushes.push(push),
            _ => self.waiting.push_back(Run {
                to,
                pushes: vec![push],
                first: self.next - 1,
            }),
        }
    }

    /// Adds to the shares of those to whom a push goes, and leaves those out for whom it is too much.
    #[cold]
    fn count_shares(&mut self, to: &mut Vec<ClientId>, bytes: usize) {
        if !self.load.is_shared_out() {
            self.count_all();
        }
        let is_over = to.iter().any(|id| self.load.would_be_over(*id, bytes));
        if is_over && !self.void.is_empty() {
            self.leave_out_void();
            self.count_all();
        }
        to.retain(|id| self.load.takes(*id, bytes));
    }

    /// Counts what waits for each.
    fn count_all(&mut self) {
        for share in self.load.shares.values_mut() {
            share.bytes = 0;
        }
        self.load.all = 0;
        for run in &self.waiting {
            let bytes = run.pushes.iter().map(cost).sum();
            self.load.all += bytes;
            for id in &run.to {
                self.load.takes(*id, bytes);
            }
            self.load.add_run(&run.to);
        }
    }

    /// Those for whom so much waits that their limits matter, each once.
    pub fn doubtful(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.load.doubtful)
    }

    pub fn is_any_doubtful(&self) -> bool {
        !self.load.doubtful.is_empty()
    }

    /// So many bytes the server lets wait for a connection; none if it has no limit.
    pub fn limit(&mut self, client: ClientId, limit: Option<usize>) {
        let kept = self.kept_back.get_mut(&client).map(|kept| &mut kept.share);
        let waiting = self.load.shares.get_mut(&client);
        for share in kept.into_iter().chain(waiting) {
            share.most =
                Most::Bytes(limit.map_or(usize::MAX, |limit| limit.saturating_add(UNCOUNTED)));
        }
    }

    /// Takes all that waits.
    pub fn take(&mut self, holds: impl Fn(ClientId, &Push, Token) -> bool) -> Taken {
        self.leave_out_what_is_not_so(holds);
        self.count = 0;
        let too_much = self.load.over();
        self.load = Load::default();
        Taken {
            runs: std::mem::take(&mut self.waiting),
            too_much,
        }
    }

    /// A connection is closed: to be done once more when no command is running. In the middle of the connection's own
    /// command, the server only notes that it is to be closed after the next reply, and such a command may block.
    pub fn close_again(&mut self, client: ClientId) {
        self.closing.push(client);
    }

    /// Those that are to be closed once more.
    pub fn take_closing(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.closing)
    }

    /// Takes what waits for one connection, in its order.
    pub fn take_out(
        &mut self,
        client: ClientId,
        holds: impl Fn(ClientId, &Push, Token) -> bool,
    ) -> Vec<Push> {
        self.leave_out_what_is_not_so(holds);
        self.take_for(client)
    }

    /// The same for one that gives no command at this moment: all of it is so.
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

    /// Nothing that waits for a connection's watches of these keys, or of all, is to be told. O(keys).
    pub fn take_back(&mut self, client: ClientId, keys: Option<&[Key<'_>]>) {
        if !self.waiting.is_empty() {
            self.void.add(self.next, client, keys);
        }
    }

    fn leave_out_what_is_not_so(&mut self, holds: impl Fn(ClientId, &Push, Token) -> bool) {
        self.leave_out_void();
        let in_exec = std::mem::take(&mut self.in_exec);
        if std::mem::take(&mut self.grants_in_exec) {
            self.leave_out_what_was_given_back(&in_exec, holds);
        }
    }

    fn leave_out_void(&mut self) {
        if self.void.is_empty() {
            return;
        }
        let void = std::mem::take(&mut self.void);
        self.count = 0;
        for run in std::mem::take(&mut self.waiting) {
            for (number, push) in (run.first..).zip(run.pushes) {
                let mut to = run.to.clone();
                to.retain(|id| !void.has(number, *id, &push));
                if !to.is_empty() {
                    self.append(to, push);
                }
            }
        }
    }

    /// Leaves out of what waits the grants that were given back since, in the same transaction: its replies have told that, and
    /// nothing says that they were lost. Who was granted something in another's transaction is told: it has seen none of those
    /// replies, and may not hold that any more since its session has moved.
    fn leave_out_what_was_given_back(
        &mut self,
        in_exec: &HashSet<ClientId>,
        holds: impl Fn(ClientId, &Push, Token) -> bool,
    ) {
        let is_anothers = |client| !in_exec.is_empty() && !in_exec.contains(&client);
        let hold =
            |client: ClientId, push: &Push| (client, push.key.clone(), push.label().to_vec());
        let mut lost = HashSet::new();
        let mut is_told = |client, push: &Push| match push.news() {
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
        // From the last on: what is lost was granted before.
        for run in self.waiting.iter_mut().rev() {
            if let &[client] = &*run.to {
                let all = run.pushes.drain(..).rev();
                let mut told: Vec<_> = all.filter(|push| is_told(client, push)).collect();
                told.reverse();
                run.pushes = told;
            }
        }
    }

    // ---- what others need not wait for ----

    /// A flush is under way, and may be answered later.
    pub fn expect_late_reply(&mut self) {
        self.flushing = true;
    }

    /// Whether somebody's flush may not be answered.
    pub fn is_flushing(&self) -> bool {
        self.flushing
    }

    /// All flushes that nobody waits for are answered.
    pub fn flushes_are_answered(&mut self) {
        self.flushing = !self.kept_back.is_empty();
    }

    /// Whether anything may have to be kept back.
    pub fn keeps_back(&self) -> bool {
        self.flushing || !self.kept_back.is_empty()
    }

    pub fn is_kept_back(&self, client: ClientId) -> bool {
        self.kept_back.contains_key(&client)
    }

    /// Keeps pushes to a connection back, and with them all that follow. False where that is too much: then all of them are
    /// dropped, and it is to be closed. Said once.
    pub fn keep_back(&mut self, client: ClientId, pushes: &[Push]) -> bool {
        let kept = self.kept_back.entry(client).or_default();
        for push in pushes {
            let was_over = kept.share.is_over;
            if kept.share.takes(cost(push)) {
                kept.pushes.push(push.clone());
            } else if !was_over {
                kept.pushes = Vec::new();
                return false;
            }
        }
        if kept.share.is_doubtful() {
            self.load.doubtful.push(client);
        }
        true
    }

    /// A connection is not going to read anything: until its turn comes nothing is kept for it.
    pub fn drop_all(&mut self, client: ClientId) {
        let kept = self.kept_back.entry(client).or_default();
        kept.pushes = Vec::new();
        kept.share.is_over = true;
    }

    /// All connections of which something is kept back.
    pub fn all_kept_back(&self) -> Vec<ClientId> {
        self.kept_back.keys().copied().collect()
    }

    /// Nothing is in the way of what was kept back of a connection's.
    pub fn take_kept_back(&mut self, client: ClientId) -> Vec<Push> {
        let kept = self.kept_back.remove(&client);
        kept.map(|kept| kept.pushes).unwrap_or_default()
    }
}

/// How much waits, in bytes.
#[derive(Default)]
struct Load {
    /// All of it, however many it goes to. No share is more.
    all: usize,
    /// How much waits for each, once it is so much that this is counted.
    shares: HashMap<ClientId, Share>,
    doubtful: Vec<ClientId>,
}

impl Load {
    /// Whether it is counted for each.
    fn is_shared_out(&self) -> bool {
        !self.shares.is_empty()
    }

    fn would_be_over(&self, client: ClientId, bytes: usize) -> bool {
        let share = self.shares.get(&client);
        share.is_some_and(|share| !share.is_over && share.bytes + bytes > share.most.bytes())
    }

    /// Whether so much more may wait for a connection; if so, it is counted.
    fn takes(&mut self, client: ClientId, bytes: usize) -> bool {
        let share = self.shares.entry(client).or_default();
        let takes = share.takes(bytes);
        if share.is_doubtful() {
            self.doubtful.push(client);
        }
        takes
    }

    /// A run begins: each of its connections is charged for it, since it may be of one that it is not of the one before. It
    /// is refused only what comes next.
    fn add_run(&mut self, to: &[ClientId]) {
        self.all += RUN;
        for id in to {
            if let Some(share) = self.shares.get_mut(id) {
                share.bytes += RUN;
            }
        }
    }

    /// Those of whose pushes some were dropped.
    fn over(&self) -> Vec<ClientId> {
        let over = self.shares.iter().filter(|(_, share)| share.is_over);
        let mut over: Vec<_> = over.map(|(client, _)| *client).collect();
        over.sort_unstable();
        over
    }
}

/// How much waits for one.
#[derive(Clone, Copy, Default)]
struct Share {
    bytes: usize,
    most: Most,
    /// There was more.
    is_over: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Most {
    #[default]
    Unknown,
    Asked,
    Bytes(usize),
}

impl Most {
    fn bytes(self) -> usize {
        match self {
            Most::Bytes(bytes) => bytes,
            Most::Unknown | Most::Asked => usize::MAX,
        }
    }
}

impl Share {
    fn takes(&mut self, bytes: usize) -> bool {
        self.is_over |= self.bytes + bytes > self.most.bytes();
        if !self.is_over {
            self.bytes += bytes;
        }
        !self.is_over
    }

    /// Whether its limit is to be found out. Said once.
    fn is_doubtful(&mut self) -> bool {
        let is_doubtful = self.most == Most::Unknown && self.bytes > UNCOUNTED;
        if is_doubtful {
            self.most = Most::Asked;
        }
        is_doubtful
    }
}

/// What of that which waits tells of watches that are none any more: by connection, and then by key, all before this number.
#[derive(Default)]
struct Void(HashMap<ClientId, (u64, HashMap<KeyBuf, u64>)>);

impl Void {
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
        let void = self.0.get(&client).filter(|_| is_watch(push));
        void.is_some_and(|(all, some)| {
            number < *all || some.get(&push.key).is_some_and(|before| number < *before)
        })
    }
}

/// What a push takes, here or on the wire: twice its place, since a run that grows has places to spare, and what is not in it.
fn cost(push: &Push) -> usize {
    let label = match push.label().len() {
        0 => 0,
        label => size_of::<(News, Box<[u8]>)>() + label + 2 * PIECE,
    };
    2 * size_of::<Push>() + push.key.name.len() + PIECE + label
}

fn is_watch(push: &Push) -> bool {
    matches!(push.news(), News::Added | News::Deleted)
}

fn is_grant(push: &Push) -> bool {
    matches!(push.news(), News::Granted(..))
}

#[cfg(test)]
mod tests;
