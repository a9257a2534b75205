//! Floors: within a folder of sources each file uses only what stands below it, and no files use each other in a circle.
//!
//! A [`House`] is a folder with its floors, from the ground up; a floor is a list of files and folders, of which the most
//! exact one counts for a file. What a file uses is read from its `use`s, brace lists and `pub use` among them, and from each
//! path that is written out (`crate::`, `super::`, `self::`, by a child or by a module that a `use` names); from code only,
//! and not from tests. A path through a `pub use` counts for the file that has the `pub use`. Whoever declares a `mod` does not
//! use it by that.
//!
//! Files add methods to types of lower floors, and no import says who calls those. So a call of a method counts as well, if it
//! goes up: where one file only has a method of that name, and adds it to a type that it does not declare. Between files of one
//! floor it does not: a rule of the engine leads to the next by such calls.
//!
//! To add a house: one more constant like [`ENGINE`], and one more test that gives it to [`assert_stands`]. What goes up as
//! yet stands in `known`, as a pair of files; pairs that are not needed any more are faults, so that the list only shrinks.

use crate::rust::{blank_tests, code_only, is_word};
use crate::{assert_none, sources};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

struct House {
    /// From the project's folder.
    root: &'static str,
    /// From the ground up. Files and folders (with a slash at their end), from `root`.
    floors: &'static [&'static [&'static str]],
    /// What goes up or in a circle as yet: who uses whom, from `root`.
    known: &'static [(&'static str, &'static str)],
}

const ENGINE: House = House {
    root: "src/engine",
    floors: &[
        &["types.rs", "mode.rs", "terms.rs", "pairs.rs", "storage/"],
        &["event.rs", "effect.rs", "record.rs"],
        &["state/rows.rs", "limits.rs"],
        &["state/"],
        &["tables.rs"],
        &["deadlock/", "inspect/"],
        &["rules/"],
        &["mod.rs", "check.rs"],
    ],
    known: &[],
};

#[test]
fn the_floors_of_the_engine_stand_on_each_other_without_a_circle() {
    assert_stands(&ENGINE);
}

/// Of the bridge, what the server calls stands highest: nobody but `mod.rs` uses it, which hands it in at load.
const SHELL: House = House {
    root: "src/shell",
    floors: &[
        &["sys/"],
        &["state.rs"],
        &["guard.rs"],
        &["callbacks.rs"],
        &["timer.rs"],
        &["server/subscriptions.rs", "server/listeners.rs"],
        &["server/"],
        &["delivery/"],
        &["bridge/perform.rs", "bridge/losses.rs", "bridge/mod.rs"],
        &["bridge/tell.rs"],
        &["bridge/recheck.rs", "bridge/slots.rs", "bridge/acks.rs"],
        &["bridge/slices.rs", "bridge/role.rs"],
        &["persistence/"],
        &["commands/"],
        &["tick.rs"],
        &[
            "bridge/keyspace_events.rs",
            "bridge/server_events.rs",
            "bridge/unblocked.rs",
            "bridge/command_filter.rs",
        ],
        &["mod.rs"],
    ],
    known: &[],
};

#[test]
fn the_floors_of_the_shell_stand_on_each_other_without_a_circle() {
    assert_stands(&SHELL);
}

fn assert_stands(house: &House) {
    let files = sources(&[house.root]).into_iter().map(|source| {
        let path = source.path[house.root.len() + 1..].to_owned();
        (path, source.text)
    });
    assert_none(faults(house, files.collect()));
}

/// One sentence for each fault. The files by their paths from the root.
fn faults(house: &House, files: BTreeMap<String, String>) -> Vec<String> {
    let mut tree = Tree::new(house.root, files);
    let mut faults = Vec::new();
    for (file, used) in house.known {
        let uses = tree.uses.get_mut(*file);
        let is_used = uses.is_some_and(|all| all.remove(*used));
        let calls = tree.calls.entry((*file).to_owned()).or_default();
        let count = calls.len();
        calls.retain(|(_, of)| of != used);
        if !is_used && calls.len() == count {
            faults.push(format!("{file} does not use {used}: that is known no more"));
        }
    }
    let mut level = BTreeMap::new();
    for (file, uses) in &tree.uses {
        let Some(own) = floor_of(house, file) else {
            faults.push(format!("{file} stands on no floor"));
            continue;
        };
        let mut beside = BTreeSet::new();
        for used in uses {
            match floor_of(house, used) {
                Some(floor) if floor > own => faults.push(format!(
                    "{file} on floor {own} uses {used} on floor {floor}, which is above it"
                )),
                Some(floor) if floor == own => drop(beside.insert(used.clone())),
                _ => {}
            }
        }
        level.insert(file.clone(), beside);
        for (name, of) in tree.calls.get(file).into_iter().flatten() {
            if let Some(floor) = floor_of(house, of).filter(|floor| *floor > own) {
                faults.push(format!(
                    "{file} on floor {own} calls `{name}` of {of} on floor {floor}, which is above it"
                ));
            }
        }
    }
    let circles = circles(&level).into_iter().map(|circle| {
        let floor = floor_of(house, &circle[0]).unwrap_or_default();
        let way = circle.join(" uses ");
        format!("a circle on floor {floor}: {way} uses {}", circle[0])
    });
    faults.extend(circles);
    faults
}

/// By the longest name in the table that is the file's or that of a folder around it.
fn floor_of(house: &House, file: &str) -> Option<usize> {
    let named = house.floors.iter().enumerate().flat_map(|(floor, names)| {
        let has = |name: &&&str| **name == file || name.ends_with('/') && file.starts_with(**name);
        names
            .iter()
            .filter(has)
            .map(move |name| (name.len(), floor))
    });
    named.max().map(|(_, floor)| floor)
}

/// Of each file that is in a circle, and not in one that was found before, the shortest.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    for first in uses.keys() {
        if found.iter().any(|circle| circle.contains(first)) {
            continue;
        }
        let mut ways = VecDeque::from([vec![first.clone()]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            let last = way.last().expect("it begins somewhere");
            let next = uses.get(last).into_iter().flatten();
            if next.clone().any(|file| file == first) {
                found.push(way);
                break;
            }
            for file in next.filter(|file| seen.insert((*file).clone())) {
                ways.push_back([way.as_slice(), std::slice::from_ref(file)].concat());
            }
        }
    }
    found
}

