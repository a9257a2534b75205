//! What the feature `testing` offers to users' tests, with the program `tether` of this build.

use super::*;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use tether_client::testing::DevServer;

fn program() -> OsString {
    let here = std::env::current_exe().expect("this program");
    let built = here.ancestors().nth(2).expect("its folder").join("tether");
    let named = std::env::var_os("TETHER_PROGRAM");
    let program = named.unwrap_or_else(|| built.into_os_string());
    let hint = "build it: cargo build -p tether-cli";
    assert!(
        std::path::Path::new(&program).exists(),
        "{program:?}: {hint}"
    );
    program
}

fn start(arguments: &[&str]) -> DevServer {
    DevServer::start_at(program(), arguments).unwrap()
}

async fn of(server: &DevServer) -> Locks {
    soon(Locks::connect(&server.url())).await.unwrap()
}

#[tokio::test]
async fn locks_are_lost_in_each_way() {
    let server = start(&["--peer-timeout", "2s"]);
    let locks = of(&server).await;
    let guard = soon(locks.lock("k").acquire()).await.unwrap();
    server.lose("k");
    assert_eq!(soon(guard.lost()).await.reason(), "deleted");
    let guard = soon(locks.lock("k").acquire()).await.unwrap();
    server.hang_up();
    assert_eq!(soon(guard.lost()).await, Loss::Connection);
    let guard = soon(locks.lock("k").acquire()).await.unwrap();
    server.be_silent(Duration::from_secs(3));
    assert_eq!(soon(guard.lost()).await, Loss::Silence);
    assert_eq!(guard.check(), Err(Loss::Silence));
}

#[tokio::test]
async fn a_server_refuses_and_accepts() {
    let server = start(&[]);
    let locks = of(&server).await;
    server.refuse("NOREPLICAS");
    let refused = soon(locks.lock("k").acquire()).await;
    assert_eq!(refused.unwrap_err().code(), "NOREPLICAS");
    server.accept();
    let _guard = soon(locks.lock("k").acquire()).await.unwrap();
}

#[tokio::test]
async fn a_lease_ends_when_the_clock_of_the_server_goes_forward() {
    let server = start(&[]);
    let locks = of(&server).await;
    let lease = Duration::from_secs(3600);
    let guard = soon(locks.lock("k").lease(lease).acquire()).await.unwrap();
    server.advance(lease);
    assert_eq!(soon(guard.lost()).await.reason(), "lease");
}

#[test]
fn what_is_no_devserver_is_an_error() {
    let none: [&str; 0] = [];
    assert!(DevServer::start_at("true", none).is_err());
    assert!(DevServer::start_at("/there/is/none", none).is_err());
}

/// Nor is its child, which keeps the pipe open.
#[test]
fn a_program_that_says_nothing_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("silent");
    std::fs::write(&silent, "#!/bin/sh\nsleep 20\nexit\n").unwrap();
    std::fs::set_permissions(&silent, PermissionsExt::from_mode(0o700)).unwrap();
    let none: [&str; 0] = [];
    let error = DevServer::start_at(&silent, none).unwrap_err();
    assert!(error.to_string().ends_with("within 10s"), "{error}");
}
