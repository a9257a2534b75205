//! One holder and one that wants the lock next, in two network namespaces, with a server of their own.

use crate::fault::Fault;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tether_testing::harness::namespace::{Cable, SERVER_ADDRESS, Side};
use tether_testing::harness::{Client, Frame, Server, null};
use tether_testing::random::Random;

#[derive(Clone, Copy)]
pub struct Work(pub &'static str, pub &'static str);

/// Who holds the lock and ends the work when it is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Tether,
    Unfenced,
    /// A program of the Python client, which is its own work.
    Python,
}

/// The settings of a run. `fence` is what follows from grace and kill-after.
#[derive(Clone, Copy)]
pub struct Times {
    pub grace: Duration,
    pub kill_after: Duration,
    pub fence: Duration,
    pub peer_timeout: Duration,
}

/// What one fault has led to.
pub struct Outcome {
    /// The fault itself led to the next grant; else the holder survived it, and was killed afterwards.
    pub led_to_grant: bool,
    /// How long before the next grant the last process of the work was dead; None if one was alive then.
    pub margin: Option<Duration>,
}

pub struct Lane {
    pub times: Times,
    cable: Cable,
    server: Server,
    _folder: TempDir,
    runner: Child,
}

const PATIENCE: Duration = Duration::from_secs(30);

impl Lane {
    /// A lane whose holder is at work, once it is, and what tells when the work's last process has died.
    fn begin(fault: Fault, work: Work, times: Times, holder: Holder) -> (Lane, Receiver<Instant>) {
        let cable = Cable::lay();
        let peer_timeout = format!("tether.peer-timeout {}", times.peer_timeout.as_millis());
        let quarantine = times.fence + times.kill_after;
        let quarantine = format!("tether.quarantine {}", quarantine.as_millis());
        let mut lines = vec!["bind 0.0.0.0", "protected-mode no", &peer_timeout];
        lines.extend(fault.lines());
        if fault == Fault::ServerKilledWithQuarantine {
            lines.push(&quarantine);
        }
        let server = cable.server_side.enter(|| Server::with(&lines));
        let folder = TempDir::with_prefix("tether-campaign-").unwrap();
        let pipe = folder.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let url = format!("redis://{SERVER_ADDRESS}:{}", server.port());
        let mut runner = match holder {
            Holder::Python => python(&url, times, &pipe),
            _ => tether_run(&url, times, &pipe, work),
        };
        if holder == Holder::Unfenced {
            runner.env("TETHER_TEST_UNFENCED", "yes");
        }
        runner
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        runner.current_dir(folder.path()).process_group(0);
        let runner = cable.client_side.enter(|| runner.spawn().unwrap());
        let lane = Lane {
            times,
            cable,
            server,
            _folder: folder,
            runner,
        };
        let dead = lane.watch_the_work(pipe);
        (lane, dead)
    }

    /// One fault on a lane of its own, from the first grant to the next.
    pub fn play(
        fault: Fault,
        work: Work,
        times: Times,
        holder: Holder,
        random: &mut Random,
    ) -> Outcome {
        let (mut lane, dead) = Lane::begin(fault, work, times, holder);
        let granted = lane.stand_in_line();
        fault.strike(&mut lane, random);
        let limit = times.peer_timeout + times.grace + PATIENCE;
        let early = if fault.may_be_survived() {
            lane.survives(&granted)
        } else {
            None
        };
        let (led_to_grant, moment) = match early {
            Some(Verdict::Granted(moment)) => (true, moment),
            Some(Verdict::Survived) => {
                lane.signal_runner(Signal::KILL);
                (
                    false,
                    granted
                        .recv_timeout(limit)
                        .unwrap_or_else(|_| panic!("no grant after {fault:?} and a kill")),
                )
            }
            None => (
                true,
                granted
                    .recv_timeout(limit)
                    .unwrap_or_else(|_| panic!("no next grant after {fault:?}")),
            ),
        };
        // In the order of the clock: who is not dead by now was alive at the grant.
        let margin = match dead.recv_timeout(Duration::from_millis(200)) {
            Ok(died) => moment.checked_duration_since(died),
            Err(_) => None,
        };
        Outcome {
            led_to_grant,
            margin,
        }
    }

    /// Tells when the last process of the work has died: then nobody has the pipe open any more. Waits for its beginning.
    fn watch_the_work(&self, pipe: PathBuf) -> Receiver<Instant> {
        let (say, dead) = mpsc::channel();
        let (opened, is_open) = mpsc::channel();
        thread::spawn(move || {
            let mut pipe = File::open(pipe).unwrap();
            let _ = opened.send(());
            let _ = pipe.read_to_end(&mut Vec::new());
            let _ = say.send(Instant::now());
        });
        is_open.recv_timeout(PATIENCE).expect("the work begins");
        dead
    }

