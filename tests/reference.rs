//! docs/commands.md says what is so: its transcripts are run on a real server, and its tables are those of the module
//! and of what the server tells of it.

#![cfg(feature = "server")]

use std::collections::BTreeSet;
use tether::command::{Access, ArgumentKind, KeyPlaces, Spec, TABLE};
use tether_testing::harness::{Client, Frame, Server, array, bulk, int, say};
use tether_testing::transcript::{self, blocks, document};

const REFERENCE: &str = "docs/commands.md";

#[test]
fn redis_cli_prints_what_the_reference_shows() {
    let plays = transcript::run_all(REFERENCE);
    assert!(plays >= 18, "only {plays} transcripts were found");
}

#[test]
fn pushes_have_the_bytes_that_the_reference_shows() {
    let server = Server::start();
    let blocks = blocks(REFERENCE);
    let frames = blocks
        .iter()
        .find(|block| block.tag == "frames")
        .expect("the frames");
    for line in &frames.lines {
        let (protocol, bytes) = line.split_once(": ").expect("a protocol and its frame");
        let mut watcher = if protocol == "RESP3" {
            server.resp3()
        } else {
            server.resp2()
        };
        server.resp2().run("SET lock v");
        watcher.run("WATCHEX lock");
        server.resp2().run("DEL lock");
        watcher.expect_bytes(&bytes.replace("\\r\\n", "\r\n"));
    }
    assert_eq!(frames.lines.len(), 2);
}

// ---- the table of commands ----

#[test]
fn the_table_of_commands_is_the_modules() {
    let shown = table_under("At a glance");
    for (spec, shown) in TABLE.iter().zip(&shown) {
        let expected = row(spec);
        assert!(
            *shown == expected,
            "{REFERENCE} should have\n{expected}\nand has\n{shown}"
        );
    }
    assert_eq!(shown.len(), TABLE.len(), "rows");
}

fn row(spec: &Spec) -> String {
    let places = match spec.keys {
        KeyPlaces::First | KeyPlaces::Prefix => "the first",
        KeyPlaces::All => "all",
        KeyPlaces::Numbered => "as many as said",
        KeyPlaces::Nowhere => "none",
    };
    let access = match (spec.keys, spec.access) {
        (KeyPlaces::Nowhere, _) => "",
        (KeyPlaces::Prefix, _) => ", to route by",
        (_, Access::Look) => ", to read",
        (_, Access::Write | Access::Release | Access::Withdraw) => ", to write",
    };
    let name = spec.name.to_ascii_uppercase();
    let link = name.to_ascii_lowercase().replace('.', "");
    format!(
        "| [{name}](#{link}) | {} | {} | {} | {places}{access} | {} |",
        spec.arity(),
        spec.flags,
        spec.categories,
        spec.summary
    )
}

#[test]
fn each_command_has_a_section_with_its_syntax_and_cost() {
    let text = document(REFERENCE);
    for spec in TABLE {
        let name = spec.name.to_ascii_uppercase();
        let section = text.split(&format!("\n### {name}\n")).nth(1);
        let section = section.unwrap_or_else(|| panic!("{name} has no section"));
        let section = section.split("\n##").next().expect("a beginning");
        assert!(
            section.contains(&format!("Complexity: {}.", spec.complexity)),
            "{name}'s cost is {}",
            spec.complexity
        );
        let syntax = section
            .split("```text\n")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        let syntax = syntax.unwrap_or_else(|| panic!("{name} has no syntax"));
        let words: Vec<&str> = syntax
            .split([' ', '[', ']'])
            .filter(|word| !["", "|", "..."].contains(word))
            .collect();
        assert_eq!(words[0], name, "{syntax}");
        let mut expected = vec![spec.name.to_ascii_uppercase()];
        for argument in spec.arguments() {
            expected.extend(argument.token.map(str::to_owned));
            if argument.kind != ArgumentKind::Flag {
                expected.push(argument.name.to_owned());
                let again = argument.multiple && !argument.optional;
                expected.extend(again.then(|| argument.name.to_owned()));
            }
        }
        assert_eq!(words, expected, "{syntax}");
    }
}

// ---- what the server tells ----

