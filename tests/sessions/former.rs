//! Files that were written before there were sessions.

use crate::harness::*;
use crate::*;

/// An RDB file of Redis 7.0 with this module's form 0, which had no sessions: a temporary key, a lock, and a plain key.
const FORMER: &str = "524544495330303130fa0972656469732d76657206372e302e3135fa0a72\
656469732d62697473c040fa056374696d65c249c1016bfa08757365642d6d656dc2389b1200fa08616f662d62617365c000fe00fb03000005706c61\
696e017600076f6c642d6b6579017607086f6c642d6c6f636b81b5eb617ab968700000f781b5eb617ab968700002020281001ac0705204f54e020102\
0005076f6c642d6b657900ffda2dc995157c209b";
const FORMER_TOKEN: i64 = 7_529_938_039_403_854;

#[test]
fn a_file_of_the_former_form_is_read() {
    let mut server = Server::start();
    let digits = FORMER.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let file: Vec<u8> = digits.map(byte).collect();
    std::fs::write(server.folder().join("dump.rdb"), file).expect("the file");
    server.crash_and_restart();
    let mut client = server.resp2();
    // What nobody holds goes with the first tick.
    eventually_equal("the keys", array([bulk("plain")]), || client.call("KEYS *"));
    assert!(client.call("LOCK.ACQUIRE old-key").number() > FORMER_TOKEN);
    assert_eq!(sessions(&server), [0, 0]);
}