    /// Wants the lock on the server's side of the cable, from now on and for as long as it takes, through restarts.
    fn stand_in_line(&self) -> Receiver<Instant> {
        let (say, granted) = mpsc::channel();
        let port = self.server.port();
        let (ready, is_ready) = mpsc::channel();
        let wait = move || {
            let give_up = Instant::now() + Duration::from_secs(120);
            while Instant::now() < give_up {
                if let Some(moment) = wait_for_grant(port, &ready) {
                    let _ = say.send(moment);
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
        };
        // A thread belongs to the namespace in which it was made.
        self.cable.server_side.enter(|| drop(thread::spawn(wait)));
        is_ready.recv_timeout(PATIENCE).expect("the next one asks");
        granted
    }

    /// After a fault that may be survived: the next grant came, or the holder is attached and well.
    fn survives(&self, granted: &Receiver<Instant>) -> Option<Verdict> {
        let limit = Instant::now() + self.times.peer_timeout + self.times.grace * 2;
        while Instant::now() < limit {
            match granted.recv_timeout(self.times.fence / 2) {
                Ok(moment) => return Some(Verdict::Granted(moment)),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let attached = self.cable.server_side.enter(|| {
                let mut client = self.server.resp3();
                let holder = client.run(["LOCK.INFO", "report"]);
                holder != null()
                    && format!("{holder:?}").contains("attached")
                    && !format!("{holder:?}").contains("detached")
            });
            // It may be attached only because the server has not noticed yet; then it is granted in the next rounds.
            if attached && self.is_vouched_for() {
                return Some(Verdict::Survived);
            }
        }
        None
    }

    /// Whether a ping of the holder's was answered within the last moments: its connection is active.
    fn is_vouched_for(&self) -> bool {
        self.cable.server_side.enter(|| {
            let list = self.server.resp3().run(["CLIENT", "LIST"]).text();
            let theirs = tether_testing::harness::namespace::CLIENT_ADDRESS;
            let mut lines = list.lines().filter(|line| line.contains(theirs));
            // In whole seconds of the clock, at whose turn a ping of a moment ago is a second old.
            lines.any(|line| line.contains(" idle=0 ") || line.contains(" idle=1 "))
        })
    }

    pub fn pause(&self, time: Duration) {
        thread::sleep(time);
    }

    pub fn silence(&self, sides: &[Side]) {
        for side in sides {
            self.cable.silence(*side);
        }
    }

    pub fn delay(&self, bits: usize) {
        for side in [Side::Server, Side::Client] {
            self.cable.slow_down(side, bits);
        }
    }

    pub fn mend(&self) {
        for side in [Side::Server, Side::Client] {
            self.cable.clear(side);
        }
    }

    pub fn reset(&self) {
        self.cable.reset();
    }

    /// The holder's connections, as the server sees them.
    pub fn kill_clients(&self) {
        self.cable.server_side.enter(|| {
            let mut client = self.server.resp3();
            let list = client.run(["CLIENT", "LIST"]).text();
            let theirs = tether_testing::harness::namespace::CLIENT_ADDRESS;
            let lines = list
                .lines()
                .filter(|line| line.contains(&format!(" addr={theirs}:")));
            let ids = lines.filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
            for id in ids {
                client.call(["CLIENT", "KILL", "ID", id]);
            }
        });
    }

    pub fn signal_server(&self, signal: Signal) {
        let pid = Pid::from_raw(self.server.pid()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub fn crash_server(&mut self, down: Duration) {
        self.server.kill();
        thread::sleep(down);
        let server = &mut self.server;
        self.cable.server_side.enter(|| server.restart_as_it_was());
    }

    pub fn signal_runner(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.runner), signal).unwrap();
    }

    pub fn kill_group(&self) {
        kill_process_group(Pid::from_child(&self.runner), Signal::KILL).unwrap();
    }
}

fn tether_run(url: &str, times: Times, pipe: &Path, work: Work) -> Command {
    let mut runner = Command::new(env!("CARGO_BIN_EXE_tether"));
    let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
    runner.args(["run", "--grace", &milliseconds(times.grace)]);
    runner.args(["--kill-after", &milliseconds(times.kill_after)]);
    let script = format!("exec 9>{}; {}", pipe.display(), work.1);
    runner.args(["report", "--", "sh", "-c", &script]);
    runner.env("TETHER_URL", url);
    runner
}

/// The Python that has the package.
pub fn python_path() -> Option<OsString> {
    env::var_os("TETHER_PYTHON")
}

fn python(url: &str, times: Times, pipe: &Path) -> Command {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests");
    let mut runner = Command::new(python_path().unwrap());
    runner.arg(tests.join("campaign_holder.py")).arg(url);
    for time in [times.grace, times.kill_after] {
        runner.arg(time.as_secs_f64().to_string());
    }
    runner.arg(pipe);
    runner
}

enum Verdict {
    Granted(Instant),
    Survived,
}

/// None if the connection ended, or there was none, before the grant.
fn wait_for_grant(port: u16, ready: &mpsc::Sender<()>) -> Option<Instant> {
    let mut client = Client::connect(("127.0.0.1", port)).ok()?;
    let ask = b"*4\r\n$12\r\nLOCK.ACQUIRE\r\n$6\r\nreport\r\n$4\r\nWAIT\r\n$1\r\n0\r\n";
    if !client.try_send_bytes(ask) {
        return None;
    }
    let _ = ready.send(());
    match client.try_read_reply()? {
        Frame::Integer(_) => Some(Instant::now()),
        _ => None,
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // All of them: without the fence the work lives on.
        for pid in self.cable.processes(Side::Client) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.runner.kill();
        let _ = self.runner.wait();
    }
}
