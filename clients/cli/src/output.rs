//! The one way out: whatever a server or a user calls something, it cannot steer the terminal on which it is shown.
//!
//! Every other file is kept from writing by the compiler's lints in main.rs, but for the answers of the parser of arguments.

use rustix::termios::tcgetwinsize;
use serde_json::Value;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write, stdout};

/// What moves a cursor, changes colours or the direction of writing, or is not seen at all.
pub fn is_steering(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Lines for people.
pub fn lines(text: &str) -> io::Result<()> {
    write(&escaped(text, &['\n']))
}

/// How the beginning of a line looks on a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paint {
    Bold,
    Green,
    Yellow,
    Red,
}

impl Paint {
    fn code(self) -> u8 {
        match self {
            Paint::Bold => 1,
            Paint::Green => 32,
            Paint::Yellow => 33,
            Paint::Red => 31,
        }
    }
}

/// Ends what was cut.
pub const CUT: char = '…';

/// Lines for people, of which some begin in colour.
#[derive(Clone, Default)]
pub struct Page(Vec<(String, usize, Option<Paint>)>);

impl Page {
    pub fn line(&mut self, text: impl Into<String>) {
        self.0.push((text.into(), 0, None));
    }

    /// Its first letters are painted, so many.
    pub fn painted(&mut self, paint: Paint, letters: usize, text: impl Into<String>) {
        self.0.push((text.into(), letters, Some(paint)));
    }

    /// Line by line: without anything that steers a terminal but the colours, and cut where a width is given.
    pub fn rendered(
        &self,
        width: Option<usize>,
        is_painted: bool,
    ) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(move |(text, letters, paint)| {
            let mut line = escaped(text, &[]);
            if let Some(width) = width {
                line = cut(&line, width);
            }
            let Some(paint) = paint.filter(|_| is_painted) else {
                return line;
            };
            let end = line.char_indices().nth(*letters);
            let (begin, rest) = line.split_at(end.map_or(line.len(), |(at, _)| at));
            format!("\x1b[{}m{begin}\x1b[0m{rest}", paint.code())
        })
    }

    /// To the standard output; in colours on a terminal only, and not where NO_COLOR or a dumb terminal forbids it.
    pub fn print(&self) -> io::Result<()> {
        let lines = self.rendered(None, has_colours());
        write(&lines.map(|line| line + "\n").collect::<String>())
    }
}

/// As much of a text as fits, with a mark if that is not all.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut begin: String = text.chars().take(width.saturating_sub(1)).collect();
    begin.push(CUT);
    begin
}

/// How wide lines may be: as the terminal is, or as COLUMNS says; elsewhere there is no bound.
pub fn width() -> Option<usize> {
    let of_terminal = || {
        let size = tcgetwinsize(stdout()).ok()?;
        (size.ws_col > 0).then_some(size.ws_col.into())
    };
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    match stdout().is_terminal() {
        true => of_terminal().or_else(said),
        false => said(),
    }
}

pub fn has_colours() -> bool {
    let is = |name, is: fn(&str) -> bool| std::env::var(name).is_ok_and(|value| is(&value));
    stdout().is_terminal()
        && !is("NO_COLOR", |value| !value.is_empty())
        && !is("TERM", |value| value == "dumb")
}

/// One line for programs. It says the same as without escapes.
pub fn json(value: &Value) -> io::Result<()> {
    let mut line = String::new();
    for letter in value.to_string().chars() {
        if is_steering(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(line, "\\u{unit:04x}");
            }
        } else {
            line.push(letter);
        }
    }
    line.push('\n');
    write(&line)
}

/// What steers the terminal on purpose.
pub fn steering(text: &str) -> io::Result<()> {
    write(text)
}

/// One line on the standard error.
pub fn complain(why: impl Display) {
    let line = escaped(&format!("tether: {why}"), &[]);
    // There is nobody to tell that it could not be told.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// With all that steers escaped, but for these letters.
pub fn escaped(text: &str, but: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_steering(letter) && !but.contains(&letter) {
            escaped.extend(escape(letter));
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// `\n`, `\u{1b}`.
pub fn escape(letter: char) -> impl Iterator<Item = char> {
    letter.escape_default()
}

fn write(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_painted_on_a_terminal_only_and_marks_what_it_cuts() {
        let mut page = Page::default();
        page.painted(Paint::Red, 5, "wrong and \x1b[2J");
        page.line("déjà vu");
        let lines = |width, is_painted| page.rendered(width, is_painted).collect::<Vec<_>>();
        assert_eq!(lines(None, false), ["wrong and \\u{1b}[2J", "déjà vu"]);
        assert_eq!(lines(Some(6), false), ["wrong…", "déjà …"]);
        assert_eq!(lines(Some(7), true), ["\x1b[31mwrong\x1b[0m …", "déjà vu"]);
    }

    #[test]
    fn what_steers_is_escaped_and_letters_of_all_languages_are_not() {
        assert_eq!(escaped("a\x1b[2Jb\n", &['\n']), "a\\u{1b}[2Jb\n");
        assert_eq!(escaped("a\nb\t\u{9b}", &[]), "a\\nb\\t\\u{9b}");
        assert_eq!(
            escaped("\u{202e}txt.\u{2066}", &[]),
            "\\u{202e}txt.\\u{2066}"
        );
        for text in [
            "déjà vu",
            "שלום",
            "مرحبا",
            "क\u{94d}\u{200d}ष",
            "👩\u{200d}🔧",
        ] {
            assert_eq!(escaped(text, &[]), text);
        }
    }
}
