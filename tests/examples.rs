//! The programs of examples/, run as a reader would run them, against a server of their own.
//!
//! The servers' tests say what the module does; these say that stock clients can tell the story with it: redis-cli,
//! redis-py over RESP3, and hiredis over RESP3 without a patch. What a story must say is in `assert_told`.

#![cfg(feature = "server")]

#[allow(dead_code, unused_imports)] // the harness is made for the tests in tests/server
#[path = "server/harness/mod.rs"]
mod harness;

use harness::{Server, eventually_equal};
use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WATCHERS: [&str; 3] = ["ann", "bob", "cy"];

/// Longer than the examples themselves have patience.
const DEADLINE: Duration = Duration::from_secs(60);

// ---- the stories ----

#[test]
fn redis_cli_tells_the_story() {
    tells_the_story(&redis_cli_example());
}

#[test]
fn redis_cli_says_so_when_the_story_does_not_come_true() {
    says_so_when_the_lock_is_not_free(&redis_cli_example());
}

#[test]
fn redis_py_tells_the_story() {
    tells_the_story(&python_example());
}

#[test]
fn redis_py_says_so_when_the_story_does_not_come_true() {
    says_so_when_the_lock_is_not_free(&python_example());
}

#[test]
fn hiredis_tells_the_story() {
    tells_the_story(&c_example());
}

#[test]
fn hiredis_says_so_when_the_story_does_not_come_true() {
    says_so_when_the_lock_is_not_free(&c_example());
}

#[test]
fn the_readme_shows_the_story_and_how_to_run_it() {
    let readme =
        fs::read_to_string(project().join("examples/README.md")).expect("examples/README.md");
    for command in [
        "examples/redis-cli/story.sh",
        "python3 examples/python/story.py",
        "make -C examples/c && examples/c/story",
    ] {
        assert!(
            readme.contains(&format!("`{command}`")),
            "examples/README.md does not name {command}"
        );
    }
    let story = readme
        .split("```")
        .find(|block| block.trim_start().starts_with("holder:"));
    assert_told(story.expect("the story in examples/README.md").trim());
}

fn tells_the_story(example: &Example) {
    let server = Server::start();
    // Twice: the first time must leave nothing behind that spoils the second.
    for _ in 0..2 {
        let (status, story) = example.run(server.port());
        assert!(status.success(), "{status}:\n{story}");
        assert_told(&story);
        for what in ["tether_temporary_keys", "tether_watches"] {
            eventually_equal(what, 0, || server.gauge("tether", what));
        }
    }
}

fn says_so_when_the_lock_is_not_free(example: &Example) {
    let server = Server::start();
    server.resp2().run("SET lock somebody");
    let (status, story) = example.run(server.port());
    assert_eq!(status.code(), Some(1), "{story}");
    assert!(story.contains("The story fails: "), "{story}");
}

/// Asserts that this is the story, whole, and nothing besides. The three watchers may speak in any order.
fn assert_told(story: &str) {
    let lines: Vec<&str> = story.lines().collect();
    let at = |line: &str| {
        let places: Vec<_> = (0..lines.len())
            .filter(|place| lines[*place] == line)
            .collect();
        assert_eq!(places.len(), 1, "`{line}` must be there once:\n{story}");
        places[0]
    };

    let killed = at("The holder is killed with SIGKILL.");
    let mut winners = Vec::new();
    for name in WATCHERS {
        let refused = at(&format!("{name}: SETTP lock {name} -> 0, somebody has it"));
        let watching = at(&format!("{name}: WATCHEX lock -> EXIST, I shall be told"));
        let heard = at(&format!("{name}: hears: watchex lock DEL"));
        let won = format!("{name}: tries SETTP lock {name} -> 1, it is mine");
        let tried = if lines.contains(&won.as_str()) {
            winners.push(name);
            at(&won)
        } else {
            at(&format!("{name}: tries SETTP lock {name} -> 0, too late"))
        };
        let order = [refused, watching, killed, heard, tried];
        assert!(
            order.is_sorted(),
            "{name}'s part is out of order ({order:?}):\n{story}"
        );
    }

    let [winner] = winners[..] else {
        panic!("the winners are {winners:?}:\n{story}")
    };
    assert_eq!(
        at("holder: SETTP lock holder -> 1, it is mine"),
        0,
        "{story}"
    );
    assert_eq!(
        at(&format!("Now the lock says: {winner}")),
        lines.len() - 2,
        "{story}"
    );
    assert_eq!(
        at("All have gone, and the lock with its last holder. The end."),
        lines.len() - 1,
        "{story}"
    );
    assert_eq!(lines.len(), 16, "{story}");
}

// ---- the programs ----