// ---- who uses whom ----

type Module = Vec<String>;

struct Tree {
    /// Of each module its file.
    files: BTreeMap<Module, String>,
    /// Of each file those that it uses.
    uses: BTreeMap<String, BTreeSet<String>>,
    /// Of each file the methods that it calls, each with the only file that adds one of that name.
    calls: BTreeMap<String, BTreeSet<(String, String)>>,
}

impl Tree {
    fn new(root: &str, sources: BTreeMap<String, String>) -> Tree {
        let root = root.trim_start_matches("src/");
        let (mut files, mut words) = (BTreeMap::new(), BTreeMap::new());
        let mut tests = BTreeSet::new();
        for (file, text) in sources {
            let whole = format!("{root}/{}", file.trim_end_matches(".rs"));
            let whole = whole.strip_suffix("/mod").unwrap_or(&whole);
            let module: Module = whole.split('/').map(str::to_owned).collect();
            let (code, files_of_tests) = blank_tests(&code_only(&text));
            let child = |name| [module.as_slice(), &[name]].concat();
            tests.extend(files_of_tests.into_iter().map(child));
            words.insert(module.clone(), words_of(&code));
            files.insert(module, file);
        }
        files.retain(|module, _| !tests.contains(module));
        let (uses, calls) = (BTreeMap::new(), BTreeMap::new());
        let mut tree = Tree { files, uses, calls };
        let mut methods: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (module, file) in &tree.files {
            for name in methods_in(&words[module]) {
                methods.entry(name).or_default().insert(file);
            }
        }
        let mut added = BTreeSet::new();
        for (module, file) in &tree.files {
            added.extend(
                added_in(&words[module])
                    .into_iter()
                    .map(|name| (name, file.as_str())),
            );
        }
        for (module, file) in &tree.files {
            let used = tree.used_by(module, &words[module]);
            let others = used.into_iter().filter(|used| used != file);
            tree.uses.insert(file.clone(), others.collect());
            let called = called_in(&words[module]).filter_map(|name| {
                let mut of = methods.get(name)?.iter();
                let only = *of.next().filter(|_| of.next().is_none())?;
                let is_added = added.contains(&(name, only));
                is_added.then(|| (name.to_owned(), only.to_owned()))
            });
            tree.calls.insert(file.clone(), called.collect());
        }
        tree
    }

