//! The players: one redis-cli for each connection of a transcript.

use super::likeness::Likeness;
use super::{Block, Step, steps};
use crate::harness::{Client, Server, eventually, redis_cli};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a redis-cli may take to print what it is to print.
const PATIENCE: Duration = Duration::from_secs(10);

/// The redis-clis of a play.
struct Cast<'a> {
    play: &'a Block,
    server: &'a Server,
    control: Client,
    players: BTreeMap<String, Player>,
    likeness: Likeness,
}

pub fn run(play: &Block) {
    let server = Server::start();
    let mut cast = Cast {
        play,
        server: &server,
        control: server.resp2(),
        players: BTreeMap::new(),
        likeness: Likeness::default(),
    };
    for step in steps(play) {
        cast.still_wait(&step);
        match step {
            Step::Command { who, text, printed } => cast.command(&who, &text, &printed),
            Step::Late { who, printed } => {
                cast.expect(&who, "its wait", &printed);
                cast.player(&who).waits = false;
            }
            Step::Kill { who } => {
                let mut player = cast.players.remove(&who).expect("somebody to kill");
                player.child.kill().expect("a living redis-cli");
                cast.wait_for_the_end_of(player);
            }
        }
        server.settle();
    }
    // Who waits goes first: nobody is to be served by the end of the play.
    let (waiting, others): (Vec<_>, Vec<_>) = cast
        .players
        .into_iter()
        .partition(|(_, player)| player.waits);
    for (who, player) in waiting.into_iter().chain(others) {
        let (waits, rest) = (player.waits, player.end());
        assert!(
            waits || rest.is_empty(),
            "{}: {who}> also prints {rest:#?}",
            play.place
        );
    }
}

impl Cast<'_> {
    fn player(&mut self, who: &str) -> &mut Player {
        let place = &self.play.place;
        let player = self.players.get_mut(who);
        player.unwrap_or_else(|| panic!("{place}: {who:?} is not there"))
    }

    /// Nobody who waits has been answered before the play says so.
    fn still_wait(&mut self, next: &Step) {
        for (who, player) in &mut self.players {
            let is_next = matches!(next, Step::Late { who: late, .. } if late == who);
            if player.waits && !is_next {
                let printed: Vec<String> = player.printed.try_iter().collect();
                assert!(
                    printed.is_empty(),
                    "{}: {who} does not wait any more before {next:?}, but printed {printed:#?}",
                    self.play.place
                );
            }
        }
    }

    fn command(&mut self, who: &str, text: &str, printed: &[String]) {
        if !self.players.contains_key(who) {
            self.enter(who);
        }
        let typed = self.likeness.typed(text);
        let input = self.player(who).input.as_mut().expect("an open input");
        writeln!(input, "{typed}").expect("a redis-cli that reads");
        if text.eq_ignore_ascii_case("quit") {
            let player = self.players.remove(who).expect("who quits was there");
            self.wait_for_the_end_of(player);
        } else if printed.is_empty() {
            self.wait_until_blocked(who, text);
        } else {
            self.expect(who, text, printed);
        }
    }

    fn enter(&mut self, who: &str) {
        let others = self.connections();
        let mut player = Player::start(self.server.port(), self.play.tag != "redis resp2");
        player.id = eventually("a redis-cli's connection", || {
            let now = self.connections();
            let mut new = now.keys().filter(|id| !others.contains_key(*id));
            new.next().cloned().ok_or_else(|| format!("{now:?}"))
        });
        self.players.insert(who.to_owned(), player);
    }

    fn wait_until_blocked(&mut self, who: &str, text: &str) {
        let what = format!("{}: {who} blocked by {text}", self.play.place);
        let player = self.player(who);
        player.waits = true;
        let id = player.id.clone();
        eventually(&what, || {
            let flags = self.connections().remove(&id).unwrap_or_default();
            flags.contains('b').then_some(()).ok_or(flags)
        });
    }

    fn expect(&mut self, who: &str, after: &str, expected: &[String]) {
        let player = self.player(who);
        let mut printed = Vec::new();
        while printed.len() < expected.len() {
            match player.printed.recv_timeout(PATIENCE) {
                Ok(line) => printed.push(line),
                Err(_) => break,
            }
        }
        let is_like = self.likeness.all(expected, &printed);
        assert!(
            is_like,
            "{}: after {who}> {after}\nthe document has\n{}\nand redis-cli prints\n{}\n",
            self.play.place,
            expected.join("\n"),
            printed.join("\n")
        );
    }

    /// The ids of all connections, each with its flags.
    fn connections(&mut self) -> BTreeMap<String, String> {
        let list = self.control.run("CLIENT LIST").text();
        let field = |line: &str, name: &str| {
            let mut fields = line.split(' ');
            let found = fields
                .find_map(|field| field.strip_prefix(name))
                .map(str::to_owned);
            found.expect("CLIENT LIST has this field")
        };
        let lines = list
            .lines()
            .map(|line| (field(line, "id="), field(line, "flags=")));
        lines.collect()
    }

    fn wait_for_the_end_of(&mut self, player: Player) {
        let id = player.id.clone();
        let rest = player.end();
        assert!(
            rest.is_empty(),
            "{}: before its end: {rest:#?}",
            self.play.place
        );
        eventually("the end of a redis-cli's connection", || {
            let flags = self.connections().remove(&id);
            flags.map_or(Ok(()), Err)
        });
    }
}

/// One redis-cli.
struct Player {
    child: Child,
    input: Option<ChildStdin>,
    printed: Receiver<String>,
    /// Of its connection.
    id: String,
    waits: bool,
}

impl Player {
    fn start(port: u16, resp3: bool) -> Player {
        let mut child = Command::new(redis_cli())
            .args(["-h", "127.0.0.1", "-p", &port.to_string()])
            .args(if resp3 { &["-3"][..] } else { &[] })
            // As it would be on a terminal.
            .args(["--no-raw", "--show-pushes", "yes"])
            .env("REDISCLI_RCFILE", "/dev/null")
            .env("VALKEYCLI_RCFILE", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, printed) = channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if !line.is_empty() && !is_time(&line) && sender.send(line).is_err() {
                    return;
                }
            }
        });
        Player {
            input: child.stdin.take(),
            child,
            printed,
            id: String::new(),
            waits: false,
        }
    }

    /// Ends it, and gives what it printed beyond what was read.
    fn end(mut self) -> Vec<String> {
        drop(self.input.take());
        if self.waits {
            let _ = self.child.kill();
        }
        eventually("the end of a redis-cli", || match self.child.try_wait() {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        self.printed.iter().collect()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What redis-cli notes after a reply that took long: `(1.02s)`
fn is_time(line: &str) -> bool {
    let seconds = line
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix("s)"));
    seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
}
