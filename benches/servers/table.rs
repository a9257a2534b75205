//! The one table that everything ends in.

use super::measure::{Cost, Spread, Turns};

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
    pub what: String,
    /// What the figure is: a ratio of what, or a unit.
    pub figure: &'static str,
    pub value: Spread,
    pub target: Option<Target>,
    /// The absolute numbers behind it.
    pub detail: String,
}

/// Rows, printed as soon as they are known: a run takes minutes.
#[derive(Default)]
pub struct Table {
    missed: usize,
}

impl Table {
    pub fn heading(&self, title: &str) {
        println!("\n{title}");
        println!(
            "{:<62} {:<18} {:>9} {:>19} {:>9}",
            "what", "figure", "median", "quartiles", "target"
        );
        println!("{}", "-".repeat(130));
    }

    pub fn add(&mut self, row: Row) {
        let missed = row.target.is_some_and(|t| !t.is_met(row.value.median));
        self.missed += usize::from(missed);
        let target = row.target.map(|target| target.to_string());
        let quartiles = format!(
            "{} .. {}",
            short(row.value.lower_quartile),
            short(row.value.upper_quartile)
        );
        println!(
            "{:<62} {:<18} {:>9} {:>19} {:>9} {}  {}",
            row.what,
            row.figure,
            short(row.value.median),
            quartiles,
            target.unwrap_or_default(),
            if missed { "MISSED" } else { "      " },
            row.detail
        );
    }

    /// Two rows: how fast ours is by the server's processor time and by the clock. The target is held
    /// against the former: the server is the bottleneck, and the clock also counts whatever else
    /// the machine does.
    pub fn add_speed(&mut self, what: &str, turns: &Turns, target: Target) {
        self.add_cpu(what, turns, target);
        self.add_wall(turns, None);
    }

    /// The same where both are to reach the target.
    pub fn add_speed_both(&mut self, what: &str, turns: &Turns, target: Target) {
        self.add_cpu(what, turns, target);
        self.add_wall(turns, Some(target));
    }

    fn add_cpu(&mut self, what: &str, turns: &Turns, target: Target) {
        self.add(Row {
            what: what.to_owned(),
            figure: "speed, server CPU",
            value: turns.speed(Cost::cpu_ns_each),
            target: Some(target),
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

    pub fn note(&self, text: &str) {
        println!("{text}");
    }

    /// Something could not be measured; that is loud, and no failure.
    pub fn skip(&mut self, what: &str, why: &str) {
        println!("SKIPPED {what}: {why}");
    }

    pub fn missed(&self) -> usize {
        self.missed
    }

    pub fn end(&self) {
        println!("\ntargets missed: {}", self.missed);
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
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