    /// The files that a module's words name.
    fn used_by(&self, module: &Module, words: &[String]) -> BTreeSet<String> {
        let (imports, paths) = paths_of(words);
        let mut names = BTreeMap::new();
        let mut found = BTreeSet::new();
        for (name, path) in imports {
            let whole = self.whole(module, &BTreeMap::new(), &path);
            found.extend(whole.iter().filter_map(|path| self.file_of(path)));
            if let Some(whole) = whole.filter(|whole| self.files.contains_key(whole)) {
                names.insert(name, whole);
            }
        }
        let whole = paths
            .iter()
            .filter_map(|path| self.whole(module, &names, path));
        found.extend(whole.filter_map(|path| self.file_of(&path)));
        found
    }

    /// A path from the crate's root, as far as that can be told; `names` are modules that were imported.
    fn whole(
        &self,
        module: &Module,
        names: &BTreeMap<String, Module>,
        path: &[String],
    ) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let from = match first.as_str() {
            "crate" => Module::new(),
            "self" => module.clone(),
            "super" => {
                let ups = path.iter().take_while(|word| *word == "super").count();
                let kept = module.len().checked_sub(ups)?;
                return Some([&module[..kept], &path[ups..]].concat());
            }
            name => {
                let child = [module.as_slice(), std::slice::from_ref(first)].concat();
                match names.get(name) {
                    Some(named) => named.clone(),
                    None => self.files.contains_key(&child).then_some(child)?,
                }
            }
        };
        Some([from, rest.to_vec()].concat())
    }

    /// Of the longest module that a path begins with.
    fn file_of(&self, path: &Module) -> Option<String> {
        let known = |length: usize| self.files.get(&path[..length]);
        (1..=path.len()).rev().find_map(known).cloned()
    }
}

/// Names, paths' colons, and all else character by character.
fn words_of(code: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        words.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    words
}

/// Names of methods that std has too say nothing of whose method is called.
const OF_STD: [&str; 1] = ["extend"];

/// The names of the functions with a `self`.
fn methods_in(words: &[String]) -> impl Iterator<Item = &str> {
    let is_method = |at: &usize| words[*at] == "fn" && has_self(&words[*at..]);
    let functions = (0..words.len()).filter(is_method);
    functions.map(|at| words[at + 1].as_str())
}

/// Those of them that are added to types of other files.
fn added_in(words: &[String]) -> Vec<&str> {
    let is_start = |at: usize| at == 0 || matches!(words[at - 1].as_str(), "}" | ";" | "]");
    let impls = (0..words.len()).filter(|at| words[*at] == "impl" && is_start(*at));
    let mut found = Vec::new();
    for block in impls.map(|at| &words[at..]) {
        let head = block.iter().take_while(|word| *word != "{").count();
        let of = type_of(&block[..head]);
        let declares = |two: &[String]| {
            matches!(two[0].as_str(), "struct" | "enum") && Some(two[1].as_str()) == of
        };
        if of.is_none() || words.windows(2).any(declares) {
            continue;
        }
        let mut nested = 0;
        let body = block[head..].iter().take_while(|word| {
            nested += usize::from(*word == "{");
            nested -= usize::from(*word == "}");
            nested > 0
        });
        let body = &block[head..head + body.count()];
        found.extend(methods_in(body));
    }
    found.retain(|name| !OF_STD.contains(name));
    found
}

/// Whose methods these are, by an `impl` up to its brace; nobody's own if they are a trait's.
fn type_of(head: &[String]) -> Option<&str> {
    let mut nested = 0;
    let mut name = None;
    for word in &head[1..] {
        match word.as_str() {
            "<" => nested += 1,
            ">" => nested -= 1,
            "for" => return None,
            "where" => break,
            word if nested == 0 && word.starts_with(is_word) => name = Some(word),
            _ => {}
        }
    }
    name
}

