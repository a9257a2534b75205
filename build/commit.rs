//! Of which commit a release build is: for the build scripts of the module and the command line.

use std::path::Path;
use std::process::Command;

/// TETHER_COMMIT, or what git says of the project in this folder; with `-dirty` where its files are not the commit's. None in a
/// build that is no release, so that no commit has developers build anew.
pub fn of_release(project: &Path) -> Option<String> {
    println!("cargo:rerun-if-env-changed=TETHER_COMMIT");
    println!(
        "cargo:rerun-if-changed={}",
        project.join("build/commit.rs").display()
    );
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return None;
    }
    if let Ok(commit) = std::env::var("TETHER_COMMIT") {
        return Some(commit);
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(project)
            .args(arguments)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // An unpacked archive may stand in somebody else's repository.
    let is_whole = |top: &String| Path::new(top).canonicalize().ok() == project.canonicalize().ok();
    git(&["rev-parse", "--show-toplevel"]).filter(is_whole)?;
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ])?;
    for changes in [
        Path::new(&log),
        &project.join("src"),
        &project.join("clients"),
    ] {
        println!("cargo:rerun-if-changed={}", changes.display());
    }
    git(&[
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ])
}
