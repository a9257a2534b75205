//! A connection that sees every frame, pushes too, in the order in which they come.

use super::Fault;
use redis::{Parser, ServerError, Value, cmd};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

/// How long the server may take for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub trait Link: Read + Write + Send {}
impl<T: Read + Write + Send> Link for T {}

pub struct Client {
    link: Box<dyn Link>,
    parser: Parser,
    pub id: i64,
    /// Pushes that came in front of a reply.
    early: VecDeque<String>,
}

impl Client {
    /// With this version of RESP, and this password of the default user.
    pub fn new(link: impl Link + 'static, protocol: u8, password: &str) -> Result<Client, Fault> {
        let mut client = Client {
            link: Box::new(link),
            parser: Parser::new(),
            id: 0,
            early: VecDeque::new(),
        };
        client.call(&["HELLO", &protocol.to_string(), "AUTH", "default", password])?;
        let id = client.run("CLIENT ID")?;
        client.id = id
            .parse()
            .map_err(|_| Fault::Found(format!("CLIENT ID: {id}")))?;
        Ok(client)
    }

    pub fn send(&mut self, words: &[&str]) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        pack(words, &mut bytes);
        self.write(&bytes)
    }

    /// Several commands at once, each with spaces between its words.
    pub fn send_all<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            pack(&words, &mut bytes);
        }
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let written = self.link.write_all(bytes).and_then(|()| self.link.flush());
        written.map_err(|error| Fault::Found(format!("the server takes nothing more: {error}")))
    }

    /// The next frame.
    pub fn frame(&mut self) -> Result<Frame, Fault> {
        match self.early.pop_front() {
            Some(push) => Ok(Frame::Push(push)),
            None => self.read(),
        }
    }

    /// Reads until a frame begins so, which RESP3 has as a push; pushes in front of that are kept.
    pub fn pass_by(&mut self, begin: &str) -> Result<(), Fault> {
        loop {
            match self.read()? {
                Frame::Push(text) | Frame::Reply(text) if text.starts_with(begin) => return Ok(()),
                Frame::Push(push) => self.early.push_back(push),
                Frame::Reply(reply) => {
                    return Err(Fault::Found(format!("{reply:?} came instead of {begin:?}")));
                }
            }
        }
    }

    fn read(&mut self) -> Result<Frame, Fault> {
        let value = self.parser.parse_value(&mut self.link);
        let value = value.map_err(|error| {
            let error = error.to_string();
            let reason = error.lines().next().unwrap_or_default();
            Fault::Found(format!("no frame came: {reason}"))
        })?;
        Ok(Frame::of(&value))
    }

    /// A command and its reply; pushes in front of that are kept.
    pub fn call(&mut self, words: &[&str]) -> Result<String, Fault> {
        self.send(words)?;
        loop {
            match self.read()? {
                Frame::Reply(reply) => return Ok(reply),
                Frame::Push(push) => self.early.push_back(push),
            }
        }
    }

    /// The same with spaces between the words.
    pub fn run(&mut self, line: &str) -> Result<String, Fault> {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// A command that must have this reply.
    pub fn expect(&mut self, line: &str, reply: &str) -> Result<(), Fault> {
        let got = self.run(line)?;
        same(line, &got.as_str(), &reply)
    }

    /// Commands, sent one after the other, each with its reply.
    pub fn expect_all(&mut self, exchanges: &[(&str, &str)]) -> Result<(), Fault> {
        exchanges
            .iter()
            .try_for_each(|(line, reply)| self.expect(line, reply))
    }

    /// The next frames, in this order.
    pub fn expect_frames(&mut self, what: &str, frames: &[Frame]) -> Result<(), Fault> {
        for frame in frames {
            same(what, &self.frame()?, frame)?;
        }
        Ok(())
    }

    /// Asks again and again until the reply is as wanted.
    pub fn until(&mut self, line: &str, is_wanted: impl Fn(&str) -> bool) -> Result<(), Fault> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reply = self.run(line)?;
            if is_wanted(&reply) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Fault::Found(format!("{line} stays {reply:?}")));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Until that client is blocked.
    pub fn until_blocked(&mut self, other: i64) -> Result<(), Fault> {
        self.until(&format!("CLIENT LIST ID {other}"), |line| {
            let flags = line
                .split(' ')
                .find_map(|field| field.strip_prefix("flags="));
            flags.is_some_and(|flags| flags.contains('b'))
        })
    }

    /// Nothing more comes than the reply to PING.
    pub fn is_quiet(&mut self) -> Result<(), Fault> {
        self.expect("PING", "PONG")?;
        match self.early.pop_front() {
            None => Ok(()),
            Some(push) => Err(Fault::Found(format!("a push too many: {push:?}"))),
        }
    }

    /// The server closes the connection, whatever it sends before.
    pub fn until_closed(&mut self) -> Result<(), Fault> {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = [0; 4096];
        loop {
            match self.link.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) if Instant::now() < deadline => {}
                Err(error) if !is_late(&error) => return Ok(()),
                _ => return Err(Fault::Found("a killed connection stays open".to_owned())),
            }
        }
    }

    /// The number of a field of INFO.
    pub fn gauge(&mut self, section: &str, name: &str) -> Result<u64, Fault> {
        let info = self.call(&["INFO", section])?;
        let value = crate::inspect::field(&info, name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| Fault::Found(format!("INFO {section} has no number {name}")))
    }
}

