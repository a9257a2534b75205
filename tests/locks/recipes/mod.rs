//! ZooKeeper's recipes, with the ends that Curator's own tests give their clients. Those with ephemeral sequential nodes, on
//! SETTP ... SEQ, are here: each member makes one, and watches the one before its own. The others know all members by WATCHTP.

mod double_barrier;
mod membership;

use crate::harness::*;
use crate::line::field;
use crate::random::{self, Random};

const BEGINNING: &str = "{q}:";

/// A client with a node of its own.
struct Member {
    client: Client,
    name: String,
    token: i64,
    /// What it waits for; none if its own node is the first.
    before: Option<String>,
}

/// `getChildren`, sorted.
fn children(client: &mut Client) -> Vec<String> {
    let keys = client.run(["KEYS", &format!("{BEGINNING}*")]).items();
    let mut names: Vec<_> = keys.iter().map(Frame::text).collect();
    names.sort();
    names
}

impl Member {
    fn join(mut client: Client, value: &str) -> Member {
        let made = client.run(["SETTP", BEGINNING, value, "SEQ", "NOTIFY"]);
        let made = made.items();
        let mut member = Member {
            client,
            name: made[0].text(),
            token: made[1].number(),
            before: None,
        };
        member.look();
        member
    }

    /// `exists(before, watch)`, until there is one, or none is before it.
    fn look(&mut self) {
        loop {
            let names = children(&mut self.client);
            let own = names.iter().position(|name| *name == self.name);
            let own = own.expect("its node is there while its connection is");
            self.before = own.checked_sub(1).map(|at| names[at].clone());
            let Some(before) = &self.before else { return };
            if self.client.run(["WATCHEX", before]) == bulk("EXIST") {
                return;
            }
            self.client.run(["UNWATCHEX", before]);
        }
    }

    /// The one before it has gone.
    fn wait(&mut self) {
        let before = self.before.take().expect("it waits");
        assert_eq!(self.client.next_push(), format!("watchex {before} DEL"));
        self.client.run(["UNWATCHEX", &before]);
        self.look();
    }

    fn is_first(&self) -> bool {
        self.before.is_none()
    }
}

/// Ends a temporary key in one of the ways in which clients end, and waits until it is gone. The reason that watchers are told.
fn end(server: &Server, dice: &mut Random, mut client: Client, name: &str) -> &'static str {
    let reason = match dice.below(4) {
        0 => {
            drop(client);
            "died"
        }
        1 => {
            client.reset();
            "died"
        }
        2 => {
            server
                .resp2()
                .run(&format!("CLIENT KILL ID {}", client.id()));
            client.expect_closed();
            "died"
        }
        _ => {
            // It goes in order.
            assert_eq!(client.run(["DELTP", name]), int(1));
            "released"
        }
    };
    eventually_gone(&mut server.resp2(), name);
    reason
}

/// Whoever ends, the next one has the lock, nobody else is woken, and never do two have it.
#[test]
fn an_ephemeral_sequential_lock_goes_to_the_next_whoever_is_killed() {
    const MEMBERS: usize = 6;
    let mut dice = Random::new(random::seed());
    let server = Server::start().over_tcp();
    let mut looker = server.resp3();
    let mut members: Vec<Member> = (0..MEMBERS)
        .map(|_| Member::join(server.resp3(), "m"))
        .collect();
    for round in 0..40 {
        assert!(members.is_sorted_by_key(|member| (member.name.clone(), member.token)));
        let first = members.iter().position(Member::is_first);
        assert_eq!(first, Some(0), "round {round}");
        assert_eq!(members.iter().filter(|member| member.is_first()).count(), 1);
        let token = members[0].token.to_string();
        assert_eq!(looker.run(["LOCK.CHECK", &members[0].name, &token]), int(1));
        let at = dice.below(members.len());
        let gone = members.remove(at);
        end(&server, &mut dice, gone.client, &gone.name);
        if let Some(next) = members.get_mut(at) {
            next.wait();
        }
        for (other, member) in members.iter_mut().enumerate() {
            let heard = server.settled(&mut member.client);
            assert_eq!(heard, [""; 0], "round {round}: {other} was woken for {at}");
        }
        members.push(Member::join(server.resp3(), "m"));
    }
}

/// Its participants are those who are there, in order; the leader is the first, and says where it is.
#[test]
fn a_leader_latch_knows_its_participants_and_passes_on() {
    let server = Server::start().over_tcp();
    let mut looker = server.resp3();
    let leader = |looker: &mut Client| {
        let names = children(looker);
        looker.run(["GET", &names[0]]).text()
    };
    let mut one = Member::join(server.resp3(), "one:1");
    let mut two = Member::join(server.resp3(), "two:2");
    // It has a session: a connection that breaks is not the end of it.
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 60000").text();
    let three = Member::join(client, "three:3");
    let mut four = Member::join(server.resp3(), "four:4");
    let mut five = Member::join(server.resp3(), "five:5");
    assert_eq!(children(&mut looker).len(), 5);
    assert_eq!(leader(&mut looker), "one:1");

    // Somebody deletes the leader's node: it is told, and the next one leads.
    looker.run(["DEL", &one.name]);
    let lost = format!("settp {} LOST deleted", one.name);
    assert_eq!(one.client.next_push(), lost);
    two.wait();
    assert!(two.is_first());
    assert_eq!(leader(&mut looker), "two:2");
    let stale = looker.refused(["LOCK.CHECK", &one.name, &one.token.to_string()]);
    assert!(stale.starts_with("STALE "), "{stale}");
    // It comes back at the end.
    let one = Member::join(one.client, "one:1");
    assert_eq!(one.before.as_ref(), Some(&five.name));

    // One in the middle dies; the one behind it waits for another.
    let dead = four.name.clone();
    four.client.send("QUIT");
    drop(four);
    eventually_gone(&mut looker, &dead);
    five.wait();
    assert_eq!(five.before.as_ref(), Some(&three.name));

    // The leader dies, and the next one's connection is broken: its session leads.
    let (dead, name) = (two.name.clone(), three.name.clone());
    three.client.reset();
    two.client.reset();
    eventually_gone(&mut looker, &dead);
    assert_eq!(leader(&mut looker), "three:3");
    let mut back = server.resp3();
    assert_eq!(back.run(["SESSION.RESUME", &secret, "NOTIFY"]), int(1));
    let info = looker.run(["LOCK.INFO", &name]);
    let holders = field(&info, "holders").items();
    assert_eq!(field(&holders[0], "token").number(), three.token);
    assert!(!five.is_first());
    assert_eq!(server.settled(&mut five.client), [""; 0]);

    // Until an operator ends it.
    let sessions = looker.run("SESSION.LIST").items();
    let id = field(&sessions[0], "id").number();
    assert_eq!(looker.run(["SESSION.KILL", &id.to_string()]), int(1));
    assert_eq!(back.next_push(), format!("settp {name} LOST ended"));
    five.wait();
    assert!(five.is_first());
    assert_eq!(leader(&mut looker), "five:5");
    assert_eq!(children(&mut looker), [five.name.clone(), one.name.clone()]);
}