struct Example {
    program: PathBuf,
    arguments: Vec<PathBuf>,
    environment: Vec<(&'static str, PathBuf)>,
    folder: TempDir,
}

impl Example {
    fn new(program: PathBuf, arguments: Vec<PathBuf>) -> Example {
        let folder = TempDir::with_prefix("tether-example-").expect("a temporary folder");
        Example {
            program,
            arguments,
            environment: Vec::new(),
            folder,
        }
    }

    /// Runs it against the server on this port: how it ended, and all that it said.
    fn run(&self, port: u16) -> (ExitStatus, String) {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .args(["127.0.0.1", &port.to_string()])
            .envs(self.environment.iter().cloned());
        run_to_end(command, self.folder.path())
    }
}

fn redis_cli_example() -> Example {
    let mut example = Example::new(project().join("examples/redis-cli/story.sh"), Vec::new());
    example.environment.push(("REDIS_CLI", redis_cli()));
    // Its pipes go into our folder, so that nothing stays behind even when it has to be killed.
    example
        .environment
        .push(("TMPDIR", example.folder.path().to_owned()));
    example
}

fn python_example() -> Example {
    let python = fetched("python/bin/python", "redis-py");
    Example::new(
        python,
        vec!["-B".into(), project().join("examples/python/story.py")],
    )
}

fn c_example() -> Example {
    let hiredis = hiredis();
    let mut example = Example::new(PathBuf::new(), Vec::new());
    example.program = example.folder.path().join("story");
    let mut make = Command::new("make");
    make.arg("-C").arg(project().join("examples/c"));
    make.arg(format!("OUT={}", example.program.display()))
        .arg(format!("HIREDIS={}", hiredis.display()));
    make.arg("CFLAGS=-O1 -Werror");
    let (status, said) = run_to_end(make, example.folder.path());
    assert!(
        status.success(),
        "the example in C does not compile ({status}):\n{said}"
    );
    example
}

/// Runs a command to its end, which must come in time: how it ended, and all that it said on either output.
fn run_to_end(mut command: Command, folder: &Path) -> (ExitStatus, String) {
    // Into a file rather than a pipe: a grandchild that stays alive would keep a pipe open.
    let path = folder.join("said");
    let file = File::create(&path).expect("a file for what it says");
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("the file"))
        .stderr(file);
    // A group of its own, so that all of it can be ended at once.
    let mut child = command
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = || String::from_utf8_lossy(&fs::read(&path).expect("what it said")).into_owned();

    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("its state") {
            return (status, said());
        }
        if Instant::now() > deadline {
            let group = libc::pid_t::try_from(child.id()).expect("a process id");
            // SAFETY: kill touches no memory; the group is ours, and its leader is not yet waited for.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            let _ = child.wait();
            panic!(
                "{command:?} has not ended within {DEADLINE:?}; it said:\n{}",
                said()
            );
        }
        sleep(Duration::from_millis(5));
    }
}

// ---- where the tools are ----

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// TETHER_CLI, or the client beside the server that is tested, or the first one on PATH.
fn redis_cli() -> PathBuf {
    if let Some(path) = env::var_os("TETHER_CLI") {
        return fs::canonicalize(&path)
            .unwrap_or_else(|error| panic!("TETHER_CLI={}: {error}", path.display()));
    }
    let server = env::var_os("TETHER_SERVER").map(PathBuf::from);
    let beside = server
        .iter()
        .filter_map(|server| server.parent().map(Path::to_owned));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = beside.chain(env::split_paths(&path));
    let found = folders.find_map(|folder| {
        let mut programs = ["redis-cli", "valkey-cli"]
            .iter()
            .map(|name| folder.join(name));
        programs.find(|program| program.is_file())
    });
    let found = found.expect(
        "neither redis-cli nor valkey-cli beside TETHER_SERVER or on PATH, and no TETHER_CLI: `make test` installs one",
    );
    fs::canonicalize(found).expect("the client's path")
}

/// The folder of the hiredis that was fetched; empty when the system has one that is new enough, which
/// pkg-config then finds.
fn hiredis() -> PathBuf {
    let mut pkg_config = Command::new("pkg-config");
    let asked = pkg_config
        .args(["--exists", "hiredis >= 1.1"])
        .stderr(Stdio::null())
        .status();
    if !project().join(".servers/hiredis").exists() && asked.is_ok_and(|status| status.success()) {
        return PathBuf::new();
    }
    fetched("hiredis", "hiredis 1.1 or later")
}

/// Something of .servers/, which is fetched once.
fn fetched(what: &str, name: &str) -> PathBuf {
    let path = project().join(".servers").join(what);
    assert!(
        path.exists(),
        "{name} is not there ({} is missing): `make servers` fetches it",
        path.display()
    );
    path
}