fn has_self(function: &[String]) -> bool {
    let parameters = function.iter().skip_while(|word| *word != "(").skip(1);
    let mut first = parameters.take_while(|word| !matches!(word.as_str(), "," | ")" | ":"));
    first.any(|word| word == "self")
}

/// The names of the methods that are called.
fn called_in(words: &[String]) -> impl Iterator<Item = &str> {
    let triples = words.windows(3).filter(|three| three[0] == ".");
    let calls = triples.filter(|three| three[2] == "(" || three[2] == "::");
    calls.map(|three| three[1].as_str())
}

type Imports = Vec<(String, Vec<String>)>;

/// What is imported, each by its name here; and the paths that are written out, but for those that say how far something is
/// visible.
fn paths_of(words: &[String]) -> (Imports, Vec<Vec<String>>) {
    let (mut imports, mut paths) = (Vec::new(), Vec::new());
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let is_name = |at: usize| word(at).starts_with(is_word);
    let mut at = 0;
    while at < words.len() {
        let is_use = word(at) == "use" && (is_name(at + 1) || word(at + 1) == "{");
        let is_reach = word(at) == "pub" && word(at + 1) == "(";
        if is_use {
            at = import(words, at + 1, &[], &mut imports);
        } else if is_reach {
            at += words[at..].iter().take_while(|word| *word != ")").count();
        } else if is_name(at) && word(at + 1) == "::" {
            let mut path = vec![words[at].clone()];
            at += 1;
            while word(at) == "::" && is_name(at + 1) {
                path.push(words[at + 1].clone());
                at += 2;
            }
            paths.push(path);
        }
        at += 1;
    }
    (imports, paths)
}

/// Reads one tree of a `use`, and says where it ends.
fn import(words: &[String], mut at: usize, before: &[String], imports: &mut Imports) -> usize {
    let mut path = before.to_vec();
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "::" => {}
            "{" => {
                while words.get(at).is_some_and(|word| word != "}") {
                    at = import(words, at + 1, &path, imports);
                }
                return at + 1;
            }
            "as" => {
                let name = words.get(at + 1).cloned().unwrap_or_default();
                imports.push((name, path));
                return at + 2;
            }
            "," | "}" | ";" => break,
            // A module itself, in braces.
            "self" if !path.is_empty() => {}
            "*" => {}
            _ => path.push(word.clone()),
        }
        at += 1;
    }
    // Nothing follows the last comma of a list.
    if path.len() > before.len() || words.get(at - 1).is_some_and(|word| word == "self") {
        let name = path.last().cloned().unwrap_or_default();
        imports.push((name, path));
    }
    at
}

// ---- whether it can fail ----

const EXAMPLE: House = House {
    root: "src/house",
    floors: &[&["cellar.rs"], &["middle/", "hall.rs"], &["mod.rs"]],
    known: &[],
};

fn faults_of(
    known: &'static [(&'static str, &'static str)],
    files: &[(&str, &str)],
) -> Vec<String> {
    let owned = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
    let house = House { known, ..EXAMPLE };
    faults(&house, files.iter().map(owned).collect())
}

#[test]
fn a_house_that_stands_has_no_fault() {
    let files = [
        (
            "mod.rs",
            "mod cellar; mod hall; mod middle; pub use hall::Hall; use self::middle::low::{self, Low};",
        ),
        (
            "hall.rs",
            "use super::{cellar::Cellar, middle::{low::Low as L, high}};\npub(in crate::house) struct Hall;",
        ),
        (
            "middle/mod.rs",
            "pub mod high; pub mod low; // crate::house::mod",
        ),
        (
            "middle/high.rs",
            "use super::low::*; fn a() -> &'static str { \"crate::house::Hall\" }\n#[cfg(test)]\nmod tests;",
        ),
        (
            "middle/low.rs",
            "use crate::house::cellar; use crate::other::Hall;\n#[cfg(test)] mod tests { use super::super::high::A; }",
        ),
        ("middle/high/tests.rs", "use crate::house::Hall;"),
        ("cellar.rs", "use std::fmt; use super::super::other::Thing;"),
    ];
    assert_eq!(faults_of(&[], &files), [""; 0]);
}

