//! What the module API itself costs: the work of other parts, done by a module without a rule (`benches/bare/lib.rs`).

use super::Bench;
use super::foreign::{self, Setting};
use super::handoff::{self, CONTENDERS, WAYS};
use super::pairs::{self, PAIRS};
use super::place::OnOne;
use super::server::{self, Loaded};
use super::table::Table;

/// There is nothing to find out about it by many starts: it keeps nothing.
const STARTS: usize = 4;

pub fn run(bench: &Bench, table: &mut Table) {
    let _place = OnOne::new(false);
    let module = server::bare();
    if !module.is_file() {
        let built = "`cargo build --release --example bare` builds it";
        return table.skip("the bare module", built);
    }
    for (loaded, what) in [
        (Loaded::BareHearingOfNew, "and of new keys"),
        (Loaded::Bare, "only"),
    ] {
        let sides = foreign::against_none(loaded, Setting::Nothing);
        let turns = foreign::measure(bench, sides, foreign::MIXED, STARTS);
        let what = format!("SET/GET/DEL, it hears of keys that go {what}");
        table.add_speed(&what, &turns, None);
    }
    for pair in PAIRS {
        for (what, turns) in pairs::measure(bench, pair, Loaded::Bare, STARTS) {
            table.add_speed(&what, &turns, None);
        }
    }
    for &contenders in CONTENDERS {
        let race = handoff::race(bench, Loaded::Bare, &WAYS[0], contenders);
        table.add_speed(&race.what, &race.turns, None);
    }
}
