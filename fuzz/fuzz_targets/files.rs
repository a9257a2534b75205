//! What RDB files say beside the keys: any bytes are no pack of names, or one that is packed the same way again. An engine
//! takes in what such a file says while it is loaded, and then lets go of it.
//!
//! Input: for each piece its kind (even: a pack, odd: words as in the stream), its length, and so many bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tether::command::pack;
use tether::engine::{Db, Engine, Event, Moment, SessionRecord, Token};

fuzz_target!(|data: &[u8]| {
    let mut engine = Engine::default();
    let mut effects = Vec::new();
    let now = Moment(1);
    engine.handle(now, Event::LoadBegins, &mut effects);
    let mut rest = data;
    while let [kind, length, bytes @ ..] = rest {
        let (piece, left) = bytes.split_at(bytes.len().min(usize::from(*length)));
        rest = left;
        if let Some((_, record)) = pack::unpack_record(piece) {
            let again = pack::pack_record(&record);
            assert_eq!(pack::unpack_record(&again).map(|(_, again)| again), Some(record));
        }
        if kind % 2 == 0 {
            take_in_pack(&mut engine, piece, &mut effects);
        } else {
            let mut words = piece.split(|byte| *byte == b' ');
            let name = String::from_utf8_lossy(words.next().unwrap_or_default());
            let words: Vec<&[u8]> = words.collect();
            if let Some(record) = SessionRecord::read(&name, Db(0), &words) {
                engine.handle(now, Event::SessionRecord(&record), &mut effects);
            }
        }
        engine.check_invariants();
    }
    assert!(effects.is_empty(), "nothing is told before all is there");
    engine.handle(now, Event::LoadEnded, &mut effects);
    // Graces are over, and all that was left behind goes.
    let mut now = Moment(1 << 50);
    for _ in 0..1000 {
        if !engine.has_work(now) {
            break;
        }
        now.0 += 1;
        engine.handle(now, Event::Work { steps: 100 }, &mut effects);
        engine.check_invariants();
    }
    assert!(!engine.has_work(now));
});

fn take_in_pack(engine: &mut Engine, piece: &[u8], effects: &mut Vec<tether::engine::Effect>) {
    let mut bytes = piece;
    let keys: Vec<_> = std::iter::from_fn(|| pack::take_first(&mut bytes)).collect();
    let Some((first, others)) = keys.split_first() else {
        return;
    };
    let mut packed = pack::Pack::of(*first);
    others.iter().for_each(|key| packed.push(*key));
    assert_eq!(packed.bytes(), &piece[..piece.len() - bytes.len()]);
    // As the shell does: no server has others.
    if keys.iter().all(|key| key.db.0 < 16) {
        // A version of the module wrote none; where there are some, no two keys have the same.
        let first = engine.next_token_of_sequence().0;
        let tokens: Vec<_> = (first..).take(keys.len() / 2).map(Token).collect();
        engine.inherit(Moment(1), &keys, &tokens, effects);
    }
}
