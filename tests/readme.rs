//! README.md says what is so: its transcripts are run on a real server, its shell commands exist. The transcripts of other pages are
//! run, too, all pages' links lead somewhere, and redis.conf shows the defaults.

#![cfg(feature = "server")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tether_testing::harness::{Frame, Server, bulk, eventually_equal, int, redis_cli};
use tether_testing::project;
use tether_testing::transcript::{self, blocks, document};

#[path = "../benches/servers/prose.rs"]
mod prose;

const README: &str = "README.md";
const TOUR: &str = "docs/tour.md";
const CLIENTS: &str = "docs/clients.md";
/// Its links are those of docs/benchmarks.md, which has its text and whose place they are written for.
const PROSE: &str = "benches/servers/report.md";

#[test]
fn redis_cli_prints_what_the_readme_shows() {
    let plays = transcript::run_all(README);
    assert!(plays >= 3, "only {plays} transcripts were found");
}

#[test]
fn redis_cli_prints_what_the_tour_shows() {
    let plays = transcript::run_all(TOUR);
    assert!(plays >= 4, "only {plays} transcripts were found");
    assert_eq!(plays, blocks(TOUR).len(), "a block that is no transcript");
}

#[test]
fn redis_cli_prints_what_the_operators_page_shows() {
    let plays = transcript::run_all("docs/operations.md");
    assert!(plays >= 3, "only {plays} transcripts were found");
}

#[test]
fn redis_cli_prints_what_the_comparison_shows() {
    let plays = transcript::run_all("docs/comparison.md");
    assert!(plays >= 3, "only {plays} transcripts were found");
    // Its program is run by the tests of the Python package.
    for block in blocks("docs/comparison.md") {
        let is_run = ["redis", "python"].contains(&block.tag.as_str());
        assert!(is_run, "nothing runs {:?}", block.lines);
    }
}

/// What the README says beside its first transcript.
#[test]
fn a_one_shot_call_gives_its_lock_back_at_once() {
    let server = Server::start();
    for _ in 0..2 {
        let call = shell(&server, "redis-cli LOCK.ACQUIRE report").output();
        let said = call.expect("a shell").stdout;
        let token = String::from_utf8_lossy(&said).trim().parse::<i64>();
        assert!(token.is_ok_and(|token| token > 0), "{said:?}");
        let mut client = server.resp2();
        eventually_equal("the lock", int(0), || client.run("EXISTS report"));
    }
}

