//! Style as a test: what depends on what, where `unsafe` stands, leftovers, names.
//!
//! Reads the sources as text, so it needs neither a server nor the SDK.

mod floors;
mod nightly;
mod rust;
mod words;

use rust::{Function, code_only, functions, is_word};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tether::command::TABLE;
use tether_testing::project;

struct Source {
    /// From the project's folder.
    path: String,
    text: String,
    /// The same with comments and the insides of strings blanked out.
    code: String,
}

fn document(path: &str) -> String {
    fs::read_to_string(project().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The Rust files of these folders, of which none is without.
fn sources(folders: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in folders {
        let before = found.len();
        collect(&project().join(folder), &mut found);
        assert!(found.len() > before, "{folder} has no Rust in it any more");
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
    let mut files = Vec::new();
    files_below(folder, &mut files);
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    found.extend(files.into_iter().filter(is_rust));
}

/// What compilers and package managers leave behind, and no commit has: an earlier text may live on there.
const LEFT_BEHIND: [&str; 6] = [
    "target",
    "build",
    "dist",
    "node_modules",
    "__pycache__",
    ".pytest_cache",
];

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !LEFT_BEHIND.iter().any(|name| path.ends_with(name)) {
                files_below(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<Source> {
    let sources = sources(&["src", "tests", "benches", "examples", "clients"]);
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
    "borrow cell cmp collections fmt hash iter marker mem num ops slice str time::Duration";

/// In a clone that shares another's servers `.servers` is a link, and a commit of that would take the servers from whoever
/// checks it out. `git rm --cached .servers` takes it out again.
#[test]
fn what_was_fetched_is_in_no_commit() {
    let mut git = Command::new("git");
    git.args(["ls-files", ".servers"]).current_dir(project());
    let Ok(listed) = git.output() else {
        return; // Nobody commits here.
    };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed, "", "fetched by scripts/servers.sh");
}

#[test]
fn the_engine_uses_nothing_but_itself_and_plain_libraries() {
    let sources = sources(&["src/engine"]);
    let offences = lines_with(&sources, |source, _, line| {
        let path = line.trim_start_matches("pub ").strip_prefix("use ")?;
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let is_fine = match first {
            "crate" => rest.starts_with("engine"),
            "self" | "super" | "hashbrown" | "smallvec" | "subtle" => true,
            "proptest" => source.path.ends_with("/tests.rs"),
            // Looked at below: what is named by its whole path needs no `use`.
            "std" => true,
            other => source.code.contains(&format!("\nmod {other};")),
        };
        (!is_fine).then(|| line.to_owned())
    });
    assert_none(offences);
    assert_none(lines_with(&sources, |_, _, line| {
        let mut paths = line.split("std::").skip(1);
        let is_harmless = |path: &str| HARMLESS.split(' ').any(|module| path.starts_with(module));
        let other = paths.find(|path| !is_harmless(path))?;
        Some(format!("names std::{other}"))
    }));
    assert_none(naming(
        &sources,
        "redis_module libc:: crate::shell crate::command",
    ));
}

#[test]
fn commands_and_replies_do_not_depend_on_the_shell() {
    let sources = sources(&["src/command", "src/wire"]);
    assert_none(naming(&sources, "redis_module libc:: crate::shell"));
}

/// Above `policy` only the shell asks and acts.
#[test]
fn policy_depends_on_neither_server_nor_shell() {
    let sources = sources(&["src/policy"]);
    assert_none(naming(&sources, "redis_module libc:: crate::shell"));
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
    // A file is named with or without its folder, or its folder is.
    let others = |source: &Source| {
        let path = source.path.trim_start_matches("src/shell/");
        let file = path.rsplit('/').next();
        let mut named = picture.split([' ', ',', ';', '\n', '(']);
        !named.any(|word| {
            word == path || Some(word) == file || word.ends_with('/') && path.starts_with(word)
        })
    };
    let sources: Vec<_> = sources(&["src"]).into_iter().filter(others).collect();
    let offences = lines_with(&sources, |source, at, line| {
        let mut words = line.split(|c| !is_word(c));
        let has_unsafe = words.any(|word| word == "unsafe") && !line.contains("#[unsafe(");
        let within = |function: &Function| function.is_entry_point && function.has(at);
        let is_allowed = !has_unsafe || functions(&source.code).iter().any(within);
        (!is_allowed).then(|| line.trim().to_owned())
    });
    assert_none(offences);
}

// ---- builds ----

/// What a newer compiler warns of must not break anybody's build. `make lint` and the tests' own C programs may fail.
#[test]
fn only_lint_makes_errors_of_warnings() {
    const WORDS: [&str; 4] = [
        "deny(warnings",
        "forbid(warnings",
        "warnings_into_errors(true",
        "-Werror",
    ];
    let manifests = ["Cargo.toml", "build.rs", "clients/java/pom.xml"];
    let manifests = manifests.map(|path| (path.to_owned(), document(path)));
    let sources = sources(&["src", "benches", "examples", "clients"]).into_iter();
    let sources = sources.map(|source| (source.path, source.text));
    let mut offences = Vec::new();
    for (path, text) in manifests.into_iter().chain(sources) {
        let found = WORDS.iter().filter(|word| text.contains(**word));
        offences.extend(found.map(|word| format!("{path}: {word}")));
    }
    let makefile = document("Makefile");
    let lint = makefile.split("\nlint:").nth(1).unwrap_or_default();
    let lint = lint.split("\n\n").next().unwrap_or_default();
    for word in [
        "clippy --all-targets -- -D warnings",
        "-Werror -c -o /dev/null src/shell/sys/shim.c",
    ] {
        assert!(lint.contains(word), "make lint lacks {word}");
    }
    assert_none(offences);
}

// ---- leftovers, beginnings, names ----

#[test]
fn nothing_is_left_over() {
    // Written so that this file has none of them.
    let left = ["FIX-ME", "X-XX"].map(|word| word.replace('-', ""));
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
fn the_picture_of_the_house_has_every_folder_and_each_folder_names_its_files() {
    let picture = document("docs/architecture.md");
    let mut missing = Vec::new();
    for Source { path, .. } in sources(&["src"]) {
        let (folder, file) = path.rsplit_once('/').expect("a file in a folder");
        let parts: Vec<_> = folder.split('/').collect();
        let (module, named) = match (parts.as_slice(), file) {
            (_, "mod.rs") => ("docs/architecture.md".to_owned(), parts[parts.len() - 1]),
            ([_, _] | [_, _, _], _) if Path::new(folder).join("mod.rs").exists() => {
                (format!("{folder}/mod.rs"), file)
            }
            // What a module keeps to itself, deeper or on top.
            _ => continue,
        };
        let is_named = match file {
            "mod.rs" => picture.contains(&format!("{named}/")),
            _ => document(&module).contains(named) || picture.contains(named),
        };
        if !is_named {
            missing.push(format!("{module} does not name {path}"));
        }
    }
    assert_none(missing);
}

/// A walk of docs/architecture.md names `file.rs::function`, the file by the end of its path.
#[test]
fn each_function_that_a_walk_names_is_in_its_file() {
    let page = document("docs/architecture.md");
    let named = page.split('`').skip(1).step_by(2);
    let named: Vec<_> = named
        .filter_map(|words| words.split_once(".rs::"))
        .collect();
    assert!(named.len() > 30, "docs/architecture.md names few functions");
    let sources = sources(&["src"]);
    let missing = named.iter().filter(|(file, function)| {
        let name = format!("fn {function}");
        let declares = |source: &Source| {
            let mut functions = source.code.split(&name).skip(1);
            functions.any(|rest| !rest.starts_with(is_word))
        };
        let file = format!("/{file}.rs");
        let mut files = sources.iter().filter(|source| source.path.ends_with(&file));
        !files.any(declares)
    });
    assert_none(
        missing
            .map(|(file, function)| format!("{file}.rs::{function}"))
            .collect(),
    );
}

/// Of the contributors' pages: `make TARGET`, `cargo test --test NAME`, and each file or folder in backticks.
#[test]
fn what_contributors_are_told_to_run_and_to_change_is_there() {
    let makefile = document("Makefile");
    let is_target = |name: &str| {
        makefile
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")))
    };
    let is_test = |name: &str| {
        let path = project().join("tests").join(name);
        path.join("main.rs").exists() || path.with_extension("rs").exists()
    };
    let mut missing = Vec::new();
    for page in ["CONTRIBUTING.md", "docs/architecture.md"] {
        let text = document(page);
        for piece in text.split('`') {
            let words: Vec<_> = piece.split_whitespace().collect();
            let is_there = match words[..] {
                ["make", target, ..] if piece.starts_with("make") => is_target(target),
                [path]
                    if ["src/", "tests/", "clients/", "docs/"]
                        .iter()
                        .any(|root| path.starts_with(root)) =>
                {
                    project().join(path).exists()
                }
                _ => true,
            };
            let mut tests = words.windows(2).filter(|two| two[0] == "--test");
            if !is_there || tests.any(|two| !is_test(two[1])) {
                missing.push(format!("{page}: {piece}"));
            }
        }
    }
    assert_none(missing);
}

/// A row of docs/faults.md names its test as `folder: path`, where a folder of tests/ stands by its name alone; of the clients' protocol
/// a vector by itself.
#[test]
fn each_fault_names_a_test_that_is_there() {
    let page = document("docs/faults.md");
    let named: Vec<_> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|words| words.split_once(": "))
        .filter(|(folder, path)| !folder.contains(' ') && !path.contains(' '))
        .collect();
    assert!(named.len() > 30, "docs/faults.md names few tests");
    let missing = named.iter().filter_map(|(folder, path)| {
        let name = path.rsplit("::").next().expect("a name");
        let mut files = Vec::new();
        for place in [format!("tests/{folder}"), (*folder).to_owned()] {
            files_below(&project().join(place), &mut files);
        }
        let is_there = files.iter().any(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let begins = |word: &&str| text.contains(&format!("{word} {name}("));
            let is_listed = || text.contains(&format!("\"name\": \"{name}\""));
            ["fn", "def", "func", "void"].iter().any(begins) || is_listed()
        });
        (!is_there).then(|| format!("docs/faults.md: {folder}: {path}: no such test"))
    });
    assert_none(missing.collect());
}

#[test]
fn the_python_package_has_the_version_of_all_others() {
    let of_all = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    let package = document("clients/python/pyproject.toml");
    let its = package.lines().find(|line| line.starts_with("version"));
    assert_eq!(its, Some(of_all.as_str()));
}

#[test]
fn the_page_of_clients_has_the_versions_that_java_tests() {
    let poms = ["clients/java/pom.xml", "clients/java/beside/pom.xml"].map(document);
    let page = document("docs/clients.md");
    for (client, before) in [
        ("Lettuce, RESP3", "<lettuce.version>"),
        ("Jedis, RESP3", "<jedis.version>"),
        (
            "Redisson, `RedisClient`",
            "<artifactId>redisson</artifactId>\n      <version>",
        ),
    ] {
        let version = poms.iter().find_map(|pom| pom.split(before).nth(1));
        let version = version.and_then(|rest| rest.split('<').next()).unwrap();
        let row = format!("| {client} | {} |", version.trim_end_matches(".RELEASE"));
        assert!(page.contains(&row), "docs/clients.md has no {row}");
    }
}

/// What each registry gets is the package's folder alone.
#[test]
fn each_package_carries_the_licence() {
    for package in ["go", "java", "node", "python", "rust"] {
        let its = document(&format!("clients/{package}/LICENSE"));
        assert_eq!(its, document("LICENSE"), "clients/{package}");
    }
}
