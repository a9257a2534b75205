//! Storms: a server, connections on which anything is said, and what must hold all the while.

use crate::harness::{Client, Server, eventually, say};
use crate::line::Line;
use crate::presence::staying_without;
use crate::settings::{FOR_A_WHILE, SETTINGS};
use crate::spoken::Unit;
use crate::words::{Speaker, World, words_of};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// So many commands on one server, and then another one.
const PER_SERVER: usize = 100_000;
const LINES: usize = 16;
/// Between two moments at which all must have been answered.
const UNITS: usize = 400;
/// How long an answer may take. Only a storm that fails needs all of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says so many commands, on one server after another. Which follows from the seed.
pub fn storms(first_seed: u64, commands: usize) {
    let mut left = commands;
    let mut came_about = [0; WHAT.len()];
    for seed in first_seed.. {
        let said = left.min(PER_SERVER);
        let mut storm = Storm::new(seed);
        let done = catch_unwind(AssertUnwindSafe(|| storm.rage(said)));
        if let Err(panic) = done {
            say(&format!(
                "TETHER_SEED={seed} fails after {} commands",
                storm.said
            ));
            resume_unwind(panic);
        }
        for (sum, count) in came_about.iter_mut().zip(storm.came_about) {
            *sum += count;
        }
        left -= said;
        if left == 0 {
            break;
        }
    }
    println!("{commands} times something was said, in which came about {WHAT:?}: {came_about:?}");
    // Storms in which nothing happens prove nothing.
    assert!(commands < 10_000 || came_about.iter().all(|count| *count > 0));
}

/// What INFO counts of a storm.
const WHAT: [&str; 6] = [
    "pushes_sent_total",
    "grants_total",
    "handoffs_total",
    "timeouts_total",
    "deadlocks_refused_total",
    "lost_total",
];

