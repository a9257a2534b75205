//! A history on a real server: after every step it must agree with the model in everything.

use crate::harness::{Client, Server, built, bulk, eventually, eventually_within};
use crate::log::Compared;
use crate::look;
use crate::model::command::{Mode, NAMES, Spot, Who};
use crate::model::presence::{Beliefs, Sight, is_sight};
use crate::model::replies::{Arrival, Heard, Reply, Tokens, check};
use crate::model::rights::{Rights, USERS, rules};
use crate::model::step::{Ending, Step};
use crate::model::world::{Limits, Outcome, REASONS, Totals, World};
use crate::players::{Players, user};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What is not so after this time never will be.
const SOON: Duration = Duration::from_secs(2);

/// Of every world on a server.
pub const PLACES: usize = 5;
pub const USED_NAMES: usize = NAMES.len();

/// A server that is used for one history after the other.
pub struct Stage {
    pub server: Server,
    pub observer: Client,
    lines: Vec<String>,
    limits: Limits,
    /// Each history has a server that nobody used before.
    anew: bool,
    /// Where the module lies that looks at keys in the middle of others' commands.
    between: Option<TempDir>,
}

/// How long nothing is granted after a start, and what of that must be left when a step begins that counts on it.
const QUARANTINE_MS: u64 = 2400;
const MARGIN_MS: i64 = 500;

impl Stage {
    pub fn anew_each_time(limits: Limits) -> Stage {
        let anew = true;
        Stage {
            anew,
            ..Stage::new(limits)
        }
    }

    pub fn new(limits: Limits) -> Stage {
        Stage::with(limits, &[])
    }

    /// It has another module, which looks at keys between the two names of one that is renamed. Not where connections go astray
    /// beside a second module that hears of keys.
    pub fn with_another_module(limits: Limits) -> Stage {
        let alone = Stage::new(limits);
        if alone.server.strays_after_copies() {
            return alone;
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/history/between.c");
        let (folder, library) = built(source);
        Stage {
            between: Some(folder),
            ..Stage::with(limits, &[&format!("loadmodule {library}")])
        }
    }

    pub fn has_another_module(&self) -> bool {
        self.between.is_some()
    }

    /// It writes down all that is done. What it has answered is in the file, though not yet on the disk.
    pub fn with_files(limits: Limits) -> Stage {
        Stage::with(limits, &["appendonly yes", "appendfsync no"])
    }

    fn with(limits: Limits, lines: &[&str]) -> Stage {
        let Limits { watches, keys, .. } = limits;
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        lines.extend([
            format!("tether.max-watches-per-client {watches}"),
            format!("tether.max-keys-per-client {keys}"),
            // It attends to connections while it loads.
            "loading-process-events-interval-bytes 1024".into(),
        ]);
        let server = Server::with(&lines.iter().map(String::as_str).collect::<Vec<_>>()).over_tcp();
        let observer = server.resp2();
        Stage {
            server,
            observer,
            lines,
            limits,
            anew: false,
            between: None,
        }
    }

    /// Kills the server and starts it again.
    pub fn start_again(&mut self, quarantine: bool) {
        let ms = if quarantine { QUARANTINE_MS } else { 0 };
        let quarantine = format!("tether.quarantine {ms}");
        let mut lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        lines.push(&quarantine);
        self.server.restart(&lines);
        self.observer = self.server.resp2();
        self.make_users();
    }

    fn make_users(&mut self) {
        for number in 0..USERS {
            let name = user(number);
            let rules = rules(&Rights::default());
            let words = ["ACL", "SETUSER", &name, "reset", "on", "nopass", "&*"];
            let words: Vec<&str> = words.into_iter().chain(rules).collect();
            self.observer.run(words);
        }
    }

    pub fn quarantine_left_ms(&mut self) -> i64 {
        let told = self.observer.run("LOCK.SERVER").items();
        let at = told
            .iter()
            .position(|item| *item == bulk("quarantine-left-ms"));
        told[at.expect("what is left") + 1].number()
    }

    pub fn await_end_of_quarantine(&mut self) {
        let patience = Duration::from_millis(2 * QUARANTINE_MS);
        eventually_within(patience, "the quarantine's end", || {
            match self.quarantine_left_ms() {
                0 => Ok(()),
                left => Err(format!("{left} ms are left")),
            }
        });
        // What comes of it a timer does.
        self.server.settle();
    }

    fn totals(&mut self) -> Totals {
        let info = info(&mut self.observer);
        Totals {
            lost: lost_by_living_owners(&info),
            reasons: REASONS.map(|words| lost(&info, words)),
            grants: info["grants_total"],
            handoffs: info["handoffs_total"],
            timeouts: info["timeouts_total"],
            deadlocks_refused: info["deadlocks_refused_total"],
            ..Totals::default()
        }
    }

    /// Nothing is there, and nobody.
    fn clear(&mut self) {
        self.await_end_of_quarantine();
        self.make_users();
        let observer = &mut self.observer;
        eventually("an empty stage", || {
            observer.run("FLUSHALL");
            let clients = observer.run("CLIENT LIST").text();
            let info = info(observer);
            let zero = [
                "temporary_keys",
                "holds",
                "waiters",
                "watches",
                "sessions_attached",
            ]
            .iter()
            .all(|name| info[*name] == 0);
            match clients.lines().count() == 1 && zero {
                true => Ok(()),
                false => Err(format!("{clients}{info:?}")),
            }
        });
    }
}

/// A world on a stage.
pub struct Trial<'a> {
    pub world: World,
    pub players: Players,
    pub stage: &'a mut Stage,
    before: Totals,
    /// What the server has counted so far is what it has counted since its last start.
    pub counts_anew: bool,
    /// Sessions of histories that failed.
    left_over: u64,
    tokens: Tokens,
    logged: Compared,
    beliefs: Beliefs,
    taken: usize,
    /// What comes of the step that was taken.
    outcome: Outcome,
}

