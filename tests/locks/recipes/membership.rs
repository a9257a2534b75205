//! Group membership, as by Curator's GroupMember, PersistentNode and PathChildrenCache: each member is a temporary key whose
//! value says where it is, and knows all of them by WATCHTP.

use super::end;
use crate::harness::*;
use crate::random::{self, Random};
use std::slice::from_ref;

const GROUP: &str = "{g}:";

struct Member {
    client: Client,
    name: String,
    token: i64,
    view: View,
}

impl Member {
    fn join(mut client: Client, name: &str, place: &str) -> Member {
        let view = View::take(&mut client, GROUP);
        let mut member = Member {
            client,
            name: name.to_owned(),
            token: 0,
            view,
        };
        member.make(place);
        member
    }

    /// Makes its key, and hears so.
    fn make(&mut self, place: &str) {
        let settp = ["SETTP", &self.name, place, "TOKEN", "NOTIFY"];
        self.token = self.client.run(settp).number();
        assert!(self.token > 0, "{} is there already", self.name);
    }

    /// All that it was told of the group since it last looked.
    fn hear(&mut self, server: &Server) -> Vec<String> {
        let pushes = server.settled(&mut self.client);
        for push in &pushes {
            assert!(self.view.see(push), "{push} on top of {:?}", self.view);
        }
        pushes
    }
}

/// Each was told this and nothing else since it last looked, and knows who is there.
fn all_hear(server: &Server, members: &mut [Member], expected: &[String]) {
    let there: Vec<_> = members.iter().map(|m| (m.name.clone(), m.token)).collect();
    for member in members {
        // Servers with I/O threads do not say of a killed one that it was killed.
        let heard = member.hear(server).into_iter();
        let heard: Vec<_> = heard.map(|push| push.replace(" killed", " died")).collect();
        assert_eq!(heard, expected, "{}", member.name);
        let view = member.view.members.iter();
        let mut known: Vec<_> = view
            .map(|(name, (token, _))| (name.clone(), *token))
            .collect();
        let mut there = there.clone();
        known.sort();
        there.sort();
        assert_eq!(known, there, "{}", member.name);
    }
}

fn added(member: &Member, place: &str) -> String {
    format!("watchtp {} ADD {} {place}", member.name, member.token)
}

fn gone(name: &str, token: i64, reason: &str) -> String {
    format!("watchtp {name} DEL {token} {reason}")
}

/// Three members who have heard of each other.
fn group(server: &Server) -> Vec<Member> {
    let mut members: Vec<_> = ["a", "b", "c"]
        .map(|name| Member::join(server.resp3(), &format!("{GROUP}{name}"), "here"))
        .into();
    for member in &mut members {
        member.hear(server);
    }
    all_hear(server, &mut members, &[]);
    members
}

/// A push for each that comes, moves or goes, to each that stays, whoever ends and however.
#[test]
fn a_group_knows_its_members_whoever_is_killed() {
    let mut dice = Random::new(random::seed());
    let server = Server::start().over_tcp();
    let mut members = group(&server);
    for round in 0..40 {
        let at = dice.below(members.len());
        if dice.per_mille(300) {
            let member = &mut members[at];
            let place = format!("place {round}");
            member.client.run(["SET", &member.name, &place]);
            let moved = format!("watchtp {} SET {} {place}", member.name, member.token);
            all_hear(&server, &mut members, &[moved]);
            continue;
        }
        let Member {
            client,
            name,
            token,
            ..
        } = members.remove(at);
        let reason = end(&server, &mut dice, client, &name);
        all_hear(&server, &mut members, &[gone(&name, token, reason)]);
        let back = Member::join(server.resp3(), &name, "back");
        assert!(back.token > token);
        members.push(back);
        let back = added(members.last().unwrap(), "back");
        all_hear(&server, &mut members, &[back]);
    }
}

/// Whoever loses its key is told so, and comes again.
#[test]
fn a_member_whose_key_is_deleted_or_flushed_comes_again() {
    let server = Server::start();
    let mut members = group(&server);
    let (name, token) = (members[1].name.clone(), members[1].token);
    server.resp2().run(["DEL", &name]);
    let deleted = gone(&name, token, "deleted");
    assert_eq!(members[1].client.next_push(), deleted);
    let lost = format!("settp {name} LOST deleted");
    assert_eq!(members[1].client.next_push(), lost);
    assert!(members[1].view.see(&deleted));
    members[1].make("again");
    let again = added(&members[1], "again");
    assert_eq!(members[1].hear(&server), from_ref(&again));
    for other in [0, 2] {
        assert_eq!(
            members[other].hear(&server),
            [deleted.clone(), again.clone()]
        );
    }
    all_hear(&server, &mut members, &[]);

    server.resp2().run("FLUSHALL");
    for member in &mut members {
        let mut pushes = server.settled(&mut member.client);
        pushes.sort();
        let lost = format!("settp {} LOST flushed", member.name);
        let flushed = format!("watchtp {GROUP} FLUSHED");
        assert_eq!(pushes, [lost, flushed.clone()]);
        assert!(member.view.see(&flushed));
    }
    all_hear(&server, &mut [], &[]);
    let expected: Vec<_> = members
        .iter_mut()
        .map(|member| {
            member.make("anew");
            added(member, "anew")
        })
        .collect();
    all_hear(&server, &mut members, &expected);
}

