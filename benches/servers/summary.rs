//! The answer for who has a minute: this module beside what else one would take, and every target at a glance.

use super::peers::{AT_A_GLANCE, CRASH, CROWD};
use super::report::{markdown, rows};
use super::table::{Record, Table, short};
use std::fmt::Write;

pub fn in_short(table: &Table) -> String {
    let mut text = peers(table);
    let targets = with_target(table).len();
    let missed = table.missed();
    let _ = writeln!(
        text,
        "\n{targets} figures have a target; {missed} miss it: see [every target](#every-target)."
    );
    if !table.skipped.is_empty() {
        text.push_str("\nNot measured:\n\n");
    }
    for skipped in &table.skipped {
        let _ = writeln!(text, "- {skipped}");
    }
    text
}

/// A line for each way to lock, of what two parts say about it.
fn peers(table: &Table) -> String {
    let Some((_, grid)) = table.grids.iter().find(|(_, grid)| grid.title == CROWD) else {
        return String::new();
    };
    let mut header = vec![CROWD.to_owned()];
    header.extend(AT_A_GLANCE.iter().map(|&at| grid.header[at].to_owned()));
    header.push("SIGKILL to the next grant".to_owned());
    let line = |row: &Vec<String>| {
        let what = format!("{CRASH}{}", row[0]);
        let crash = table.records.iter().find(|record| record.row.what == what);
        let crash = crash.map(|record| format!("{} ms", short(record.row.value.median)));
        let mut line = vec![row[0].clone()];
        line.extend(AT_A_GLANCE.iter().map(|&at| row[at].clone()));
        line.push(crash.unwrap_or_default());
        line
    };
    let lines: Vec<_> = grid.rows.iter().map(line).collect();
    "\n".to_owned() + &markdown(&header, &lines)
}

pub fn every_target(table: &Table) -> String {
    "\n## Every target\n".to_owned() + &rows(&with_target(table), at_a_glance)
}

fn with_target(table: &Table) -> Vec<&Record> {
    let has_target = |record: &&Record| record.row.target.is_some();
    table.records.iter().filter(has_target).collect()
}

fn at_a_glance(Record { row, .. }: &Record) -> String {
    let median = short(row.value.median);
    match row.is_missed() {
        true => format!("**{median} MISSED**"),
        false => median,
    }
}
