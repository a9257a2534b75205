//! A history on a real server: after every step it must agree with the model in everything.

use crate::harness::{Client, Server, eventually};
use crate::look;
use crate::model::command::{Command, Mode, NAMES, Spot, Who};
use crate::model::step::{Ending, Step};
use crate::model::told::{Heard, Tokens, check};
use crate::model::world::{Limits, Outcome, Totals, World};
use crate::players::Players;
use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is not so after this time never will be.
const SOON: Duration = Duration::from_secs(2);

/// A time to live in milliseconds that is soon over, and how long to sleep for it. Of one millisecond, Redis 7.0 would now and
/// then say that it is over at once, and have the command itself delete the key.
const BRIEF: &[u8] = b"10";
const BEYOND: Duration = Duration::from_millis(12);

/// Of every world on a server.
pub const PLACES: usize = 5;
pub const USED_NAMES: usize = NAMES.len();

/// A server that is used for one history after the other.
pub struct Stage {
    server: Server,
    observer: Client,
    limits: Limits,
    /// Each history has a server that nobody used before.
    anew: bool,
}

impl Stage {
    pub fn anew_each_time(limits: Limits) -> Stage {
        let anew = true;
        Stage {
            anew,
            ..Stage::new(limits)
        }
    }

    pub fn new(limits: Limits) -> Stage {
        let Limits { watches, keys } = limits;
        let watches = format!("tether.max-watches-per-client {watches}");
        let keys = format!("tether.max-keys-per-client {keys}");
        let server = Server::with(&[&watches, &keys]);
        let observer = server.resp2();
        Stage {
            server,
            observer,
            limits,
            anew: false,
        }
    }

    fn totals(&mut self) -> Totals {
        let info = info(&mut self.observer);
        Totals {
            lost: info["lost_total"],
            removed_by_disconnect: info["keys_removed_by_disconnect"],
            grants: info["grants_total"],
            handoffs: info["handoffs_total"],
            timeouts: info["timeouts_total"],
            deadlocks_refused: info["deadlocks_refused"],
            ..Totals::default()
        }
    }

