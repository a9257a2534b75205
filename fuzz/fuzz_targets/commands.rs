//! What clients may say: any words are a request or a refusal, and either can be told of in one short line.
//!
//! Input: the command's number in the table, then its arguments, with a byte 0xFF between them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tether::command::{BadInput, Request, TABLE, matches, parse};

fuzz_target!(|data: &[u8]| {
    let Some((verb, rest)) = data.split_first() else {
        return;
    };
    let spec = &TABLE[usize::from(*verb) % TABLE.len()];
    let words: Vec<&[u8]> = match rest {
        [] => Vec::new(),
        rest => rest.split(|byte| *byte == 0xFF).collect(),
    };
    match parse(spec, &words) {
        Ok(Request::List(list)) => {
            let pattern = list.pattern.unwrap_or_default();
            matches(pattern, pattern);
            assert!(list.count > 0);
        }
        Ok(Request::Acquire { keys, .. }) => {
            assert!(keys.iter().all(|key| words.contains(key)));
            let mut sorted = keys.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), keys.len());
        }
        Ok(_) => {}
        Err(BadInput::WrongArity) => {}
        Err(BadInput::Because(text)) => {
            assert!(text.len() < 400 && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
});
