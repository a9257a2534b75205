//! docs/benchmarks.md and its pictures: what was measured, how, and where a target is missed, for somebody who knows
//! nothing of it. Written anew after each part, so that a run that is cut short leaves what it had.

use super::PARTS;
use super::prose::with_prose;
use super::summary;
use super::table::{Record, Table, short};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use tether_testing::project;

pub struct Report {
    folder: PathBuf,
    /// What all of it was measured on.
    conditions: String,
}

impl Report {
    /// A whole run is written into docs/; what is only a part of one does not replace it.
    pub fn new(whole: bool, short: bool, servers: &[String]) -> Report {
        let folder = if whole { "docs" } else { "target/benchmarks" };
        let mut conditions = conditions(servers);
        if short {
            conditions += "- **A short run**, a tenth of a whole one: its figures are rough.\n";
        }
        Report {
            folder: project().join(folder),
            conditions,
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("benchmarks.md")
    }

    pub fn write(&self, table: &Table) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut text = format!(
            "\n## In short\n{}\n## How to read it\n\n{}\n## How to run it again\n",
            summary::in_short(table),
            self.conditions
        );
        text += &summary::every_target(table);
        for part in PARTS {
            let records: Vec<_> = table
                .records
                .iter()
                .filter(|record| record.part == part.name)
                .collect();
            let grids = table.grids.iter().filter(|(name, _)| *name == part.name);
            let grids: Vec<_> = grids.map(|(_, grid)| grid).collect();
            if records.is_empty() && grids.is_empty() {
                continue;
            }
            text += &format!("\n## {}\n", part.title);
            for (_, plot) in table.plots.iter().filter(|(name, _)| *name == part.name) {
                match plot.draw(&self.folder) {
                    Ok(()) => text += &format!("\n![{}]({})\n", plot.title, plot.file),
                    Err(error) => println!("SKIPPED {}: {error}", plot.file),
                }
            }
            for grid in grids {
                text += &format!("\n**{}**\n\n", grid.title);
                let header: Vec<_> = grid.header.iter().map(|&word| word.to_owned()).collect();
                text += &markdown(&header, &grid.rows);
            }
            text += &rows(&records, cell);
        }
        fs::write(self.path(), with_prose(&text))
    }
}

/// One column for each server that was asked.
pub fn rows(records: &[&Record], cell: fn(&Record) -> String) -> String {
    let mut servers: Vec<&str> = Vec::new();
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for Record { row, server, .. } in records {
        if !servers.contains(&server.as_str()) {
            servers.push(server);
        }
        if !kinds.contains(&(&row.what, row.figure)) {
            kinds.push((&row.what, row.figure));
        }
    }
    let words = ["what", "figure", "target"]
        .into_iter()
        .chain(servers.iter().copied());
    let header: Vec<_> = words.map(str::to_owned).collect();
    let line = |&(what, figure): &(&str, &str)| {
        let of_kind = || {
            let is_it = |record: &&&Record| record.row.what == what && record.row.figure == figure;
            records.iter().filter(is_it)
        };
        // Each server may have one of its own, where it is a count that was kept.
        let mut targets: Vec<_> = of_kind()
            .filter_map(|record| record.row.target)
            .map(|t| t.to_string())
            .collect();
        targets.dedup();
        let mut cells = vec![what.to_owned(), figure.to_owned(), targets.join(", ")];
        for server in &servers {
            let record = of_kind().find(|record| record.server == *server);
            cells.push(record.map_or(String::new(), |record| cell(record)));
        }
        cells
    };
    if records.is_empty() {
        return String::new();
    }
    "\n".to_owned() + &markdown(&header, &kinds.iter().map(line).collect::<Vec<_>>())
}

fn cell(Record { row, .. }: &Record) -> String {
    let mark = if row.is_missed() { " **MISSED**" } else { "" };
    let median = short(row.value.median);
    let spread = row.value.quartiles();
    let spread = match spread.split_once(" .. ") {
        Some((low, high)) if low == high => String::new(),
        _ => format!(" ({spread})"),
    };
    format!("**{median}**{spread}{mark}<br>{}", row.detail)
}

pub fn markdown(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<_> = header.iter().map(|_| "---".to_owned()).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(header) + &line(&rule) + &rows
}

/// As a list, one line for each.
fn conditions(servers: &[String]) -> String {
    let said = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output();
        let output = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        output.unwrap_or_default()
    };
    let of = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.split_once(':')
            .map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let memory_kb = of("/proc/meminfo", "MemTotal")
        .replace(" kB", "")
        .parse::<f64>();
    let memory = memory_kb.map_or(String::new(), |kb| {
        format!(", {:.0} GB of memory", kb / 1024.0 / 1024.0)
    });
    let mut text = String::new();
    let _ = writeln!(
        text,
        "- Measured on {} (UTC).",
        said("date", &["-u", "+%Y-%m-%d"])
    );
    let model = of("/proc/cpuinfo", "model name");
    let _ = writeln!(
        text,
        "- {processors} processors ({model}){memory}; clients and servers share them."
    );
    let build = match std::env::var("PROFILE").is_ok_and(|value| !value.is_empty()) {
        true => "`make build PROFILE=1`, as in a release",
        false => "a plain `make build`",
    };
    let _ = writeln!(
        text,
        "- {}; {}; the module is that of {build}.",
        said("uname", &["-sr"]),
        said("rustc", &["--version"])
    );
    let _ = writeln!(text, "- Servers: {}.", servers.join(", "));
    text
}
