//! The one way out: whatever a server or a user calls something, it cannot steer the terminal on which it is shown.
//!
//! Every other file is kept from writing by the compiler's lints in main.rs, but for the answers of the parser of arguments.

use serde_json::Value;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};

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