#[test]
fn who_uses_what_is_above_is_named_however_it_says_so() {
    let ways = [
        "use crate::house::middle::high::High;",
        "use crate::house::{cellar::A, middle::{self, high::{High, Other},},};",
        "pub(super) use super::middle::high::{self};",
        "use super::middle; fn a() { middle::high::b(); }",
        "use crate::house::middle as half; type A = Vec<half::high::High>;",
        "fn a(b: &crate::house::middle::high::High) {}",
        "fn a() { for b in super::middle::high::all() {} }",
        "#[cfg(test)]\nuse std::fmt;\nimpl A { fn b() { super::middle::high::c::<u8>() } }",
        "#[cfg(test)]\n#[derive(Clone)]\nstruct A([u8; 2]);\nuse crate::{house::middle::high::*};",
    ];
    for way in ways {
        let files = [
            ("cellar.rs", way),
            ("middle/mod.rs", ""),
            ("middle/high.rs", ""),
        ];
        let said = "cellar.rs on floor 0 uses middle/high.rs on floor 1, which is above it";
        let found = faults_of(&[], &files);
        assert!(found.iter().any(|fault| fault == said), "{way}: {found:?}");
    }
    // Of a module that names itself anew it is that which is used.
    let files = [
        ("mod.rs", "pub use cellar::Cellar;"),
        ("cellar.rs", "use crate::house::Cellar;"),
    ];
    let said = "cellar.rs on floor 0 uses mod.rs on floor 2, which is above it";
    assert_eq!(faults_of(&[], &files), [said]);
}

#[test]
fn a_call_of_what_is_added_above_is_named() {
    let files = [
        (
            "cellar.rs",
            "pub struct A; impl A { fn b(&self) { self.low(self.high::<u8>()); self.both().own() } }",
        ),
        (
            "hall.rs",
            "use super::cellar::A; impl A { fn high<'a, T>(&'a mut self) {} fn both(self) {} }",
        ),
        (
            "mod.rs",
            "impl A { fn both(self) {} fn c(a: A) { a.high() } fn low(a: &A) {} }\n\
            struct B; impl<T: C> B { fn own(&self) {} }",
        ),
    ];
    let said = "cellar.rs on floor 0 calls `high` of hall.rs on floor 1, which is above it";
    assert_eq!(faults_of(&[], &files), [said]);
    assert_eq!(faults_of(&[("cellar.rs", "hall.rs")], &files), [""; 0]);
}

#[test]
fn a_circle_is_named_inside_a_folder_too() {
    let files = [
        ("middle/mod.rs", "mod high; mod low; mod side;"),
        ("middle/high.rs", "use super::low::Low;"),
        ("middle/low.rs", "use crate::house::{cellar::Cellar, hall};"),
        ("middle/side.rs", "use super::high::High;"),
        ("hall.rs", "fn a() { crate::house::middle::high::b() }"),
    ];
    let said = "a circle on floor 1: hall.rs uses middle/high.rs uses middle/low.rs uses hall.rs";
    assert_eq!(faults_of(&[], &files), [said]);
    // Who is in two is not asked for the second, which shows when the first is gone.
    let files = [
        ("middle/mod.rs", "mod high; pub use high::High;"),
        ("middle/high.rs", "use super::High;"),
    ];
    let said = "a circle on floor 1: middle/high.rs uses middle/mod.rs uses middle/high.rs";
    assert_eq!(faults_of(&[], &files), [said]);
}

#[test]
fn what_is_known_is_borne_as_long_as_it_is_there() {
    let known = &[("cellar.rs", "hall.rs")];
    let files = [("cellar.rs", "use super::hall::Hall;"), ("hall.rs", "")];
    assert_eq!(faults_of(known, &files), [""; 0]);
    let files = [("cellar.rs", ""), ("hall.rs", ""), ("attic.rs", "")];
    let said = [
        "cellar.rs does not use hall.rs: that is known no more",
        "attic.rs stands on no floor",
    ];
    assert_eq!(faults_of(known, &files), said);
}
