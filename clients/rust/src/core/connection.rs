//! The connection: how it begins, when it is believed, how it ends.

use super::*;

/// Before any attempt, at most.
pub const LONGEST_DELAY: Duration = Duration::from_millis(1000);

/// Before the second attempt, at most (P-RETRY-1).
const FIRST_DELAY: Duration = Duration::from_millis(20);

/// A connection that broke sooner was as bad as none (P-RETRY-2).
const SOUND_AFTER: Duration = Duration::from_millis(1000);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    #[default]
    None,
    Opening,
    Greeting,
    Resuming,
    Up,
}

/// What is known of the connection, and of the server at its other end.
#[derive(Debug, Default)]
pub struct Connection {
    pub link: Link,
    /// When it was opened.
    pub since: Time,
    /// What is not answered, and when it was sent.
    pub replies: VecDeque<(Time, Expect)>,
    /// Of the session.
    pub secret: Option<Bytes>,
    /// How long one answer vouches for the holds. None while nothing can be held.
    pub fence: Option<Duration>,
    /// Once the greeting is over.
    pub next_fence: Duration,
    /// When the last command was sent that was answered.
    pub vouched: Time,
    pub pinged: Time,
    /// Attempts that failed, one after the other.
    pub failed: u32,
    pub connect_at: Option<Time>,
    /// Until when one that ended soon, and that nobody wanted back, is not followed (P-RETRY-2).
    pub not_before: Option<Time>,
    pub retries: Vec<Retry>,
    pub retry_at: Option<Time>,
    /// Refusals, one after the other.
    pub refused: u32,
    /// Attempts that failed so far, and why the last one did if there is no connection since.
    pub failures: u64,
    pub trouble: Option<Error>,
    /// How often a session went on on a new connection.
    pub resumes: u64,
    pub has_told_clock: bool,
    /// When greeting has taken too long (P-CONN-9).
    pub greets_until: Time,
}

impl Core {
    // ---- timers ----

    pub(super) fn fence_falls_at(&self) -> Option<Time> {
        let fence = self.connection.fence?;
        Some(self.connection.vouched + fence)
    }

    /// P-FENCE-10: when to look for another connection, since this one is silent.
    pub(super) fn stuck_at(&self) -> Option<Time> {
        let fence = self.connection.fence?;
        let may_leave = self.is_up() && self.connection.secret.is_some() && self.holds > 0;
        may_leave.then(|| self.connection.vouched + fence / 2)
    }

    /// P-CONN-9.
    pub(super) fn greeting_until(&self) -> Option<Time> {
        let is_greeting = matches!(self.connection.link, Link::Greeting | Link::Resuming);
        is_greeting.then_some(self.connection.greets_until)
    }

    /// How long opening a connection may take, and greeting on it (P-CONN-9).
    pub fn connect_within(&self) -> Duration {
        let within = self.config.connect_timeout;
        match (&self.connection.secret, self.connection.fence) {
            (Some(_), Some(fence)) => within.min(fence / 2),
            _ => within,
        }
    }

    pub(super) fn retry_at(&self) -> Option<Time> {
        self.connection.retry_at.filter(|_| self.is_up())
    }

    /// P-FENCE-7.
    pub(super) fn ping_at(&self) -> Option<Time> {
        let fence = self.connection.fence.filter(|_| self.is_up())?;
        Some(self.connection.pinged + fence / 4)
    }

    /// P-FENCE-8.
    pub(super) fn fence_falls(&mut self) {
        let was_there = self.connection.link != Link::None;
        if was_there && !self.is_up() {
            // Whoever waits for a connection hears of it: none may follow.
            self.connection.failures += 1;
            self.connection.trouble = Some(Error::late());
        }
        let had_session = self.connection.secret.take().is_some();
        self.connection.fence = None;
        self.cut();
        self.lose_all(&Loss::Silence, false);
        if !was_there {
            return;
        }
        // P-FENCE-9
        let stay = self.config.stop_within;
        self.orders.push(match had_session || stay.is_zero() {
            true => Order::Leave,
            false => Order::LeaveAfter(stay),
        });
        self.go_on();
    }

    /// P-RETRY-1.
    pub(super) fn delay(&self, failed: u32, longest: Duration) -> Duration {
        let whole = FIRST_DELAY.saturating_mul(1 << failed.min(16)).min(longest);
        let random = self.config.random.unwrap_or_else(random);
        whole.mul_f64((1.0 + random) / 2.0)
    }