#[test]
fn the_pid_that_is_printed_is_the_one_to_kill() {
    let server = Server::start();
    let mut ann = shell(&server, "sh -c 'echo $$; exec redis-cli -3'");
    let mut ann = ann.spawn().expect("a shell");
    let input = ann.stdin.as_mut().expect("its input");
    writeln!(input, "SETTP lock ann").expect("a redis-cli that reads");
    let mut said = BufReader::new(ann.stdout.take().expect("its output")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    let pid: libc::pid_t = line().parse().expect("a pid");
    assert_eq!(line(), "1");
    let mut bob = server.resp2();
    assert_eq!(bob.run("SETTP lock bob"), int(0));
    // SAFETY: kill touches no memory; the process is a child of ours, which lives until its input is closed.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    eventually_equal("who has the lock", int(1), || bob.run("SETTP lock bob"));
    ann.wait().expect("its end");
}

/// A line of the README's, for a shell, with the client and the server that are tested.
fn shell(server: &Server, line: &str) -> Command {
    assert!(
        document(README).contains(&format!("`{line}`")),
        "{README} does not show {line}"
    );
    let client = redis_cli();
    let call = format!("{} -p {}", client.display(), server.port());
    let mut shell = Command::new("sh");
    shell.args(["-c", &line.replace("redis-cli", &call)]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    shell.stderr(Stdio::null());
    shell
}

#[test]
fn each_block_is_of_a_kind_that_is_tested() {
    for block in blocks(README) {
        let known = ["redis", "sh", "conf"].contains(&block.tag.as_str());
        assert!(
            known,
            "a block of the kind {:?}: {:?}",
            block.tag, block.lines
        );
    }
}

#[test]
fn shell_commands_are_targets_of_the_makefile() {
    let makefile = document("Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect();
    let readme = document(README);
    let in_blocks = blocks(README).into_iter().filter(|block| block.tag == "sh");
    let in_blocks: Vec<String> = in_blocks.flat_map(|block| block.lines).collect();
    let in_text = readme.split('`').filter(|piece| piece.starts_with("make "));
    let mut commands = 0;
    for command in in_blocks.iter().map(String::as_str).chain(in_text) {
        let words: Vec<_> = command.split_whitespace().collect();
        let ["make", target, rest @ ..] = &words[..] else {
            panic!("{command:?} is no call of make")
        };
        assert!(
            targets.contains(target),
            "the Makefile has no target {target}"
        );
        assert!(
            rest.first().is_none_or(|word| word.starts_with('#')),
            "{command:?}"
        );
        commands += 1;
    }
    assert!(commands >= 4, "only {commands} commands were found");
}

#[test]
fn the_line_for_a_configuration_loads_the_module() {
    let shown = blocks(README)
        .into_iter()
        .filter(|block| block.tag == "conf");
    let lines: Vec<String> = shown.flat_map(|block| block.lines).collect();
    assert_eq!(lines, ["loadmodule /path/to/libtether.so"]);
}

/// redis.conf and the package's tether.conf show each setting at its default, and forget none.
#[test]
fn the_settings_in_the_configurations_are_the_defaults() {
    let told = Server::start().resp2().run("CONFIG GET tether.*").items();
    let told: BTreeSet<String> = told
        .chunks(2)
        .map(|pair| format!("{} {}", pair[0].text(), pair[1].text()))
        .collect();
    for file in ["redis.conf", "packaging/tether.conf"] {
        let shown = document(file);
        let shown = shown.lines().filter(|line| line.starts_with("tether."));
        let shown: BTreeSet<String> = shown.map(str::to_owned).collect();
        assert_eq!(shown, told, "{file}");
    }
}

#[test]
fn versions_are_those_of_the_package() {
    let number = |version: &str| {
        let parts = version.split('.').map(|part| part.parse::<i64>());
        parts.fold(0, |all, part| all * 100 + part.expect("a number"))
    };
    let ours_is = number(env!("CARGO_PKG_VERSION"));
    let modules = Server::start().resp2().run("MODULE LIST").items();
    let ours = modules
        .iter()
        .map(Frame::items)
        .find(|about| about[1] == bulk("tether"));
    assert_eq!(ours.expect("the module")[2..4], [bulk("ver"), int(ours_is)]);
    let tasks = document("docs/tasks.md");
    let words: Vec<_> = tasks.split_whitespace().collect();
    let version = "1.2.3";
    let shown = format!("(`ver` {} is {version})", number(version));
    assert!(words.join(" ").contains(&shown), "no {shown}");
    let cargo = format!("cargo ({} or later)", env!("CARGO_PKG_RUST_VERSION"));
    assert!(document(README).contains(&cargo), "no {cargo}");
}

/// `make clients` runs those of tests/clients, and holds the table against them.
#[test]
fn the_lines_for_clients_are_those_of_programs_that_are_run() {
    let mut programs = Vec::new();
    let folders = project().join("tests/clients");
    collect_texts(&folders, &mut programs);
    // Of our own clients, which run the examples of their pages themselves.
    let ours = ["rust", "python", "cli", "c", "go", "java", "node"]
        .map(|name| format!("clients/{name}/README.md"));
    programs.extend(ours.iter().map(|page| trimmed(&document(page))));
    let blocks = blocks(CLIENTS);
    for block in &blocks {
        let shown = trimmed(&block.lines.join("\n"));
        let found = programs.iter().any(|program| program.contains(&shown));
        assert!(found, "{CLIENTS}: no program has\n{shown}");
    }
    assert!(blocks.len() >= 20, "only {} blocks", blocks.len());

    let page = document(CLIENTS);
    let checked = document("tests/clients/check.py");
    let names = checked
        .lines()
        .filter_map(|line| line.strip_prefix("    (\"")?.split('"').next());
    let missing: Vec<_> = names
        .filter(|name| !page.contains(&format!("\n| {name} | ")))
        .collect();
    assert!(missing.is_empty(), "{CLIENTS} has no row for {missing:?}");
}

fn collect_texts(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_texts(&path, texts);
        } else if let Ok(text) = fs::read_to_string(path) {
            texts.push(trimmed(&text));
        }
    }
}

/// A program is indented in its own way.
fn trimmed(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join("\n")
}

#[test]
fn the_benchmarks_have_the_prose_of_their_source() {
    let page = document("docs/benchmarks.md");
    let titles = |text: &str| {
        let all = prose::sections(text).into_iter();
        all.map(|section| section.title).collect::<BTreeSet<_>>()
    };
    let (of_page, of_prose) = (titles(&page), titles(prose::PROSE));
    let without: Vec<_> = of_page.difference(&of_prose).collect();
    assert_eq!(without, ["Every target"], "have no prose in report.md");
    assert!(
        prose::with_prose(&page) == page,
        "benches/servers/report.md has other prose: `cargo bench --bench servers -- --prose` puts it into docs/benchmarks.md"
    );
}

#[test]
fn links_lead_somewhere() {
    let mut followed = 0;
    // Those that are not committed yet, too.
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = git.arg("*.md").current_dir(project()).output();
    let listed = String::from_utf8(listed.expect("git").stdout).expect("names");
    let pages: Vec<&str> = listed.lines().filter(|page| *page != PROSE).collect();
    assert!(pages.len() > 25, "git lists only {pages:?}");
    for file in pages {
        let text = document(file);
        let open = open_brackets(&text);
        assert!(
            open.is_empty(),
            "{file}: not every bracket is closed: {open:?}"
        );
        let folder = Path::new(file).parent().expect("a folder");
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(')')?.0));
        for link in links.filter(|link| !link.starts_with("https://")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                Path::new(file).to_owned()
            } else {
                folder.join(path)
            };
            let is_there = project().join(&target).exists();
            assert!(is_there, "{file} has a link to {link}");
            let has_heading =
                || headings(&document(&target.display().to_string())).contains(heading);
            assert!(
                heading.is_empty() || has_heading(),
                "{file}: nothing is headed {link}"
            );
            followed += 1;
        }
    }
    assert!(followed >= 50, "only {followed} links were found");
}

/// A bracket that is not closed in its paragraph is a link without a target.
fn open_brackets(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let paragraphs = prose.flat_map(|piece| piece.split("\n\n"));
    let count = |paragraph: &str, bracket| {
        let words = paragraph.split('`').step_by(2);
        words
            .map(|piece| piece.matches(bracket).count())
            .sum::<usize>()
    };
    paragraphs
        .filter(|paragraph| count(paragraph, '[') != count(paragraph, ']'))
        .collect()
}

/// The names that a document's headings have in links.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    lines.map(name).collect()
}
