//! What looks at a server, on a real one: `tether ls`, `who`, `why`, `log`, `sessions`, `top`, `watch`,
//! `kick`, `doctor` and `metrics`.

#![cfg(unix)]

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};
use tether_testing::harness::{
    Server, WITHOUT_MODULE, eventually, eventually_equal, free_port, int,
};
use tether_testing::process::ended;

/// How long anything may take that ought to happen soon.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

fn tether(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    let url = format!("redis://127.0.0.1:{}", server.port());
    command.args(arguments).env("TETHER_URL", url);
    command.stdin(Stdio::null());
    command
}

/// Its exit code and what it wrote to its standard output.
fn run(server: &Server, arguments: &[&str]) -> (i32, String) {
    let output = tether(server, arguments).output().unwrap();
    (output.status.code().unwrap(), text(output.stdout))
}

fn succeed(server: &Server, arguments: &[&str]) -> String {
    let output = tether(server, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    text(output.stdout)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap()
}

/// The words of each line.
fn cells(table: &str) -> Vec<Vec<&str>> {
    let lines = table.lines().map(|line| line.split_whitespace().collect());
    lines.collect()
}

/// Runs until it is dropped.
struct Running {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Running { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn ls_lists_what_is_held_and_waited_for() {
    let server = Server::start();
    assert_eq!(succeed(&server, &["ls"]), "KEY  HOLDERS  WAITERS  HELD\n");
    let mut one = server.resp3();
    let mut other = server.resp3();
    one.run("LOCK.ACQUIRE report");
    one.run("SETTP session:1 x");
    for _ in 0..4 {
        server.resp3(); // ids that are not 1 to 4
    }
    other.run("LOCK.ACQUIRE report WAIT 0 PUSH");
    let (first, second) = (one.id().to_string(), other.id().to_string());
    let table = succeed(&server, &["ls"]);
    let rows: Vec<_> = cells(&table)
        .into_iter()
        .skip(1)
        .map(|row| row[..3].to_vec())
        .collect();
    assert_eq!(rows, [["report", &first, "1"], ["session:1", &first, "0"]]);
    assert_eq!(cells(&succeed(&server, &["ls", "rep*"])).len(), 2);
    assert_eq!(
        cells(&succeed(&server, &["ls", "--client", &second])).len(),
        2
    );
    assert_eq!(cells(&succeed(&server, &["ls", "--detached"])).len(), 1);
    let lines = succeed(&server, &["ls", "--json", "rep*"]);
    let line = json(&lines);
    assert_eq!(
        (&line["key"], &line["waiters"]),
        (&"report".into(), &1.into())
    );
    assert_eq!(line["holders"], serde_json::json!([one.id()]));
}

#[test]
fn why_follows_the_chain_and_log_tells_how_it_ended() {
    let server = Server::start();
    let (code, told) = run(&server, &["why", "report"]);
    assert_eq!((code, &*told), (1, "report: nothing is in the way\n"));
    let nothing = "the log has no lost lock; it begins anew when the server starts\n";
    let named = format!("report: {nothing}");
    assert_eq!(run(&server, &["log"]), (1, nothing.to_owned()));
    assert_eq!(run(&server, &["log", "report"]), (1, named));
    assert_eq!(run(&server, &["log", "--json"]), (1, String::new()));
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE report OWNER job");
    other.run("LOCK.ACQUIRE disk");
    one.run("LOCK.ACQUIRE disk OWNER job WAIT 0 PUSH");
    let (first, second) = (one.id().to_string(), other.id().to_string());
    let table = succeed(&server, &["why", "report"]);
    let rows = cells(&table);
    assert_eq!(rows.len(), 3, "{table}");
    assert_eq!(rows[1][..2], ["report", &first]);
    assert_eq!(rows[1].last(), Some(&"disk"));
    assert_eq!(rows[2][..2], ["disk", &second]);
    let lines = succeed(&server, &["why", "--json", "report"]);
    let steps: Vec<_> = lines.lines().map(json).collect();
    assert_eq!(steps[0]["waits_for"], "disk");
    assert_eq!(steps[1]["waits_for"], serde_json::Value::Null);
    server.resp2().run("CONFIG SET min-replicas-to-write 1");
    let told = succeed(&server, &["why", "free"]);
    assert_eq!(told, "fewer replicas than min-replicas-to-write\n");
    server.resp2().run("CONFIG SET min-replicas-to-write 0");
    server.resp2().run("DEL report");
    let entry = json(&succeed(&server, &["log", "--json", "report"]));
    assert_eq!(
        (&entry["reason"], &entry["label"], &entry["count"]),
        (&"deleted".into(), &"job".into(), &1.into())
    );
    let table = succeed(&server, &["log", "--count", "1"]);
    let rows = cells(&table);
    assert_eq!(rows.len(), 2, "{table}");
    assert_eq!(rows[0][..5], ["ENDED", "AGO", "KEY", "REASON", "HELD"]);
    let ended = humantime::format_rfc3339_seconds(
        UNIX_EPOCH + Duration::from_millis(entry["time_ms"].as_u64().unwrap()),
    );
    assert_eq!(rows[1][0], ended.to_string());
    assert_eq!(rows[1][2..4], ["report", "deleted"]);
}

#[test]
fn sessions_lists_attached_and_detached_ones() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    one.run("SESSION.START GRACE 60000");
    one.run("LOCK.ACQUIRE report");
    two.run("SESSION.START GRACE 60000");
    two.run("SETTP key v");
    two.run("SESSION.DETACH");
    let table = succeed(&server, &["sessions"]);
    let rows = cells(&table);
    assert_eq!(rows.len(), 3, "{table}");
    assert_eq!(rows[1][1], one.id().to_string());
    assert_eq!(rows[1][5..], ["0", "1", "0"]);
    assert_eq!(rows[2][1], "(detached)");
    let lines = succeed(&server, &["sessions", "--json"]);
    assert_eq!(json(lines.lines().nth(1).unwrap())["keys"], 1);
}

/// Of a table below other lines, the words of each row.
fn rows_of_keys(said: &str) -> Vec<Vec<&str>> {
    let rows = cells(said).into_iter();
    let mut rows = rows.skip_while(|row| row.first() != Some(&"KEY"));
    rows.next();
    rows.collect()
}

#[test]
fn top_shows_the_key_with_the_most_waiters_first() {
    let server = Server::start();
    let (mut one, mut other, mut third) = (server.resp3(), server.resp3(), server.resp3());
    one.run("CLIENT SETNAME nightly");
    one.run("LOCK.ACQUIRE quiet");
    // How long a key is held is not told more exactly.
    one.run("DEBUG SLEEP 0.05");
    one.run("LOCK.ACQUIRE report SHARED");
    other.run("LOCK.ACQUIRE report SHARED");
    other.run("LOCK.ACQUIRE disk");
    third.run("SETTP session:1 x");
    one.run("LOCK.ACQUIRE disk WAIT 0 PUSH");
    third.run("LOCK.ACQUIRE report WAIT 0 PUSH");
    third.run("LOCK.ACQUIRE disk WAIT 0 PUSH");
    let (first, second) = (one.id().to_string(), other.id().to_string());
    let said = succeed(&server, &["top", "--once"]);
    let lines: Vec<_> = said.lines().collect();
    let begin = format!("127.0.0.1:{}, database 0: master, ", server.port());
    assert!(lines[0].starts_with(&begin), "{said}");
    assert_eq!(
        lines[1],
        "holds 4, temporary keys 1, waiters 3, sessions 0 attached and 0 detached, grants 5"
    );
    assert_eq!(lines[2], "lost: nothing");
    let rows = rows_of_keys(&said);
    let keys: Vec<_> = rows.iter().map(|row| row[..2].to_vec()).collect();
    // The last two have no waiters. `quiet` is held for longer.
    let expected = [
        ["disk", "2"],
        ["report", "1"],
        ["quiet", "0"],
        ["session:1", "0"],
    ];
    assert_eq!(keys, expected, "{said}");
    // disk: its waiter's time, its holder's, who holds it.
    assert_eq!(rows[0][4], second, "{said}");
    assert_eq!(rows[0][rows[0].len() - 2..], ["exclusive", "-"]);
    // report: one of those who share it waits for `disk` itself.
    assert_eq!(rows[1][4..6], [&format!("{first},+1"), "nightly"], "{said}");
    assert_eq!(rows[1][rows[1].len() - 2..], ["shared", "disk"]);
    let said = succeed(
        &server,
        &["top", "--once", "--sort", "held", "--count", "1"],
    );
    let rows = rows_of_keys(&said);
    assert_eq!((rows.len(), rows[0][0]), (1, "quiet"), "{said}");
    let look = json(&succeed(&server, &["top", "--once", "--json"]));
    assert_eq!((&look["waiters"], &look["holds"]), (&3.into(), &4.into()));
    let busiest = &look["keys"][0];
    assert_eq!(
        (&busiest["key"], &busiest["waiter_count"]),
        (&"disk".into(), &2.into())
    );
    assert_eq!(busiest["holder"]["client"], other.id());
    assert!(busiest["idle_ms"].is_number() && busiest["waiting_ms"].is_number());
    assert_eq!(look["newly_lost"], serde_json::Value::Null);
}

#[test]
fn top_shows_losses_by_reason_since_the_start_and_since_the_look_before() {
    let server = Server::start();
    let mut one = server.resp3();
    one.run("LOCK.ACQUIRE report");
    one.run("DEL report"); // its owner's: no loss
    one.run("LOCK.ACQUIRE report");
    server.resp3().run("DEL report");
    let interval = ["--interval", "300ms"];
    let mut text = Running::start(tether(&server, &[&["top"], &interval[..]].concat()));
    let as_json = [&["top", "--json"], &interval[..]].concat();
    let mut as_json = Running::start(tether(&server, &as_json));
    let first = json(&as_json.line());
    assert_eq!(
        (&first["lost"]["deleted"], &first["lost"]["lease"]),
        (&1.into(), &0.into())
    );
    let losses = |text: &mut Running| loop {
        let line = text.line();
        if line.starts_with("lost: ") {
            return line;
        }
    };
    assert_eq!(losses(&mut text), "lost: deleted 1");
    for _ in 0..2 {
        one.run("LOCK.ACQUIRE disk");
        server.resp3().run("DEL disk");
    }
    one.run("SETTP session:1 x");
    server.resp3().run("FLUSHALL");
    let expected = ["deleted 3", "flushed 1"];
    let mut new = [0, 0];
    // Between two of them a look may come.
    loop {
        let line = losses(&mut text);
        let (words, _) = line.split_once(": ").unwrap_or_default();
        assert_eq!(words, "lost");
        for (new, what) in new.iter_mut().zip(["deleted", "flushed"]) {
            let after = line.split(what).nth(1).unwrap_or_default();
            let (_, after) = after
                .split(',')
                .next()
                .unwrap()
                .split_once("(+")
                .unwrap_or_default();
            *new += after.trim_end_matches(')').parse().unwrap_or(0);
        }
        if expected.iter().all(|words| line.contains(words)) {
            break;
        }
    }
    assert_eq!(new, [2, 1]);
    let mut newly = 0;
    loop {
        let look = json(&as_json.line());
        newly += look["newly_lost"]["deleted"].as_i64().unwrap();
        if look["lost"]["flushed"] == 1 {
            assert_eq!(look["lost"]["deleted"], 3);
            assert!(look["grants_per_second"].is_number());
            break;
        }
    }
    assert_eq!(newly, 2);
}

#[test]
fn top_says_that_nothing_is_held() {
    let server = Server::start();
    let said = succeed(&server, &["top", "--once"]);
    let lines: Vec<_> = said.lines().skip(2).collect();
    let nothing = "no key that this user may read is held or waited for";
    assert_eq!(lines, ["lost: nothing", nothing]);
    let look = json(&succeed(&server, &["top", "--once", "--json"]));
    assert_eq!(
        (&look["keys"], &look["complete"]),
        (&serde_json::json!([]), &true.into())
    );
}

/// Far more than one look asks for: the busiest is found by one of the looks, and then stays.
#[test]
fn top_goes_on_where_the_look_before_ended() {
    let server = Server::start();
    let mut holder = server.resp3();
    let mut waiter = server.resp3();
    for first in (0..25_000).step_by(500) {
        let names: Vec<_> = (first..first + 500).map(|n| format!("k{n}")).collect();
        holder.run(format!("LOCK.MACQUIRE 500 {}", names.join(" ")).as_str());
    }
    waiter.run("LOCK.ACQUIRE k12345 WAIT 0 PUSH");
    let mut top = Running::start(tether(&server, &["top", "--json", "--interval", "100ms"]));
    let mut listed = Vec::new();
    let mut found = None;
    for at in 0..8 {
        let look = json(&top.line());
        listed.push(look["keys_looked_at"].as_u64().unwrap());
        assert_eq!(look["complete"], false);
        let is_found = look["keys"][0]["key"] == "k12345";
        assert!(is_found || found.is_none(), "lost again: {look}");
        found = found.or(is_found.then_some(at));
    }
    assert!(found.is_some_and(|at| at < 3), "{found:?}, {listed:?}");
    // LOCK.LIST looks at about as many keys as it is asked for.
    assert!(listed.iter().all(|count| *count <= 11_000), "{listed:?}");
}

#[test]
fn top_ends_when_the_server_goes_away() {
    let mut server = Server::start();
    let mut command = tether(&server, &["top", "--interval", "100ms"]);
    let mut top = Running::start({
        command.stderr(Stdio::piped());
        command
    });
    top.line();
    server.kill();
    assert_eq!(ended(&mut top.process).code(), Some(69));
    let mut said = String::new();
    let mut stderr = top.process.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert!(
        said.starts_with("tether: ") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn top_shows_what_its_user_may_read_or_says_what_it_may_not_do() {
    let server = Server::start();
    let mut holder = server.resp3();
    holder.run("LOCK.ACQUIRE app:report");
    holder.run("LOCK.ACQUIRE other");
    let mut admin = server.resp2();
    admin.run("ACL SETUSER reader on >secret %R~app:* +@all");
    admin.run("ACL SETUSER nobody on >secret ~* +@all -lock.list");
    let at = |user| format!("redis://{user}:secret@127.0.0.1:{}", server.port());
    let said = succeed(&server, &["top", "--once", "--url", &at("reader")]);
    let rows = rows_of_keys(&said);
    assert_eq!((rows.len(), rows[0][0]), (1, "app:report"), "{said}");
    assert!(
        said.contains("holds 2, ") && !said.contains("secret"),
        "{said}"
    );
    // It asks for several keys at once; the error has the same form.
    admin.run("ACL SETUSER blind on >secret ~* +@all -lock.info");
    for (user, command) in [("nobody", "'lock.list'"), ("blind", "'lock.info'")] {
        let mut top = tether(&server, &["top", "--once", "--url", &at(user)]);
        let Output { status, stderr, .. } = top.output().unwrap();
        let said = text(stderr);
        assert_eq!(status.code(), Some(78), "{said}");
        assert!(
            said.starts_with(&format!("tether: 127.0.0.1:{}: NOPERM ", server.port()))
                && said.contains(command),
            "{said}"
        );
    }
}

#[test]
fn top_on_a_replica_names_the_master() {
    let server = Server::start();
    let replica = Server::replica_of(&server, &[]);
    server.resp3().run("LOCK.ACQUIRE report");
    let said = succeed(&replica, &["top", "--once"]);
    let role = format!(": replica of 127.0.0.1:{}, ", server.port());
    assert!(said.contains(&role), "{said}");
    assert!(said.ends_with(
        "the master alone knows who holds keys and who waits
"
    ));
}

/// What `tether top` writes to a terminal of that size, until it has drawn twice.
fn top_on_terminal(server: &Server, rows: u16, columns: u16) -> String {
    let top = ["top", "--interval", "100ms"];
    drawn_on_terminal(server, &top, (rows, columns), || {})
}

/// What this writes to a terminal of that size, until it has drawn twice; what is done between.
fn drawn_on_terminal(
    server: &Server,
    arguments: &[&str],
    (rows, columns): (u16, u16),
    between: impl FnOnce(),
) -> String {
    let (mut output, screen) = terminal(rows, columns);
    let mut command = tether(server, arguments);
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    let mut tether = command.stdout(screen).spawn().unwrap();
    drop(command);
    let mut drawn = Vec::new();
    let mut buffer = [0; 4096];
    let mut between = Some(between);
    // Each look ends with that.
    loop {
        match String::from_utf8_lossy(&drawn).matches("\x1b[?7h").count() {
            0 => {}
            1 => between.take().into_iter().for_each(|between| between()),
            _ => break,
        }
        let count = output.read(&mut buffer).unwrap();
        drawn.extend(&buffer[..count]);
    }
    tether.kill().unwrap();
    tether.wait().unwrap();
    String::from_utf8(drawn).unwrap()
}

#[test]
fn top_redraws_the_screen_of_a_terminal_and_fits_into_it() {
    let server = Server::start();
    let mut holder = server.resp3();
    let long = "k".repeat(100);
    for name in ["report", "disk", "\x1b[2J", &long] {
        holder.run(["LOCK.ACQUIRE", name]);
    }
    let drawn = top_on_terminal(&server, 24, 120);
    assert!(
        drawn.starts_with("\x1b[?1049h\x1b[?25l\x1b[2J\x1b[?7l\x1b[H127.0.0.1:"),
        "{drawn:?}"
    );
    // Once for both looks, and none by a name.
    assert_eq!(drawn.matches("\x1b[2J").count(), 1, "{drawn:?}");
    assert!(drawn.contains("\nreport ") && drawn.contains("\n\\u{1b}[2J "));
    // The longest is cut, with a mark, so that the rest has room.
    let mut rows = drawn.lines().map(|row| row.trim_end_matches("\x1b[K"));
    let row = rows.find(|row| row.starts_with("kkk")).unwrap();
    let (name, rest) = row.split_once('…').expect(row);
    assert!(name.chars().all(|letter| letter == 'k'), "{row}");
    assert!(
        rest.contains("exclusive") && row.chars().count() <= 120,
        "{row}"
    );
    for (rows, columns) in [(6, 30), (3, 10), (1, 1)] {
        let drawn = top_on_terminal(&server, rows, columns);
        let look = drawn.split("\x1b[?7l\x1b[H").nth(1).unwrap();
        let lines: Vec<_> = look.split("\x1b[K").collect();
        let most = usize::from(rows).saturating_sub(1).max(1);
        assert_eq!(lines.len() - 1, most, "{drawn:?}");
        for line in &lines[..most] {
            let line = line.replace("\x1b[1m", "").replace("\x1b[0m", "");
            let letters = line.trim().chars().count();
            assert!(letters <= columns.into(), "{drawn:?}");
        }
    }
}

#[test]
fn presence_redraws_the_screen_of_a_terminal_at_a_change() {
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run_all(&["SETTP m:1 one", "SETTP m:2 two"]);
    let change = || drop(owner.run("SETTP m:0 \x1b[2J"));
    let drawn = drawn_on_terminal(&server, &["presence", "m:"], (24, 100), change);
    let looks: Vec<_> = drawn.split("\x1b[?7l\x1b[H").collect();
    assert_eq!(looks[0], "\x1b[2J");
    let names = |look: &str| {
        let lines = look.split("\x1b[K").map(str::trim);
        let first = lines.map(|line| line.split_whitespace().next().unwrap_or_default());
        first.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(looks[1].starts_with("m:: 2 keys\x1b[K"), "{drawn:?}");
    assert_eq!(names(looks[1])[1..4], ["\x1b[1mKEY", "m:1", "m:2"]);
    assert!(looks[2].starts_with("m:: 3 keys\x1b[K"), "{drawn:?}");
    assert_eq!(names(looks[2])[1..5], ["\x1b[1mKEY", "m:0", "m:1", "m:2"]);
    assert_eq!(drawn.matches("\x1b[2J").count(), 1, "{drawn:?}");
}

/// A pseudo-terminal of that size: our end and that of the command.
fn terminal(rows: u16, columns: u16) -> (std::fs::File, std::fs::File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let name = std::ffi::OsStr::from_bytes(name.as_bytes());
    let theirs = OpenOptions::new().read(true).write(true).open(name);
    (std::fs::File::from(terminal), theirs.unwrap())
}

/// Reads until the terminal shows that, and returns what it showed until then.
fn until_shown(ours: &mut std::fs::File, what: &str) -> String {
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&shown).into_owned();
        if text.contains(what) {
            return text;
        }
        let count = ours.read(&mut buffer).unwrap();
        shown.extend(&buffer[..count]);
    }
}

#[test]
fn top_obeys_keys_and_leaves_the_terminal_as_it_was() {
    use rustix::termios::{LocalModes, tcgetattr};
    let server = Server::start();
    let mut holder = server.resp3();
    holder.run_all(&["LOCK.ACQUIRE report", "LOCK.ACQUIRE disk"]);
    for end in ["q", "\x03"] {
        let (mut ours, theirs) = terminal(24, 100);
        let before = tcgetattr(&theirs).unwrap();
        let mut command = tether(&server, &["top", "--interval", "1h"]);
        command.stdin(theirs.try_clone().unwrap());
        command.stdout(theirs.try_clone().unwrap());
        let mut top = command.spawn().unwrap();
        drop(command);
        until_shown(&mut ours, "q quit   s sort: waiters");
        let now = tcgetattr(&theirs).unwrap();
        assert!(!now.local_modes.contains(LocalModes::ICANON));
        ours.write_all(b"s").unwrap();
        until_shown(&mut ours, "s sort: waiting");
        ours.write_all(b"/diskx\x7f").unwrap();
        until_shown(&mut ours, "filter: disk_");
        ours.write_all(b"\n").unwrap();
        let filtered = until_shown(&mut ours, "filter: *disk*");
        assert!(
            filtered.contains("\ndisk ") && !filtered.contains("\nreport "),
            "{filtered:?}"
        );
        // An arrow is nothing; Esc shows all keys again.
        ours.write_all(b"\x1b[A").unwrap();
        ours.write_all(b"s").unwrap();
        until_shown(&mut ours, "s sort: held");
        ours.write_all(b"\x1b").unwrap();
        let all = until_shown(&mut ours, "\nreport ");
        assert!(all.contains("\ndisk "), "{all:?}");
        if end == "q" {
            ours.write_all(b"q").unwrap();
        } else {
            let process = rustix::process::Pid::from_child(&top);
            rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        }
        let status = ended(&mut top);
        match end {
            "q" => assert_eq!(status.code(), Some(0)),
            _ => assert_eq!(status.signal(), Some(2)),
        }
        until_shown(&mut ours, "\x1b[?25h\x1b[?1049l");
        let after = tcgetattr(&theirs).unwrap();
        assert_eq!(after.local_modes, before.local_modes);
    }
}

/// Whole where nobody looks, and as wide as the terminal where somebody does.
#[test]
fn tables_fit_a_terminal_and_are_in_colour_there_only() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp3());
    let key = format!("a-long-{}-name", "key".repeat(20));
    one.run(
        "CLIENT SETNAME tether:a-rather-long-host-name.example:4711:a-rather-long-program-name",
    );
    one.run(["LOCK.ACQUIRE", &key]);
    one.run("LOCK.ACQUIRE lost");
    other.run(["LOCK.ACQUIRE", &key, "WAIT", "0", "PUSH"]);
    other.run("DEL lost");
    for arguments in [
        &["who", &key][..],
        &["why", &key],
        &["ls"],
        &["log"],
        &["top", "--once"],
    ] {
        let whole = succeed(&server, arguments);
        assert!(!whole.contains('…') && !whole.contains('\x1b'), "{whole}");
        assert!(
            whole.lines().any(|line| line.chars().count() > 80),
            "{whole}"
        );
        let mut command = tether(&server, arguments);
        let said = text(command.env("COLUMNS", "80").output().unwrap().stdout);
        let (mut ours, theirs) = terminal(24, 80);
        let mut command = tether(&server, arguments);
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdout(theirs);
        let mut process = command.spawn().unwrap();
        drop(command);
        assert!(ended(&mut process).success());
        let mut shown = Vec::new();
        let mut buffer = [0; 4096];
        // When nobody has the other end any more, reading fails.
        while let Ok(count @ 1..) = ours.read(&mut buffer) {
            shown.extend(&buffer[..count]);
        }
        let shown = text(shown);
        assert!(
            shown.contains("\x1b[1m") && shown.contains('…'),
            "{shown:?}"
        );
        let plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "");
        for (line, without) in plain.lines().zip(said.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(!without.contains('\x1b'), "{without:?}");
        }
        assert!(said.contains('…'), "{said}");
    }
}

