//! A replica for which keys are past their time to live that its master renews: here by its clock, elsewhere since what its master
//! said last is still on its way. Its readers do not find them, and it may not forget them.

use crate::harness::*;
use crate::line::tether;
use crate::nodes::{AGREEMENT, Cluster, name_in, pushes_at_last, wait_for_link};
use std::time::Duration;

const SLOT: u16 = 11;
const OTHER_SLOT: u16 = 12;

/// Its first server's replica comes last, and goes by this clock from the beginning: who sets a clock takes others for dead.
struct Line {
    cluster: Cluster,
    _clock: Clock,
    owner: Client,
    watcher: Client,
    key: String,
    /// As the replica sees it: with its token.
    members: Members,
}

impl Line {
    fn begin(masters: usize) -> Line {
        let clock = Clock::new();
        clock.ahead(Duration::from_secs(3600));
        let mut cluster = Cluster::of_masters(masters, &[]);
        cluster.add_replica_by_clock(0, &clock);
        let key = format!("{{{}}}session", name_in(OTHER_SLOT));
        let mut owner = cluster.servers[0].resp3();
        owner.run("SESSION.START GRACE 600000");
        owner.run(["SETTP", &key, "v"]);
        cluster.servers[masters].catch_up(&cluster.servers[0]);
        let mut watcher = cluster.servers[masters].resp3();
        watcher.run("READONLY");
        assert_eq!(watcher.run(["EXISTS", &key]), int(0));
        assert_eq!(watcher.run(["WATCHEX", &key]), bulk("EXIST"));
        let mut line = Line {
            cluster,
            _clock: clock,
            owner,
            watcher,
            key,
            members: Members::default(),
        };
        line.members = line.members();
        assert_eq!(line.members.len(), 1);
        line
    }

    fn master(&self) -> &Server {
        &self.cluster.servers[0]
    }

    fn replica(&self) -> &Server {
        self.cluster.servers.last().expect("a replica")
    }

    fn members(&self) -> Members {
        let mut client = self.replica().resp2();
        client.run("READONLY");
        View::take(&mut client, &self.key).members
    }

    /// The replica has forgotten nothing, and nobody is told of anything.
    fn assert_all_is_known(&mut self, what: &str) {
        wait_for_link(self.replica(), self.master());
        let replica = self.cluster.servers.last().expect("a replica");
        replica.settle();
        assert_eq!(replica.settled(&mut self.watcher), [""; 0], "{what}");
        assert_eq!(self.members(), self.members, "{what}");
        assert_eq!(tether(self.replica(), "temporary_keys"), 1, "{what}");
        let master = &self.cluster.servers[0];
        assert_eq!(master.settled(&mut self.owner), [""; 0], "{what}");
    }
}

#[test]
fn a_whole_copy_takes_nothing_from_sessions() {
    let mut line = Line::begin(1);
    let before = line.master().gauge("stats", "sync_full");
    let mut admin = line.master().resp2();
    admin.run("DEBUG CHANGE-REPL-ID");
    admin.run("CLIENT KILL TYPE replica");
    eventually_within(AGREEMENT, "a full synchronisation", || {
        match line.master().gauge("stats", "sync_full") {
            after if after > before => Ok(()),
            after => Err(after.to_string()),
        }
    });
    line.assert_all_is_known("a whole copy");
}

#[test]
fn nor_does_the_name_of_its_master() {
    let mut line = Line::begin(1);
    let master = line.cluster.id(0);
    let mut admin = line.replica().resp2();
    assert_eq!(admin.run(["CLUSTER", "REPLICATE", &master]), ok());
    line.assert_all_is_known("its master's name");
}

/// What was in the slot is forgotten all the same.
#[test]
fn nor_does_a_slot_that_moves_in_one_go() {
    let mut line = Line::begin(2);
    if !line.cluster.can_move_in_one_go() {
        return;
    }
    let moved = format!("{{{}}}moved", name_in(SLOT));
    let lock = format!("{{{}}}lock", name_in(SLOT));
    line.owner.run(["SETTP", &moved, "v", "NOTIFY"]);
    line.owner.run(["LOCK.ACQUIRE", &lock, "NOTIFY"]);
    line.replica().catch_up(line.master());
    assert_eq!(line.watcher.run(["WATCHEX", &moved]), bulk("EXIST"));
    line.cluster.begin_to_move(SLOT, 0, 1);
    let push = line.watcher.next_push_within(AGREEMENT);
    assert_eq!(push, format!("watchex {moved} DEL"));
    let mut lost = pushes_at_last(&mut line.owner, 2);
    lost.sort();
    let expected = [
        format!("lock {lock} LOST moved"),
        format!("settp {moved} LOST moved"),
    ];
    assert_eq!(lost, expected);
    eventually_equal("what is left", [1, 0], || {
        ["temporary_keys", "holds"].map(|gauge| tether(line.replica(), gauge))
    });
    line.assert_all_is_known("a slot that moves");
}

/// It has no master yet when it reads its file, and the stream does not tell again what that has.
#[test]
fn a_replica_that_starts_with_its_file_knows_its_masters_keys() {
    let mut line = Line::begin(1);
    let mut other = line.master().resp2();
    let key = format!("{}2", line.key);
    assert_eq!(other.run(["SETTP", &key, "v"]), int(1));
    line.replica().catch_up(line.master());
    let expected = line.members();
    assert_eq!(expected.len(), 2);
    // It gets the file from its master, and then starts with it.
    line.cluster.servers[1].restart_without_files();
    wait_for_link(line.replica(), line.master());
    line.cluster.servers[1].kill();
    line.cluster.servers[1].restart_as_it_was();
    wait_for_link(line.replica(), line.master());
    eventually_equal("what the replica knows", expected, || line.members());
}