/// With a session a connection that breaks, once or often, is not the end of its member: nobody is told anything. It reads the
/// group anew. When its grace is over it is gone.
#[test]
fn a_member_with_a_session_goes_on_until_its_grace_is_over() {
    let server = Server::start().over_tcp();
    let mut others = group(&server);
    let name = format!("{GROUP}session");
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 60000").text();
    let member = Member::join(client, &name, "here");
    let token = member.token;
    let came = added(&member, "here");
    for other in &mut others {
        assert_eq!(other.hear(&server), from_ref(&came));
    }
    let mut client = member.client;
    for _ in 0..3 {
        client.reset();
        client = server.resp3();
        assert_eq!(client.run(["SESSION.RESUME", &secret, "NOTIFY"]), int(1));
        let view = View::take(&mut client, GROUP);
        assert_eq!(view.members.len(), others.len() + 1);
        assert_eq!(view.members[&name], (token, Some("here".to_owned())));
    }
    for other in &mut others {
        assert_eq!(other.hear(&server), [""; 0]);
    }

    // What happens during a break it sees when it is back, and nobody sees the break.
    client.reset();
    let dead = others.remove(0);
    let died = gone(&dead.name, dead.token, "died");
    let is_dead = dead.name.clone();
    drop(dead);
    eventually_gone(&mut server.resp2(), &is_dead);
    client = server.resp3();
    assert_eq!(client.run(["SESSION.RESUME", &secret]), int(1));
    let view = View::take(&mut client, GROUP);
    assert!(view.members.contains_key(&name) && !view.members.contains_key(&is_dead));
    for other in &mut others {
        assert_eq!(other.hear(&server), from_ref(&died));
    }

    // A short grace is over before anybody comes back.
    let brief = format!("{GROUP}brief");
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 50").text();
    let member = Member::join(client, &brief, "here");
    let came = added(&member, "here");
    let over = gone(&brief, member.token, "died");
    member.client.reset();
    eventually_gone(&mut server.resp2(), &brief);
    for other in &mut others {
        assert_eq!(other.hear(&server), [came.clone(), over.clone()]);
    }
    let refused = server.resp3().refused(["SESSION.RESUME", &secret]);
    assert!(refused.starts_with("NOSESSION"), "{refused}");
}

/// The server crashes and has its file: whoever has a session is a member as before, and the others join again.
#[test]
fn a_group_outlives_a_restart_of_the_server() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let named = |name: &str| format!("{GROUP}{name}");
    let mut secrets = Vec::new();
    let mut members: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let mut client = server.resp3();
            secrets.push(client.run("SESSION.START GRACE 60000").text());
            Member::join(client, &named(name), "here")
        })
        .into();
    let stray = Member::join(server.resp3(), &named("stray"), "here");
    let first = &mut members[0];
    first.client.run(["SET", &first.name, "somewhere else"]);
    server.crash_and_restart();
    eventually_gone(&mut server.resp2(), &stray.name);

    // Two are back; of the third one they know, though it is not.
    let come_back = |server: &Server, member: &mut Member, secret: &String| {
        member.client = server.resp3();
        let resumed = member.client.run(["SESSION.RESUME", secret, "NOTIFY"]);
        assert_eq!(resumed, int(1), "{}", member.name);
        member.view = View::take(&mut member.client, GROUP);
    };
    let (back, late) = members.split_at_mut(2);
    for (member, secret) in back.iter_mut().zip(&secrets) {
        come_back(&server, member, secret);
    }
    let (first, third) = (&back[0], &late[0]);
    assert_eq!(
        first.view.members[&first.name],
        (first.token, Some("somewhere else".to_owned()))
    );
    assert_eq!(
        first.view.members[&third.name],
        (third.token, Some("here".to_owned()))
    );
    come_back(&server, &mut late[0], &secrets[2]);
    all_hear(&server, &mut members, &[]);

    // Tokens go on rising, and everybody is told of whoever comes and goes, as before the crash.
    members.push(Member::join(server.resp3(), &stray.name, "again"));
    assert!(members[3].token > stray.token);
    let came = added(&members[3], "again");
    all_hear(&server, &mut members, &[came]);
    let mut leaver = members.remove(0);
    let left = gone(&leaver.name, leaver.token, "released");
    assert_eq!(leaver.client.run(["DELTP", &leaver.name]), int(1));
    all_hear(&server, &mut members, &[left]);
    assert_eq!(leaver.client.run("SESSION.END"), int(0));
}
