//! Circles through readers, permits, several keys, and places in line.

use super::assert_deadlock;
use crate::harness::*;
use crate::line::*;

#[test]
fn one_stuck_reader_is_enough_to_stop_a_writer() {
    let server = Server::start();
    let (mut one, mut two, mut free) = (server.resp3(), server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    one.run("LOCK.ACQUIRE book SHARED");
    free.run("LOCK.ACQUIRE book SHARED");
    two.run("LOCK.ACQUIRE pen");
    queue(&server, &mut one, "LOCK.ACQUIRE pen WAIT 0");
    // The other reader may leave; the first one cannot.
    assert_deadlock(&mut two, "LOCK.ACQUIRE book WAIT 0", &["book", "pen"], &ids);
    // To read is no question of waiting.
    two.run("LOCK.ACQUIRE book SHARED").number();
    assert_eq!(two.call("LOCK.RELEASE pen"), int(0));
    one.read_reply().number();
}

#[test]
fn a_place_in_line_behind_one_who_waits_is_a_part_of_a_circle() {
    let server = Server::start();
    let (mut reader, mut writer, mut late) = (server.resp3(), server.resp3(), server.resp3());
    let ids = [reader.id(), late.id()];
    reader.run("LOCK.ACQUIRE book SHARED");
    late.run("LOCK.ACQUIRE pen");
    queue(&server, &mut writer, "LOCK.ACQUIRE book WAIT 0");
    // Behind the writer, who waits for the reader.
    queue(&server, &mut late, "LOCK.ACQUIRE book SHARED WAIT 0");
    assert_deadlock(
        &mut reader,
        "LOCK.ACQUIRE pen WAIT 0",
        &["book", "pen"],
        &ids,
    );
    reader.run("LOCK.RELEASE book");
    writer.read_reply().number();
    writer.run("LOCK.RELEASE book");
    late.read_reply().number();
    assert_eq!(late.call("LOCK.RELEASE pen"), int(0));
}

#[test]
fn permits_that_only_the_stuck_can_give_back_close_a_circle() {
    let server = Server::start();
    let (mut one, mut two, mut free) = (server.resp3(), server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    one.run("LOCK.ACQUIRE seats PERMITS 2 OF 3");
    free.run("LOCK.ACQUIRE seats PERMITS 1 OF 3");
    two.run("LOCK.ACQUIRE pen");
    queue(&server, &mut one, "LOCK.ACQUIRE pen WAIT 0");
    for n in [2, 3] {
        let request = format!("LOCK.ACQUIRE seats PERMITS {n} OF 3 WAIT 0");
        assert_deadlock(&mut two, &request, &["seats", "pen"], &ids);
    }
    // One seat can come from the third.
    queue(
        &server,
        &mut two,
        "LOCK.ACQUIRE seats PERMITS 1 OF 3 WAIT 0",
    );
    free.run("LOCK.RELEASE seats");
    two.read_reply().number();
    two.run("LOCK.RELEASE pen");
    one.read_reply().number();
}

#[test]
fn a_request_for_several_closes_a_circle_through_any_of_them() {
    let server = Server::start();
    let (mut one, mut two, mut free) = (server.resp3(), server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    one.run("LOCK.ACQUIRE apple");
    two.run("LOCK.ACQUIRE pear");
    free.run("LOCK.ACQUIRE plum");
    queue(&server, &mut one, "LOCK.MACQUIRE 2 plum pear WAIT 0");
    let request = "LOCK.MACQUIRE 3 fig kiwi apple WAIT 0";
    assert_deadlock(&mut two, request, &["apple", "pear"], &ids);
    // Its place in the queue of a key that is free counts, too.
    free.run("LOCK.RELEASE plum");
    let request = "LOCK.ACQUIRE plum WAIT 0";
    assert_deadlock(&mut two, request, &["plum", "pear"], &ids);
    assert_eq!(two.call("LOCK.RELEASE pear"), int(0));
    one.read_reply().number();
    assert_eq!(server.resp2().call("EXISTS fig kiwi"), int(0));
}

#[test]
fn a_wait_of_one_label_stops_the_others_only_when_it_blocks() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    one.run("LOCK.ACQUIRE apple OWNER anna");
    two.run("LOCK.ACQUIRE pear");
    queue_push(&mut one, "LOCK.ACQUIRE pear OWNER bert WAIT 0 PUSH");
    // Anna waits for nothing, and may release.
    queue_push(&mut two, "LOCK.ACQUIRE apple WAIT 0 PUSH");
    assert_eq!(two.call("LOCK.CANCEL apple"), int(1));
    assert_eq!(one.call("LOCK.CANCEL pear OWNER bert"), int(1));
    queue(&server, &mut one, "LOCK.ACQUIRE pear OWNER bert WAIT 0");
    let request = "LOCK.ACQUIRE apple WAIT 0 PUSH";
    assert_deadlock(&mut two, request, &["apple", "pear"], &ids);
    two.run("LOCK.RELEASE pear");
    one.read_reply().number();
}

#[test]
fn keys_of_the_same_name_in_other_databases_are_others() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    one.run("SETTP apple v");
    two.run_all(&["SELECT 1", "SETTP apple v", "SELECT 0", "SETTP pear v"]);
    queue(&server, &mut one, "SETTP pear v WAIT 0");
    two.run("SELECT 1");
    assert_eq!(two.call("SETTP apple v"), int(0));
    let mut third = server.resp3();
    third.run("SELECT 1");
    queue(&server, &mut third, "SETTP apple v WAIT 0");
    two.run_all(&["DELTP apple", "SELECT 0", "DELTP pear"]);
    assert_eq!(one.read_reply(), int(1));
    assert_eq!(third.read_reply(), int(1));
}
