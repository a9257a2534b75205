//! What `make nightly` makes of its slices.

use std::fs;
use std::process::{Command, Output};
use tether_testing::project;

/// A night of these slices.
fn night(name: &str, slices: &str) -> Output {
    let table = std::env::temp_dir().join(format!("tether-{name}-{}", std::process::id()));
    fs::write(&table, slices).expect("a table of slices");
    let mut night = Command::new(project().join("scripts/nightly.sh"));
    let output = night.env("SLICES", &table).output().expect("a shell");
    fs::remove_file(&table).expect("the table is there");
    output
}

#[test]
fn a_night_passes_if_all_its_slices_do() {
    let Output { status, stdout, .. } =
        night("passes", "slice one 1 '*' true\nslice two 1 '*' true\n");
    let said = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{status}: {said}");
    assert!(!said.contains("FAILED"), "{said}");
}

#[test]
fn a_night_names_the_slice_that_failed_and_fails() {
    let Output { status, stdout, .. } = night(
        "fails",
        "slice one 1 '*' false\nslice two 1 '*' echo heard\n",
    );
    let said = String::from_utf8_lossy(&stdout);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("heard"), "it goes on: {said}");
    assert!(said.ends_with("\nFAILED: one\n"), "{said}");
}
