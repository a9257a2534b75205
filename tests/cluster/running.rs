//! `make run-cluster`, as a reader would start it, but for its ports.

use crate::harness::*;
use crate::nodes::AGREEMENT;
use std::process::{Child, Command, Stdio};
use std::{env, fs};

/// The script, and the folder in which its servers work.
struct Running {
    child: Child,
    temporary: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its servers are in its group.
        let group = -i32::try_from(self.child.id()).expect("a process id");
        // SAFETY: a child that nobody has waited for.
        unsafe { libc::kill(group, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

fn start(port: u16) -> Running {
    use std::os::unix::process::CommandExt;
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/scripts/run-cluster.sh"
    ));
    if let Some(server) = env::var_os("TETHER_SERVER") {
        command.env("SERVER", server);
    }
    command
        .env("TETHER_MODULE", module())
        .env("PORT", port.to_string())
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    // Ctrl-C counts also where these tests run in the background, which ignores it.
    // SAFETY: a call that is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let child = command.spawn().expect("the script");
    Running { child, temporary }
}

#[test]
fn a_cluster_to_try_comes_up_answers_and_leaves_nothing_behind() {
    let _turn = crate::nodes::one_cluster_at_a_time();
    let port = free_ports(6);
    let mut running = start(port);
    let mut client = eventually_within(AGREEMENT, "the cluster", || {
        let client = Client::connect(("127.0.0.1", port));
        let mut client = client.map_err(|error| error.to_string())?;
        let info = client.run("CLUSTER INFO").text();
        match info.contains("cluster_state:ok") {
            true => Ok(client),
            false => Err(info),
        }
    });
    // Slot 0 is the first server's.
    let key = crate::nodes::name_in(0);
    assert_eq!(client.call(["SETTP", &key, "v"]), int(1));
    assert!(client.run(["PTTL", &key]).number() > 0);
    let process = i32::try_from(running.child.id()).expect("a process id");
    // SAFETY: a child that nobody has waited for.
    unsafe { libc::kill(process, libc::SIGINT) };
    eventually_within(AGREEMENT, "the end of the script", || {
        match running.child.try_wait().expect("its state") {
            Some(_) => Ok(()),
            None => Err("it runs".into()),
        }
    });
    client.expect_closed();
    let left = fs::read_dir(running.temporary.path()).expect("the folder");
    assert_eq!(left.count(), 0, "its folder is left");
}
