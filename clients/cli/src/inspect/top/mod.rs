//! `tether top`: looks at a server again and again.
//!
//! - counters.rs: what the server counts    keys.rs: which keys are the busiest, and what finding out costs
//! - view.rs: a look as text and as JSON    screen.rs: drawing on a terminal    keyboard.rs: the terminal and its keys

mod counters;
mod keyboard;
mod keys;
mod screen;
mod view;

use super::server::{Failure, Server, locate};
use super::{print, print_json, print_page};
use crate::address::{self, Target};
use crate::options::{Order, Top};
use crate::output::{self, Page};
use crate::signals;
use counters::Counters;
use keyboard::{Event, Keyboard};
use keys::{BusyKey, Sample, Sampler};
pub use screen::Screen;
use std::os::unix::ffi::OsStrExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is seen at one moment.
struct Look<'a> {
    server: &'a str,
    db: i64,
    counters: &'a Counters,
    /// The look before, and how long ago it was.
    earlier: Option<(&'a Counters, Duration)>,
    keys: &'a [BusyKey],
    /// Which keys are shown; empty for all.
    pattern: &'a [u8],
    /// How many keys this look asked for, and whether these are all.
    listed: usize,
    is_complete: bool,
}

/// What is asked again and again.
struct Watcher {
    name: String,
    db: i64,
    server: Server,
    sampler: Sampler,
    order: Order,
    pattern: Vec<u8>,
    count: u64,
    earlier: Option<Counters>,
}

pub fn top(target: &Target, options: &Top) -> Result<u8, Failure> {
    let address = locate(target)?;
    let pattern = options.pattern.as_ref();
    let mut watcher = Watcher {
        name: address::name(&address),
        db: address.redis_settings().db(),
        server: Server::connect(address)?,
        sampler: Sampler::default(),
        order: options.sort,
        pattern: pattern.map_or(Vec::new(), |pattern| pattern.as_bytes().to_vec()),
        count: options.count,
        earlier: None,
    };
    match Screen::of_stdout().filter(|_| !options.once && !options.json) {
        Some(screen) => watcher.on_terminal(screen, options.interval),
        None => watcher.printed(options),
    }
}

impl Watcher {
    /// The next look; `show` makes something of it.
    fn look<T>(&mut self, room: u64, show: impl FnOnce(&Look) -> T) -> Result<T, Failure> {
        let counters = Counters::ask(&mut self.server)?;
        let count = self.count.min(room) as usize;
        let Sample {
            busiest,
            listed,
            is_complete,
        } = self
            .sampler
            .look(&mut self.server, self.order, &self.pattern, count)?;
        let ago = |earlier: &Counters| counters.asked_at - earlier.asked_at;
        let shown = show(&Look {
            server: &self.name,
            db: self.db,
            counters: &counters,
            earlier: self.earlier.as_ref().map(|earlier| (earlier, ago(earlier))),
            keys: &busiest,
            pattern: &self.pattern,
            listed,
            is_complete,
        });
        self.earlier = Some(counters);
        Ok(shown)
    }

    fn printed(&mut self, options: &Top) -> Result<u8, Failure> {
        loop {
            let is_first = self.earlier.is_none();
            if options.json {
                print_json(&self.look(u64::MAX, view::json)?)?;
            } else {
                let page = self.look(u64::MAX, |look| view::page(look, output::width()))?;
                if !is_first {
                    print("\n")?;
                }
                print_page(&page)?;
            }
            if options.once {
                return Ok(0);
            }
            sleep(options.interval);
        }
    }

    /// Until `q` or a signal ends it.
    fn on_terminal(&mut self, mut screen: Screen, interval: Duration) -> Result<u8, Failure> {
        let mut keyboard = Keyboard::begin()?;
        // What has been typed of a filter.
        let mut typed: Option<Vec<u8>> = None;
        loop {
            let room = screen.room_for_keys().unwrap_or(u64::MAX);
            let width = screen.width();
            let page = self.look(room, |look| view::page(look, Some(width)))?;
            let until = Instant::now() + interval;
            loop {
                self.draw(&mut screen, &page, typed.as_deref())?;
                let bytes = match keyboard.next(until)? {
                    Event::Time | Event::Redraw => break,
                    Event::End(signal) => {
                        drop(keyboard);
                        return Ok(signal.map_or(0, signals::end_by));
                    }
                    Event::Typed(bytes) => bytes,
                };
                match self.hear(&bytes, &mut typed) {
                    Heard::Nothing => {}
                    Heard::Change => break,
                    Heard::Quit => return Ok(0),
                }
            }
        }
    }

    fn draw(&self, screen: &mut Screen, page: &Page, typed: Option<&[u8]>) -> Result<(), Failure> {
        let last = match typed {
            Some(typed) => format!("filter: {}_", String::from_utf8_lossy(typed)),
            None => format!(
                "q quit   s sort: {}   / filter: {}",
                self.order.name(),
                String::from_utf8_lossy(&self.pattern)
            ),
        };
        Ok(output::steering(&screen.draw(page, &last))?)
    }

    fn hear(&mut self, bytes: &[u8], typed: &mut Option<Vec<u8>>) -> Heard {
        const ESCAPE: u8 = 0x1b;
        let mut is_changed = false;
        let mut rest = bytes;
        while let [byte, after @ ..] = rest {
            rest = after;
            // A key with a longer name, as an arrow.
            if let (&ESCAPE, [b'[' | b'O', name @ ..]) = (byte, after) {
                let end = name.iter().position(|byte| (0x40..0x7f).contains(byte));
                rest = end.map_or(&[], |end| &name[end + 1..]);
                continue;
            }
            match (typed.as_mut(), byte) {
                (Some(_), b'\n' | b'\r') => {
                    let text = typed.take().unwrap_or_default();
                    self.filter(pattern_of(&text));
                    is_changed = true;
                }
                (Some(_), &ESCAPE) => *typed = None,
                (Some(text), 0x08 | 0x7f) => {
                    let end = String::from_utf8_lossy(text).char_indices().last();
                    text.truncate(end.map_or(0, |(at, _)| at));
                }
                (Some(text), byte) => text.push(*byte),
                (None, b'q') => return Heard::Quit,
                (None, b's') => {
                    self.order = self.order.next();
                    is_changed = true;
                }
                (None, b'/') => *typed = Some(Vec::new()),
                (None, &ESCAPE) => {
                    self.filter(Vec::new());
                    is_changed = true;
                }
                (None, _) => {}
            }
        }
        match is_changed {
            true => Heard::Change,
            false => Heard::Nothing,
        }
    }

    fn filter(&mut self, pattern: Vec<u8>) {
        self.pattern = pattern;
        self.sampler = Sampler::default();
    }
}

/// What a key asks for.
enum Heard {
    Nothing,
    /// Another look.
    Change,
    Quit,
}

/// A pattern, or what names have in them.
fn pattern_of(text: &[u8]) -> Vec<u8> {
    match text.iter().any(|byte| b"*?[".contains(byte)) || text.is_empty() {
        true => text.to_vec(),
        false => [b"*", text, b"*"].concat(),
    }
}

#[test]
fn what_is_no_pattern_may_stand_anywhere() {
    for (text, pattern) in [("", ""), ("rep", "*rep*"), ("rep*", "rep*"), ("k?", "k?")] {
        assert_eq!(pattern_of(text.as_bytes()), pattern.as_bytes());
    }
}
