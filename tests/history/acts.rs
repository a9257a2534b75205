//! How a step is taken on a server.

use crate::harness::{Client, encode, eventually, int, ok};
use crate::look;
use crate::model::command::{Command, Spot, Who};
use crate::model::replies::Heard;
use crate::model::rights::rules;
use crate::model::sequence::bytes_of;
use crate::model::starts::BRIEF_MS;
use crate::model::step::{Ending, Step};
use crate::model::world::Outcome;
use crate::players::user;
use crate::trial::{PLACES, Trial};
use std::thread::sleep;
use std::time::Duration;

/// A time to live in milliseconds that is soon over, and how long to sleep for it. Of one millisecond, Redis 7.0 would now and
/// then say that it is over at once, and have the command itself delete the key.
const BRIEF: &[u8] = b"10";
const BEYOND: Duration = Duration::from_millis(12);

/// How many keys beside those of the histories make a load long enough for the server to attend to connections meanwhile: of
/// a file it does that after each KiB, of commands after 1024.
const FILLING: usize = 1500;

impl Trial<'_> {
    pub fn perform(&mut self, step: &Step, owned: &[Spot], outcome: &Outcome) {
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
            Step::Multi { who } => players.say(*who, &[b"MULTI"], replies(*who)),
            Step::Exec { who } => players.say(*who, &[b"EXEC"], replies(*who)),
            Step::Discard { who } => players.say(*who, &[b"DISCARD"], replies(*who)),
            Step::Pipeline { who, commands } => players.send(*who, commands, replies(*who)),
            Step::Expiry { who, key, then } => {
                players.say(*who, &[b"PEXPIRE", bytes_of(*key), BRIEF], 1);
                // Nothing tells that a key has lapsed but a look at it, which ends it.
                sleep(BEYOND);
                if let Some((other, command)) = then {
                    players.send(*other, one(command), 1);
                }
            }
            Step::Reload {
                appended,
                goes,
                comes,
            } => self.reload(*appended, *goes, *comes),
            Step::Rights { user: of, rights } => {
                let name = user(*of);
                let words = ["ACL", "SETUSER", &name].into_iter().chain(rules(rights));
                self.stage.observer.run(words.collect::<Vec<_>>());
            }
            Step::Overdue {
                holder,
                key,
                label,
                then: (who, commands),
            } => {
                let extend = Command::Extend {
                    key: *key,
                    label: *label,
                    lease_ms: BRIEF_MS,
                };
                let own = usize::from(holder == who);
                let replies = replies(*who) - own;
                players.send_when_over((*holder, &extend), BEYOND, (*who, commands), replies);
            }
            Step::Between {
                who, over, command, ..
            } => self.come_between(*who, command, owned.split_at(over.len()), replies(*who)),
            Step::Restart { quarantine } => self.start_again(*quarantine),
            Step::QuarantineOver => self.stage.await_end_of_quarantine(),
            Step::Evict { .. }
            | Step::Work { .. }
            | Step::Resync { .. }
            | Step::Pass { .. }
            | Step::Quarantine { .. }
            | Step::Refuse
            | Step::Propagated
            | Step::Acknowledged { .. }
            | Step::Replicas { .. }
            | Step::Drop { .. } => panic!("{step:?} cannot be asked of a server"),
        }
    }

    fn start_again(&mut self, quarantine: bool) {
        self.stage.start_again(quarantine);
        self.counts_anew = true;
        for who in 0..PLACES {
            drop(self.players.leave(who));
            // Another can have it soon.
            self.players.book.ids[who] = i64::MAX;
        }
    }

    /// The first of these keys are over, the others are to be deleted.
    fn come_between(
        &mut self,
        who: Who,
        command: &Command,
        (over, deleted): (&[Spot], &[Spot]),
        replies: usize,
    ) {
        let observer = &mut self.stage.observer;
        lapse_unnoticed(observer, over);
        meddle(observer, over, deleted);
        let players = &mut self.players;
        players.send(who, std::slice::from_ref(command), replies);
        observer.run("DEBUG SET-ACTIVE-EXPIRE 1");
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
        await_end(&mut stage.observer, self.players.book.ids[who]);
        if how == Ending::AfterLapse {
            stage.observer.run("DEBUG SET-ACTIVE-EXPIRE 1");
        }
        if how == Ending::WhilePaused {
            let seen = look::at_all(&mut stage.observer, owned);
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

    fn reload(&mut self, appended: bool, goes: Option<Who>, comes: Option<Who>) {
        let mut observer = self.stage.server.resp2();
        observer.run("SELECT 2");
        if appended {
            let bytes: Vec<u8> = (0..FILLING)
                .flat_map(|n| encode(["SET", &n.to_string(), "v"]))
                .collect();
            observer.send_bytes(&bytes);
            observer.read_replies(FILLING);
        } else {
            observer.run(&format!("DEBUG POPULATE {FILLING} filling 64"));
        }
        // Microseconds for each key, so that somebody can see that the server loads.
        observer.run("CONFIG SET key-load-delay 20");
        observer.send(if appended {
            "DEBUG LOADAOF"
        } else {
            "DEBUG RELOAD"
        });
        // I/O threads may read first what was sent last.
        let server = &self.stage.server;
        eventually("a load", || {
            let is_loading = server.info("persistence").contains("\nloading:1");
            match is_loading || observer.has_reply() {
                true => Ok(()),
                false => Err("it has not begun".to_owned()),
            }
        });
        let gone = goes.map(|who| {
            drop(self.players.leave(who));
            self.players.book.ids[who]
        });
        comes
            .into_iter()
            .for_each(|who| self.players.connect(&self.stage.server, who, true));
        assert_eq!(observer.read_reply(), ok());
        observer.run("FLUSHDB");
        gone.into_iter().for_each(|id| await_end(&mut observer, id));
        drop(observer);
    }
}

/// The server knows that a connection has ended.
fn await_end(observer: &mut Client, id: i64) {
    let line = format!("CLIENT LIST ID {id}");
    eventually("the end of a connection", || {
        match &*observer.run(line.as_str()).text() {
            "" => Ok(()),
            line => Err(line.to_owned()),
        }
    });
}

/// Lets the time to live of these keys be over, and nobody notice.
fn lapse_unnoticed(observer: &mut Client, spots: &[Spot]) {
    observer.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for spot in spots {
        observer.run(["SELECT", &spot.db.to_string()]);
        observer.run([&b"PEXPIRE"[..], bytes_of(spot.name), BRIEF]);
    }
    observer.run("SELECT 0");
    sleep(BEYOND);
}

/// The other module is to look at these and delete those when the next key has left its name.
fn meddle(observer: &mut Client, over: &[Spot], deleted: &[Spot]) {
    let mut words = vec![b"BETWEEN".to_vec(), over.len().to_string().into_bytes()];
    let spots = over.iter().chain(deleted);
    words.extend(spots.map(|spot| bytes_of(spot.name).to_vec()));
    let count = words.len() - 2;
    assert_eq!(observer.run(words), int(count as i64));
}