    // ---- opening ----

    /// Connects, as the first request would.
    pub fn open(&mut self) {
        self.need_connection();
    }

    /// P-CONN-4.
    pub(super) fn need_connection(&mut self) {
        let is_there = self.connection.link != Link::None || self.connection.connect_at.is_some();
        if self.is_closed || is_there || self.is_losing {
            return;
        }
        match self.connection.not_before.filter(|at| *at > self.now) {
            Some(at) => self.connection.connect_at = Some(at),
            None => self.connect(),
        }
    }

    pub(super) fn connect(&mut self) {
        self.connection.connect_at = None;
        self.connection.not_before = None;
        self.connection.link = Link::Opening;
        self.orders.push(Order::Connect);
    }

    /// The connection that was ordered is open, and the shell has greeted on it.
    pub fn connected(&mut self) {
        self.connection.since = self.now;
        self.connection.greets_until = self.now + self.connect_within();
        self.connection.replies.clear();
        match self.connection.secret.clone() {
            Some(secret) => {
                self.connection.link = Link::Resuming;
                self.send(words!["SESSION.RESUME", &secret, "NOTIFY"], Expect::Resume);
            }
            None => {
                self.connection.link = Link::Greeting;
                self.send(words!["LOCK.SERVER"], Expect::Server);
            }
        }
    }

    /// The connection that was ordered could not be opened.
    pub fn unreached(&mut self, error: Error) {
        self.connection.link = Link::None;
        self.end_attempt(error);
        self.reconnect();
    }

    /// P-CONN-10.
    fn end_attempt(&mut self, error: Error) {
        let is_final = !matches!(error, Error::Unreachable(_));
        self.connection.failures += 1;
        for rid in self.rids() {
            let request = &self.requests[&rid];
            let is_over = !request.waits() || is_final;
            if request.phase == Phase::Queued && is_over && !request.is_given_up {
                self.fail(rid, None, Some(error.clone()));
            }
        }
        if is_final {
            self.end_watches(&error);
        }
        self.connection.trouble = Some(error);
    }

    pub(super) fn greeting_failed(&mut self, error: Error) {
        self.orders.push(Order::Leave);
        self.unreached(error);
    }

    /// Whether something goes on when the connection ends (P-CONN-4).
    fn is_wanted(&self) -> bool {
        let is_asked = !self.requests.is_empty() || self.connection.secret.is_some();
        !self.is_closed && (is_asked || !self.watches.is_empty() || !self.presences.is_empty())
    }

    fn reconnect(&mut self) {
        let is_there = self.connection.link != Link::None || self.connection.connect_at.is_some();
        if !is_there && self.is_wanted() {
            self.connection.connect_at = Some(self.next_attempt());
        }
    }

    /// P-RETRY-1.
    fn next_attempt(&mut self) -> Time {
        let longest = match (&self.connection.secret, self.connection.fence) {
            (Some(_), Some(fence)) => LONGEST_DELAY.min(fence / 8),
            _ => LONGEST_DELAY,
        };
        let delay = self.delay(self.connection.failed, longest);
        self.connection.failed = self.connection.failed.saturating_add(1);
        self.now + delay
    }

    // ---- greeting ----

    /// What LOCK.SERVER says.
    pub(super) fn greeted(&mut self, sent: Time, reply: &Frame) {
        if let Some(error) = reply.error() {
            return self.greeting_failed(match error {
                // P-CONN-6
                _ if errors::is_unknown_command(error) => Error::NoModule,
                _ if errors::is_passing(error) => Error::Unreachable(error.to_owned()),
                _ => Error::Refused(error.to_owned()),
            });
        }
        // P-CONN-5
        if reply.named("role").and_then(Frame::bytes) != Some(b"master") {
            return self.greeting_failed(Error::replica());
        }
        // P-NOPUSH-1
        if reply.named("pushes").and_then(Frame::number) != Some(1) {
            return self.greeting_failed(Error::NoPush);
        }
        match self.fence_of(reply) {
            Ok(fence) => self.connection.next_fence = fence,
            Err(unfit) => return self.greeting_failed(Error::Unfit(unfit)),
        }
        let has_no_clock = self.config.boot_clock == BootClock::Missing;
        if has_no_clock && !self.connection.has_told_clock {
            self.connection.has_told_clock = true;
            self.tell(Event::NoBootClock);
        }
        match self.config.grace {
            Some(grace) => self.start_session(grace),
            None => self.begin(sent),
        }
    }

