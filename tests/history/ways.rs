//! What may come of a step, where one of two things is not said: whoever waits for what its user may no longer have can be
//! turned away before it is its turn.

use crate::model::command::Who;
use crate::model::replies::Heard;
use crate::model::step::Step;
use crate::model::world::{Outcome, World};

/// Each with the world after the step. That in which it is turned away when it is its turn comes first.
#[derive(Clone, Default)]
pub struct Ways(Vec<(World, Outcome)>);

impl Ways {
    /// None if they differ in how many replies come at once.
    pub fn of(step: &Step, before: &World) -> Option<Ways> {
        let earlier = before.having_turned_away();
        let earlier = earlier.filter(|world| world.allows(step));
        let take = |mut world: World| {
            let mut outcome = world.take(step);
            if world.totals.waits_lost > before.totals.waits_lost {
                // Nor is it said whose turn is next of those who waited behind it for several keys.
                outcome.heard.iter_mut().for_each(as_one_cause);
            }
            (world, outcome)
        };
        let ways = [before.clone()].into_iter().chain(earlier).map(take);
        let ways: Vec<_> = ways.collect();
        let replies = |(_, outcome): &(World, Outcome)| {
            let clients = outcome.heard.iter();
            clients.map(|heard| at_once(heard)).collect::<Vec<_>>()
        };
        let are_alike = ways.iter().all(|way| replies(way) == replies(&ways[0]));
        are_alike.then_some(Ways(ways))
    }

    pub fn first(&self) -> &(World, Outcome) {
        &self.0[0]
    }

    pub fn each(&self) -> impl Iterator<Item = &(World, Outcome)> {
        self.0.iter()
    }

    pub fn is_blocked_in_any(&self, who: Who) -> bool {
        self.each().any(|(world, _)| world.is_blocked(who))
    }

    /// Whether this one may be pushed something.
    pub fn expect_pushes(&self, who: Who) -> bool {
        let mut heard = self.each().flat_map(|(_, outcome)| &outcome.heard[who]);
        heard.any(|heard| matches!(heard, Heard::Pushes(_) | Heard::InFront(_)))
    }
}

/// How many replies come at once.
fn at_once(heard: &[Heard]) -> usize {
    let heard = heard.iter();
    let replies = heard.filter(|heard| matches!(heard, Heard::Reply { late: false, .. }));
    replies.count()
}

/// Pushes that follow each other come in any order.
fn as_one_cause(heard: &mut Vec<Heard>) {
    heard.dedup_by(|next, former| match (next, former) {
        (Heard::Pushes(next), Heard::Pushes(former)) => {
            former.append(next);
            true
        }
        _ => false,
    });
}
