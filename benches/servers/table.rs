//! The one table that everything ends in: printed as it grows, and kept for the report.

use super::measure::{Cost, Spread, Turns};
use super::plot::Plot;

/// What a figure is meant to be.
#[derive(Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Target::AtLeast(least) => value >= least,
            Target::AtMost(most) => value <= most,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::AtLeast(least) => write!(f, ">= {least}"),
            Target::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}

pub struct Row {
    /// Nothing: the same as in the row before.
    pub what: String,
    /// What the figure is: a ratio of what, or a unit.
    pub figure: &'static str,
    pub value: Spread,
    pub target: Option<Target>,
    /// The absolute numbers behind it.
    pub detail: String,
}

impl Row {
    pub fn is_missed(&self) -> bool {
        self.target.is_some_and(|t| !t.is_met(self.value.median))
    }
}

/// A row, and where it was measured.
pub struct Record {
    pub part: &'static str,
    pub server: String,
    pub row: Row,
}

/// A small table whose columns are its own.
pub struct Grid {
    pub title: String,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// Rows, printed as soon as they are known: a run takes minutes.
#[derive(Default)]
pub struct Table {
    part: &'static str,
    server: String,
    pub records: Vec<Record>,
    /// Each with its part.
    pub grids: Vec<(&'static str, Grid)>,
    pub plots: Vec<(&'static str, Plot)>,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
}

impl Table {
    pub fn heading(&mut self, server: &str, title: &str) {
        server.clone_into(&mut self.server);
        println!("\n{title}");
        println!(
            "{:<62} {:<18} {:>9} {:>19} {:>9}",
            "what", "figure", "median", "quartiles", "target"
        );
        println!("{}", "-".repeat(130));
    }

    pub fn begin_part(&mut self, part: &'static str) {
        self.part = part;
    }

    pub fn add(&mut self, mut row: Row) {
        let target = row.target.map(|target| target.to_string());
        println!(
            "{:<62} {:<18} {:>9} {:>19} {:>9} {}  {}",
            row.what,
            row.figure,
            short(row.value.median),
            row.value.quartiles(),
            target.unwrap_or_default(),
            if row.is_missed() { "MISSED" } else { "      " },
            row.detail
        );
        if row.what.is_empty() {
            let before = self.records.last().map(|record| record.row.what.clone());
            row.what = before.unwrap_or_default();
        }
        self.records.push(Record {
            part: self.part,
            server: self.server.clone(),
            row,
        });
    }

    /// Two rows: how fast ours is by the server's processor time and by the clock. The target is held
    /// against the former: the server is the bottleneck, and the clock also counts whatever else
    /// the machine does.
    pub fn add_speed(&mut self, what: &str, turns: &Turns, target: impl Into<Option<Target>>) {
        self.add_cpu(what, turns, target.into());
        self.add_wall(turns, None);
    }

    /// The same where both are to reach the target.
    pub fn add_speed_both(&mut self, what: &str, turns: &Turns, target: Target) {
        self.add_cpu(what, turns, Some(target));
        self.add_wall(turns, Some(target));
    }

    fn add_cpu(&mut self, what: &str, turns: &Turns, target: Option<Target>) {
        self.add(Row {
            what: what.to_owned(),
            figure: "speed, server CPU",
            value: turns.speed(Cost::cpu_ns_each),
            target,
            detail: costs(turns, Cost::cpu_ns_each),
        });
    }

    fn add_wall(&mut self, turns: &Turns, target: Option<Target>) {
        self.add(Row {
            what: String::new(),
            figure: "speed, wall clock",
            value: turns.speed(Cost::wall_ns_each),
            target,
            detail: costs(turns, Cost::wall_ns_each),
        });
    }

    pub fn grid(&mut self, grid: Grid) {
        println!("\n{}", grid.title);
        let header: Vec<_> = grid.header.iter().map(|&word| word.to_owned()).collect();
        for row in std::iter::once(&header).chain(&grid.rows) {
            let cells = row.iter().enumerate().map(|(place, cell)| match place {
                0 => format!("{cell:<24}"),
                _ => format!("  {cell:>20}"),
            });
            println!("{}", cells.collect::<String>());
        }
        self.grids.push((self.part, grid));
    }

    pub fn plot(&mut self, plot: Plot) {
        if !plot.is_empty() {
            self.plots.push((self.part, plot));
        }
    }

    pub fn note(&self, text: &str) {
        println!("{text}");
    }

    /// Something could not be measured: loud, but the rest goes on.
    pub fn skip(&mut self, what: &str, why: &str) {
        let text = format!("{what} ({}): {}", self.server, why.replace('\n', " "));
        println!("SKIPPED {text}");
        self.skipped.push(text);
    }

    pub fn missed(&self) -> usize {
        self.records
            .iter()
            .filter(|record| record.row.is_missed())
            .count()
    }

    pub fn end(&self) {
        println!(
            "\ntargets missed: {}, skipped: {}",
            self.missed(),
            self.skipped.len()
        );
    }
}

fn costs(turns: &Turns, each: fn(&Cost) -> f64) -> String {
    format!(
        "{} ns against {} ns each",
        short(turns.ours(each).median),
        short(turns.floor(each).median)
    )
}

/// A number with as many digits as matter.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
