//! How each program of examples/ is built and run, and where the tools are that it needs. What is missing fails the
//! test with the name of the make target that fetches it.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tether_testing::harness::redis_cli;
use tether_testing::project;

/// Longer than the examples themselves have patience.
const DEADLINE: Duration = Duration::from_secs(300);

/// For compiling one, when nothing of it is there yet and others are using the machine.
const COMPILES_WITHIN: Duration = Duration::from_secs(600);

pub struct Example {
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
    pub fn run(&self, port: u16) -> (ExitStatus, String) {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .args(["127.0.0.1", &port.to_string()])
            .envs(self.environment.iter().cloned());
        run_to_end(command, self.folder.path())
    }
}

pub fn redis_cli_example() -> Example {
    let mut example = Example::new(project().join("examples/redis-cli/story.sh"), Vec::new());
    example.environment.push(("REDIS_CLI", redis_cli()));
    // Its pipes go into our folder, so that nothing stays behind even when it has to be killed.
    example
        .environment
        .push(("TMPDIR", example.folder.path().to_owned()));
    example
}

pub fn python_example(name: &str) -> Example {
    python_program(project().join("examples/python").join(name))
}

/// A program that a document shows.
pub fn shown_in_python(text: &str) -> Example {
    let mut example = python_program(PathBuf::new());
    let program = example.folder.path().join("shown.py");
    fs::write(&program, text).expect("a file for the program");
    example.arguments[1] = program;
    example
}

fn python_program(program: PathBuf) -> Example {
    let python = fetched("python/bin/python", "redis-py");
    Example::new(python, vec!["-B".into(), program])
}

pub fn node_example() -> Example {
    let modules = fetched("node/node_modules", "ioredis");
    let node = on_path("node").expect("node is not on PATH: `make test` installs it");
    // Node looks for packages beside the program, and nowhere else.
    let mut example = Example::new(node, Vec::new());
    let folder = example.folder.path();
    let program = folder.join("lock.mjs");
    fs::copy(project().join("examples/node/lock.mjs"), &program).expect("examples/node/lock.mjs");
    symlink(modules, folder.join("node_modules")).expect("a link");
    example.arguments.push(program);
    example
}

pub fn rust_example() -> Example {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(build_rust_example);
    Example::new(BUILT.clone(), Vec::new())
}

fn build_rust_example() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(project());
    // What Cargo tells this test of itself would reach the build scripts that ask for it (ring's does), and all that stands
    // on them would be compiled here, and once more in the next `cargo test`.
    for (name, _) in env::vars_os() {
        let of_this_test = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];
        if of_this_test
            .iter()
            .any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
        {
            cargo.env_remove(name);
        }
    }
    cargo.args([
        "build",
        "--package=tether",
        "--example",
        "rust_lock",
        "--message-format=json-render-diagnostics",
    ]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release"); // as this test is: most of it is built already
    }
    let folder = TempDir::with_prefix("tether-example-").expect("a temporary folder");
    let (status, said) = run_within(COMPILES_WITHIN, cargo, folder.path());
    let program = said
        .split_once("\"executable\":\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    let Some((program, _)) = program.filter(|_| status.success()) else {
        panic!("the example in Rust does not compile ({status}):\n{said}")
    };
    program.into()
}

pub fn c_example() -> Example {
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
fn run_to_end(command: Command, folder: &Path) -> (ExitStatus, String) {
    run_within(DEADLINE, command, folder)
}

fn run_within(patience: Duration, mut command: Command, folder: &Path) -> (ExitStatus, String) {
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

    let deadline = Instant::now() + patience;
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
                "{command:?} has not ended within {patience:?}; it said:\n{}",
                said()
            );
        }
        sleep(Duration::from_millis(5));
    }
}

// ---- where the tools are ----

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
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
