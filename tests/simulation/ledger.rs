//! Bugs that were found, each as the shortest history that showed it. Nothing here is ever deleted.

use crate::model::brief::{close, connect, run, settp};
use crate::model::generate::Scope;
use crate::model::step::Step;
use crate::model::world::Limits;
use crate::trial::try_history;

#[track_caller]
fn holds(steps: &[Step]) {
    let scope = Scope {
        places: 4,
        names: 4,
        server: false,
    };
    let limits = Limits {
        watches: 65_536,
        keys: 65_536,
    };
    if let Err(what) = try_history(scope, limits, 1, steps) {
        panic!("{what}");
    }
}

/// The look at the key was taken before what was left there was removed.
#[test]
fn a_key_left_behind_refuses_nobody() {
    holds(&[
        connect(0),
        connect(1),
        run(0, settp(0)),
        close(0),
        run(1, settp(0)),
    ]);
}
