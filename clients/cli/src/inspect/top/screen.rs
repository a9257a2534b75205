//! Drawing on a terminal. Its settings are left as they are: whatever ends this, nothing must be put back.

use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, stdout};

/// Names of keys are cut after so many letters, so that there is room for the rest of the line.
pub const LONGEST_NAME: usize = 40;
/// Lines above the keys, with the titles.
const HEAD: u16 = 4;
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
        Some(rows.saturating_sub(HEAD + 1).into())
    }

    /// What is to be written to the terminal.
    pub fn draw(&mut self, text: &str) -> String {
        let clear = if self.is_drawn { "" } else { CLEAR_SCREEN };
        self.is_drawn = true;
        format!("{clear}{}", drawn(text, size()))
    }
}

/// Rows and columns.
fn size() -> (u16, u16) {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => USUAL,
    }
}

/// As much of a text as there is room for, over what was drawn before. The last row stays free for the cursor.
fn drawn(text: &str, (rows, columns): (u16, u16)) -> String {
    let mut drawn = format!("{CUT_LONG_LINES}{GO_HOME}");
    let is_low = rows < 2;
    for line in text.lines().take(rows.saturating_sub(1).max(1).into()) {
        drawn.extend(line.chars().take(columns.into()));
        drawn.push_str(CLEAR_REST_OF_LINE);
        drawn.push_str(if is_low { "" } else { "\n" });
    }
    drawn.push_str(CLEAR_BELOW);
    drawn.push_str(WRAP_LONG_LINES);
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = "déjà vu\nsecond\nthird\n";
        let whole = ["déjà vu", "second", "third", ""];
        assert_eq!(lines(&drawn(text, (24, 80))), whole);
        assert_eq!(lines(&drawn(text, (3, 4))), ["déjà", "seco", ""]);
        assert_eq!(lines(&drawn(text, (1, 2))), ["dé"]);
    }

    #[test]
    fn what_was_drawn_before_is_gone() {
        let drawn = drawn("one\n", (24, 80));
        assert!(drawn.contains("one\x1b[K\n\x1b[J"), "{drawn:?}");
    }
}