fn is_late(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock)
}

fn pack(words: &[&str], bytes: &mut Vec<u8>) {
    let mut command = cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    bytes.extend(command.get_packed_command());
}

/// A frame as text: what it holds, with spaces between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    Reply(String),
    /// One of tether's, as RESP2 and RESP3 have it.
    Push(String),
}

impl Frame {
    fn of(value: &Value) -> Frame {
        let mut words = Vec::new();
        collect(value, &mut words);
        let kinds = ["watchex", "watchtp", "settp", "lock"];
        let is_array = matches!(value, Value::Array(items) if items.len() == 3);
        let is_push = is_array
            && words
                .first()
                .is_some_and(|word| kinds.contains(&word.as_str()));
        match value {
            Value::Push { .. } => Frame::Push(words.join(" ")),
            _ if is_push => Frame::Push(words.join(" ")),
            _ => Frame::Reply(words.join(" ")),
        }
    }

    pub fn reply(text: &str) -> Frame {
        Frame::Reply(text.to_owned())
    }

    pub fn push(text: &str) -> Frame {
        Frame::Push(text.to_owned())
    }
}

fn collect(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Nil => words.push("nil".to_owned()),
        Value::Okay => words.push("OK".to_owned()),
        Value::Int(number) => words.push(token(&number.to_string())),
        Value::SimpleString(text) => words.push(text.clone()),
        Value::BulkString(bytes) => words.push(tokens(&String::from_utf8_lossy(bytes))),
        Value::VerbatimString { text, .. } => words.push(text.clone()),
        Value::Array(items) | Value::Set(items) => {
            items.iter().for_each(|item| collect(item, words))
        }
        Value::Push { kind, data } => {
            words.push(kind.to_string());
            data.iter().for_each(|item| collect(item, words));
        }
        Value::Map(pairs) => {
            for (name, value) in pairs {
                collect(name, words);
                collect(value, words);
            }
        }
        Value::ServerError(error) => words.push(error_text(error)),
        other => words.push(format!("{other:?}")),
    }
}

fn error_text(error: &ServerError) -> String {
    format!(
        "error {} {}",
        error.code(),
        error.details().unwrap_or_default()
    )
}

/// Of a text's words.
fn tokens(text: &str) -> String {
    if text.contains('\n') {
        return text.to_owned();
    }
    let words: Vec<_> = text.split(' ').map(token).collect();
    words.join(" ")
}

/// A number that can only be a token is shown as such, since each is another one.
fn token(word: &str) -> String {
    let is_token = word.len() >= 12 && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_token {
        "TOKEN".to_owned()
    } else {
        word.to_owned()
    }
}

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, wanted: &T) -> Result<(), Fault> {
    match got == wanted {
        true => Ok(()),
        false => Err(Fault::Found(format!(
            "{what}: {got:?} came instead of {wanted:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Vec<Frame> {
        let mut parser = Parser::new();
        let mut rest = bytes;
        std::iter::from_fn(|| parser.parse_value(&mut rest).ok())
            .map(|value| Frame::of(&value))
            .collect()
    }

    #[test]
    fn pushes_and_replies_are_told_apart_in_both_protocols() {
        let wire = b"+PONG\r\n>3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nADD\r\n*3\r\n$4\r\nlock\r\n$1\r\nm\r\n$17\r\n251023456790531 y\r\n\
                     *3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nhi\r\n*2\r\n+OK\r\n:1\r\n$-1\r\n:251023456790531\r\n";
        assert_eq!(
            frames(wire),
            [
                Frame::reply("PONG"),
                Frame::push("watchex k ADD"),
                Frame::push("lock m TOKEN y"),
                Frame::reply("message ch hi"),
                Frame::reply("OK 1"),
                Frame::reply("nil"),
                Frame::reply("TOKEN"),
            ]
        );
    }
}
