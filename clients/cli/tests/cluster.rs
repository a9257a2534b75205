//! A cluster, of which the URL names any node: a key is looked for at the node that has it, and what is of no key at all masters.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use tempfile::TempDir;
use tether_testing::harness::{Server, eventually, eventually_equal, free_port};
use tether_testing::process::ended;

const SLOTS: usize = 16_384;

/// Ends with the test.
struct Process(Child);

impl Process {
    /// Whether it succeeds, and what it has written to its standard error.
    fn end(&mut self) -> (bool, String) {
        let is_good = ended(&mut self.0).success();
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (is_good, said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two masters with half of the slots each.
struct Cluster([Server; 2]);

impl Cluster {
    fn start() -> Cluster {
        let nodes = [(); 2].map(|()| {
            let bus = format!("cluster-port {}", free_port());
            Server::with(&["cluster-enabled yes", "cluster-node-timeout 60000", &bus])
        });
        let bus = nodes[0].resp2().run("CONFIG GET cluster-port").items()[1].text();
        for (at, node) in nodes.iter().enumerate() {
            let (first, last) = (SLOTS / 2 * at, SLOTS / 2 * (at + 1) - 1);
            node.resp2().run_all(&[
                &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1),
                &format!("CLUSTER ADDSLOTSRANGE {first} {last}"),
                &format!("CLUSTER MEET 127.0.0.1 {} {bus}", nodes[0].port()),
            ]);
        }
        for node in &nodes {
            let mut client = node.resp2();
            eventually("the cluster is up", || {
                let info = client.run("CLUSTER INFO").text();
                let is_up =
                    info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2\r\n");
                is_up.then_some(()).ok_or(info)
            });
        }
        Cluster(nodes)
    }

    /// A name with a hash tag that this node has.
    fn key(&self, node: usize) -> String {
        let mut client = self.0[0].resp2();
        let mut keys = (0..).map(|number| format!("{{{number}}}:report"));
        keys.find(|key| {
            let slot = client.run(&format!("CLUSTER KEYSLOT {key}")).number();
            usize::try_from(slot).unwrap() * 2 / SLOTS == node
        })
        .unwrap()
    }

    /// This node takes the key's slot; the other one hears of it by the bus, and deletes what it has there.
    fn take_slot(&self, key: &str, node: usize) {
        let [target, source] = [node, 1 - node].map(|node| {
            let mut client = self.0[node].resp2();
            client.run("CLUSTER MYID").text()
        });
        let mut client = self.0[node].resp2();
        let slot = client.run(&format!("CLUSTER KEYSLOT {key}")).number();
        client.run_all(&[
            &format!("CLUSTER SETSLOT {slot} IMPORTING {source}"),
            &format!("CLUSTER SETSLOT {slot} NODE {target}"),
        ]);
    }

    fn waiters(&self, node: usize) -> i64 {
        self.0[node].gauge("tether", "tether_waiters")
    }

    fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.0[node].port())
    }

    /// It is told of the first node.
    fn tether(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        command.args(arguments).stdin(Stdio::null());
        command.env("TETHER_URL", format!("redis://{}", self.address(0)));
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.tether(arguments).output().unwrap();
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        (status.code(), stdout, stderr)
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
        stdout
    }

