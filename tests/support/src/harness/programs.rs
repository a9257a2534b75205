//! The server and the module that are tested, and redis-cli: TETHER_SERVER, TETHER_MODULE and TETHER_CLI name them.

use std::ffi::OsStr;
use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

/// TETHER_SERVER, or the server on PATH.
pub fn server_binary() -> PathBuf {
    if let Some(path) = env::var_os("TETHER_SERVER") {
        return named("TETHER_SERVER", &path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let names = ["redis-server", "valkey-server"];
    let found = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file());
    found.expect("neither redis-server nor valkey-server on PATH, and no TETHER_SERVER")
}

/// The whole path of a file that an environment variable names. Links are not followed: on Debian `redis-server` is
/// a link to `redis-check-rdb`, and the program is whichever of the two it is called.
fn named(variable: &str, path: &OsStr) -> PathBuf {
    let whole = path::absolute(path).ok().filter(|file| file.is_file());
    whole.unwrap_or_else(|| panic!("{variable}={}: no such file", path.display()))
}

/// The module that was built last, beside this test (`target/<profile>/deps`) or one folder above.
pub fn module() -> PathBuf {
    if let Some(path) = env::var_os("TETHER_MODULE") {
        return named("TETHER_MODULE", &path);
    }
    let name = format!(
        "{}tether{}",
        env::consts::DLL_PREFIX,
        env::consts::DLL_SUFFIX
    );
    let deps = env::current_exe()
        .expect("this test's path")
        .parent()
        .expect("its folder")
        .to_owned();
    let built = |file: &PathBuf| {
        fs::metadata(file)
            .and_then(|about| about.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let places = [deps.join(&name), deps.join("..").join(&name)];
    let newest = places
        .into_iter()
        .filter(|file| file.is_file())
        .max_by_key(built);
    let newest = newest
        .unwrap_or_else(|| panic!("no {name} beside {}, and no TETHER_MODULE", deps.display()));
    path::absolute(newest).expect("the module's path")
}

/// TETHER_CLI, or the client beside the server that is tested, or the first one on PATH.
pub fn redis_cli() -> PathBuf {
    if let Some(path) = env::var_os("TETHER_CLI") {
        return named("TETHER_CLI", &path);
    }
    let server = env::var_os("TETHER_SERVER").map(PathBuf::from);
    let beside = server.iter().filter_map(|server| server.parent());
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = beside.map(Path::to_owned).chain(env::split_paths(&path));
    let found = folders.find_map(|folder| {
        let mut programs = ["redis-cli", "valkey-cli"]
            .iter()
            .map(|name| folder.join(name));
        programs.find(|program| program.is_file())
    });
    let found = found.expect(
        "neither redis-cli nor valkey-cli beside TETHER_SERVER or on PATH, and no TETHER_CLI: `make test` installs one",
    );
    path::absolute(found).expect("the client's path")
}

/// A copy of the tested server that says that it has another version, and is otherwise the same program.
pub struct Posing {
    _folder: tempfile::TempDir,
    pub program: PathBuf,
    /// As `7.0.15`.
    pub version: String,
}

impl Posing {
    /// `change` gets the three numbers of the tested server's version. Their text must not become longer.
    pub fn with(change: impl FnOnce([u32; 3]) -> [u32; 3]) -> Posing {
        let said = Command::new(server_binary()).arg("--version").output();
        let said =
            String::from_utf8_lossy(&said.expect("the server's program").stdout).into_owned();
        let version = said
            .split_once(" v=")
            .and_then(|(_, rest)| rest.split(' ').next());
        let version = version.expect("a version").to_owned();
        let numbers: Vec<u32> = version
            .split('.')
            .map(|number| number.parse().expect("a number"))
            .collect();
        let numbers = change(numbers.try_into().expect("three numbers"));
        let other = numbers.map(|number| number.to_string()).join(".");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = copy_of_server(folder.path(), |text| {
            let mut other = other.clone().into_bytes();
            other.resize(version.len(), 0);
            let whole = |text: &[u8]| [b"\0", text, b"\0"].concat();
            replace(text, &whole(version.as_bytes()), &whole(&other));
        });
        Posing {
            _folder: folder,
            program,
            version: other,
        }
    }

    /// Of a series that nobody has tried: no Redis or Valkey has its number. Neither 8.0 nor 8.1 of Valkey can pose as one that
    /// behaves as they do.
    pub fn as_unknown() -> Posing {
        Posing::with(|[major, minor, patch]| match (major, minor) {
            (7, 0) => [6, 9, patch],
            _ => [major, minor + 1, patch],
        })
    }
}

/// Copies the tested server's program with what the scripts around it need, and changes it by `edit`.
pub fn copy_of_server(folder: &Path, edit: impl Fn(&mut Vec<u8>)) -> PathBuf {
    let server = server_binary();
    let program = folder.join("redis-server");
    cp(&server, &program);
    let mut binary = program.clone();
    if fs::read(&server).expect("the program").starts_with(b"#!") {
        // As scripts/servers.sh has it: bin/ and lib/ are beside the script.
        let from = server.parent().expect("its folder");
        let name = ["redis-server", "valkey-server"]
            .iter()
            .find(|name| from.join("bin").join(name).is_file());
        let name = name.expect("a program in bin/");
        fs::create_dir(folder.join("bin")).expect("a folder");
        std::os::unix::fs::symlink(from.join("lib"), folder.join("lib")).expect("a link");
        binary = folder.join("bin").join(name);
        cp(&from.join("bin").join(name), &binary);
    }
    let mut text = fs::read(&binary).expect("the program");
    edit(&mut text);
    let edited = folder.join("edited");
    fs::write(&edited, text).expect("the program");
    cp(&edited, &binary);
    program
}

/// By another process: a file that this one wrote could be open in the child of another thread, and then does not start.
fn cp(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.expect("cp").success(), "{}", to.display());
}

/// Replaces all that is `old`, which must be there, by as many bytes.
pub fn replace(text: &mut [u8], old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len(), "{old:?} and {new:?}");
    let mut is_found = false;
    for at in 0..=text.len() - old.len() {
        if text[at..].starts_with(old) {
            text[at..at + old.len()].copy_from_slice(new);
            is_found = true;
        }
    }
    assert!(is_found, "{old:?} is nowhere in the program");
}

/// A line for a server that is to start without the module.
pub const WITHOUT_MODULE: &str = "# without the module";

/// Takes the module's lines out of a server's configuration that has this line.
pub(super) fn leave_out(config: &mut Vec<String>) {
    if config.iter().any(|line| line == WITHOUT_MODULE) {
        let is_ours =
            |line: &String| line.starts_with("loadmodule ") || line.starts_with("tether.");
        config.retain(|line| !is_ours(line));
    }
}

/// Another module, of one C file; it is there as long as its folder.
pub fn built(source: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("module.so").display().to_string();
    let arguments = ["-shared", "-fPIC", "-o", &library, source];
    let built = Command::new("cc").args(arguments).status();
    assert!(built.expect("a C compiler").success());
    (folder, library)
}
