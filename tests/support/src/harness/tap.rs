//! What a server tells its replicas, word by word.

use super::{Client, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A replica that only listens.
pub struct Tap {
    stream: BufReader<TcpStream>,
    marks: u64,
}

/// The channel of the messages that say how far it has come.
const MARK: &str = "tap:mark";

impl Tap {
    /// From now on. The server must not send its snapshot by sockets alone (`repl-diskless-sync no`).
    pub fn open(server: &Server) -> Tap {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server");
        stream
            .set_read_timeout(Some(std::time::Duration::from_secs(30)))
            .expect("a time limit");
        stream.write_all(b"SYNC\r\n").expect("it listens");
        let mut tap = Tap {
            stream: BufReader::new(stream),
            marks: 0,
        };
        // Line ends keep the connection alive while the snapshot is made.
        let length = loop {
            let line = tap.line();
            if let Some(length) = line.strip_prefix('$') {
                break length.parse().expect("the snapshot's length");
            }
            assert!(line.is_empty(), "{line}");
        };
        let mut snapshot = vec![0; length];
        tap.stream.read_exact(&mut snapshot).expect("the snapshot");
        tap
    }

    /// What was told up to now, since the last time: commands in lower case, without SELECT.
    pub fn after(&mut self, client: &mut Client) -> Vec<Vec<String>> {
        self.marks += 1;
        let mark = self.marks.to_string();
        client.run(["PUBLISH", MARK, &mark]);
        let mut told = Vec::new();
        loop {
            let words = self.next().expect("the server goes on");
            match &*words[0] {
                "publish" if words[1] == MARK && words[2] == mark => return told,
                "select" => {}
                _ => told.push(words),
            }
        }
    }

    /// The next command that replicas are told, its name in lower case; none when the server has ended, or has become a replica.
    #[allow(clippy::should_implement_trait)] // it waits
    pub fn next(&mut self) -> Option<Vec<String>> {
        let count = loop {
            let line = self.try_line()?;
            if let Some(count) = line.strip_prefix('*') {
                break count.parse::<usize>().expect("a number of words");
            }
            assert!(line.is_empty(), "{line}");
        };
        let words: Option<Vec<_>> = (0..count).map(|_| self.word()).collect();
        let mut words = words?;
        words[0].make_ascii_lowercase();
        Some(words)
    }

    fn word(&mut self) -> Option<String> {
        let line = self.try_line()?;
        let length: usize = line[1..].parse().expect("a word's length");
        let mut word = vec![0; length + 2];
        self.stream.read_exact(&mut word).ok()?;
        Some(word[..length].escape_ascii().to_string())
    }

    fn line(&mut self) -> String {
        self.try_line().expect("a line")
    }

    /// A line that its server did not end before it was killed is none.
    fn try_line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        let line = line.strip_suffix('\n')?;
        Some(line.trim_end().to_owned())
    }
}
