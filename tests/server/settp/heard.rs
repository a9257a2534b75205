//! Who listens to keyspace events hears of our own doing, whenever it began to listen.

use crate::harness::*;

/// Another module, built from `listener.c`.
pub fn listener() -> (tempfile::TempDir, String) {
    built(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/server/settp/listener.c"
    ))
}

/// Keys go by their owner's hand, by its end, and as locks; the other module has heard of all.
fn all_is_heard(server: &Server) {
    let mut asker = server.resp2();
    let before = asker.call("HEARD");
    let mut owner = server.resp2();
    owner.run_all(&[
        "SETTP one v",
        "DELTP one",
        "LOCK.ACQUIRE two",
        "LOCK.RELEASE two",
    ]);
    owner.run("SETTP three v");
    drop(owner);
    eventually_gone(&mut asker, "three");
    let Frame::Integer(before) = before else {
        panic!("{before:?}")
    };
    assert_eq!(asker.call("HEARD"), int(before + 3));
}

#[test]
fn by_a_module_that_was_there_before() {
    let (_folder, library) = listener();
    let server = Server::with(&[&format!("loadmodule {library}")]);
    all_is_heard(&server);
}

#[test]
fn by_a_module_that_is_loaded_while_keys_are_held() {
    let (_folder, library) = listener();
    let server = Server::with(&["enable-module-command local"]);
    let mut owner = server.resp2();
    owner.run_all(&["SETTP early v", "DELTP early", "SETTP held v"]);
    server.resp2().run(["MODULE", "LOAD", &library]);
    all_is_heard(&server);
    owner.run("DELTP held");
    assert_eq!(server.resp2().call("HEARD"), int(4));
}

#[test]
fn by_clients_as_soon_as_the_server_is_told_to_publish() {
    let server = Server::start();
    let mut owner = server.resp2();
    owner.run_all(&[
        "SETTP k v NOTIFY",
        "DELTP k",
        "LOCK.ACQUIRE k NOTIFY",
        "LOCK.RELEASE k",
    ]);
    let mut subscriber = server.resp3();
    subscriber.send("SUBSCRIBE __keyevent@0__:del");
    subscriber.next_push();
    server.resp2().run("CONFIG SET notify-keyspace-events Eg");
    owner.run_all(&[
        "SETTP one v NOTIFY",
        "DELTP one",
        "LOCK.ACQUIRE two NOTIFY",
        "LOCK.RELEASE two",
    ]);
    let heard = server.settled(&mut subscriber);
    assert_eq!(heard.len(), 2, "{heard:?}");
    server
        .resp2()
        .run(["CONFIG", "SET", "notify-keyspace-events", ""]);
    owner.run_all(&["SETTP k v NOTIFY", "DELTP k"]);
    assert_eq!(server.settled(&mut subscriber), [""; 0]);
}
