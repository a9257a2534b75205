//! Transcripts: sessions of redis-cli shown in a document, run again against a real server.
//!
//! A block that is fenced as `redis` is a play with a server of its own (`redis resp2`: without redis-cli's `-3`; `redis @lock`:
//! where the server has the module's ACL category):
//!
//! ```text
//!   ann> SETTP lock ann             ann's redis-cli is given this; below stands what it prints
//!   (integer) 1
//!   > PING                          a connection that needs no name
//!   PONG
//!   bob> SETTP lock bob WAIT 0      nothing below: bob waits
//!   ann> QUIT                       her redis-cli ends, and with it her connection
//!   bob: (integer) 1                what bob's prints at last
//!   $ kill -9 <bob's redis-cli>
//!   # a remark
//! ```
//!
//! The output is compared line by line with that of redis-cli on a terminal, but for what differs from run to run
//! (see `likeness.rs`), for the time that redis-cli notes after a long wait, and for empty lines. `...` stands for any
//! text within a line. A push is printed when redis-cli next reads a reply, as on a terminal.

mod likeness;
mod play;

use crate::harness::{Server, say};
use crate::project;
use std::fs;

/// A fenced block of a document.
pub struct Block {
    /// What stands after the opening fence.
    pub tag: String,
    pub lines: Vec<String>,
    /// `README.md:17`
    place: String,
}

/// A document of the project, by its path from the project's folder.
pub fn document(path: &str) -> String {
    let file = project().join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn blocks(path: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in document(path).lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(tag), None) => {
                open = Some(Block {
                    tag: tag.trim().to_owned(),
                    lines: Vec::new(),
                    place: format!("{path}:{}", at + 1),
                });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.lines.push(line.trim_end().to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{path} ends within a block");
    blocks
}

/// Runs all transcripts of a document and says how many there were.
pub fn run_all(path: &str) -> usize {
    let mut plays = blocks(path);
    plays.retain(|block| ["redis", "redis resp2", "redis @lock"].contains(&&*block.tag));
    if plays.iter().any(|play| play.tag == "redis @lock") && !Server::start().has_own_category() {
        say(&format!("{path}: this server has no ACL category @lock"));
        plays.retain(|play| play.tag != "redis @lock");
    }
    for play in &plays {
        play::run(play);
    }
    plays.len()
}

/// A line of a play, with what belongs to it.
#[derive(Debug)]
enum Step {
    Command {
        who: String,
        text: String,
        printed: Vec<String>,
    },
    Late {
        who: String,
        printed: Vec<String>,
    },
    Kill {
        who: String,
    },
}

fn name_before<'a>(line: &'a str, sign: &str) -> Option<(&'a str, &'a str)> {
    let (name, rest) = line.split_once(sign)?;
    let is_name = name.bytes().all(|c| c.is_ascii_lowercase());
    is_name.then_some((name, rest))
}

fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines.iter().filter(|line| !line.is_empty()) {
        let kill = line.strip_prefix("$ kill -9 <");
        if let Some(who) = kill.and_then(|rest| rest.strip_suffix("'s redis-cli>")) {
            let who = who.to_owned();
            steps.push(Step::Kill { who });
        } else if let Some((who, text)) = name_before(line, "> ") {
            let (who, text, printed) = (who.to_owned(), text.to_owned(), Vec::new());
            steps.push(Step::Command { who, text, printed });
        } else if let Some((who, text)) = name_before(line, ": ") {
            match steps.last_mut() {
                Some(Step::Late { who: same, printed }) if same == who => {
                    printed.push(text.to_owned());
                }
                _ => steps.push(Step::Late {
                    who: who.to_owned(),
                    printed: vec![text.to_owned()],
                }),
            }
        } else if !line.starts_with("# ") {
            match steps.last_mut() {
                Some(Step::Command { printed, .. }) => printed.push(line.clone()),
                other => panic!("{}: who prints {line:?}? (after {other:?})", block.place),
            }
        }
    }
    steps
}