    fn lines(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let said = self.succeed(arguments);
        said.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Starts it, and waits for its first line.
    fn follow(&self, arguments: &[&str]) -> (Child, String) {
        let mut command = self.tether(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        child.stdout = Some(output.into_inner());
        (child, line)
    }
}

#[test]
fn a_key_is_looked_for_at_the_node_that_has_it() {
    let cluster = Cluster::start();
    let (here, there) = (cluster.key(0), cluster.key(1));
    let mut holder = cluster.0[1].resp3();
    holder.run(&format!("LOCK.ACQUIRE {there}"));
    let id = holder.id().to_string();
    assert!(cluster.succeed(&["who", &there]).contains(&id));
    assert!(cluster.succeed(&["why", &there]).contains(&id));
    let announce = format!("{here}=x");
    let run = [
        "run",
        "--nowait",
        "--announce",
        &announce,
        &there,
        "--",
        "true",
    ];
    let (code, _, said) = cluster.run(&run);
    let held = format!("{}: held by client {id} (", cluster.address(1));
    assert!(code == Some(75) && said.contains(&held), "{said}");
    let kicked = cluster.succeed(&["kick", &there]);
    assert!(
        kicked.starts_with(&format!("{there}: client {id} at ")),
        "{kicked}"
    );
    cluster.succeed(&run);
    let (code, said, _) = cluster.run(&["who", &there]);
    assert!(
        code == Some(1) && said.contains("nobody holds it"),
        "{said}"
    );
}

#[test]
fn what_is_of_no_key_is_asked_of_each_master() {
    let cluster = Cluster::start();
    let keys = [cluster.key(0), cluster.key(1)];
    let mut holders = [0, 1].map(|node| cluster.0[node].resp3());
    for (holder, key) in holders.iter_mut().zip(&keys) {
        holder.run("SESSION.START GRACE 10000");
        holder.run(&format!("LOCK.ACQUIRE {key}"));
    }
    for command in ["ls", "sessions"] {
        let of: Vec<_> = cluster
            .lines(&[command, "--json"])
            .into_iter()
            .map(|line| line["server"].clone())
            .collect();
        assert_eq!(of, [cluster.address(0), cluster.address(1)], "{command}");
        let table = cluster.succeed(&[command]);
        assert!(
            table.contains("SERVER") && table.contains(&cluster.address(1)),
            "{table}"
        );
    }
    // Of the node that the URL names only.
    let metrics = cluster.succeed(&["metrics"]);
    assert!(metrics.contains("\ntether_holds 1\n"), "{metrics}");
    for (node, key) in keys.iter().enumerate().rev() {
        cluster.0[node].resp2().run(&format!("DEL {key}"));
        thread::sleep(std::time::Duration::from_millis(5));
    }
    let lost: Vec<_> = cluster
        .lines(&["log", "--json"])
        .into_iter()
        .map(|line| line["key"].clone())
        .collect();
    assert_eq!(lost, keys, "the newest first");
    assert_eq!(cluster.lines(&["log", "--json", "--count", "1"]).len(), 1);
    assert_eq!(cluster.lines(&["log", "--json", &keys[1]]).len(), 1);
    let findings = cluster.lines(&["doctor", "--json"]);
    for node in [0, 1] {
        let is_loaded = |finding: &serde_json::Value| {
            let what = finding["finding"].as_str().unwrap();
            finding["server"] == cluster.address(node) && what.starts_with("the module is loaded")
        };
        assert!(findings.iter().any(is_loaded), "{findings:?}");
    }
    let top = cluster.succeed(&["top", "--once"]);
    let of_one = format!("{}, this node of the cluster: ", cluster.address(0));
    assert!(top.starts_with(&of_one), "{top}");
}

/// A server that names so many masters, none of which is there.
fn one_of_many(masters: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let slots = (1..=masters)
        .map(|port| format!("*3\r\n:{port}\r\n:{port}\r\n*2\r\n$9\r\n127.0.0.9\r\n:{port}\r\n"));
    let slots = format!("*{masters}\r\n{}", slots.collect::<String>());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut bytes) = (stream.unwrap(), [0; 4096]);
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                let asked = String::from_utf8_lossy(&bytes[..count]).into_owned();
                for command in asked.split('*').skip(1) {
                    let answer = match command.split("\r\n").nth(2) {
                        Some("HELLO") => "%1\r\n$4\r\nmode\r\n$7\r\ncluster\r\n",
                        Some("CLUSTER") => &slots,
                        _ => "+OK\r\n",
                    };
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        }
    });
    port
}

#[test]
fn doctor_looks_at_all_masters_however_many_they_are() {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_tether"));
    let url = format!("redis://127.0.0.1:{}", one_of_many(70));
    let said = doctor.arg("doctor").env("TETHER_URL", url).output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    let missing = said.matches("this master could not be asked").count();
    assert_eq!(missing, 70, "{said}");
}

#[test]
fn keys_of_one_slot_are_watched_at_the_node_that_has_them_until_it_moves() {
    let cluster = Cluster::start();
    let key = cluster.key(1);
    let prefix = key.strip_suffix("report").unwrap();
    cluster.0[1].resp2().run(&format!("SETTP {prefix}x v"));
    let mut holder = cluster.0[1].resp3();
    holder.run(&format!("SETTP {key} here"));
    let member = cluster.succeed(&["presence", "--once", prefix]);
    assert!(member.contains(&key) && member.contains("here"), "{member}");
    for crossing in [
        &["watch", &key, &cluster.key(0)][..],
        &["presence", "workers:"],
    ] {
        let (code, _, said) = cluster.run(crossing);
        assert_eq!(code, Some(78), "{said}");
        assert!(
            said.contains(": CROSSSLOT ") && said.contains("in a cluster, watch keys of one slot"),
            "{said}"
        );
    }
    let (mut watch, line) = cluster.follow(&["watch", &key]);
    assert_eq!(line, format!("EXIST {key}\n"));
    holder.run(&format!("DELTP {key}"));
    let slot = holder.run(&format!("CLUSTER KEYSLOT {key}")).number();
    let id = cluster.0[0].resp2().run("CLUSTER MYID").text();
    for node in &cluster.0 {
        let command = format!("CLUSTER SETSLOT {slot} NODE {id}");
        node.resp2().run(&command);
    }
    assert_eq!(ended(&mut watch).code(), Some(69));
    let mut said = String::new();
    watch.stderr.unwrap().read_to_string(&mut said).unwrap();
    let moved = format!("has moved to {}", cluster.address(0));
    assert!(said.contains(&moved), "{said}");
}

