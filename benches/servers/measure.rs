//! Costs, and ratios of costs that were measured by turns.
//!
//! A machine's mood changes from second to second, so two costs are comparable only when they were
//! measured right after one another: many short rounds, first one then the other, and in the next
//! round the other way about. Each round gives one ratio; what is told is their median and quartiles.

use super::server::field;
use super::table::short;
use std::time::Instant;
use tether_testing::resp::Connection;

/// What a number of operations took.
#[derive(Clone, Copy)]
pub struct Cost {
    pub operations: f64,
    /// The processor time of the server's main thread.
    pub cpu_us: f64,
    pub wall_us: f64,
}

impl Cost {
    pub fn cpu_ns_each(&self) -> f64 {
        self.cpu_us * 1000.0 / self.operations
    }
    pub fn wall_ns_each(&self) -> f64 {
        self.wall_us * 1000.0 / self.operations
    }
}

/// Runs `work`, which asks for so many operations; `observer` is another connection to the same server.
pub fn cost(observer: &mut Connection, operations: usize, work: impl FnOnce()) -> Cost {
    let cpu_before_us = cpu_us(observer);
    let begin = Instant::now();
    work();
    let wall_us = begin.elapsed().as_secs_f64() * 1e6;
    Cost {
        operations: operations as f64,
        cpu_us: cpu_us(observer) - cpu_before_us,
        wall_us,
    }
}

/// The processor time that the server's main thread has used, as the server itself tells it.
fn cpu_us(observer: &mut Connection) -> f64 {
    let info = observer.text("INFO cpu");
    let seconds = |names: [&str; 2]| {
        let value = names.iter().find_map(|name| field(&info, name));
        let value = value.and_then(|value| value.parse::<f64>().ok());
        value.expect("INFO cpu tells processor time")
    };
    let system = seconds(["used_cpu_sys_main_thread", "used_cpu_sys"]);
    let user = seconds(["used_cpu_user_main_thread", "used_cpu_user"]);
    (system + user) * 1e6
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Ours,
    Floor,
}

/// The costs of the same number of operations in two ways, round by round.
pub struct Turns(Vec<(Cost, Cost)>);

impl Turns {
    /// Adds rounds; a first one of each warms up and is not counted.
    pub fn take(&mut self, rounds: usize, mut turn: impl FnMut(Side) -> Cost) {
        turn(Side::Ours);
        turn(Side::Floor);
        for round in 0..rounds {
            self.0.push(if round % 2 == 0 {
                let ours = turn(Side::Ours);
                (ours, turn(Side::Floor))
            } else {
                let floor = turn(Side::Floor);
                (turn(Side::Ours), floor)
            });
        }
    }

    pub fn new() -> Turns {
        Turns(Vec::new())
    }

    /// How fast ours is, by this kind of cost: above 1 is faster than the floor.
    pub fn speed(&self, each: impl Fn(&Cost) -> f64) -> Spread {
        Spread::of(self.0.iter().map(|(ours, floor)| each(floor) / each(ours)))
    }

    pub fn ours(&self, each: impl Fn(&Cost) -> f64) -> Spread {
        Spread::of(self.0.iter().map(|(ours, _)| each(ours)))
    }

    pub fn floor(&self, each: impl Fn(&Cost) -> f64) -> Spread {
        Spread::of(self.0.iter().map(|(_, floor)| each(floor)))
    }
}

/// A median and what lies around it.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub lower_quartile: f64,
    pub upper_quartile: f64,
}

impl Spread {
    pub fn quartiles(&self) -> String {
        format!(
            "{} .. {}",
            short(self.lower_quartile),
            short(self.upper_quartile)
        )
    }

    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        // Between two values, where the part falls between them.
        let at = |part: f64| {
            let place = (values.len() - 1) as f64 * part;
            let (below, above) = (
                values[place.floor() as usize],
                values[place.ceil() as usize],
            );
            below + (above - below) * place.fract()
        };
        Spread {
            median: at(0.5),
            lower_quartile: at(0.25),
            upper_quartile: at(0.75),
        }
    }
}