    /// P-FENCE-1.
    fn fence_of(&self, server: &Frame) -> Result<Duration, Unfit> {
        let stop_within = self.config.stop_within;
        let most = match self.config.grace {
            Some(grace) => crate::timing::fence(grace, stop_within)?,
            None if self.config.is_unix => crate::timing::FENCE_OF_UNIX,
            None => {
                let ms = server.named("peer-timeout-ms").and_then(Frame::number);
                let peer_timeout = ms.filter(|ms| *ms > 0).map(Duration::from_millis);
                crate::timing::fence_without_session(peer_timeout, stop_within)?
            }
        };
        let fence = self.config.fence.unwrap_or(most);
        match (crate::timing::SHORTEST_FENCE..=most).contains(&fence) {
            true => Ok(fence),
            false => Err(Unfit::Fence { fence, most }),
        }
    }

    fn start_session(&mut self, grace: Duration) {
        let ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.send(words!["SESSION.START", "GRACE", ms], Expect::Start);
    }

    /// P-SESS-1.
    pub(super) fn started(&mut self, sent: Time, reply: Frame) {
        match reply {
            Frame::Bytes(secret) => {
                self.connection.secret = Some(secret);
                self.begin(sent);
            }
            Frame::Error(error) => {
                let passes = errors::is_passing(&error) || errors::is_unwritable(&error);
                self.greeting_failed(match passes {
                    true => Error::Unreachable(error),
                    false => Error::Refused(error),
                });
            }
            _ => self.greeting_failed(Error::Refused("ERR SESSION.START gave no secret".into())),
        }
    }

    /// A connection that has nothing of a former one.
    fn begin(&mut self, sent: Time) {
        self.connection.fence = Some(self.connection.next_fence);
        self.connection.vouched = sent;
        self.set_up();
        for rid in self.rids() {
            self.send_if_first(rid);
        }
        self.watch_anew();
    }

    fn set_up(&mut self) {
        self.connection.pinged = self.now;
        self.connection.link = Link::Up;
        self.connection.trouble = None;
    }

    /// P-FENCE-2.
    pub(super) fn vouch(&mut self, sent: Time) {
        self.connection.vouched = self.connection.vouched.max(sent);
    }

    // ---- the end ----

    /// The connection has ended (P-SESS-2).
    pub fn broke(&mut self) {
        if self.connection.link == Link::None {
            return;
        }
        let was = self.connection.link;
        self.cut();
        if self.is_closed {
            self.closing_until = None;
            return;
        }
        match self.connection.secret {
            // P-CONN-10
            None if was == Link::Greeting => return self.unreached(Error::broke()),
            None => {
                self.connection.fence = None;
                self.lose_all(&Loss::Connection, false);
            }
            Some(_) => self.forget_answers(),
        }
        if was == Link::Resuming {
            self.end_attempt(Error::broke());
        }
        self.go_on();
    }

    /// With a session everything goes on, and what is not answered may have been carried out.
    fn forget_answers(&mut self) {
        for rid in self.rids() {
            let request = self.requests.get_mut(&rid).expect("just seen");
            if request.phase == Phase::Releasing {
                for (_, is_on_wire) in &mut request.unsettled {
                    request.was_sent_before |= std::mem::take(is_on_wire);
                }
            }
            // LOCK.MINE says what is held.
            request.early = None;
            if request.phase == Phase::Waiting {
                request.phase = Phase::Asked;
            }
        }
    }

    pub(super) fn leave(&mut self) {
        self.orders.push(Order::Leave);
        self.broke();
    }

    /// The connection is given up, with all that was on it; another one if it is needed.
    pub(super) fn drop_connection(&mut self, order: Order) {
        self.orders.push(order);
        self.cut();
        self.go_on();
    }

    /// What was on the wire is on none.
    fn cut(&mut self) {
        self.connection.link = Link::None;
        self.connection.replies.clear();
        self.connection.retries.clear();
        self.connection.retry_at = None;
        self.connection.refused = 0;
        self.mine = None;
        self.next_mine = None;
    }