struct Storm {
    server: Server,
    control: Client,
    lines: Vec<Line>,
    /// Of connections that went without a word. The server may still be hearing them.
    gone: Vec<i64>,
    speaker: Speaker,
    world: World,
    said: usize,
    has_file: bool,
    came_about: [i64; WHAT.len()],
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut settings = vec![
            "loading-process-events-interval-bytes 1024",
            "io-threads-do-reads yes",
            "save \"\"",
        ];
        let of_seed =
            |(at, lines): (usize, &&[&'static str])| lines[(seed as usize >> at) % lines.len()];
        settings.extend(SETTINGS.iter().enumerate().map(of_seed));
        let server = Server::with(&settings);
        let mut control = server.resp2();
        control.run_all(&["SET dumped text", "LPUSH listed 1 2", "LOCK.ACQUIRE locked"]);
        let dumps = ["dumped", "listed", "locked"].map(|key| control.run(["DUMP", key]).bytes());
        control.run_all(&["LOCK.RELEASE locked", "FLUSHALL"]);
        let loses_its_way =
            server.is_at_least((8, 2), (u32::MAX, 0)) && !server.is_at_least((8, 4), (u32::MAX, 0));
        let may_redirect = server.is_at_least((7, 2), (8, 0)) && !loses_its_way;
        let may_flush =
            !server.is_at_least((7, 4), (u32::MAX, 0)) || server.is_at_least((8, 0), (8, 0));
        Storm {
            control,
            lines: Vec::new(),
            gone: Vec::new(),
            speaker: Speaker::new(seed, may_redirect, may_flush),
            world: World {
                ids: vec![0],
                secrets: vec![vec![b'0'; 32]],
                dumps: dumps.to_vec(),
            },
            said: 0,
            came_about: [0; WHAT.len()],
            has_file: settings.contains(&"appendonly yes"),
            server,
        }
    }

    fn rage(&mut self, commands: usize) {
        while self.said < commands {
            let unusual =
                FOR_A_WHILE.map(|(to, _)| self.speaker.random.per_mille(120).then_some(to));
            for to in unusual.into_iter().flatten() {
                self.order(to);
            }
            self.units(UNITS);
            self.something_else();
            self.calm_down();
            for ((_, fro), _) in FOR_A_WHILE
                .iter()
                .zip(unusual)
                .filter(|(_, to)| to.is_some())
            {
                self.order(fro);
            }
            self.look();
        }
        self.finish();
    }

    fn units(&mut self, count: usize) {
        (0..count).for_each(|_| self.one_unit());
    }

    fn one_unit(&mut self) {
        self.said += 1;
        if self.lines.len() < LINES {
            let line = Line::new(&self.server);
            self.world.ids.push(line.id);
            // Half of the ids are of connections that are there.
            let old = self.world.ids.len().saturating_sub(2 * LINES);
            self.world.ids.drain(..old);
            self.lines.push(line);
        }
        if self.speaker.random.per_mille(10) {
            return self.rights_change();
        }
        let at = self.speaker.random.below(self.lines.len());
        if self.speaker.random.per_mille(15) {
            // It goes without a word.
            self.keep_secrets(at);
            self.gone.push(self.lines.swap_remove(at).id);
            return;
        }
        let is_subscribed = self.lines[at].is_subscribed;
        let unit = self.speaker.unit(&self.world, is_subscribed);
        self.expect_ends(&unit);
        self.lines[at].say(&unit);
        self.lines[at].listen();
        if self.lines[at].has_ended {
            self.keep_secrets(at);
            self.lines.swap_remove(at);
        }
    }

    fn rights_change(&mut self) {
        // Whose user is gone, or subscribed to what that may no more hear, is hung up on.
        for line in &mut self.lines {
            line.may_end = true;
        }
        let command = self.speaker.about_users();
        self.order(&command);
    }

    fn expect_ends(&mut self, unit: &Unit) {
        for line in &mut self.lines {
            line.may_end |= unit.kills.contains(&line.id);
        }
    }

    fn keep_secrets(&mut self, at: usize) {
        const KEPT: usize = 12;
        let told = std::mem::take(&mut self.lines[at].secrets);
        self.world.secrets.extend(told);
        let old = self.world.secrets.len().saturating_sub(KEPT);
        self.world.secrets.drain(..old);
    }

    /// What an operator does, or a program that is broken.
    fn something_else(&mut self) {
        match self.speaker.random.below(14) {
            0 | 1 => self.load("DEBUG RELOAD"),
            2 if self.has_file => self.load("DEBUG LOADAOF"),
            3 => self.order("BGREWRITEAOF"),
            4 => self.demotion(),
            5 => self.pause(),
            6 => self.broken_bytes(),
            7..=9 => self.waits_in_vain(),
            _ => {}
        }
    }

    /// May be refused, as where another is under way.
    fn order(&mut self, command: &str) {
        self.control.call(command);
    }

    /// What others publish to themselves while servers since Redis 7.2 load comes to who ordered that, also without the module.
    fn load(&mut self, command: &str) {
        self.server.resp2().changing_protocol().call(command);
    }

    /// For a moment the server follows another one, which is not there. Who waits is hung up on; a server of its own would not
    /// do that to who said CLIENT REPLY OFF before.
    fn demotion(&mut self) {
        self.calm_down();
        for line in &mut self.lines {
            line.say(&self.speaker.usual());
        }
        for line in &mut self.lines {
            line.may_end = true;
        }
        self.order("REPLICAOF 127.0.0.1 1");
        self.units(UNITS / 8);
        self.order("REPLICAOF NO ONE");
    }

    /// Nobody may write for a moment. What is said meanwhile is no more than a few commands of ours, since some of the server's
    /// (CLIENT UNBLOCK of a postponed client) would end some servers by themselves.
    fn pause(&mut self) {
        self.calm_down();
        self.order("CLIENT PAUSE 10000 WRITE");
        for at in 0..self.lines.len() {
            let line = self.speaker.random.pick(&[
                "SETTP a v",
                "LOCK.ACQUIRE b WAIT 5",
                "DELTP a",
                "LOCK.CANCEL b",
            ]);
            self.lines[at].say(&Unit::of(&words_of(line)));
        }
        if self.speaker.random.per_mille(500) {
            let half = self.lines.drain(self.lines.len() / 2..);
            self.gone.extend(half.map(|line| line.id));
        }
        sleep(Duration::from_millis(2));
        self.order("CLIENT UNPAUSE");
    }

    /// All want the same at once, for a moment, and then nothing is said until the moment is over.
    fn waits_in_vain(&mut self) {
        self.calm_down();
        for line in &mut self.lines {
            let wish = self.speaker.random.pick(&[
                "SETTP a v WAIT 1",
                "SETTP a v WAIT 5 PUSH",
                "LOCK.ACQUIRE b WAIT 5",
                "LOCK.ACQUIRE b SHARED WAIT 1",
                "LOCK.MACQUIRE 2 a b WAIT 20",
            ]);
            line.say(&Unit::of(&words_of(wish)));
        }
        sleep(Duration::from_millis(30));
    }

    fn broken_bytes(&mut self) {
        // It may say anything, and so end any.
        for line in &mut self.lines {
            line.may_end = true;
        }
        for _ in 0..10 {
            let bytes = self.speaker.broken_bytes(&self.world);
            let address = ("127.0.0.1", self.server.port());
            let mut stream = TcpStream::connect(address).expect("a connection");
            let timeout = stream.set_read_timeout(Some(PATIENCE));
            timeout.expect("a socket that has one");
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            // It has all been heard when the server hangs up.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }

    /// Waits until all that was said was answered; who waits for something is told to go on.
    fn calm_down(&mut self) {
        for line in &mut self.lines {
            line.mark();
        }
        let begin = Instant::now();
        let mut idle = 0;
        while self.lines.iter().any(|line| !line.is_quiet()) {
            let heard = self.lines.iter_mut().map(Line::listen);
            if heard.fold(false, |any, heard| any | heard) {
                continue;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "no answer within {PATIENCE:?}: {}",
                self.late()
            );
            idle += 1;
            sleep(Duration::from_millis(1));
            self.wake_all(if idle % 2 == 0 { "TIMEOUT" } else { "ERROR" });
        }
        for at in 0..self.lines.len() {
            self.keep_secrets(at);
        }
        self.lines.retain(|line| !line.has_ended);
        self.see_who_is_there();
    }

    /// That all was answered does not tell that the last killed one has heard of it, nor that those have been heard who went
    /// without a word, and may have said whom to kill.
    fn see_who_is_there(&mut self) {
        let staying = staying_without(&self.gone, &mut self.control);
        self.gone.clear();
        for line in &mut self.lines {
            line.may_end = !staying.contains(&line.id);
        }
    }

    /// Ends whatever these stand still for.
    fn wake_all(&mut self, how: &str) {
        let mut asked = 0;
        for line in self.lines.iter_mut().filter(|line| !line.is_quiet()) {
            self.control
                .send(&format!("CLIENT UNBLOCK {} {how}", line.id));
            asked += 1;
            line.mark_again();
        }
        self.control.read_replies(asked);
    }

    fn late(&mut self) -> String {
        let late = self.lines.iter().filter(|line| !line.is_quiet());
        let late: Vec<_> = late.map(Line::story).collect();
        let clients = self.control.run("CLIENT LIST").text();
        format!("{}\n{clients}", late.join("\n\n"))
    }

    fn look(&mut self) {
        let info = self.control.run("INFO tether").text();
        assert!(
            !info.contains("tether_fault"),
            "the module has failed:\n{info}"
        );
    }

    /// Everyone goes. Nothing of theirs is left, and the server comes back from its files.
    fn finish(&mut self) {
        self.lines.clear();
        for setting in [
            "maxmemory 0",
            "min-replicas-to-write 0",
            "tether.resp2-push yes",
        ] {
            self.control.run(format!("CONFIG SET {setting}").as_str());
        }
        self.control.run("DEBUG SET-ACTIVE-EXPIRE 1");
        eventually("the end of all that connections had", || {
            let info = self.control.run("INFO tether").text();
            let gauges = [
                "temporary_keys",
                "holds",
                "waiters",
                "watches",
                "watched_keys",
                "sessions_attached",
            ];
            let is_zero = |name: &&str| info.contains(&format!("tether_{name}:0\r\n"));
            let left: Vec<_> = gauges.iter().filter(|name| !is_zero(name)).collect();
            match left.is_empty() {
                true => Ok(()),
                false => Err(format!("{left:?} in {info}")),
            }
        });
        self.look();
        let names = WHAT.map(|name| format!("tether_{name}"));
        let names: [&str; WHAT.len()] = std::array::from_fn(|at| names[at].as_str());
        self.came_about = self.server.gauges("tether", names);
        self.order("SAVE");
        self.server.crash_and_restart();
        self.control = self.server.resp2();
        self.look();
    }
}
