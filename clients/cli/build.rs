//! Has the command line say of which commit it is.

#[path = "../../build/commit.rs"]
mod commit;

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let project = std::path::Path::new(&folder).join("../..");
    let commit = commit::of_release(&project);
    let commit = commit.as_deref().unwrap_or("unknown");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    println!("cargo:rustc-env=TETHER_VERSION={version} (commit {commit})");
}