#[test]
fn command_info_tells_the_same() {
    let server = Server::start();
    let mut client = server.resp2();
    let has_categories = server.is_at_least((7, 2), (7, 2));
    if !has_categories {
        say("command_info_tells_the_same: Redis 7.0 puts the commands of modules into no category");
    }
    for spec in TABLE {
        let info = client.run(["COMMAND", "INFO", spec.name]).items()[0].items();
        assert_eq!(info[0], bulk(spec.name));
        assert_eq!(info[1], int(spec.arity().into()), "{}'s arity", spec.name);
        let told: BTreeSet<_> = texts(&info[2])
            .into_iter()
            // What Valkey has called SLOWLOG since 8.1.
            .map(|flag| flag.replace("commandlog", "slowlog"))
            .collect();
        assert_eq!(told, flags_told(spec), "{}'s flags", spec.name);
        let own = server.has_own_category().then_some("lock");
        let categories = spec.categories.split(' ').chain(own);
        let categories = categories.map(|name| format!("@{name}"));
        let categories = if has_categories {
            categories.collect()
        } else {
            BTreeSet::new()
        };
        assert_eq!(texts(&info[6]), categories, "{}'s categories", spec.name);
        check_keys(&mut client, spec);
    }
}

fn texts(frame: &Frame) -> BTreeSet<String> {
    frame.items().iter().map(Frame::text).collect()
}

/// The flags that a module gives have other names in COMMAND INFO.
fn flags_told(spec: &Spec) -> BTreeSet<String> {
    let told = |flag: &str| match flag {
        "deny-oom" => "denyoom".to_owned(),
        "deny-script" => "noscript".to_owned(),
        "no-monitor" | "no-slowlog" => flag.replace("no-", "skip_"),
        other => other.replace('-', "_"),
    };
    // These the servers keep to themselves.
    let hidden = |flag: &&str| matches!(*flag, "may-replicate");
    let given = spec.flags.split(' ').filter(|flag| !hidden(flag));
    let movable = spec.keys == KeyPlaces::Numbered;
    let movable = movable.then_some("movablekeys");
    let implied = ["module"].into_iter().chain(movable);
    given.map(told).chain(implied.map(str::to_owned)).collect()
}

/// Which of its arguments are keys, and for what.
fn check_keys(client: &mut Client, spec: &Spec) {
    let (arguments, keys) = match spec.keys {
        KeyPlaces::First => (&["a", "1", "x"][..], &["a"][..]),
        KeyPlaces::All => (&["a", "b", "c"][..], &["a", "b", "c"][..]),
        KeyPlaces::Numbered => (&["2", "a", "b", "ALL"][..], &["a", "b"][..]),
        // The server routes by a prefix, and calls it no key.
        KeyPlaces::Nowhere | KeyPlaces::Prefix => return,
    };
    let arguments = &arguments[..arguments.len().min(if spec.arity() > 0 {
        spec.arity() as usize - 1
    } else {
        9
    })];
    let flags = match spec.access {
        Access::Look => ["RO", "access"],
        Access::Write | Access::Release | Access::Withdraw => ["OW", "insert"],
    };
    let words = ["COMMAND", "GETKEYSANDFLAGS", spec.name]
        .into_iter()
        .chain(arguments.iter().copied());
    let told = client.run(words.collect::<Vec<_>>()).items();
    let told: Vec<_> = told
        .iter()
        .map(|pair| (pair.items()[0].text(), texts(&pair.items()[1])))
        .collect();
    let flags = BTreeSet::from(flags.map(str::to_owned));
    let expected: Vec<_> = keys
        .iter()
        .map(|key| ((*key).to_owned(), flags.clone()))
        .collect();
    assert_eq!(told, expected, "{}'s keys", spec.name);
}

#[test]
fn command_docs_tells_the_same() {
    let server = Server::start();
    let mut client = server.resp3();
    for spec in TABLE {
        let docs = client.run(["COMMAND", "DOCS", spec.name]).items()[1].clone();
        assert_summary(spec.summary);
        for (name, value) in [
            ("summary", spec.summary),
            ("complexity", spec.complexity),
            ("since", "0.1.0"),
            ("group", "module"),
            ("module", "tether"),
        ] {
            assert_eq!(
                entry(&docs, name),
                Some(bulk(value)),
                "{}'s {name}",
                spec.name
            );
        }
        let arguments = entry(&docs, "arguments").map_or(Vec::new(), |list| list.items());
        let told: Vec<_> = arguments
            .iter()
            .map(|argument| (entry(argument, "name"), entry(argument, "token")))
            .collect();
        let ours = |argument: &tether::command::Argument| {
            (Some(bulk(argument.name)), argument.token.map(bulk))
        };
        assert_eq!(
            told,
            spec.arguments().map(ours).collect::<Vec<_>>(),
            "{}'s arguments",
            spec.name
        );
    }
    let all = client.run("COMMAND LIST FILTERBY MODULE tether").items();
    let all: BTreeSet<_> = all
        .iter()
        .map(Frame::text)
        .filter(|name| !name.starts_with("tether."))
        .collect();
    assert_eq!(all, TABLE.iter().map(|spec| spec.name.to_owned()).collect());
}

