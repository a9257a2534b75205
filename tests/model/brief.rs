//! Short words for histories that are written by hand.

use super::command::{Command, Name, Who};
use super::step::{Ending, Step};

/// By RESP3.
pub fn connect(who: Who) -> Step {
    Step::Connect { who, resp3: true }
}

pub fn run(who: Who, command: Command) -> Step {
    Step::Run { who, command }
}

pub fn multi(who: Who) -> Step {
    Step::Multi { who }
}

pub fn exec(who: Who) -> Step {
    Step::Exec { who }
}

pub fn close(who: Who) -> Step {
    let how = Ending::Close;
    Step::End { who, how }
}

pub fn pipeline(who: Who, commands: impl Into<Vec<Command>>) -> Step {
    let commands = commands.into();
    Step::Pipeline { who, commands }
}

pub fn settp(key: Name) -> Command {
    Command::Settp { key, value: 1 }
}

pub fn set(key: Name) -> Command {
    Command::Set { key, value: 2 }
}

pub fn del(key: Name) -> Command {
    let keys = vec![key];
    Command::Del { keys }
}

pub fn watchex(key: Name) -> Command {
    let keys = vec![key];
    Command::Watchex { keys }
}

/// Of all keys.
pub fn unwatchex() -> Command {
    let keys = Vec::new();
    Command::Unwatchex { keys }
}

pub fn script(commands: impl Into<Vec<Command>>) -> Command {
    let commands = commands.into();
    let written = false;
    Command::Script { commands, written }
}
