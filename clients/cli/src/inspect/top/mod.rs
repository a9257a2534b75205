//! `tether top`: looks at a server again and again.
//!
//! - counters.rs: what the server counts    keys.rs: which keys are the busiest, and what finding out costs
//! - view.rs: a look as text and as JSON    screen.rs: drawing on a terminal

mod counters;
mod keys;
mod screen;
mod view;

use super::server::{Failure, Server};
use super::{print, print_json};
use crate::address;
use crate::options::Top;
use crate::output;
use counters::Counters;
use keys::{BusyKey, Sampler};
pub use screen::Screen;
use std::thread::sleep;
use std::time::Duration;

/// What is seen at one moment.
struct Look<'a> {
    server: &'a str,
    db: i64,
    counters: &'a Counters,
    /// The look before, and how long ago it was.
    earlier: Option<(&'a Counters, Duration)>,
    keys: &'a [BusyKey],
    /// How many keys this look asked for, and whether these are all.
    listed: usize,
    is_complete: bool,
}

pub fn top(url: &str, options: &Top) -> Result<u8, Failure> {
    let address = address::of(url).map_err(|error| Failure::Refused(error.to_string()))?;
    let (name, db) = (address::name(&address), address.redis_settings().db());
    let mut server = Server::connect(address)?;
    let mut screen = Screen::of_stdout().filter(|_| !options.once && !options.json);
    let mut sampler = Sampler::default();
    let mut earlier: Option<Counters> = None;
    loop {
        let counters = Counters::ask(&mut server)?;
        let room = screen.as_ref().and_then(Screen::room_for_keys);
        let count = options.count.min(room.unwrap_or(u64::MAX));
        let sample = sampler.look(&mut server, options.sort, count as usize)?;
        let look = Look {
            server: &name,
            db,
            counters: &counters,
            earlier: earlier
                .as_ref()
                .map(|earlier| (earlier, counters.asked_at - earlier.asked_at)),
            keys: &sample.busiest,
            listed: sample.listed,
            is_complete: sample.is_complete,
        };
        match &mut screen {
            Some(screen) => {
                let text = view::text(&look, Some(screen::LONGEST_NAME));
                output::steering(&screen.draw(&output::escaped(&text, &['\n'])))?;
            }
            None if options.json => print_json(&view::json(&look))?,
            None => {
                let between = if earlier.is_some() { "\n" } else { "" };
                print(&format!("{between}{}", view::text(&look, None)))?;
            }
        }
        if options.once {
            return Ok(0);
        }
        earlier = Some(counters);
        sleep(options.interval);
    }
}
