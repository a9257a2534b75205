//! What the runner and its guard say to each other, a line each.

use super::machine::Why;
use tether_client::BootTime;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToGuard {
    /// The lock is vouched for until then.
    Alive(BootTime),
    Lost,
    /// Pass this signal on to the command.
    Signal(i32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToRunner {
    Started,
    /// The command could not be executed, with the system's reason.
    NotStarted(i32),
    /// The guard cannot do its work here, with the system's reason.
    Unfit(i32),
    /// A signal of the terminal has stopped the command.
    Stopped,
    /// Nothing is left of the command: why it had to end, and how it did.
    Done {
        why: Why,
        ending: Ending,
    },
}

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Code(u8),
    Signal(i32),
}

impl ToGuard {
    pub fn line(self) -> String {
        match self {
            ToGuard::Alive(BootTime(until)) => format!("alive {until}\n"),
            ToGuard::Lost => "lost\n".to_owned(),
            ToGuard::Signal(signal) => format!("signal {signal}\n"),
        }
    }

    pub fn parse(line: &str) -> Option<ToGuard> {
        match line.split_once(' ') {
            Some(("alive", until)) => Some(ToGuard::Alive(BootTime(until.parse().ok()?))),
            Some(("signal", signal)) => Some(ToGuard::Signal(signal.parse().ok()?)),
            None if line == "lost" => Some(ToGuard::Lost),
            _ => None,
        }
    }
}

const WHYS: [(Why, &str); 4] = [
    (Why::Command, "command"),
    (Why::Lost, "lost"),
    (Why::Deadline, "deadline"),
    (Why::Runner, "runner"),
];

impl ToRunner {
    pub fn line(self) -> String {
        match self {
            ToRunner::Started => "started\n".to_owned(),
            ToRunner::NotStarted(errno) => format!("not-started {errno}\n"),
            ToRunner::Unfit(errno) => format!("unfit {errno}\n"),
            ToRunner::Stopped => "stopped\n".to_owned(),
            ToRunner::Done { why, ending } => {
                let word = WHYS.iter().find(|(other, _)| *other == why);
                let word = word.map_or("command", |(_, word)| word);
                match ending {
                    Ending::Code(code) => format!("done {word} {code}\n"),
                    Ending::Signal(signal) => format!("done {word} {} signal\n", 128 + signal),
                }
            }
        }
    }

    pub fn parse(line: &str) -> Option<ToRunner> {
        let mut words = line.split(' ');
        let first = words.next()?;
        match (first, words.next(), words.next(), words.next()) {
            ("started", None, None, None) => Some(ToRunner::Started),
            ("stopped", None, None, None) => Some(ToRunner::Stopped),
            ("not-started", Some(errno), None, None) => {
                Some(ToRunner::NotStarted(errno.parse().ok()?))
            }
            ("unfit", Some(errno), None, None) => Some(ToRunner::Unfit(errno.parse().ok()?)),
            ("done", Some(why), Some(number), how) => {
                let (why, _) = WHYS.iter().find(|(_, word)| *word == why)?;
                let ending = match how {
                    None => Ending::Code(number.parse().ok()?),
                    Some("signal") => Ending::Signal(number.parse::<i32>().ok()? - 128),
                    Some(_) => return None,
                };
                Some(ToRunner::Done { why: *why, ending })
            }
            _ => None,
        }
    }
}

/// Puts lines together from what arrives in pieces.
#[derive(Default)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// The lines that these bytes complete.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                lines.push(String::from_utf8_lossy(&self.begun).into_owned());
                self.begun.clear();
            } else {
                self.begun.push(*byte);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for word in [
            ToGuard::Alive(BootTime(0)),
            ToGuard::Alive(BootTime::NEVER),
            ToGuard::Lost,
            ToGuard::Signal(15),
        ] {
            let line = word.line();
            assert_eq!(ToGuard::parse(line.trim_end()), Some(word));
        }
        let mut words = vec![
            ToRunner::Started,
            ToRunner::NotStarted(2),
            ToRunner::Unfit(38),
            ToRunner::Stopped,
        ];
        for ending in [Ending::Code(137), Ending::Signal(9)] {
            words.extend(WHYS.map(|(why, _)| ToRunner::Done { why, ending }));
        }
        for word in words {
            let line = word.line();
            assert_eq!(ToRunner::parse(line.trim_end()), Some(word));
        }
        for nonsense in [
            "",
            "alive",
            "alive x",
            "lost 1",
            "done",
            "done lost",
            "done x 1",
            "done lost 1 2",
        ] {
            assert_eq!(ToGuard::parse(nonsense), None);
            assert_eq!(ToRunner::parse(nonsense), None);
        }
    }

    #[test]
    fn lines_arrive_in_pieces() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"alive 1"), Vec::<String>::new());
        assert_eq!(lines.take(b"2\nlost\nsig"), ["alive 12", "lost"]);
        assert_eq!(lines.take(b"nal 2\n"), ["signal 2"]);
    }
}
