//! What a server's configuration files say.
//!
//! `CONFIG REWRITE`, which Sentinel sends at each change of role, keeps an `include` as it is and does not know what is in there: if
//! the `loadmodule` line is in such a file, it appends another one, and with two the server does not start. A setting that it appends
//! counts from then on, and not the included one.

use crate::address;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A line with a setting, of any file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub file: PathBuf,
    /// The first is 1.
    pub number: usize,
    pub is_included: bool,
    /// In small letters.
    pub name: String,
    /// The rest, as it is.
    pub value: String,
}

impl Line {
    /// For people.
    pub fn place(&self) -> String {
        format!("{} line {}", self.file.display(), self.number)
    }

    /// The first word of its value, with or without quotation marks.
    pub fn first(&self) -> String {
        first_word(&self.value)
    }

    /// Its whole value. CONFIG REWRITE puts one of several words in quotation marks.
    pub fn whole(&self) -> String {
        match self.value.starts_with(['"', '\'']) {
            true => self.first(),
            false => self.value.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }

    /// A command of a shell that gives it another value.
    pub fn replacement(&self, value: &str) -> String {
        let file = address::quoted(&self.file.display().to_string());
        let (number, name) = (self.number, &self.name);
        format!("sed -i '{number}s/.*/{name} {value}/' {file}")
    }

    /// Whether it loads this library.
    pub fn loads(&self, library: &Path) -> bool {
        self.name == "loadmodule" && is_same(Path::new(&self.first()), library)
    }
}

/// How deep files may include each other; the server knows no bound.
const DEEPEST: usize = 16;

/// In the order in which the server reads them. What one file includes and cannot be read is left out.
pub fn lines(file: &Path) -> io::Result<Vec<Line>> {
    let mut found = Vec::new();
    look(file, 0, &mut found)?;
    Ok(found)
}

fn look(file: &Path, depth: usize, found: &mut Vec<Line>) -> io::Result<()> {
    let text = fs::read(file)?;
    let text = String::from_utf8_lossy(&text);
    for (number, line) in (1..).zip(text.lines()) {
        let Some((word, rest)) = line.trim().split_once(char::is_whitespace) else {
            continue;
        };
        if word == "include" && depth < DEEPEST {
            for included in files_of(file, &first_word(rest)) {
                let _ = look(&included, depth + 1, found);
            }
        } else if !word.starts_with('#') {
            found.push(Line {
                file: file.to_owned(),
                number,
                is_included: depth > 0,
                name: word.to_ascii_lowercase(),
                value: rest.trim().to_owned(),
            });
        }
    }
    Ok(())
}

/// With or without quotation marks.
fn first_word(rest: &str) -> String {
    let rest = rest.trim();
    for mark in ['"', '\''] {
        if let Some(quoted) = rest.strip_prefix(mark) {
            return quoted.split(mark).next().unwrap_or_default().to_owned();
        }
    }
    let word = rest.split_whitespace().next();
    word.unwrap_or_default().to_owned()
}

/// One file, or those of a folder whose names fit a pattern with one `*`. A relative path is taken from the folder of the file,
/// since the folder in which the server was started is not known.
fn files_of(file: &Path, named: &str) -> Vec<PathBuf> {
    let path = file.parent().unwrap_or(Path::new("")).join(named);
    let name = path.file_name().and_then(|name| name.to_str());
    let Some((begin, end)) = name.and_then(|name| name.split_once('*')) else {
        return vec![path];
    };
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let paths = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<_> = paths
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                name.len() >= begin.len() + end.len()
                    && name.starts_with(begin)
                    && name.ends_with(end)
            })
        })
        .collect();
    files.sort();
    files
}

/// Also by links, as distributions have them.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    one == other || real(one) == real(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_with_and_without_quotation_marks() {
        for (rest, word) in [
            (" /a/b.so x 1", "/a/b.so"),
            ("\"/a b.so\" x", "/a b.so"),
            ("'/a b.so'", "/a b.so"),
            ("", ""),
        ] {
            assert_eq!(first_word(rest), word);
        }
    }
}
