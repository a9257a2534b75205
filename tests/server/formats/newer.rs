//! What a newer version may write, put into files and streams of this one.

use crate::damaged::{Start, own_part};
use crate::harness::*;
use crate::line;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const THIS: &str = concat!("tether ", env!("CARGO_PKG_VERSION"), " (commit unknown)");
const NEWER: &str = "tether 9.9.9 (commit abcdefg)";

/// A file in which the module has said something, and the session's secret.
fn saved(server: &Server) -> (Vec<u8>, String) {
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 86400000").text();
    client.run_all(&["SETTP temporary v", "LOCK.ACQUIRE lock", "SAVE"]);
    let file = fs::read(server.folder().join("dump.rdb"));
    (file.expect("the file"), secret)
}

/// The place of these bytes in what the module has said.
fn place(file: &[u8], bytes: &[u8]) -> usize {
    let part = own_part(file);
    let mut places = file[part.clone()].windows(bytes.len());
    let place = places.position(|other| other == bytes);
    part.start + place.unwrap_or_else(|| panic!("{}", file[part].escape_ascii()))
}

/// The writer of this file is another version.
fn by_newer(mut file: Vec<u8>) -> Vec<u8> {
    let this = concat!("version ", env!("CARGO_PKG_VERSION"), " commit unknown").as_bytes();
    let start = place(&file, this);
    file[start..][..this.len()].copy_from_slice(b"version 9.9.9 commit abcdefg");
    file
}

/// The same with one more section, after the one that says who wrote it.
fn with_section(mut file: Vec<u8>, kind: u8) -> Vec<u8> {
    let writer = b"version 9.9.9 commit abcdefg";
    let start = place(&file, writer) + writer.len();
    // A number and bytes, as RDB files have them.
    let section = [&[2, kind, 5, 4][..], b"more"].concat();
    file.splice(start..start, section);
    file
}

#[test]
fn a_section_that_is_not_known_is_skipped_or_refused_by_its_number() {
    let server = Server::with(&["rdbcompression no", "rdbchecksum no"]);
    let (file, secret) = saved(&server);
    let file = by_newer(file);
    let config = fs::read_to_string(server.folder().join("redis.conf")).expect("its settings");
    let start = |name: &str, file: &[u8]| Start::with(file, &config, &server.folder().join(name));
    let odd = with_section(file.clone(), 61);
    let mut later = file.clone();
    // Of 0.2.0, and 0.90.0: numbers as RDB files have them.
    let least = place(&later, &[2, 0x40, 200]);
    later[least + 1..][..2].copy_from_slice(&(0x4000_u16 + 9000).to_be_bytes());
    for (name, file, why) in [
        ("odd", odd, "a section of kind 61"),
        ("later", later, "it needs tether 0.90.0 or later"),
    ] {
        let mut start = start(name, &file);
        assert!(start.refuses(name));
        let log = start.log();
        for words in [why, THIS, NEWER] {
            assert!(log.contains(words), "no {words} in {log}");
        }
    }
    let mut reader = Server::start();
    reader.kill();
    let even = with_section(file, 60);
    fs::write(reader.folder().join("dump.rdb"), even).expect("written");
    reader.restart(&[]);
    assert_eq!(reader.resp3().run(["SESSION.RESUME", &secret]), int(2));
}

/// The first encoding that this version does not know.
const LATER: u8 = 3;

/// What the log says of what has that encoding.
fn refusal_of(what: &str) -> String {
    format!("{what} of a later tether has encoding {LATER}; this {THIS} reads no encoding after 2")
}

/// The place of the encoding of the value of `lock`: the end of the number that says whose value it is.
fn place_of_encoding(bytes: &[u8]) -> usize {
    let start = b"\x07\x04lock\x81";
    let mut places = bytes.windows(start.len());
    let place = places.position(|window| window == start);
    place.expect("the lock") + start.len() + 7
}

#[test]
fn an_encoding_that_is_not_known_is_refused_with_both_numbers() {
    let server = Server::with(&["rdbcompression no", "rdbchecksum no"]);
    let (file, _) = saved(&server);
    let config = fs::read_to_string(server.folder().join("redis.conf")).expect("its settings");
    let said = "what the RDB file says of temporary keys and sessions";
    for (name, place, what) in [
        ("said", own_part(&file).start - 1, said),
        ("value", place_of_encoding(&file), "a lock"),
    ] {
        let mut file = file.clone();
        assert_eq!(file[place], 0, "{name}");
        file[place] = LATER;
        let mut start = Start::with(&file, &config, &server.folder().join(name));
        assert!(start.refuses(name));
        let log = start.log();
        assert_eq!(log.matches(&refusal_of(what)).count(), 1, "{log}");
        assert_eq!(log.matches("later tether").count(), 1, "{log}");
    }
}

#[test]
fn a_value_of_an_encoding_that_is_not_known_is_not_restored() {
    let server = Server::start();
    let mut client = server.resp2();
    client.run_all(&["LOCK.ACQUIRE lock", "DEBUG SET-SKIP-CHECKSUM-VALIDATION 1"]);
    let Frame::Bulk(mut value) = client.run("DUMP lock") else {
        panic!("no value")
    };
    // After the mark of a module's value, and that of the number.
    assert_eq!(value[..2], [7, 0x81]);
    value[9] = LATER;
    client.send_bytes(&encode([&b"RESTORE"[..], b"other", b"0", &value]));
    let reply = client.read_reply();
    assert!(matches!(reply, Frame::Error(_)), "{reply:?}");
    assert_eq!(client.call("EXISTS lock other"), int(1));
    let log = server.log();
    assert_eq!(log.matches(&refusal_of("a lock")).count(), 1, "{log}");
    assert_eq!(line::tether(&server, "records_refused_total"), 1);
}