#[test]
fn a_lock_ends_when_its_slot_moves_and_a_wait_goes_on_there() {
    let cluster = Cluster::start();
    let key = cluster.key(1);
    let other = key.replace("report", "other");
    let mut holder = cluster.0[1].resp3();
    holder.run(&format!("LOCK.ACQUIRE {other}"));
    let script = "echo began; exec sleep 1000";
    let (mut run, _) = cluster.follow(&["run", &key, "--", "sh", "-c", script]);
    let mut waiter = cluster.tether(&["run", &other, "--", "true"]);
    let mut waiter = Process(waiter.stderr(Stdio::piped()).spawn().unwrap());
    eventually_equal("a wait", 1, || cluster.waiters(1));
    cluster.take_slot(&key, 0);
    assert_eq!(ended(&mut run).code(), Some(79));
    let mut said = String::new();
    run.stderr.unwrap().read_to_string(&mut said).unwrap();
    // The node that had it, which is not that of the URL.
    let node = cluster.address(1);
    let lost = format!("lost the lock '{key}': {node}: LOST moved; 'sh' was killed");
    assert!(said.contains(&lost), "{said}");
    let (is_granted, said) = waiter.end();
    assert!(is_granted, "{said}");
}

#[test]
fn the_lead_is_at_the_node_that_has_its_key_and_goes_on_where_its_slot_goes() {
    let cluster = Cluster::start();
    let folder = TempDir::with_prefix("tether-cluster-").unwrap();
    let key = cluster.key(1);
    // Each says in a file of its own when it leads.
    let stand = |name: &str| {
        let script = format!("echo x >> {name}; while [ ! -e enough ]; do sleep 0.02; done");
        let elect = ["elect", "--value", name, &key, "--", "sh", "-c", &script];
        let mut command = cluster.tether(&elect);
        command.current_dir(folder.path()).stderr(Stdio::piped());
        Process(command.spawn().unwrap())
    };
    let terms = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name));
        text.map_or(0, |text| text.lines().count())
    };
    let get = format!("GET {key}");
    let one = stand("one");
    eventually_equal("the first's term", 1, || terms("one"));
    assert_eq!(cluster.0[1].resp2().run(&get).text(), "one");
    let two = stand("two");
    eventually_equal("the second's wait", 1, || cluster.waiters(1));
    cluster.0[1].resp2().run(&format!("DEL {key}"));
    eventually_equal("the second's term", 1, || terms("two"));
    eventually_equal("the first's wait", 1, || cluster.waiters(1));
    cluster.take_slot(&key, 0);
    eventually_equal("a term at the other node", 3, || {
        terms("one") + terms("two")
    });
    eventually_equal("a wait there", 1, || cluster.waiters(0));
    let leader = cluster.0[0].resp2().run(&get).text();
    assert!(["one", "two"].contains(&leader.as_str()), "{leader}");
    // The command ends, and then that of the other one.
    fs::write(folder.path().join("enough"), "").unwrap();
    let node = cluster.address(1);
    for (mut candidate, reason) in [(one, "deleted"), (two, "moved")] {
        let (is_done, said) = candidate.end();
        let lost = format!(
            "lost the lead '{key}': {node}: LOST {reason}; 'sh' was killed; it stands again"
        );
        assert!(is_done && said.contains(&lost), "{said}");
    }
    assert_eq!(
        cluster.0[0].resp2().run(&format!("EXISTS {key}")).number(),
        0
    );
}

#[test]
fn a_node_that_is_down_is_named_and_waited_for() {
    let mut cluster = Cluster::start();
    let key = cluster.key(1);
    cluster.0[1].kill();
    let (code, _, said) = cluster.run(&["run", "--nowait", &key, "--", "true"]);
    assert_eq!(code, Some(69), "{said}");
    let (code, _, said) = cluster.run(&["ls"]);
    assert!(
        code == Some(69) && said.contains(&cluster.address(1)),
        "{said}"
    );
    let findings = cluster.succeed(&["doctor"]);
    assert!(
        findings.contains("this master could not be asked"),
        "{findings}"
    );
    let mut run = cluster.tether(&["run", &key, "--", "true"]);
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    let begin = format!("tether: no lock '{key}' yet: {}: ", cluster.address(1));
    assert!(line.starts_with(&begin), "{line}");
    cluster.0[1].restart_as_it_was();
    assert!(ended(&mut run).success());
}