impl<'a> Trial<'a> {
    pub fn new(stage: &'a mut Stage) -> Trial<'a> {
        if stage.anew {
            *stage = Stage::anew_each_time(stage.limits);
        }
        stage.clear();
        let mut world = World::new(PLACES, stage.limits, false);
        world.blocks_subscribed = stage.server.blocks_subscribed();
        let players = Players::new(PLACES, &mut stage.observer);
        let mut logged = Compared::default();
        logged.begin(&mut stage.observer, &world);
        Trial {
            world,
            players,
            before: stage.totals(),
            counts_anew: false,
            left_over: info(&mut stage.observer)["sessions_detached"],
            stage,
            tokens: Tokens::default(),
            logged,
            beliefs: Beliefs::default(),
            taken: 0,
            outcome: Outcome::default(),
        }
    }

    fn quarantine_ends_before(&mut self, step: &Step) -> bool {
        if self.world.quarantine_ends.is_none() || *step == Step::QuarantineOver {
            return false;
        }
        // Reading a file takes as long as the machine likes.
        matches!(step, Step::Reload { .. }) || self.stage.quarantine_left_ms() < MARGIN_MS
    }

    /// Takes a step that the world allows; a step that it does not allow is left out.
    pub fn take(&mut self, step: &Step) -> Result<(), String> {
        if self.quarantine_ends_before(step) {
            self.take(&Step::QuarantineOver)?;
        }
        self.players.book.last_token = self.tokens.greatest();
        let within_reach = match step {
            Step::Between { .. } => Some(self.between_as_here(step)),
            Step::Run { who, command } => {
                let (who, command) = (*who, self.players.book.within_reach(command));
                Some(Step::Run { who, command })
            }
            _ => None,
        };
        let step = within_reach.as_ref().unwrap_or(step);
        let server = &self.stage.server;
        let goes_astray = step.copies() && server.strays_after_copies();
        let has_no_effect = match step {
            Step::Rights { user, .. } => {
                server.executes_what_was_queued() && self.world.is_anybody_in_multi(*user)
            }
            Step::Between { .. } => !self.stage.has_another_module(),
            _ => false,
        };
        // There a command can come between a connection's end and what follows from it.
        let comes_between = step.goes_on_after_a_kill() && !server.is_at_least((7, 2), (0, 0));
        if goes_astray || has_no_effect || comes_between || !self.world.allows(step) {
            return Ok(());
        }
        let owned: Vec<Spot> = match step {
            Step::End { who, how } if *how == Ending::AfterLapse => self.world.held_alone_by(*who),
            Step::Between {
                who, over, deleted, ..
            } => {
                let db = self.world.db_of(*who);
                let names = over.iter().chain(deleted);
                names.map(|name| Spot { db, name: *name }).collect()
            }
            Step::End { who, .. } => {
                let holds = self.world.holds_of(*who);
                holds.iter().map(|hold| hold.spot).collect()
            }
            _ => Vec::new(),
        };
        self.tokens.begin_step(&self.world.living());
        self.players.book.last_token = self.tokens.greatest();
        self.taken += 1;
        let turned_away = self.world.totals.waits_lost;
        let mut outcome = self.world.take(step);
        if self.world.totals.waits_lost > turned_away {
            // It is not said whose turn is next of those who waited behind it for several keys.
            outcome.heard.iter_mut().for_each(as_one_cause);
        }
        self.perform(step, &owned, &outcome);
        self.outcome = outcome;
        self.see_off_the_dead();
        self.agree()?;
        self.world.put_in_order(&self.tokens);
        self.world.check_rules()?;
        self.world.check_nobody_is_forgotten()?;
        self.players.forget();
        self.counts_anew = false;
        let known = self.players.book.secrets.len() as u64..self.world.started;
        for session in known {
            let secret = self.tokens.secret(session);
            let secret = secret.expect("each was told to somebody").to_owned();
            self.players.book.secrets.push(secret);
        }
        Ok(())
    }

    /// Redis since 7.2 and Valkey show modules in events also what is over: there it is deleted instead, unless the command itself
    /// comes upon it.
    fn between_as_here(&self, step: &Step) -> Step {
        let mut step = step.clone();
        let Step::Between {
            over,
            deleted,
            command,
            ..
        } = &mut step
        else {
            return step;
        };
        if self.stage.server.is_at_least((7, 2), (0, 0)) {
            let named = command.parts()[0].keys();
            let unseen = over.extract_if(.., |name| !named.contains(name));
            deleted.extend(unseen);
        }
        step
    }

    /// Those whom the step has killed.
    fn see_off_the_dead(&mut self) {
        for who in 0..PLACES {
            if self.players.is_there(who) && self.world.client(who).is_none() {
                let client = self.players.leave(who);
                client.expect("it is there").expect_closed();
            }
        }
    }

    /// What is missing may still be under way; what is too much, or in a wrong order, is wrong.
    fn agree(&mut self) -> Result<(), String> {
        self.stage.observer.run("PING");
        self.stage.observer.run("PING");
        // A fence makes its client's last command an ECHO: sometimes it is to be another.
        let taken = self.taken;
        let heard = self.outcome.heard.clone();
        let is_push = |heard: &Heard| matches!(heard, Heard::Pushes(_) | Heard::InFront(_));
        let watchers: Vec<Who> = self.world.prefixes.iter().map(|watch| watch.who).collect();
        self.hear(|who| {
            heard[who].iter().any(is_push)
                || watchers.contains(&who)
                || !(taken + who).is_multiple_of(4)
        });
        let mut disagreement = self.disagreement_so_far();
        let deadline = Instant::now() + SOON;
        while disagreement.is_err() && Instant::now() < deadline {
            self.stage.server.settle();
            self.hear(|_| true);
            disagreement = self.disagreement_so_far();
        }
        disagreement
    }

    /// What was taken to be known so that they agree is not if they do not.
    fn disagreement_so_far(&mut self) -> Result<(), String> {
        let (tokens, logged) = (self.tokens.clone(), self.logged.clone());
        let beliefs = self.beliefs.clone();
        let disagreement = self.disagreement();
        if disagreement.is_err() {
            (self.tokens, self.logged, self.beliefs) = (tokens, logged, beliefs);
        }
        disagreement
    }

    /// All that came to these; and to who stands still, what has come so far.
    fn hear(&mut self, whom: impl Fn(Who) -> bool) {
        let world = &self.world;
        let still = |who: Who| {
            world.is_blocked(who) || world.is_unanswered(who) || world.is_told_only_messages(who)
        };
        self.players.fence(|who| !still(who) && whom(who));
        let there = |who: &Who| world.client(*who).is_some();
        for who in (0..PLACES).filter(|who| still(*who) && there(who)) {
            self.players.listen(who);
        }
    }

    fn disagreement(&mut self) -> Result<(), String> {
        // First, since it notices what has lapsed.
        let seen = look::at_all(&mut self.stage.observer, &self.world.sequence_keys());
        let ids = &self.players.book.ids;
        for seen in &seen {
            seen.compare(&self.world, ids, &mut self.tokens)?;
        }
        let mut seen = Vec::new();
        for (who, expected) in self.outcome.heard.iter().enumerate() {
            if self.world.client(who).is_none() {
                self.beliefs.forget(who);
                continue;
            }
            let (sights, heard) = sights(expected, self.players.heard(who));
            check(expected, &heard, &mut self.tokens)
                .map_err(|what| format!("client {who}: {what}"))?;
            seen.push((who, sights));
        }
        // What others were answered says what keys are called.
        for (who, sights) in seen {
            self.beliefs.see(who, &sights)?;
        }
        self.beliefs.compare(&mut self.world, &mut self.tokens)?;
        self.world.totals.sights = self.beliefs.pushes;
        self.compare_log()?;
        self.compare_info()
    }

    /// A server that was started again has forgotten what it had written down.
    fn compare_log(&mut self) -> Result<(), String> {
        let observer = &mut self.stage.observer;
        if self.counts_anew {
            self.logged.begin(observer, &self.world);
            return Ok(());
        }
        let ids = &self.players.book.ids;
        self.logged
            .compare(observer, &self.world, ids, &mut self.tokens)
    }

    fn compare_info(&mut self) -> Result<(), String> {
        let info = info(&mut self.stage.observer);
        let world = &self.world;
        let temporary = world.holds.iter();
        let temporary = temporary
            .filter(|hold| hold.mode == Mode::Temporary)
            .count();
        let watches = world.watches.len() + world.prefixes.len();
        let mut watched: Vec<Spot> = world.watches.iter().map(|watch| watch.spot).collect();
        watched.sort_unstable();
        watched.dedup();
        let attached = world.sessions.iter();
        let attached = attached.filter(|s| s.attached.is_some()).count() as u64;
        if self.counts_anew {
            self.before = self.stage.totals().less(&world.totals);
        }
        let (totals, before) = (world.totals, self.before);
        for (name, expected) in [
            ("temporary_keys", temporary as u64),
            ("holds", (world.holds.len() - temporary) as u64),
            ("waiters", world.waiters.len() as u64),
            ("watches", watches as u64),
            ("watched_keys", watched.len() as u64),
            ("sessions_attached", attached),
            (
                "sessions_detached",
                self.left_over + world.sessions.len() as u64 - attached,
            ),
            ("grants_total", before.grants.wrapping_add(totals.grants)),
            (
                "handoffs_total",
                before.handoffs.wrapping_add(totals.handoffs),
            ),
            (
                "timeouts_total",
                before.timeouts.wrapping_add(totals.timeouts),
            ),
            (
                "deadlocks_refused_total",
                before
                    .deadlocks_refused
                    .wrapping_add(totals.deadlocks_refused),
            ),
        ] {
            if info[name] != expected {
                return Err(format!("{name} is {} and not {expected}", info[name]));
            }
        }
        let (got, expected) = (
            lost_by_living_owners(&info),
            before.lost.wrapping_add(totals.lost),
        );
        if got != expected {
            return Err(format!("lost by living owners: {got} and not {expected}"));
        }
        let reasons = before.reasons.into_iter().zip(totals.reasons);
        let reasons = reasons.map(|(before, more)| before.wrapping_add(more));
        for (words, expected) in REASONS.iter().zip(reasons) {
            let got = lost(&info, words);
            if got != expected {
                return Err(format!("lost by {words:?}: {got} and not {expected}"));
            }
        }
        Ok(())
    }

    /// Without faults everyone who still waits is served, in order. Then everyone goes; what they
    /// leave behind goes with them.
    pub fn finish(mut self) -> Result<(), String> {
        // Who waits for a lease of its own session's is served by nobody, and its session is left.
        for _ in 0..2 {
            while let Some(step) = self.world.closing_step() {
                if !self.world.allows(&step) {
                    return Err(format!("nobody can go on: {step:?}"));
                }
                self.take(&step)
                    .map_err(|what| format!("at the end, {step:?}: {what}"))?;
            }
            for who in 0..PLACES {
                let how = Ending::Close;
                self.take(&Step::End { who, how })?;
            }
        }
        Ok(())
    }
}

/// What one has seen of its watches of prefixes, and what else it has heard.
fn sights(expected: &[Heard], heard: &[Arrival]) -> (Vec<Sight>, Vec<Arrival>) {
    let mut replies = expected.iter().filter_map(|heard| match heard {
        Heard::Reply { reply, .. } => Some(reply),
        Heard::Pushes(_) | Heard::InFront(_) => None,
    });
    let (mut sights, mut others) = (Vec::new(), Vec::new());
    for arrival in heard {
        match arrival {
            Arrival::Push(sentence) if is_sight(sentence) => {
                sights.push(Sight::Push(sentence.clone()));
                continue;
            }
            Arrival::Reply(got) => {
                let expected: Option<&Reply> = replies.next();
                sights.extend(expected.into_iter().flat_map(|reply| Sight::of(reply, got)));
            }
            Arrival::Push(_) => {}
        }
        others.push(arrival.clone());
    }
    (sights, others)
}

/// Pushes that follow each other come in any order.
fn as_one_cause(heard: &mut Vec<Heard>) {
    heard.dedup_by(|next, former| match (next, former) {
        (Heard::Pushes(next), Heard::Pushes(former)) => {
            former.append(next);
            true
        }
        _ => false,
    });
}

/// How many holds ended for one of these reasons.
fn lost(info: &HashMap<String, u64>, words: &[&str]) -> u64 {
    let count = |word| info[&format!("lost_{word}_total")];
    words.iter().map(count).sum()
}

/// How many holds their living owners lost.
fn lost_by_living_owners(info: &HashMap<String, u64>) -> u64 {
    info["lost_total"] - info["removed_by_disconnect_total"]
}

/// The module's numbers.
fn info(observer: &mut Client) -> HashMap<String, u64> {
    let text = observer.run("INFO tether").text();
    assert!(
        !text.contains("tether_fault"),
        "the module has failed:\n{text}"
    );
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("tether_")?.split_once(':'));
    let numbers = lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    numbers.collect()
}