    /// Nothing is there, and nobody.
    fn clear(&mut self) {
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
    players: Players,
    stage: &'a mut Stage,
    before: Totals,
    /// Sessions of histories that failed.
    left_over: u64,
    tokens: Tokens,
    taken: usize,
}

impl<'a> Trial<'a> {
    pub fn new(stage: &'a mut Stage) -> Trial<'a> {
        if stage.anew {
            *stage = Stage::anew_each_time(stage.limits);
        }
        stage.clear();
        Trial {
            world: World::new(PLACES, stage.limits, false),
            players: Players::new(PLACES, &mut stage.observer),
            before: stage.totals(),
            left_over: info(&mut stage.observer)["sessions_detached"],
            stage,
            tokens: Tokens::default(),
            taken: 0,
        }
    }

    /// Takes a step that the world allows; a step that it does not allow is left out.
    pub fn take(&mut self, step: &Step) -> Result<(), String> {
        let goes_astray = step.copies() && self.stage.server.strays_after_copies();
        if goes_astray || !self.world.allows(step) {
            return Ok(());
        }
        self.taken += 1;
        let owned: Vec<Spot> = match step {
            Step::End { who, how } if *how == Ending::AfterLapse => self.world.held_alone_by(*who),
            Step::End { who, .. } => {
                let holds = self.world.holds_of(*who);
                holds.iter().map(|hold| hold.spot).collect()
            }
            _ => Vec::new(),
        };
        let living: Vec<_> = self.world.holds.iter().map(|hold| hold.serial).collect();
        self.tokens.begin_step(&living);
        let outcome = self.world.take(step);
        self.perform(step, &owned, &outcome);
        self.see_off_the_dead();
        self.agree(&outcome)?;
        self.world.put_in_order(&self.tokens);
        self.world.check_rules()?;
        self.world.check_nobody_is_forgotten()?;
        self.players.forget();
        let known = self.players.book.secrets.len() as u64..self.world.started;
        for session in known {
            let secret = self.tokens.secret(session);
            let secret = secret.expect("each was told to somebody").to_owned();
            self.players.book.secrets.push(secret);
        }
        Ok(())
    }

    fn perform(&mut self, step: &Step, owned: &[Spot], outcome: &Outcome) {
        let players = &mut self.players;
        let one = std::slice::from_ref::<Command>;
        let replies = |who: Who| {
            let heard = outcome.heard[who].iter();
            let replies = heard.filter(|heard| matches!(heard, Heard::Reply { late: false, .. }));
            replies.count()
        };
        match step {
            Step::Connect { who, resp3 } => players.connect(&self.stage.server, *who, *resp3),
            Step::End { who, how } => self.end(*who, *how, owned),
            Step::Run { who, command } => players.send(*who, one(command), replies(*who)),
            Step::Multi { who } => players.say(*who, &[b"MULTI"]),
            Step::Exec { who } => players.say(*who, &[b"EXEC"]),
            Step::Discard { who } => players.say(*who, &[b"DISCARD"]),
            Step::Pipeline { who, commands } => players.send(*who, commands, replies(*who)),
            Step::Expiry { who, key, then } => {
                players.say(*who, &[b"PEXPIRE", NAMES[*key], BRIEF]);
                // Nothing tells that a key has lapsed but a look at it, which ends it.
                sleep(BEYOND);
                if let Some((other, command)) = then {
                    players.send(*other, one(command), 1);
                }
            }
            Step::Reload => drop(self.stage.observer.run("DEBUG RELOAD")),
            Step::Evict { .. }
            | Step::Work { .. }
            | Step::Resync { .. }
            | Step::Pass { .. }
            | Step::Quarantine { .. }
            | Step::Drop { .. } => panic!("{step:?} cannot be asked of a server"),
        }
    }

    fn end(&mut self, who: Who, how: Ending, owned: &[Spot]) {
        let mut client = self.players.leave(who).expect("it is there");
        let stage = &mut *self.stage;
        match how {
            Ending::WhilePaused => drop(stage.observer.run("CLIENT PAUSE 60000 WRITE")),
            Ending::AfterLapse => lapse_unnoticed(&mut stage.observer, owned),
            _ => {}
        }
        match how {
            Ending::Close | Ending::WhilePaused | Ending::AfterLapse => drop(client),
            Ending::Reset => client.reset(),
            Ending::Quit => {
                client.send("QUIT");
                client.expect_closed();
            }
        }
        let id = self.players.book.ids[who];
        eventually("the end of a connection", || {
            match &*stage
                .observer
                .run(format!("CLIENT LIST ID {id}").as_str())
                .text()
            {
                "" => Ok(()),
                line => Err(line.to_owned()),
            }
        });
        if how == Ending::AfterLapse {
            stage.observer.run("DEBUG SET-ACTIVE-EXPIRE 1");
        }
        if how == Ending::WhilePaused {
            let seen = look::at_all(&mut stage.observer);
            let is_missing =
                |spot: &&Spot| !seen.iter().any(|seen| seen.spot == **spot && seen.exists);
            let missing: Vec<_> = owned.iter().filter(is_missing).collect();
            stage.observer.run("CLIENT UNPAUSE");
            assert!(
                missing.is_empty(),
                "removed while nobody might write: {missing:?}"
            );
        }
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
    fn agree(&mut self, outcome: &Outcome) -> Result<(), String> {
        self.stage.observer.run("PING");
        self.stage.observer.run("PING");
        let expects = |who: Who| {
            let mut heard = outcome.heard[who].iter();
            heard.any(|heard| matches!(heard, Heard::Pushes(_) | Heard::InFront(_)))
        };
        // A fence makes its client's last command an ECHO: sometimes it is to be another.
        let taken = self.taken;
        self.hear(|who| expects(who) || !(taken + who).is_multiple_of(4));
        let mut disagreement = self.disagreement(outcome);
        let deadline = Instant::now() + SOON;
        while disagreement.is_err() && Instant::now() < deadline {
            self.stage.server.settle();
            self.hear(|_| true);
            disagreement = self.disagreement(outcome);
        }
        disagreement
    }

    /// All that came to these; and to who stands still, what has come so far.
    fn hear(&mut self, whom: impl Fn(Who) -> bool) {
        let world = &self.world;
        let still = |who: Who| world.is_blocked(who);
        self.players.fence(|who| !still(who) && whom(who));
        for who in (0..PLACES).filter(|who| still(*who)) {
            self.players.listen(who);
        }
    }

    fn disagreement(&mut self, outcome: &Outcome) -> Result<(), String> {
        // First, since it notices what has lapsed.
        let seen = look::at_all(&mut self.stage.observer);
        let ids = &self.players.book.ids;
        for seen in &seen {
            seen.compare(&self.world, ids, &mut self.tokens)?;
        }
        for (who, expected) in outcome.heard.iter().enumerate() {
            if self.world.client(who).is_some() {
                let heard = self.players.heard(who);
                check(expected, heard, &mut self.tokens)
                    .map_err(|what| format!("client {who}: {what}"))?;
            }
        }
        self.compare_info()
    }

    fn compare_info(&mut self) -> Result<(), String> {
        let info = info(&mut self.stage.observer);
        let world = &self.world;
        let temporary = world.holds.iter();
        let temporary = temporary
            .filter(|hold| hold.mode == Mode::Temporary)
            .count();
        let mut watched: Vec<Spot> = world.watches.iter().map(|watch| watch.spot).collect();
        watched.sort_unstable();
        watched.dedup();
        let attached = world.sessions.iter();
        let attached = attached.filter(|s| s.attached.is_some()).count() as u64;
        let (totals, before) = (world.totals, self.before);
        for (name, expected) in [
            ("temporary_keys", temporary as u64),
            ("holds", (world.holds.len() - temporary) as u64),
            ("waiters", world.waiters.len() as u64),
            ("watches", world.watches.len() as u64),
            ("watched_keys", watched.len() as u64),
            ("sessions_attached", attached),
            (
                "sessions_detached",
                self.left_over + world.sessions.len() as u64 - attached,
            ),
            ("lost_total", before.lost + totals.lost),
            (
                "keys_removed_by_disconnect",
                before.removed_by_disconnect + totals.removed_by_disconnect,
            ),
            ("grants_total", before.grants + totals.grants),
            ("handoffs_total", before.handoffs + totals.handoffs),
            ("timeouts_total", before.timeouts + totals.timeouts),
            (
                "deadlocks_refused",
                before.deadlocks_refused + totals.deadlocks_refused,
            ),
        ] {
            if info[name] != expected {
                return Err(format!("{name} is {} and not {expected}", info[name]));
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

/// Lets the time to live of these keys be over, and nobody notice.
fn lapse_unnoticed(observer: &mut Client, spots: &[Spot]) {
    observer.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for spot in spots {
        observer.run(["SELECT", &spot.db.to_string()]);
        observer.run([&b"PEXPIRE"[..], NAMES[spot.name], BRIEF]);
    }
    observer.run("SELECT 0");
    sleep(BEYOND);
}