/// Programs read these names: README.md promises them.
#[test]
fn names_in_json_are_in_snake_case_and_those_of_the_page() {
    fn names(value: &serde_json::Value, into: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    into.insert(name.clone());
                    if name != "lost" && name != "newly_lost" {
                        names(value, into);
                    }
                }
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| names(value, into)),
            _ => {}
        }
    }
    // Of a cause that is no holder; of a key that goes; and the row to which that of `top` refers.
    const ELSEWHERE: [(&str, &str); 3] =
        [("why", "left_ms"), ("presence", "reason"), ("top", "who")];
    let page = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("SESSION.START GRACE 60000");
    one.run_all(&["LOCK.ACQUIRE k OWNER a", "LOCK.ACQUIRE gone", "SETTP w:1 x"]);
    other.run("LOCK.ACQUIRE k WAIT 0 PUSH");
    other.run("DEL gone");
    for (command, arguments) in [
        ("ls", &["k"][..]),
        ("who", &["k"]),
        ("why", &["k"]),
        ("log", &[]),
        ("sessions", &[]),
        ("top", &["--once"]),
        ("presence", &["--once", "w:"]),
        ("doctor", &[]),
    ] {
        let arguments = [&[command, "--json"], arguments].concat();
        let mut found = BTreeSet::new();
        for line in succeed(&server, &arguments).lines() {
            names(&json(line), &mut found);
        }
        let begin = format!("| `{command}` | ");
        let row = page.lines().find_map(|line| line.strip_prefix(&begin));
        let row = row.unwrap_or_else(|| panic!("no fields of {command}"));
        let documented: BTreeSet<_> = row
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        assert!(!found.is_empty());
        let missing: Vec<_> = found.difference(&documented).collect();
        assert!(missing.is_empty(), "{command}: {missing:?} of {found:?}");
        let is_not_here = |name: &&String| !ELSEWHERE.contains(&(command, name));
        let gone: Vec<_> = documented.difference(&found).filter(is_not_here).collect();
        assert!(gone.is_empty(), "{command}: {gone:?} not in {found:?}");
        assert!(found.iter().all(|name| !name.contains('-')), "{found:?}");
    }
}