/// What a master of a newer version tells.
fn told(session: &str) -> Vec<Vec<u8>> {
    let token = "5000000000000000";
    let hold = |key: &str, more: [&str; 2]| {
        let [name, value] = more;
        let words = ["TETHER.HOLD", key, session, "", name, value];
        let words = [&words[..], &["mode", "exclusive", "token", token]].concat();
        encode(words)
    };
    vec![
        encode(["SELECT", "0"]),
        encode([
            "TETHER.TOKEN",
            token,
            "version",
            "9.9.9",
            "commit",
            "abcdefg",
            "more",
            "1",
        ]),
        encode(["TETHER.LOCK", "known", token, "exclusive", "more", "words"]),
        encode(["TETHER.SETTP", "settp", token, "value", "more", "words"]),
        hold("known", ["more", "words"]),
        encode(["TETHER.RENEW", "known", "4102444800000", "more", "words"]),
        encode(["TETHER.LOCK", "unknown", token, "exclusive"]),
        hold("unknown", ["TASK", "words"]),
    ]
}

/// The number of the only session, in the words of a file.
fn session_of(server: &Server) -> String {
    let words = server.append_only_text();
    let words: Vec<&str> = words.split("\r\n").collect();
    let start = words.iter().position(|word| *word == "START");
    words[start.expect("a session") + 2].to_owned()
}

fn assert_refused_one(server: &Server) {
    assert_eq!(line::tether(server, "records_refused_total"), 1);
    let log = server.log();
    let words = format!("TETHER.HOLD, written by {NEWER}, makes no sense to this {THIS}");
    assert!(log.contains(&words), "no {words} in {log}");
}

#[test]
fn a_name_that_is_not_known_is_skipped_or_refused_by_its_letters() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 86400000").text();
    client.run("LOCK.ACQUIRE lock");
    let session = session_of(&server);
    let mut file = None;
    for path in fs::read_dir(server.folder().join("appendonlydir")).expect("its folder") {
        let path = path.expect("a file").path();
        if path.to_string_lossy().ends_with(".incr.aof") {
            file = Some(path);
        }
    }
    let file = file.expect("an append-only file");
    server.kill();
    let mut bytes = fs::read(&file).expect("the file");
    bytes.extend(told(&session).concat());
    fs::write(&file, bytes).expect("written");
    server.restart_as_it_was();
    assert_refused_one(&server);
    assert_eq!(server.resp3().run(["SESSION.RESUME", &secret]), int(2));
}

/// A master that gives its replica this file, and then tells it this, and nothing more.
fn master(file: Vec<u8>, told: Vec<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    thread::spawn(move || {
        // Each connection is told the same.
        for stream in listener.incoming() {
            let (file, told) = (file.clone(), told.clone());
            thread::spawn(move || serve(stream.expect("a connection"), &file, &told));
        }
    });
    port
}

fn serve(mut stream: TcpStream, file: &[u8], told: &[Vec<u8>]) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let count: usize = line.strip_prefix('*')?.trim_end().parse().ok()?;
        let mut words = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let length: usize = line.strip_prefix('$')?.trim_end().parse().ok()?;
            let mut word = vec![0; length + 2];
            reader.read_exact(&mut word).ok()?;
            words.push(String::from_utf8_lossy(&word[..length]).to_ascii_lowercase());
        }
        match (&*words[0], words.get(1).map(String::as_str)) {
            ("ping", _) => stream.write_all(b"+PONG\r\n").ok()?,
            ("replconf", Some("ack")) => {}
            ("psync", _) => {
                let id = "ab".repeat(20);
                let head = format!("+FULLRESYNC {id} 0\r\n${}\r\n", file.len());
                stream.write_all(head.as_bytes()).ok()?;
                stream.write_all(file).ok()?;
                stream.write_all(&told.concat()).ok()?;
            }
            _ => stream.write_all(b"+OK\r\n").ok()?,
        }
    }
}

/// The offset of what it refused counts as acknowledged, so a client may believe that it holds what this replica does not know
/// of. Promoted, it grants nothing; a replica that is told everything anew does.
#[test]
fn a_replica_that_refused_something_grants_nothing_once_it_is_promoted() {
    let server = Server::with(&["appendonly yes", "appendfsync always"]);
    let (file, secret) = saved(&server);
    let session = session_of(&server);
    let port = master(file.clone(), told(&session));
    let sound = master(file, told(&session)[..6].to_vec());
    let replica = Server::start();
    let mut client = replica.resp3();
    client.run(["REPLICAOF", "127.0.0.1", &port.to_string()]);
    eventually("what is refused", || {
        let refused = line::tether(&replica, "records_refused_total");
        (refused > 0).then_some(()).ok_or(refused.to_string())
    });
    assert_refused_one(&replica);
    client.run("REPLICAOF NO ONE");
    let refused = client.refused("LOCK.ACQUIRE other");
    assert!(refused.starts_with("QUARANTINE"), "{refused}");
    assert!(client.run("PTTL known").number() > 0);
    assert_eq!(client.run(["SESSION.RESUME", &secret]), int(3));
    assert_eq!(client.run("LOCK.RELEASE lock"), int(0));
    client.run(["REPLICAOF", "127.0.0.1", &sound.to_string()]);
    let mut client = replica.resp3();
    eventually("what the other master tells", || {
        let info = client.run("LOCK.INFO lock");
        (info != null()).then_some(()).ok_or(format!("{info:?}"))
    });
    client.run("REPLICAOF NO ONE");
    assert!(client.run("LOCK.ACQUIRE other").number() > 0);
}
