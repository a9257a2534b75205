//! Where an attack is built: a server, connections to it, and what is sent by them.

use crate::server::Server;
use std::io::{Write, copy, sink};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use tether_testing::resp::{Connection, encode};

/// What a server reads of one client before it serves the next.
const AT_ONCE: usize = 16 * 1024;

pub struct Ground<'a> {
    pub server: &'a Server,
    /// As many of something as there are to be.
    pub many: usize,
    pub connections: Vec<Connection>,
    /// Those that acknowledge nothing.
    replicas: Vec<TcpStream>,
}

pub struct Strike {
    /// The number of a connection.
    pub by: usize,
    pub bytes: Vec<u8>,
    pub replies: usize,
    /// Other connections that send the same in the same turn of the server.
    pub others: Vec<usize>,
}

impl<'a> Ground<'a> {
    pub fn new(server: &'a Server, many: usize) -> Self {
        Ground {
            server,
            many,
            connections: Vec::new(),
            replicas: Vec::new(),
        }
    }

    /// The number of a new connection.
    pub fn connect(&mut self) -> usize {
        self.connections.push(self.server.connect_resp3());
        self.connections.len() - 1
    }

    /// A new connection that has run this.
    pub fn connect_and(&mut self, command: &str) -> usize {
        let by = self.connect();
        self.run(by, command);
        by
    }

    pub fn run(&mut self, by: usize, command: &str) {
        self.run_each(by, std::iter::once(command.to_owned()));
    }

    /// A connection that the server takes for a replica, and that acknowledges nothing.
    pub fn join_silent_replica(&mut self) {
        const PATIENCE: usize = 500;
        let by = self.connect_and("CONFIG SET repl-diskless-sync-delay 0");
        let mut replica = TcpStream::connect(("127.0.0.1", self.server.port())).expect("connects");
        let mut heard = replica.try_clone().expect("has another end");
        replica.write_all(&encode("PSYNC ? -1")).expect("is sent");
        thread::spawn(move || copy(&mut heard, &mut sink()));
        for _ in 0..PATIENCE {
            let acknowledges = replica.write_all(&encode("REPLCONF ACK 0"));
            acknowledges.expect("the server keeps its replica");
            let connection = &mut self.connections[by];
            if connection.text("INFO replication").contains("state=online") {
                self.replicas.push(replica);
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the server takes on no replica");
    }

    /// Returns when so many requests wait.
    pub fn await_waiters(&mut self, by: usize, count: usize) {
        let line = format!("tether_waiters:{count}\r");
        let connection = &mut self.connections[by];
        while !connection.text("INFO tether").contains(&line) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Commands without blanks in their words, each answered at once.
    pub fn run_each(&mut self, by: usize, commands: impl Iterator<Item = String>) {
        const BATCH: usize = 500;
        let mut commands = commands.peekable();
        while commands.peek().is_some() {
            let batch: Vec<_> = commands.by_ref().take(BATCH).collect();
            let connection = &mut self.connections[by];
            connection.send((batch.join("\r\n") + "\r\n").as_bytes());
            connection.skip_any_replies(batch.len());
        }
    }

    /// So much of these commands as is read at once.
    pub fn full(&self, by: usize, commands: impl Iterator<Item = String>) -> Strike {
        let mut strike = Strike {
            by,
            bytes: Vec::new(),
            replies: 0,
            others: Vec::new(),
        };
        for command in commands {
            if strike.bytes.len() + command.len() + 2 > AT_ONCE {
                break;
            }
            strike.bytes.extend_from_slice(command.as_bytes());
            strike.bytes.extend_from_slice(b"\r\n");
            strike.replies += 1;
        }
        strike
    }

    /// The same command again and again.
    pub fn again(&self, by: usize, command: &str) -> Strike {
        self.in_turn(by, &[command])
    }

    /// The same so many times: the server closes who leaves 64 MB of replies unread.
    pub fn times(&self, by: usize, command: &str, count: usize) -> Strike {
        self.full(by, std::iter::repeat_n(command.to_owned(), count))
    }

    /// The same commands again and again.
    pub fn in_turn(&self, by: usize, commands: &[&str]) -> Strike {
        self.full(by, commands.iter().copied().map(str::to_owned).cycle())
    }

    pub fn once(&self, by: usize, command: &str) -> Strike {
        self.full(by, std::iter::once(command.to_owned()))
    }

    /// One command of as many words as are read at once.
    pub fn long(&self, by: usize, verb: &str, words: impl Iterator<Item = String>) -> Strike {
        let mut command = verb.to_owned();
        for word in words {
            if command.len() + word.len() + 3 > AT_ONCE {
                break;
            }
            command += " ";
            command += &word;
        }
        self.once(by, &command)
    }
}
