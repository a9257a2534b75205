//! A child that the process forks while it holds locks.

use crate::*;
use futures_util::FutureExt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Does this in a forked child, which then stays until it is killed; what it has to complain about.
fn in_child(work: impl FnOnce() -> Vec<String>) -> (libc::pid_t, String) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    // SAFETY: the child only does the work and waits. It takes no lock that another thread had: this is what is tested.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let said = said.unwrap_or_else(|_| vec!["it panicked".to_owned()]);
        let _ = there.write_all(said.join("; ").as_bytes());
        drop((here, there));
        loop {
            // SAFETY: it takes nothing.
            unsafe { libc::pause() };
        }
    }
    drop(there);
    let mut said = String::new();
    here.read_to_string(&mut said).unwrap();
    (child, said)
}

fn end(child: libc::pid_t) {
    Server::signal(child, libc::SIGKILL);
    // SAFETY: null is for who does not ask how it ended.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

async fn try_at(server: &Server, url: &str, grace: Option<Duration>) {
    let mut builder = Locks::builder(url);
    if let Some(grace) = grace {
        builder = builder.grace(grace);
    }
    let locks = soon(builder.connect()).await.unwrap();
    let held = soon(locks.lock("held").acquire()).await.unwrap();
    let other = soon(locks.lock("other").acquire()).await.unwrap();
    let mut other = Some(other);
    let (child, said) = in_child(|| {
        let mut said = Vec::new();
        if held.check().is_ok() {
            said.push("the child believes that it holds a lock".to_owned());
        }
        let refused = locks.lock("new").no_wait().acquire().now_or_never();
        if !matches!(&refused, Some(Err(error)) if error.to_string().contains("parent")) {
            said.push(format!("it asks: {:?}", refused.map(|it| it.err())));
        }
        let released = other.take().map(|other| other.release().now_or_never());
        if !matches!(released, Some(Some(Err(_)))) {
            said.push(format!("it releases: {released:?}"));
        }
        if !matches!(locks.watch(["k"]).next().now_or_never(), Some(Err(_))) {
            said.push("it watches".to_owned());
        }
        drop(locks.clone());
        said
    });
    assert_eq!(said, "");
    // Nothing of that reached the server, and the parent goes on.
    assert_eq!(holds(server), 2);
    let next = soon(locks.lock("next").acquire()).await.unwrap();
    assert_eq!(soon(next.release()).await, Ok(()));
    assert_eq!(held.check(), Ok(()));
    assert_eq!(soon(other.take().unwrap().release()).await, Ok(()));
    // The child's copy of the socket keeps nothing.
    soon(locks.close()).await;
    eventually_equal("holds while the child lives", 0, || holds(server));
    let clients = || {
        server
            .resp2()
            .run("CLIENT LIST TYPE normal")
            .text()
            .lines()
            .count()
    };
    eventually_equal("connections but the one that asks", 1, clients);
    end(child);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forked_child_neither_keeps_nor_uses_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Server::with(&[&format!("unixsocket {}", path.display())]);
    try_at(&server, &url(&server), Some(Duration::from_secs(20))).await;
    try_at(&server, &url(&server), None).await;
    let unix = format!("unix://{}", path.display());
    try_at(&server, &unix, Some(Duration::from_secs(20))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_are_closed_on_exec() {
    let server = Server::start();
    let locks = connect(&server).await;
    let _held = soon(locks.lock("held").acquire()).await.unwrap();
    // SAFETY: fcntl takes numbers; those that are no files' are an error.
    let flags = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) };
    let sockets = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| {
            let fd = fd.unwrap();
            let is_socket = std::fs::read_link(fd.path())
                .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
            let number: libc::c_int = fd.file_name().to_str()?.parse().ok()?;
            (is_socket && number > 2).then_some(number)
        });
    let open: Vec<_> = sockets
        .filter(|fd| flags(*fd) & libc::FD_CLOEXEC == 0)
        .collect();
    assert_eq!(open, [0; 0]);
}
