//! A double barrier, as ZooKeeper's recipe and Curator's DistributedDoubleBarrier: so many begin together, and end together.
//!
//! Each makes a temporary key under the barrier's prefix, whose value says how far it has come: `waits`, `in`, `out`. All see
//! each change in the same order, so no `ready` node is needed: the barrier opens where so many are there, or somebody is in. It
//! closes where all that are there are out. Who comes back with its session reads from the values whether it has opened.

use super::end;
use crate::harness::*;
use crate::random::{self, Random};

/// So many open it.
const QUORUM: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    In,
    Leaves,
    Left,
}

struct Party {
    client: Client,
    name: String,
    view: View,
    stage: Stage,
}

impl Party {
    fn enter(mut client: Client, barrier: &str, number: usize) -> Party {
        let view = View::take(&mut client, barrier);
        let name = format!("{barrier}{number:03}");
        assert_eq!(client.run(["SETTP", &name, "waits"]), int(1));
        Party {
            client,
            name,
            view,
            stage: Stage::Waits,
        }
    }

    fn say(&mut self, value: &str) {
        self.client.run(["SET", &self.name, value]);
    }

    fn leave(&mut self) {
        assert_eq!(self.stage, Stage::In);
        self.stage = Stage::Leaves;
        self.say("out");
    }

    /// Goes on as far as what it has heard allows, a push at a time.
    fn hear(&mut self, server: &Server) {
        let pushes = server.settled(&mut self.client);
        self.go_on();
        for push in pushes {
            assert!(self.view.see(&push), "{push} on top of {:?}", self.view);
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        let mut values = self
            .view
            .members
            .values()
            .map(|(_, value)| value.as_deref());
        let is_open = values.clone().any(|value| value != Some("waits")) || values.len() >= QUORUM;
        let is_closed = values.all(|value| value == Some("out"));
        match self.stage {
            Stage::Waits if is_open => {
                self.stage = Stage::In;
                self.say("in");
            }
            Stage::Leaves if is_closed => self.stage = Stage::Left,
            _ => {}
        }
    }
}

/// All hear of everything, also of what the others do when they hear of it.
fn settle(server: &Server, parties: &mut [Party]) {
    for _ in 0..2 {
        parties.iter_mut().for_each(|party| party.hear(server));
    }
}

fn all_are(parties: &[Party], stage: Stage) -> bool {
    parties.iter().all(|party| party.stage == stage)
}

/// Nobody begins before so many are there, nobody ends before the last one wants to, and the dead keep nobody waiting.
#[test]
fn it_opens_and_closes_for_all_whoever_is_killed() {
    let mut dice = Random::new(random::seed());
    let server = Server::start().over_tcp();
    for round in 0..15 {
        let barrier = format!("{{b{round}}}:");
        let mut parties: Vec<Party> = Vec::new();
        let mut numbers = 0..;
        let mut come = |parties: &mut Vec<Party>| {
            let number = numbers.next().unwrap();
            parties.push(Party::enter(server.resp3(), &barrier, number));
        };
        let kill = |dice: &mut Random, parties: &mut Vec<Party>| {
            let party = parties.swap_remove(dice.below(parties.len()));
            end(&server, dice, party.client, &party.name);
        };
        while parties.len() < QUORUM {
            settle(&server, &mut parties);
            assert!(all_are(&parties, Stage::Waits), "round {round}: too few");
            match parties.is_empty() || dice.per_mille(600) {
                true => come(&mut parties),
                false => kill(&mut dice, &mut parties),
            }
        }
        settle(&server, &mut parties);
        assert!(all_are(&parties, Stage::In), "round {round}: enough");

        // One more than was needed is let in, also when one that was needed is dead.
        if dice.per_mille(500) {
            kill(&mut dice, &mut parties);
        }
        come(&mut parties);
        settle(&server, &mut parties);
        assert!(all_are(&parties, Stage::In), "round {round}: the late one");

        while parties.iter().any(|party| party.stage == Stage::In) {
            if parties.len() > 1 && dice.per_mille(300) {
                kill(&mut dice, &mut parties);
            } else if let Some(party) = parties.iter_mut().find(|party| party.stage == Stage::In) {
                party.leave();
            }
            let last = !parties.iter().any(|party| party.stage == Stage::In);
            settle(&server, &mut parties);
            let left = parties.iter().any(|party| party.stage == Stage::Left);
            assert_eq!(left, last, "round {round}");
        }
        assert!(
            all_are(&parties, Stage::Left),
            "round {round}: all end together"
        );
        for mut party in parties {
            assert_eq!(party.client.run(["DELTP", &party.name]), int(1));
        }
        let mut looker = server.resp3();
        assert_eq!(View::take(&mut looker, &barrier).members.len(), 0);
    }
}

/// It opens while the connection of one with a session is broken: that one is let in when it is back, and all wait for it.
#[test]
fn it_opens_during_a_break_and_waits_for_who_comes_back() {
    let server = Server::start().over_tcp();
    let barrier = "{b}:";
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 60000").text();
    let mut broken = Party::enter(client, barrier, 0);
    broken.client.reset();
    let mut parties: Vec<_> = (1..QUORUM)
        .map(|number| Party::enter(server.resp3(), barrier, number))
        .collect();
    settle(&server, &mut parties);
    assert!(all_are(&parties, Stage::In));
    parties.iter_mut().for_each(Party::leave);
    settle(&server, &mut parties);
    assert!(all_are(&parties, Stage::Leaves), "one has not yet begun");

    // One of those that it saw is dead by then, so there are fewer than open it.
    let dead = parties.remove(0);
    end(&server, &mut Random::new(1), dead.client, &dead.name);
    broken.client = server.resp3();
    assert_eq!(broken.client.run(["SESSION.RESUME", &secret]), int(1));
    broken.view = View::take(&mut broken.client, barrier);
    parties.push(broken);
    settle(&server, &mut parties);
    let stages: Vec<_> = parties.iter().map(|party| party.stage).collect();
    assert_eq!(stages, [Stage::Leaves, Stage::Leaves, Stage::In]);
    parties[2].leave();
    settle(&server, &mut parties);
    assert!(all_are(&parties, Stage::Left));
}

/// Who does not come back in time is waited for no longer.
#[test]
fn it_closes_when_the_grace_of_the_last_one_is_over() {
    let server = Server::start().over_tcp();
    let barrier = "{b}:";
    let mut client = server.resp3();
    client.run("SESSION.START GRACE 50");
    let mut parties = vec![Party::enter(client, barrier, 0)];
    parties.extend((1..QUORUM).map(|number| Party::enter(server.resp3(), barrier, number)));
    settle(&server, &mut parties);
    assert!(all_are(&parties, Stage::In));
    let gone = parties.remove(0);
    parties.iter_mut().for_each(Party::leave);
    settle(&server, &mut parties);
    assert!(all_are(&parties, Stage::Leaves));
    gone.client.reset();
    eventually_gone(&mut server.resp2(), &gone.name);
    settle(&server, &mut parties);
    assert!(all_are(&parties, Stage::Left));
}
