//! What servers tell each other: any words are refused, or understood and said again in words that mean the same. What was
//! understood an engine takes in, and it can tell of it.
//!
//! Input: lines of words with spaces between them; the first one names the command.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tether::engine::{
    Db, Engine, Event, GrantRecord, Key, Moment, SessionRecord, read_moment_ms, read_token,
};

fuzz_target!(|data: &[u8]| {
    let mut engine = Engine::default();
    let mut effects = Vec::new();
    for (at, line) in data.split(|byte| *byte == b'\n').enumerate() {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        for word in &words {
            assert!(read_token(word).is_none_or(|token| token.0 > 0));
            assert!(read_moment_ms(word).is_none_or(|moment| moment > 0));
        }
        let name = String::from_utf8_lossy(words[0]);
        let (db, now) = (Db(at as u32 % 3), Moment(at as u64));
        if let [_, key, more @ ..] = &*words
            && let Some(GrantRecord { mode, token }) = GrantRecord::read(&name, more)
        {
            let (key, token) = (Key { db, name: key }, Some(token));
            engine.handle(now, Event::Inherited { key, mode, token }, &mut effects);
            engine.check_invariants();
        }
        let Some(record) = SessionRecord::read(&name, db, &words[1..]) else {
            continue;
        };
        assert_eq!(again(&record), Some(&record).cloned());
        engine.handle(now, Event::SessionRecord(&record), &mut effects);
        engine.check_invariants();
    }
    let now = Moment(1 << 20);
    for record in engine.session_records(now) {
        assert_eq!(again(&record).as_ref(), Some(&record));
    }
});

/// The same, as another server understands it.
fn again(record: &SessionRecord) -> Option<SessionRecord> {
    let (name, words) = record.words();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    SessionRecord::read(name, record.db().unwrap_or(Db(0)), &words)
}