/// A summary is a sentence, and its verb comes first.
fn assert_summary(summary: &str) {
    let verb = summary.split(' ').next().unwrap_or_default();
    let is_verb = verb.ends_with('s') && verb.starts_with(|c: char| c.is_ascii_uppercase());
    assert!(is_verb && summary.ends_with('.'), "{summary}");
}

/// The commands that only the master's stream and the append-only file have.
#[test]
fn internal_commands_are_described_or_hidden() {
    const INTERNAL: &str = "bound free hold lock renew session settp token";
    let server = Server::start();
    let mut client = server.resp3();
    let are_hidden = server.is_at_least((8, 0), (u32::MAX, 0));
    let listed = client.run("COMMAND LIST FILTERBY MODULE tether").items();
    let listed = listed.iter().map(Frame::text);
    let listed: BTreeSet<_> = listed.filter(|name| name.starts_with("tether.")).collect();
    let all = INTERNAL.split(' ').map(|name| format!("tether.{name}"));
    let all: BTreeSet<_> = all.filter(|_| !are_hidden).collect();
    assert_eq!(listed, all);
    for name in INTERNAL.split(' ').map(|name| format!("tether.{name}")) {
        let docs = client.run(["COMMAND", "DOCS", &name]).items();
        assert_eq!(docs.is_empty(), are_hidden, "{name}: {docs:?}");
        if let Some(docs) = docs.get(1) {
            let summary = entry(docs, "summary").expect("a summary");
            assert_summary(&summary.text());
            assert_eq!(entry(docs, "since"), Some(bulk("0.1.0")));
        }
        let refused = client.refused([&name, "k", "9", "v"]);
        let expected = server.refusal_of_internal_commands();
        assert!(refused.contains(expected), "{name}: {refused}");
    }
}

fn entry(map: &Frame, name: &str) -> Option<Frame> {
    let items = map.items();
    let mut pairs = items.chunks(2);
    pairs
        .find(|pair| pair[0] == bulk(name))
        .map(|pair| pair[1].clone())
}

// ---- settings and INFO ----

#[test]
fn the_settings_are_the_servers() {
    let server = Server::start();
    let mut client = server.resp2();
    let rows: Vec<Vec<String>> = table_under("Settings")
        .iter()
        .map(|row| cells(row))
        .collect();
    let told = client.run("CONFIG GET tether.*").items();
    let told: BTreeSet<_> = told
        .chunks(2)
        .map(|pair| (pair[0].text(), pair[1].text()))
        .collect();
    let shown = rows
        .iter()
        .map(|cells| (cells[0].clone(), cells[1].clone()));
    assert_eq!(shown.collect::<BTreeSet<_>>(), told);
    for cells in rows {
        let [name, default, least, most, ..] = &cells[..] else {
            panic!("{cells:?}")
        };
        for value in [least, most, default] {
            client.run(["CONFIG", "SET", name, value]);
            assert_eq!(
                client.run(["CONFIG", "GET", name]),
                array([bulk(name), bulk(value)])
            );
        }
        let beyond = [(least, -1), (most, 1)].map(|(end, step)| {
            end.parse()
                .map_or("maybe".into(), |end: i64| (end + step).to_string())
        });
        for value in beyond {
            client.refused(["CONFIG", "SET", name, &value]);
        }
    }
}

#[test]
fn the_fields_of_info_are_the_servers() {
    let server = Server::start();
    let info = server.info("tether");
    let told: Vec<_> = info
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
        .collect();
    let shown: Vec<_> = table_under("INFO tether")
        .iter()
        .map(|row| cells(row)[0].clone())
        .collect();
    assert_eq!(shown, told);
}

// ---- reading the document ----

/// The rows of the first table after a heading, without its head.
fn table_under(heading: &str) -> Vec<String> {
    let text = document(REFERENCE);
    let rest = text.split(&format!("\n## {heading}\n")).nth(1);
    let lines = rest
        .unwrap_or_else(|| panic!("nothing is headed {heading}"))
        .lines();
    let table = lines.skip_while(|line| !line.starts_with('|'));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_end().to_owned()).collect()
}

fn cells(row: &str) -> Vec<String> {
    let cells = row.trim_matches('|').split('|');
    cells
        .map(|cell| cell.trim().trim_matches('`').to_owned())
        .collect()
}
