//! Where a server's configuration files load the module.
//!
//! `CONFIG REWRITE`, which Sentinel sends at each change of role, keeps an `include` as it is and does not know what is in there: if
//! the `loadmodule` line is in such a file, it appends another one, and with two the server does not start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A `loadmodule` line of the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadLine {
    pub file: PathBuf,
    /// The first is 1.
    pub number: usize,
    pub is_included: bool,
}

/// How deep files may include each other; the server knows no bound.
const DEEPEST: usize = 16;

/// In the order in which the server reads them. What one file includes and cannot be read is left out.
pub fn load_lines(file: &Path, library: &Path) -> io::Result<Vec<LoadLine>> {
    let mut found = Vec::new();
    look(file, library, 0, &mut found)?;
    Ok(found)
}

fn look(file: &Path, library: &Path, depth: usize, found: &mut Vec<LoadLine>) -> io::Result<()> {
    let text = fs::read(file)?;
    let text = String::from_utf8_lossy(&text);
    for (number, line) in (1..).zip(text.lines()) {
        let Some((word, rest)) = line.trim().split_once(char::is_whitespace) else {
            continue;
        };
        let path = first_word(rest);
        match word.to_ascii_lowercase().as_str() {
            "loadmodule" if is_same(Path::new(&path), library) => found.push(LoadLine {
                file: file.to_owned(),
                number,
                is_included: depth > 0,
            }),
            "include" if depth < DEEPEST => {
                for included in files_of(file, &path) {
                    let _ = look(&included, library, depth + 1, found);
                }
            }
            _ => {}
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
