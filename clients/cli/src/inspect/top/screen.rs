//! Drawing on a terminal.

use crate::output::{self, Page};
use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, stdout};

/// Lines above the keys, with the titles, and the line for the cursor.
const ABOVE: u16 = 5;
/// Where the terminal does not know its size.
const USUAL: (u16, u16) = (24, 80);

const CLEAR_SCREEN: &str = "\x1b[2J";
const GO_HOME: &str = "\x1b[H";
const CLEAR_REST_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const CUT_LONG_LINES: &str = "\x1b[?7l";
const WRAP_LONG_LINES: &str = "\x1b[?7h";

pub struct Screen {
    is_drawn: bool,
}

impl Screen {
    /// None if the standard output is no terminal.
    pub fn of_stdout() -> Option<Screen> {
        let is_drawn = false;
        stdout().is_terminal().then_some(Screen { is_drawn })
    }

    /// How many keys there is room for.
    pub fn room_for_keys(&self) -> Option<u64> {
        let (rows, _) = size();
        Some(rows.saturating_sub(ABOVE).into())
    }

    /// How wide a line may be.
    pub fn width(&self) -> usize {
        size().1.into()
    }

    /// What is to be written to the terminal: a page, and below it a last line.
    pub fn draw(&mut self, page: &Page, last: &str) -> String {
        let clear = if self.is_drawn { "" } else { CLEAR_SCREEN };
        self.is_drawn = true;
        format!(
            "{clear}{}",
            drawn(page, last, size(), output::has_colours())
        )
    }
}

/// Rows and columns.
fn size() -> (u16, u16) {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => USUAL,
    }
}

/// As much of a page as there is room for, over what was drawn before. The last row is that of the cursor.
fn drawn(page: &Page, last: &str, (rows, columns): (u16, u16), is_painted: bool) -> String {
    let mut drawn = format!("{CUT_LONG_LINES}{GO_HOME}");
    let is_low = rows < 2;
    let width = usize::from(columns);
    let lines = page.rendered(Some(width), is_painted);
    for line in lines.take(rows.saturating_sub(1).max(1).into()) {
        drawn.push_str(&line);
        drawn.push_str(CLEAR_REST_OF_LINE);
        drawn.push_str(if is_low { "" } else { "\n" });
    }
    drawn.push_str(CLEAR_BELOW);
    if !is_low {
        let last = output::escaped(last, &[]);
        drawn.push_str(&output::cut(&last, width.saturating_sub(1)));
    }
    drawn.push_str(WRAP_LONG_LINES);
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        let mut page = Page::default();
        text.lines().for_each(|line| page.line(line));
        page
    }

    /// Without what steers the terminal.
    fn lines(drawn: &str) -> Vec<String> {
        let steering = [
            GO_HOME,
            CLEAR_REST_OF_LINE,
            CLEAR_BELOW,
            CUT_LONG_LINES,
            WRAP_LONG_LINES,
        ];
        let text = steering
            .iter()
            .fold(drawn.to_owned(), |text, words| text.replace(words, ""));
        text.split('\n').map(str::to_owned).collect()
    }

    #[test]
    fn what_there_is_no_room_for_is_cut() {
        let page = page("déjà vu\nsecond\nthird\n");
        let shown = |size| lines(&drawn(&page, "last words", size, false));
        assert_eq!(
            shown((24, 80)),
            ["déjà vu", "second", "third", "last words"]
        );
        assert_eq!(shown((3, 4)), ["déj…", "sec…", "la…"]);
        assert_eq!(shown((1, 2)), ["d…"]);
    }

    #[test]
    fn what_was_drawn_before_is_gone() {
        let drawn = drawn(&page("one\n"), "", (24, 80), false);
        assert!(drawn.contains("one\x1b[K\n\x1b[J"), "{drawn:?}");
    }
}