    fn go_on(&mut self) {
        if self.now.since(self.connection.since) < SOUND_AFTER {
            match self.is_wanted() {
                true => self.reconnect(),
                false => self.connection.not_before = Some(self.next_attempt()),
            }
            return;
        }
        self.connection.failed = 0;
        if self.is_wanted() && self.connection.link == Link::None {
            self.connect();
        }
    }

    /// The session is gone, or the connection without one. `is_elsewhere` is that requests go on at another server, also those that
    /// do not wait (P-ACQ-8).
    pub(super) fn lose_all(&mut self, loss: &Loss, is_elsewhere: bool) {
        self.is_losing = true;
        for rid in self.rids() {
            let Some(request) = self.requests.get_mut(&rid) else {
                continue;
            };
            match request.phase {
                Phase::Held => self.fail(rid, Some(loss.clone()), None),
                phase if !phase.is_open() || request.is_given_up => self.settle(rid),
                Phase::Asked if !request.waits() && !is_elsewhere => {
                    self.fail(rid, None, Some(Error::broke()));
                }
                phase => {
                    request.has_waited |= phase == Phase::Waiting;
                    request.early = None;
                    self.set_phase(rid, Phase::Queued);
                }
            }
        }
        self.is_losing = false;
    }

    /// P-SESS-8: the master is another server.
    pub(super) fn demoted(&mut self) {
        if self.connection.link == Link::None {
            return;
        }
        if self.connection.secret.is_some() {
            return self.leave();
        }
        self.connection.fence = None;
        self.cut();
        self.lose_all(&Loss::Told("demoted".to_owned()), true);
        self.orders.push(Order::Leave);
        self.go_on();
    }

    /// P-SESS-10: the connection has no session any more.
    pub(super) fn session_was_ended(&mut self) {
        self.connection.secret = None;
        self.connection.fence = None;
        self.cut();
        self.lose_all(&Loss::Told("ended".to_owned()), false);
        self.orders.push(Order::Leave);
        self.go_on();
    }

    /// Nobody is left who would connect again, as where the runtime of the program has ended. With it goes the session: at once if
    /// nobody relies on it, else with its grace.
    pub fn abandon(&mut self) {
        let is_relied_on = self
            .requests
            .values()
            .any(|request| request.phase == Phase::Held);
        if self.is_up() && self.connection.secret.is_some() && !is_relied_on {
            self.send(words!["SESSION.END"], Expect::Nothing);
        }
        self.connection.secret = None;
        self.connection.fence = None;
        self.connection.connect_at = None;
        self.closing_until = None;
        self.cut();
        self.lose_all(&Loss::Connection, false);
    }

    // ---- resuming ----

    /// What SESSION.RESUME says.
    pub(super) fn resumed(&mut self, sent: Time, reply: &Frame) {
        match reply.error() {
            Some(_) if self.is_closed => self.parted(),
            None if self.is_closed => self.part(),
            Some(error) if errors::code(error) == "NOSESSION" => self.session_is_over(),
            // P-SESS-4
            Some(error) => {
                let error = error.to_owned();
                self.cut();
                self.greeting_failed(Error::Unreachable(error));
            }
            None => {
                self.connection.resumes += 1;
                self.vouch(sent);
                self.set_up();
                // P-SESS-5
                for rid in self.rids() {
                    self.send_unsettled(rid);
                }
                self.begin_resume();
                self.watch_anew();
            }
        }
    }

    /// P-SESS-7: another session, on the same connection.
    pub(super) fn session_is_over(&mut self) {
        self.connection.secret = None;
        if let Some(fence) = self.connection.fence.take() {
            self.connection.next_fence = fence;
        }
        self.connection.link = Link::Greeting;
        self.connection.greets_until = self.now + self.connect_within();
        self.lose_all(&Loss::Connection, false);
        self.start_session(self.config.grace.unwrap_or_default());
    }

    /// How often a session went on on a new connection.
    pub fn resumes(&self) -> u64 {
        self.connection.resumes
    }

    /// For how long the holds are vouched for from now on, if nothing more is heard.
    pub fn fence_left(&self) -> Duration {
        let at = self.fence_falls_at();
        at.map_or(Duration::ZERO, |at| at.since(self.now))
    }

    /// Whether there is a connection, how many attempts have failed so far, and why the last one did if there is none.
    pub fn trouble(&self) -> (bool, u64, Option<&Error>) {
        let connection = &self.connection;
        (
            self.is_up(),
            connection.failures,
            connection.trouble.as_ref(),
        )
    }
}

/// Between 0 and 1.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}