/// Far more than are looked at in one step.
#[test]
fn ls_lists_every_key_once() {
    let server = Server::start();
    let mut holder = server.resp3();
    let names: BTreeSet<_> = (0..3_500).map(|number| format!("k{number}")).collect();
    for name in &names {
        holder.run(format!("LOCK.ACQUIRE {name}").as_str());
    }
    let lines = succeed(&server, &["ls", "--json"]);
    let listed: Vec<_> = lines
        .lines()
        .map(|line| json(line)["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(listed.len(), names.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
}

#[test]
fn who_names_holders_and_waiters() {
    let server = Server::start();
    let (code, said) = run(&server, &["who", "report"]);
    assert_eq!(
        (code, said.as_str()),
        (1, "report: nobody holds it or waits for it\n")
    );
    assert_eq!(
        run(&server, &["who", "report", "--json"]),
        (1, "null\n".to_owned())
    );
    let mut one = server.resp3();
    let mut other = server.resp3();
    one.run("CLIENT SETNAME nightly");
    let token = one
        .run("LOCK.ACQUIRE report PERMITS 2 OF 3 OWNER job:7 LEASE 3600000")
        .number();
    other.run("LOCK.ACQUIRE report PERMITS 2 OF 3 OWNER job:8 WAIT 0 PUSH");
    let said = succeed(&server, &["who", "report"]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "report: a semaphore of 3, 1 holder, 1 waiter");
    let rows = cells(&said);
    let (first, second) = (one.id().to_string(), other.id().to_string());
    assert_eq!(rows[2][0], first);
    assert_eq!(
        rows[2][2..9],
        [
            "nightly",
            "-",
            "-",
            "default",
            "job:7",
            &token.to_string(),
            "2"
        ]
    );
    assert_eq!(rows[4][0], second);
    assert!(
        rows[4].contains(&"job:8") && rows[4].contains(&"permits"),
        "{said}"
    );
    let all = json(&succeed(&server, &["who", "report", "--json"]));
    assert_eq!(all["holders"][0]["token"], token);
    assert_eq!(all["waiters"][0]["label"], "job:8");
}

#[test]
fn host_and_process_of_a_client_have_their_own_columns() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("CLIENT SETNAME tether:web1:42:backup");
    other.run("CLIENT SETNAME tether:web2:43:report");
    one.run("LOCK.ACQUIRE k");
    other.run("LOCK.ACQUIRE k WAIT 0 PUSH");
    let said = succeed(&server, &["who", "k"]);
    let rows = cells(&said);
    assert_eq!(rows[1][2..5], ["NAME", "HOST", "PID"]);
    assert_eq!(rows[2][2..5], ["backup", "web1", "42"]);
    assert_eq!(rows[4][2..5], ["report", "web2", "43"]);
    let named = |said: &str| {
        let rows = cells(said);
        let columns = ["backup", "web1", "42"];
        let is_it = |row: &&Vec<&str>| row.windows(3).any(|cells| cells == columns);
        rows.iter().filter(is_it).count()
    };
    for arguments in [&["why", "k"][..], &["top", "--once"]] {
        let said = succeed(&server, arguments);
        assert_eq!(named(&said), 1, "{said}");
    }
    server.resp3().run("DEL k");
    let said = succeed(&server, &["log"]);
    assert_eq!(named(&said), 1, "{said}");
    // For scripts it is one word, as the server has it.
    let entry = json(&succeed(&server, &["log", "--json"]));
    assert_eq!(entry["name"], "tether:web1:42:backup");
}

/// A name is any bytes, and may be meant to steer the terminal of whoever looks.
#[test]
fn names_are_shown_escaped() {
    let server = Server::start();
    let mut holder = server.resp3();
    let key = b"\x1b[2Jno";
    holder.run([b"LOCK.ACQUIRE".as_slice(), key]);
    for action in ["ls", "who"] {
        let mut command = tether(&server, &[action]);
        if action == "who" {
            command.arg("\x1b[2Jno");
        }
        let said = text(command.output().unwrap().stdout);
        assert!(
            said.contains("\\u{1b}[2Jno") && !said.contains('\x1b'),
            "{said}"
        );
    }
}

#[test]
fn watch_tells_each_change_and_ends_with_the_connection() {
    let mut server = Server::start();
    let mut client = server.resp3();
    client.run("SETTP b x");
    let mut watch = Running::start(tether(&server, &["watch", "a", "b"]));
    assert_eq!([watch.line(), watch.line()], ["NOEXIST a", "EXIST b"]);
    client.run("SET a x");
    assert_eq!(watch.line(), "ADD a");
    client.run("DELTP b");
    assert_eq!(watch.line(), "DEL b");
    let mut as_json = Running::start(tether(&server, &["watch", "--json", "a"]));
    assert_eq!(
        json(&as_json.line()),
        serde_json::json!({"key": "a", "event": "EXIST"})
    );
    server.kill();
    assert_eq!(ended(&mut watch.process).code(), Some(69));
}

#[test]
fn watch_runs_a_command_for_each_line() {
    let server = Server::start();
    let mut client = server.resp3();
    let script = "echo \"$TETHER_EVENT of $TETHER_KEY\"; exit 1";
    let mut watch = Running::start(tether(
        &server,
        &["watch", "a", "--exec", "sh", "-c", script],
    ));
    assert_eq!([watch.line(), watch.line()], ["NOEXIST a", "NOEXIST of a"]);
    client.run("SET a x");
    assert_eq!([watch.line(), watch.line()], ["ADD a", "ADD of a"]);
}

/// With the signal that ends `tether watch`, and by force if that does not end it.
#[test]
fn a_watch_that_is_ended_ends_its_command() {
    for (script, signal) in [
        ("echo $$; exec sleep 1000", 15),
        ("echo $$; sh -c 'exec sleep 1000'; exit 1", 1),
        ("trap '' TERM; echo $$; while :; do sleep 1; done", 15),
    ] {
        let server = Server::start();
        let arguments = ["watch", "a", "--exec", "sh", "-c", script];
        let mut watch = Running::start(tether(&server, &arguments));
        assert_eq!(watch.line(), "NOEXIST a");
        let command = watch.line();
        let process = rustix::process::Pid::from_child(&watch.process);
        let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
        rustix::process::kill_process(process, signal).unwrap();
        let status = ended(&mut watch.process);
        assert_eq!(status.signal(), Some(signal.as_raw()));
        let path = format!("/proc/{command}");
        assert!(!std::path::Path::new(&path).exists(), "{script}");
        // No process has the other end of the pipe any more.
        assert!(watch.lines.next().is_none());
    }
}

#[test]
fn kick_takes_one_key_from_its_holder() {
    let server = Server::start();
    let mut one = server.resp3();
    let mut next = server.resp3();
    let token = one.run("LOCK.ACQUIRE report NOTIFY").number();
    one.run("SETTP other x");
    next.run("LOCK.ACQUIRE report WAIT 0 PUSH");
    let wrong = (token + 1).to_string();
    let said = (1, format!("report: nobody holds it with token {wrong}\n"));
    assert_eq!(run(&server, &["kick", "report", "--token", &wrong]), said);
    let said = succeed(&server, &["kick", "report", "--token", &token.to_string()]);
    assert!(
        said.starts_with(&format!("report: client {} at 127.0.0.1:", one.id())),
        "{said}"
    );
    assert_eq!(one.next_push(), "lock report LOST deleted");
    assert!(next.next_push().starts_with("lock report "));
    assert_eq!(one.run("EXISTS other"), int(1));
}

#[test]
fn kick_leaves_what_is_no_lock() {
    let server = Server::start();
    let mut client = server.resp3();
    client.run("SET report x");
    let said = (1, "report: nobody holds it\n".to_owned());
    assert_eq!(run(&server, &["kick", "report"]), said);
    assert_eq!(client.run("EXISTS report"), int(1));
}

#[test]
fn kick_can_close_the_connection() {
    let server = Server::start();
    let mut one = server.resp3();
    one.run("LOCK.ACQUIRE report");
    one.run("SETTP other x");
    let client = one.id();
    let said = succeed(&server, &["kick", "report", "--connection"]);
    let done = format!("report: closed the connection of client {client} at ");
    assert!(said.starts_with(&done), "{said}");
    one.expect_closed();
    eventually_equal("holds", 0, || server.gauge("tether", "tether_holds"));
    eventually_equal("temporary keys", 0, || {
        server.gauge("tether", "tether_temporary_keys")
    });
}

/// The server shows a thousand holders at once, and a hundred if nobody asks for more.
#[test]
fn kick_finds_each_of_very_many_holders() {
    const HOLDERS: i64 = 1200;
    let server = Server::start();
    let mut readers: Vec<_> = (0..4).map(|_| server.resp3()).collect();
    let token = |server: &Server, count: usize| {
        let (_, said) = run(server, &["who", "report", "--json", "--count", "1000"]);
        let key: serde_json::Value = serde_json::from_str(&said).unwrap();
        key["holders"][count - 1]["token"].to_string()
    };
    let mut take = |all: bool| {
        for (reader, many) in readers.iter_mut().zip([1, 100, 400, 699]) {
            for number in 0..if all { many } else { many.min(100) } {
                reader.run(format!("LOCK.ACQUIRE report SHARED OWNER {number}").as_str());
            }
        }
        server.gauge("tether", "tether_holds")
    };
    // The one with this token is not among the first hundred.
    assert_eq!(take(false), 301);
    let said = succeed(
        &server,
        &["kick", "report", "--token", &token(&server, 301)],
    );
    assert_eq!(said.lines().count(), 301, "{said}");
    // Of more than a thousand the others are counted.
    assert_eq!(take(true), HOLDERS);
    let output = tether(&server, &["kick", "report", "--token", "1"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let said = text(output.stderr);
    assert!(
        said.contains("the key has 1200 holders, and the server shows the oldest 1000"),
        "{said}"
    );
    let said = succeed(&server, &["kick", "report"]);
    assert!(said.ends_with("report: 200 more\n"), "{said}");
    assert_eq!(said.lines().count(), 1001, "{said}");
    // All connections are closed, also that of those who are not shown at first.
    assert_eq!(take(true), HOLDERS);
    let said = succeed(&server, &["kick", "report", "--connection"]);
    assert!(said.contains("closed the connection of"), "{said}");
    for reader in &mut readers {
        reader.expect_closed();
    }
}

/// Whose client would go on with it on a new connection.
#[test]
fn kick_ends_the_session_of_a_holder_that_has_one() {
    let server = Server::start();
    let mut one = server.resp3();
    one.run("SESSION.START GRACE 3600000");
    one.run("LOCK.ACQUIRE report NOTIFY");
    one.run("SETTP other x");
    let said = succeed(&server, &["kick", "report", "--connection"]);
    let (begin, client) = said.split_once(" (2 holds) of client ").expect(&said);
    assert!(begin.starts_with("report: ended session "), "{said}");
    assert!(client.starts_with(&format!("{} at ", one.id())), "{said}");
    assert_eq!(one.next_push(), "lock report LOST ended");
    assert_eq!(server.gauge("tether", "tether_holds"), 0);
    // Without a connection.
    let mut other = server.resp3();
    other.run("SESSION.START GRACE 3600000");
    other.run("LOCK.ACQUIRE report");
    other.run("SESSION.DETACH");
    let said = succeed(&server, &["kick", "report", "--connection"]);
    assert!(said.contains(" (1 hold) of a detached session"), "{said}");
    assert_eq!(server.gauge("tether", "tether_holds"), 0);
    // Of several without one nobody knows which it is.
    for key in ["report", "disk"] {
        other.run("SESSION.START GRACE 3600000");
        other.run(["LOCK.ACQUIRE", key]);
        other.run("SESSION.DETACH");
    }
    let output = tether(&server, &["kick", "report", "--connection"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let said = text(output.stderr);
    let begin = format!("tether: 127.0.0.1:{}: ", server.port());
    assert!(said.starts_with(&begin), "{said}");
    assert!(said.contains("one of 2 detached sessions"), "{said}");
    assert_eq!(server.gauge("tether", "tether_holds"), 2);
}

#[test]
fn doctor_finds_what_is_wrong_with_server_and_replica() {
    let server = Server::with(&["timeout 300", "appendonly yes", "appendfsync always"]);
    let replica = Server::replica_of(
        &server,
        &["maxmemory-policy allkeys-lru", "maxmemory 100mb"],
    );
    let state = || {
        let info = server.info("replication");
        if info.contains("state=online") {
            Ok(())
        } else {
            Err(info)
        }
    };
    eventually("the replica", state);
    let (code, said) = run(&server, &["doctor"]);
    assert_eq!(code, 0, "{said}");
    let about = |server: &Server| format!("127.0.0.1:{}: ", server.port());
    let line = |level, server: &Server, what: &str| {
        let begin = format!("{level:6}  {}", about(server));
        assert!(
            said.lines()
                .any(|line| line.starts_with(&begin) && line.contains(what)),
            "{what}: {said}"
        );
    };
    line("ok", &server, "the module is loaded");
    line("warn", &server, "timeout");
    line("ok", &replica, "the module is loaded");
    line("warn", &replica, "allkeys-lru");
    for finding in succeed(&server, &["doctor", "--json"]).lines().map(json) {
        assert!(
            finding["server"].is_string() && finding["level"].is_string(),
            "{finding}"
        );
    }
}

/// Each in its place of the chain; and each finding that is not good has a command.
#[test]
fn doctor_follows_the_chain_of_replicas() {
    let server = Server::start();
    let replica = Server::replica_of(&server, &[]);
    let last = Server::replica_of(&replica, &["timeout 300"]);
    for master in [&server, &replica] {
        eventually("a link", || {
            let info = master.info("replication");
            info.contains("state=online").then_some(()).ok_or(info)
        });
    }
    let said = succeed(&server, &["doctor", "--json"]);
    let findings: Vec<_> = said.lines().map(json).collect();
    for one in [&server, &replica, &last] {
        let name = format!("127.0.0.1:{}", one.port());
        let of_it = findings
            .iter()
            .filter(|finding| finding["server"] == name.as_str());
        let loaded = "the module is loaded";
        let mut what = of_it.map(|finding| finding["finding"].as_str().unwrap());
        assert!(what.any(|what| what.starts_with(loaded)), "{name}: {said}");
    }
    let command = format!(
        "redis-cli -h 127.0.0.1 -p {} CONFIG SET timeout 0",
        last.port()
    );
    assert!(
        findings
            .iter()
            .any(|finding| finding["command"] == command.as_str()),
        "{said}"
    );
    for finding in &findings {
        let is_good = finding["level"] == "ok";
        assert_eq!(finding["command"].is_null(), is_good, "{finding}");
    }
}

#[test]
fn doctor_has_no_warning_for_the_projects_own_settings() {
    let project = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let project = project.canonicalize().unwrap();
    let file = std::fs::read_to_string(project.join("redis.conf")).unwrap();
    let names = [
        "timeout ",
        "client-output-buffer-limit ",
        "maxmemory",
        "append",
        "tether.peer-timeout ",
        "tether.quarantine ",
    ];
    let is_ours = |line: &&str| names.iter().any(|name| line.starts_with(name));
    let of_project: Vec<_> = file.lines().filter(is_ours).collect();
    assert!(of_project.len() >= 8, "{of_project:?}");
    // What the package's file has people write into the server's own, which says otherwise until then. Tests load the module.
    let file = project.join("packaging/tether.conf");
    let text = std::fs::read_to_string(&file).unwrap();
    let include = format!("include {}", file.display());
    let mut of_package = vec!["client-output-buffer-limit normal 0 0 0"];
    for line in text.lines().filter_map(|line| line.strip_prefix("#   ")) {
        match line.split_once(' ').expect("a setting") {
            ("loadmodule", _) => {}
            ("include", _) => of_package.push(&include),
            _ => of_package.push(line),
        }
    }
    assert!(of_package.len() >= 3, "{of_package:?}");
    for lines in [of_project, of_package] {
        let server = Server::with(&lines);
        for is_rewritten in [false, true] {
            let (code, said) = run(&server, &["doctor"]);
            assert_eq!(code, 0, "{said}");
            assert!(said.lines().any(|line| line.starts_with("note ")), "{said}");
            let is_bad = |line: &str| line.starts_with("warn") || line.starts_with("wrong");
            assert!(!said.lines().any(is_bad), "{is_rewritten}: {said}");
            // Which Sentinel sends.
            server.resp2().run("CONFIG REWRITE");
        }
    }
}

/// What is written to the configuration file is not what the server does now.
#[test]
fn doctor_finds_settings_that_no_file_has() {
    let server = Server::start();
    let mut client = server.resp2();
    client.run("CONFIG SET tether.quarantine 7000");
    let said = succeed(&server, &["doctor"]);
    let note = "tether.quarantine is 7000, and 0 after a restart";
    assert!(
        said.contains(note) && said.contains("CONFIG REWRITE"),
        "{said}"
    );
    client.run("CONFIG REWRITE");
    let said = succeed(&server, &["doctor"]);
    assert!(!said.contains(note), "{said}");
}

/// As the package has it: the settings are in a file that the main file includes. What is advised leaves nothing to advise.
#[test]
fn doctor_has_a_setting_written_where_it_stands() {
    let mut server = Server::start();
    let included = server.folder().join("tether.conf");
    std::fs::write(&included, "# ours\ntether.quarantine 0\n").unwrap();
    server.restart(&[&format!("include {}", included.display())]);
    server.resp2().run("CONFIG SET tether.quarantine 7000");
    let finding = |said: &str| {
        let findings = said.lines().map(json);
        let mut of_it = findings.filter(|finding| {
            let what = finding["finding"].as_str().unwrap();
            what.contains("tether.quarantine is ")
        });
        of_it.next()
    };
    let found = finding(&succeed(&server, &["doctor", "--json"])).expect("a finding");
    let what = found["finding"].as_str().unwrap();
    assert!(what.contains("tether.conf line 2"), "{what}");
    let command = found["command"].as_str().unwrap();
    let done = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(done.success(), "{command}");
    assert_eq!(finding(&succeed(&server, &["doctor", "--json"])), None);
    // Which Sentinel sends.
    server.resp2().run("CONFIG REWRITE");
    assert_eq!(finding(&succeed(&server, &["doctor", "--json"])), None);
}

/// Somebody holds the key at each moment, and soon another one: whoever it is by then is ended.
#[test]
fn kick_ends_a_holder_also_while_the_key_changes_hands() {
    let server = Server::start();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let over = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut clients = [server.resp3(), server.resp3(), server.resp3()];
            while !is_over.load(over) {
                for client in &mut clients {
                    client.call("LOCK.RELEASE report");
                    client.call("LOCK.ACQUIRE report WAIT 0 PUSH");
                }
            }
        });
        let waiting = || match server.gauge("tether", "tether_waiters") {
            0 => Err("nobody waits".to_owned()),
            _ => Ok(()),
        };
        eventually("a queue", waiting);
        for _ in 0..20 {
            let (code, said) = run(&server, &["kick", "report"]);
            if code != 0 || !said.starts_with("report: client ") {
                is_over.store(true, over);
                panic!("{code}: {said}");
            }
        }
        is_over.store(true, over);
    });
}

/// What the server does with an `include` that has the line: it appends another.
#[test]
fn doctor_finds_a_library_that_is_loaded_twice() {
    let server = Server::start();
    let file = server.info("server");
    let file = file
        .lines()
        .find_map(|line| line.strip_prefix("config_file:"));
    let file = std::path::PathBuf::from(file.unwrap().trim_end());
    let library = tether_testing::harness::module();
    let line = format!("loadmodule \"{}\"\n", library.display());
    let folder = file.parent().unwrap();
    let included = folder.join("more.conf");
    std::fs::write(&included, &line).unwrap();
    let main = std::fs::read_to_string(&file).unwrap_or_default();
    let others = main.lines().filter(|line| !line.starts_with("loadmodule"));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    let write = |text: &str| std::fs::write(&file, format!("{others}{text}")).unwrap();
    write(&line);
    let (code, said) = run(&server, &["doctor"]);
    assert!(code == 0 && !said.contains("loadmodule"), "{said}");
    write("include more*.conf\n");
    let (code, said) = run(&server, &["doctor"]);
    assert!(code == 0 && said.contains("more.conf line 1"), "{said}");
    server.resp2().run("CONFIG REWRITE");
    let (code, said) = run(&server, &["doctor"]);
    assert!(
        code == 1 && said.contains("loads the library 2 times"),
        "{said}"
    );
}

#[test]
fn a_server_without_the_module_is_told_as_such() {
    let server = Server::with(&[WITHOUT_MODULE]);
    let (code, said) = run(&server, &["doctor"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("wrong   ") && said.contains("the module tether is not loaded"),
        "{said}"
    );
    for arguments in [
        &["ls"][..],
        &["who", "a"],
        &["watch", "a"],
        &["presence", "a"],
        &["kick", "a"],
        &["metrics"],
        &["top"],
    ] {
        let Output { status, stderr, .. } = tether(&server, arguments).output().unwrap();
        assert_eq!(status.code(), Some(78), "{arguments:?}");
        let said = text(stderr);
        let begin = format!(
            "tether: 127.0.0.1:{}: this server does not have the module tether; put `loadmodule ",
            server.port()
        );
        assert!(said.starts_with(&begin), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1);
    }
}

/// Each in one line with host and port, and what to do; a URL that is none is an invalid argument.
#[test]
fn no_server_is_another_exit_code() {
    let place = format!("127.0.0.1:{}", free_port());
    let url = format!("redis://{place}");
    for arguments in [
        &["ls"][..],
        &["who", "a"],
        &["watch", "a"],
        &["presence", "a"],
        &["kick", "a"],
        &["doctor"],
        &["metrics"],
        &["top"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        let output = command
            .args(arguments)
            .args(["--url", &url])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?}");
        let said = text(output.stderr);
        let begin = format!("tether: {place}: ");
        assert!(
            said.starts_with(&begin) && said.ends_with("--url or TETHER_URL\n"),
            "{arguments:?}: {said}"
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        let output = command
            .args(arguments)
            .args(["--url", "http://me:secret@host"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        let said = text(output.stderr);
        assert!(
            said.starts_with("tether: --url: a URL is ") && !said.contains("secret"),
            "{said}"
        );
    }
}

#[test]
fn a_wrong_password_is_a_refusal() {
    let server = Server::start();
    server.resp2().run("CONFIG SET requirepass right");
    for user in ["", ":wrong@"] {
        let place = format!("127.0.0.1:{}", server.port());
        for arguments in [
            &["ls"][..],
            &["watch", "a"],
            &["doctor"],
            &["run", "a", "--", "true"],
        ] {
            let mut command = tether(&server, arguments);
            command.env("TETHER_URL", format!("redis://{user}{place}"));
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(78), "{arguments:?}: {output:?}");
            let said = text(output.stderr);
            assert!(
                said.contains(&place) && said.contains("give user and password in the URL"),
                "{arguments:?}: {said}"
            );
        }
    }
}

/// Wrapped at the terminal's width, with an example first.
#[test]
fn the_help_of_each_command_begins_with_an_example_and_fits() {
    let help = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        let output = command.args(arguments).env("COLUMNS", "60").output();
        text(output.unwrap().stdout)
    };
    let all = help(&["--help"]);
    let commands = all.split("Commands:\n").nth(1).unwrap();
    let names = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap());
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    assert!(names.len() >= 16, "{all}");
    for name in names {
        let said = help(&[name, "--help"]);
        let example = format!("Example: tether {name}");
        assert!(said.starts_with(&example), "{said}");
        for line in said.lines() {
            // A URL is not broken.
            let is_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= 60 || is_word, "{name}: {line}");
        }
    }
}

fn get(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_also_while_the_server_is_down() {
    let mut server = Server::start();
    let mut metrics = Running::start(tether(&server, &["metrics", "--listen", "127.0.0.1:0"]));
    let url = metrics.line();
    let address = url
        .strip_prefix("http://")
        .unwrap()
        .strip_suffix("/metrics")
        .unwrap()
        .to_owned();
    // Somebody who says nothing keeps nobody from being answered.
    let _silent = TcpStream::connect(&address).unwrap();
    let scrape = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    let answer = get(&address, scrape);
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\ntether_holds 0\n"),
        "{answer}"
    );
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4"),
        "{answer}"
    );
    assert!(get(&address, "GET / HTTP/1.1\r\nHost: here\r\n\r\n").starts_with("HTTP/1.1 404 "));
    server.kill();
    let answer = get(&address, scrape);
    assert!(
        answer.contains("\ntether_up 0\n") && !answer.contains("tether_holds"),
        "{answer}"
    );
}

