//! The words of the pages, of the configurations and of the command line's help: a phrase that readers stumbled over, and what the
//! trade says.

use super::{assert_none, document, files_below};
use std::path::PathBuf;
use tether_testing::project;

const PLAIN: [(&str, &str); 21] = [
    ("as ever", "as always"),
    ("as it comes", "by default"),
    ("whoever", "the client that, anyone who"),
    ("who waits", "the waiters, the next waiter"),
    ("stands still", "is blocked, stops"),
    ("stand still", "block, stop"),
    ("looks after", "checks, applies to"),
    ("so many", "this many, a number of"),
    ("is told", "gets a push, is notified, is reported"),
    ("are told", "get a push, are notified, are reported"),
    ("told of", "notified of, gets"),
    ("for lost", "treat as lost"),
    ("is at an end", "is over"),
    ("utilize", "use"),
    ("in order to", "to"),
    ("simply", "(leave it out)"),
    ("obviously", "(leave it out)"),
    ("please", "(leave it out)"),
    ("e.g.", "for example"),
    ("i.e.", "that is"),
    ("etc.", "and so on"),
];

/// What people read in a file that is no page, as lines of a page: comments of a configuration, and the texts of clap's help.
fn comments(file: &str, mark: &str) -> String {
    let comment = |line: &str| match line.trim_start().strip_prefix(mark) {
        Some(text) => text.trim_start().to_owned() + "\n",
        None => "\n".to_owned(),
    };
    file.lines().map(comment).collect()
}

/// A page without its blocks and without what stands in backticks.
fn prose(page: &str) -> Vec<String> {
    let mut is_prose = true;
    let line = |line: &str| {
        if line.trim_start().starts_with("```") {
            is_prose = !is_prose;
            return String::new();
        }
        let pieces = line.split('`').step_by(2);
        let text: Vec<_> = pieces.filter(|_| is_prose).collect();
        text.join("`")
    };
    page.lines().map(line).collect()
}

/// The offences of a page, each with its line. A phrase is found across the end of a line, too.
fn offences(path: &str, page: &str) -> Vec<String> {
    let lines = prose(page);
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let next = lines.get(at + 1).map_or("", |next| next.trim_start());
        let text = format!("{} {next}", line.trim_end()).to_lowercase();
        for (phrase, plain) in PLAIN {
            let is_word = |(start, _): (usize, &str)| {
                let before = text[..start].chars().next_back();
                let after = text[start + phrase.len()..].chars().next();
                start < line.len() && !is_letter(before) && !is_letter(after)
            };
            if text.match_indices(phrase).any(is_word) {
                found.push(format!("{path}:{}: {phrase}; say: {plain}", at + 1));
            }
        }
    }
    found
}

#[test]
fn pages_say_it_in_plain_words() {
    let mut files = Vec::new();
    for folder in ["docs", "examples", "clients"] {
        files_below(&project().join(folder), &mut files);
    }
    let of_root = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ];
    files.extend(of_root.map(|file| project().join(file)));
    let is_page = |file: &PathBuf| file.extension().is_some_and(|end| end == "md");
    // What package managers have fetched.
    let is_fetched = |file: &PathBuf| {
        let mut parts = file.strip_prefix(project()).expect("below it").iter();
        parts.any(|part| part == "node_modules" || part == "target" || part == ".venv")
    };
    files.retain(|file| is_page(file) && !is_fetched(file));
    assert!(files.len() > 15, "pages are missing");
    let of_file = |file: PathBuf| {
        let path = file.strip_prefix(project()).expect("below it").display();
        let path = path.to_string();
        offences(&path, &document(&path))
    };
    assert_none(files.into_iter().flat_map(of_file).collect());
}

#[test]
fn configurations_and_the_help_say_it_in_plain_words() {
    let files = [
        ("redis.conf", "#"),
        ("packaging/tether.conf", "#"),
        ("clients/cli/src/options.rs", "///"),
    ];
    let of_file = |(path, mark): (&str, &str)| {
        let text = comments(&document(path), mark);
        assert!(text.split_whitespace().count() > 100, "{path} has no texts");
        offences(path, &text)
    };
    assert_none(files.into_iter().flat_map(of_file).collect());
}

#[test]
fn a_phrase_is_found_in_prose_only() {
    let found = |page: &str| offences("page", page).len();
    assert_eq!(found("Those who wait, and who waits."), 1);
    assert_eq!(found("It is for who\nwaits for it."), 1);
    assert_eq!(found("As everywhere. `who waits`"), 0);
    assert_eq!(found("```\nwho waits\n```\nnot so"), 0);
    let found = |file: &str, mark: &str| offences("file", &comments(file, mark));
    assert_eq!(found("# Who\n# waits.\nwho waits\n", "#").len(), 1);
    assert!(found("a\n/// Who waits.\n", "///")[0].starts_with("file:2: "));
    assert!(found("fn a() {} // Who waits.\n", "///").is_empty());
}
