//! Style as a test: what depends on what, where `unsafe` stands, leftovers, the size of files and functions, names.
//!
//! Reads the sources as text, so it needs neither a server nor the SDK. It knows just enough of Rust to tell code from
//! comments and strings, and to find where a function ends.

use std::fs;
use std::path::{Path, PathBuf};
use tether::command::TABLE;

/// A file should not be longer than this, nor a function.
const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 70;

struct Source {
    /// From the project's folder.
    path: String,
    text: String,
    /// The same with comments and the insides of strings blanked out.
    code: String,
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn document(path: &str) -> String {
    fs::read_to_string(project().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The Rust files of these folders.
fn sources(folders: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in folders {
        collect(&project().join(folder), &mut found);
    }
    found.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("a source file");
        let path = file.strip_prefix(project()).expect("a file of the project");
        Source {
            path: path.display().to_string(),
            code: code_only(&text),
            text,
        }
    };
    found.into_iter().map(read).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<Source> {
    let sources = sources(&["src", "tests", "benches", "docs", "examples"]);
    assert!(sources.len() > 40, "sources are missing");
    sources
}

/// The lines at which something is found, each with what was found there.
fn lines_with(
    sources: &[Source],
    look: impl Fn(&Source, usize, &str) -> Option<String>,
) -> Vec<String> {
    let in_source = |source| {
        let Source { path, code, .. }: &Source = source;
        let lines = (1..).zip(code.lines());
        let found = lines.filter_map(|(at, line)| Some((at, look(source, at, line)?)));
        found
            .map(|(at, what)| format!("{path}:{at}: {what}"))
            .collect::<Vec<_>>()
    };
    sources.iter().flat_map(in_source).collect()
}

/// Fails with one line for each offence.
fn assert_none(offences: Vec<String>) {
    let list = offences.join("\n  ");
    assert!(offences.is_empty(), "{} found:\n  {list}\n", offences.len());
}

// ---- what depends on what ----

/// Modules of std that do nothing by themselves: no clock, no files, no network, no threads.
const HARMLESS: &str =
    "borrow cell cmp collections fmt hash iter marker mem num ops str time::Duration";

#[test]
fn the_engine_uses_nothing_but_itself_and_plain_libraries() {
    let sources = sources(&["src/engine"]);
    let offences = lines_with(&sources, |source, _, line| {
        let path = line.trim_start_matches("pub ").strip_prefix("use ")?;
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let is_fine = match first {
            "std" => HARMLESS.split(' ').any(|module| rest.starts_with(module)),
            "crate" => rest.starts_with("engine"),
            "self" | "super" | "hashbrown" | "hdrhistogram" | "subtle" => true,
            other => source.code.contains(&format!("\nmod {other};")),
        };
        (!is_fine).then(|| line.to_owned())
    });
    assert_none(offences);
    assert_none(naming(
        &sources,
        "redis_module libc:: crate::shell crate::command",
    ));
}

#[test]
fn commands_do_not_depend_on_the_shell() {
    assert_none(naming(
        &sources(&["src/command"]),
        "redis_module libc:: crate::shell",
    ));
}

fn naming(sources: &[Source], words: &str) -> Vec<String> {
    lines_with(sources, |_, _, line| {
        let word = words.split(' ').find(|word| line.contains(word))?;
        Some(format!("names {word}"))
    })
}

// ---- unsafe ----

#[test]
fn unsafe_stands_in_the_files_that_the_shell_names_and_in_entry_points() {
    let shell = document("src/shell/mod.rs");
    let picture = shell
        .split("//!   unsafe ")
        .nth(1)
        .expect("its picture's line about unsafe");
    let picture = picture.split("```").next().unwrap_or_default();
    // `raw.rs` may be a folder, too.
    let others = |source: &Source| {
        let path = source.path.trim_start_matches("src/shell/");
        let module = path.split(['/', '.']).next();
        let mut named = picture.split([' ', ',', '\n']);
        !named.any(|word| word.strip_suffix(".rs") == module)
    };
    let sources: Vec<_> = sources(&["src"]).into_iter().filter(others).collect();
    let offences = lines_with(&sources, |source, at, line| {
        let mut words = line.split(|c| !is_word(c));
        let has_unsafe = words.any(|word| word == "unsafe") && !line.contains("#[unsafe(");
        let within = |function: &Function| function.is_entry_point && function.has(at);
        let is_allowed = !has_unsafe || functions(source).iter().any(within);
        (!is_allowed).then(|| line.trim().to_owned())
    });
    assert_none(offences);
}

// ---- leftovers, beginnings, names ----

#[test]
fn nothing_is_left_over() {
    // Written so that this file has none of them.
    let left =
        ["dbg-!", "todo-!", "unimplemented-!", "FIX-ME", "X-XX"].map(|word| word.replace('-', ""));
    let mut offences = Vec::new();
    for Source { path, text, .. } in all_sources() {
        let found = left.iter().filter(|word| text.contains(word.as_str()));
        offences.extend(found.map(|word| format!("{path}: {word}")));
    }
    assert_none(offences);
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    let silent = all_sources()
        .into_iter()
        .filter(|source| !source.text.starts_with("//! "));
    assert_none(silent.map(|source| source.path).collect());
}

#[test]
fn no_file_is_named_for_nothing() {
    const NOTHING: &str = "util utils common manager helper helpers misc";
    let is_nothing = |part: &str| NOTHING.split(' ').any(|word| word == part);
    let named = all_sources()
        .into_iter()
        .filter(|source| source.path.split(['/', '.', '_']).any(is_nothing));
    assert_none(named.map(|source| source.path).collect());
}

// ---- sizes ----

#[test]
fn files_are_short() {
    let long = |source: &Source| {
        let count = source.text.lines().count();
        (count > FILE_LINES).then(|| format!("{} has {count} lines of {FILE_LINES}", source.path))
    };
    assert_none(all_sources().iter().filter_map(long).collect());
}

#[test]
fn functions_are_short() {
    let mut offences = Vec::new();
    for source in all_sources() {
        for Function {
            name, first, last, ..
        } in functions(&source)
        {
            let count = last - first + 1;
            if count > FUNCTION_LINES {
                let path = &source.path;
                offences.push(format!(
                    "{path}:{first}: {name} has {count} lines of {FUNCTION_LINES}"
                ));
            }
        }
    }
    assert_none(offences);
}

// ---- documents ----

#[test]
fn the_reference_has_the_commands_in_the_tables_order() {
    let text = document("docs/commands.md");
    let names: Vec<_> = TABLE
        .iter()
        .map(|spec| spec.name.to_ascii_uppercase())
        .collect();
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    let shown: Vec<_> = headings
        .filter(|heading| names.iter().any(|name| name == heading))
        .collect();
    assert_eq!(shown, names);
}

#[test]
fn the_picture_of_the_house_has_every_room() {
    let text = document("docs/architecture.md");
    let mut missing = Vec::new();
    for Source { path, .. } in sources(&["src"]) {
        // Every folder has a mod.rs, so for those the folder is told too.
        let parts: Vec<_> = path.split('/').collect();
        let from = parts.len() - if path.ends_with("/mod.rs") { 2 } else { 1 };
        if !text.contains(&parts[from..].join("/")) {
            missing.push(format!("docs/architecture.md does not name {path}"));
        }
    }
    assert_none(missing);
}

// ---- a little Rust ----

struct Function {
    name: String,
    first: usize,
    last: usize,
    /// The server calls it: `extern "C"`.
    is_entry_point: bool,
}

impl Function {
    fn has(&self, line: usize) -> bool {
        (self.first..=self.last).contains(&line)
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The functions with a body, from the line with `fn` to the one with the closing brace.
fn functions(source: &Source) -> Vec<Function> {
    let code = source.code.as_str();
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let is_name = rest.starts_with(is_word) && !code[..at].ends_with(is_word);
        let Some(close) = is_name.then(|| end_of_body(rest)).flatten() else {
            continue;
        };
        let line = &code[code[..at].rfind('\n').map_or(0, |start| start + 1)..at];
        found.push(Function {
            name: rest
                .split(|c| !is_word(c))
                .next()
                .unwrap_or_default()
                .to_owned(),
            first: line_of(at),
            last: line_of(at + 3 + close),
            is_entry_point: line.contains("extern "),
        });
    }
    found
}

/// Where a function's body ends, counted from its name; nothing where it has none.
fn end_of_body(rest: &str) -> Option<usize> {
    let (mut nested, mut is_within) = (0_usize, false);
    for (at, c) in rest.char_indices() {
        match (c, is_within) {
            ('(' | '[', false) | ('{', true) => nested += 1,
            (')' | ']', false) => nested -= 1,
            (';', false) if nested == 0 => return None,
            ('{', false) => (nested, is_within) = (1, true),
            ('}', true) if nested == 1 => return Some(at),
            ('}', true) => nested -= 1,
            _ => {}
        }
    }
    None
}

/// Blanks out comments and the insides of strings and characters, leaving all lines in their places.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let before = code.chars().next_back().unwrap_or(' ');
        let length = blank_length(rest, before);
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(
                rest[..length]
                    .chars()
                    .map(|c| if c == '\n' { c } else { ' ' }),
            );
            rest = &rest[length..];
        }
    }
    code
}

/// How long the comment, string or character is with which this begins; 0 if it begins with none.
fn blank_length(rest: &str, before: char) -> usize {
    let until = |from: usize, end: &str| {
        rest[from..]
            .find(end)
            .map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return until(2, "\n") - usize::from(rest.contains('\n'));
    }
    if rest.starts_with("/*") {
        return until(2, "*/");
    }
    let hashes = rest
        .strip_prefix('r')
        .filter(|_| !is_word(before) || before == 'b');
    if let Some(hashes) = hashes {
        let count = hashes.len() - hashes.trim_start_matches('#').len();
        if hashes[count..].starts_with('"') {
            return until(count + 2, &format!("\"{}", "#".repeat(count)));
        }
    }
    let quoted = |quote: char| {
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, c)| {
            let is_end = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            is_end
        });
        end.map_or(rest.len(), |(at, c)| at + c.len_utf8())
    };
    match rest.as_bytes() {
        [b'"', ..] => quoted('"'),
        [b'\'', b'\\', ..] => quoted('\''),
        // A lifetime has no second quote right after its first character.
        [b'\'', ..] => match rest.chars().nth(1) {
            Some(c) if rest[1 + c.len_utf8()..].starts_with('\'') => c.len_utf8() + 2,
            _ => 0,
        },
        _ => 0,
    }
}

#[test]
fn the_little_rust_tells_code_from_the_rest() {
    let text = "fn a<'x>(s: &'x str) -> [u8; 2] { // fn no() {\n  let q = '\"'; r#\"}\"}\"#; \"\\\"}\"; '}'\n}\nfn b();\n";
    let source = Source {
        path: String::new(),
        code: code_only(text),
        text: text.to_owned(),
    };
    assert_eq!(
        source.code.matches('\n').count(),
        text.matches('\n').count()
    );
    let found: Vec<_> = functions(&source)
        .into_iter()
        .map(|function| (function.name, function.first, function.last))
        .collect();
    assert_eq!(found, [("a".to_owned(), 1, 3)]);
}
