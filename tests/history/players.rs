//! The connections of a history, and what each of them hears.

use crate::harness::{Arrival as Came, Client, Frame, Server, bulk, encode};
use crate::model::command::{Command, Who};
use crate::model::replies::{Arrival, Reply};
use crate::model::rights::{User, user_of};
use crate::wire::{self, Book};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

pub struct Players {
    players: Vec<Option<Player>>,
    pub book: Book,
}

struct Player {
    client: Client,
    /// Since its MULTI, whether each queued command is a fence of ours.
    queued: Option<Vec<bool>>,
    heard: Vec<Arrival>,
}

impl Players {
    pub fn new(places: usize, observer: &mut Client) -> Players {
        observer.run_all(&[
            "SET dumped restored",
            "LPUSH listed 1",
            "LOCK.ACQUIRE locked",
        ]);
        let mut dump = |key| observer.run(["DUMP", key]).bytes();
        let (text, list, lock) = (dump("dumped"), dump("listed"), dump("locked"));
        observer.run_all(&["DEL dumped listed", "LOCK.RELEASE locked"]);
        // As long as nobody was there, an id that nobody has.
        let ids = vec![i64::MAX; places];
        Players {
            players: (0..places).map(|_| None).collect(),
            book: Book {
                text,
                list,
                lock,
                ids,
                secrets: Vec::new(),
                last_token: 0,
            },
        }
    }

    pub fn connect(&mut self, server: &Server, who: Who, resp3: bool) {
        let mut client = if resp3 {
            server.resp3()
        } else {
            server.resp2()
        };
        client.run(["AUTH", &user(user_of(who)), ""]);
        self.book.ids[who] = client.id();
        self.players[who] = Some(Player {
            client,
            queued: None,
            heard: Vec::new(),
        });
    }

    /// Takes a connection out of the play.
    pub fn leave(&mut self, who: Who) -> Option<Client> {
        self.players[who].take().map(|player| player.client)
    }

    pub fn is_there(&self, who: Who) -> bool {
        self.players[who].is_some()
    }

    /// Sends commands in one piece, and reads so many replies: none comes to one that stands still.
    pub fn send(&mut self, who: Who, commands: &[Command], replies: usize) {
        let words = commands.iter().map(|command| self.book.words(command));
        let bytes: Vec<u8> = words.flat_map(encode).collect();
        let player = self.player(who);
        player.client.send_bytes(&bytes);
        for at in 0..commands.len() {
            if at < replies {
                player.hear_reply();
            }
            if let Some(queued) = &mut player.queued {
                queued.push(false);
            }
        }
    }

    /// Sends a word of its own: MULTI, EXEC, DISCARD, PEXPIRE.
    pub fn say(&mut self, who: Who, words: &[&[u8]], replies: usize) {
        let player = self.player(who);
        player.client.send(words.to_vec());
        (0..replies).for_each(|_| player.hear_reply());
        match words[0] {
            b"MULTI" => player.queued = Some(Vec::new()),
            b"EXEC" => player.forget_fences(),
            b"DISCARD" => player.queued = None,
            _ => {}
        }
    }

    /// Sends a command of a holder's with which a lease begins, and when that is over a command of another's, or a transaction
    /// of several. Nothing comes between: writes are paused at once, and a server that stands still for a moment too long
    /// finds the same.
    pub fn send_when_over(
        &mut self,
        (holder, lease): (Who, &Command),
        over: Duration,
        (who, commands): (Who, &[Command]),
        replies: usize,
    ) {
        let mut bytes = encode(self.book.words(lease));
        bytes.extend(encode("CLIENT PAUSE 60000 WRITE"));
        let player = self.player(holder);
        player.client.send_bytes(&bytes);
        player.hear_reply();
        player.hear_ok();
        sleep(over);
        let mut bytes = encode("CLIENT UNPAUSE");
        let is_transaction = commands.len() > 1;
        let around = |word| is_transaction.then(|| encode(word)).into_iter().flatten();
        bytes.extend(around("MULTI"));
        for command in commands {
            bytes.extend(encode(self.book.words(command)));
        }
        bytes.extend(around("EXEC"));
        let player = self.player(who);
        player.client.send_bytes(&bytes);
        player.hear_ok();
        (0..replies).for_each(|_| player.hear_reply());
    }

    fn player(&mut self, who: Who) -> &mut Player {
        self.players[who]
            .as_mut()
            .expect("only allowed steps are taken")
    }

    /// Asks for something whose reply comes behind all that was pushed to these before.
    pub fn fence(&mut self, whom: impl Fn(Who) -> bool) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mark = format!("fence-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut fenced: Vec<&mut Player> = Vec::new();
        for (who, player) in self.players.iter_mut().enumerate() {
            fenced.extend(player.as_mut().filter(|_| whom(who)));
        }
        for player in &mut fenced {
            player.client.send(["ECHO", &mark]);
        }
        for player in &mut fenced {
            player.hear_up_to(&mark);
        }
    }

    /// Takes in what has come to one that stands still, and so cannot be asked for anything.
    pub fn listen(&mut self, who: Who) {
        let player = self.player(who);
        for came in player.client.arrived() {
            player.heard.push(match came {
                Came::Push(sentence) => Arrival::Push(sentence),
                Came::Reply(frame) => Arrival::Reply(wire::reply(frame)),
            });
        }
    }

    /// What this one has heard; it is kept until [`forget`](Self::forget).
    pub fn heard(&self, who: Who) -> &[Arrival] {
        self.players[who]
            .as_ref()
            .map_or(&[], |player| &player.heard)
    }

    pub fn forget(&mut self) {
        for player in self.players.iter_mut().flatten() {
            player.heard.clear();
        }
    }
}

/// Its name.
pub fn user(number: User) -> String {
    format!("u{number}")
}

impl Player {
    fn hear_reply(&mut self) {
        loop {
            match self.client.next() {
                Came::Push(sentence) => self.heard.push(Arrival::Push(sentence)),
                Came::Reply(frame) => {
                    self.heard.push(Arrival::Reply(wire::reply(frame)));
                    return;
                }
            }
        }
    }

    /// The answer to what belongs to no step.
    fn hear_ok(&mut self) {
        self.hear_reply();
        assert_eq!(self.heard.pop(), Some(Arrival::Reply(Reply::Ok)));
    }

    fn hear_up_to(&mut self, mark: &str) {
        loop {
            match (self.client.next(), &mut self.queued) {
                (Came::Push(sentence), _) => self.heard.push(Arrival::Push(sentence)),
                (Came::Reply(frame), None) if frame == bulk(mark) => return,
                (Came::Reply(Frame::Simple(text)), Some(queued)) if text == b"QUEUED" => {
                    queued.push(true);
                    return;
                }
                (Came::Reply(frame), _) => self.heard.push(Arrival::Reply(wire::reply(frame))),
            }
        }
    }

    /// Takes the replies to fences out of the transaction's.
    fn forget_fences(&mut self) {
        let queued = self.queued.take().unwrap_or_default();
        let mut last = self.heard.iter_mut().rev();
        let last = last.find_map(|heard| match heard {
            Arrival::Reply(Reply::Array(replies)) => Some(replies),
            _ => None,
        });
        if let Some(replies) = last.filter(|replies| replies.len() == queued.len()) {
            let mut is_fence = queued.into_iter();
            replies.retain(|_| !is_fence.next().unwrap_or(false));
        }
    }
}
