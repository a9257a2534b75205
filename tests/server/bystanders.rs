//! Commands that write nothing, in the middle of which we write: a server takes a command for a write if anything counted as
//! one meanwhile, and then its replicas and its file are given that command. There `CLIENT KILL ID 7` ends somebody else.

use crate::harness::{Server, eventually_gone};

const FILE: [&str; 2] = ["appendonly yes", "appendfsync always"];

#[test]
fn to_kill_a_client_is_not_replicated_whatever_it_held() {
    for (holds, again) in [
        ("SETTP k v", "SETTP k v"),
        ("LOCK.ACQUIRE k", "LOCK.ACQUIRE k"),
        ("LOCK.ACQUIRE k SHARED LEASE 60000", "LOCK.ACQUIRE k"),
    ] {
        for session in [false, true] {
            for handed_on in [false, true] {
                for multi in [false, true] {
                    let server = Server::with(&FILE);
                    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
                    if session {
                        holder.run("SESSION.START GRACE 60000");
                    }
                    holder.run(holds);
                    if handed_on {
                        waiter.run(&format!("{again} WAIT 0 PUSH"));
                    }
                    let mut killer = server.resp2();
                    let id = holder.id();
                    if multi {
                        killer.run("MULTI");
                    }
                    killer.run(&format!("CLIENT KILL ID {id}"));
                    if multi {
                        killer.run("EXEC");
                    }
                    if !session && !handed_on {
                        eventually_gone(&mut killer, "k");
                    }
                    // What comes later is in the file, so what came before is, too.
                    killer.run("SET last v");
                    let text = server.append_only_text();
                    assert!(text.contains("last"), "{text}");
                    let what = (holds, session, handed_on, multi);
                    assert!(!text.contains("KILL"), "{what:?}: {text}");
                }
            }
        }
    }
}