/// As many as the listener's queue holds besides those that it attends to.
#[test]
fn those_who_ask_nothing_keep_nobody_from_the_metrics() {
    let server = Server::start();
    let mut metrics = Running::start(tether(&server, &["metrics", "--listen", "127.0.0.1:0"]));
    let url = metrics.line();
    let address = url.strip_prefix("http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let idle: Vec<_> = (0..150)
        .map(|at| {
            let mut stream = TcpStream::connect(address).unwrap();
            if at % 2 == 0 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
            }
            stream
        })
        .collect();
    for _ in 0..3 {
        let answer = get(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(answer.contains("\ntether_up 1\n"), "{answer}");
    }
    for mut stream in idle {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut told = Vec::new();
        // Closed, or reset where it had written: not a time-out.
        if let Err(error) = stream.read_to_end(&mut told) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
}

/// Connections of its master hold locks that it cannot name.
#[test]
fn nothing_on_a_replica_says_that_nobody_holds_anything() {
    let server = Server::start();
    let replica = Server::replica_of(&server, &[]);
    let (mut ann, mut bob) = (server.resp3(), server.resp3());
    ann.run("LOCK.ACQUIRE report");
    replica.catch_up(&server);
    for arguments in [
        &["ls"][..],
        &["ls", "--json"],
        &["who", "report"],
        &["who", "report", "--json"],
        &["kick", "report"],
        &["kick", "report", "--connection"],
        &["log"],
    ] {
        let output = tether(&replica, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{arguments:?}: {output:?}");
        let said = text(output.stderr);
        assert!(said.contains("this server is a replica"), "{said}");
        let master = format!("ask its master, 127.0.0.1:{}", server.port());
        assert!(said.contains(&master), "{said}");
        let written = text(output.stdout);
        assert!(
            !written.contains("report") && !written.contains("null"),
            "{written}"
        );
    }
    let name = |server: &Server| format!("127.0.0.1:{}", server.port());
    let (code, why) = run(&replica, &["why", "report"]);
    assert!(
        code == 0 && why.starts_with(&format!("{}: this server is a replica", name(&replica))),
        "{why}"
    );
    // What sessions hold it knows.
    bob.run("SESSION.START");
    bob.run("LOCK.ACQUIRE known");
    replica.catch_up(&server);
    for arguments in [&["ls"][..], &["who", "known"]] {
        let output = tether(&replica, arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(text(output.stdout).contains("known"));
        assert!(text(output.stderr).contains("this server is a replica"));
    }
    let (code, who) = run(&server, &["who", "report"]);
    assert!(code == 0 && who.starts_with("report: "), "{who}");
}
