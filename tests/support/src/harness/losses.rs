//! What owners are told of a loss.

/// The push with which the owner of `k` (`settp k` or `lock k`) is told that it lost it by these commands of another. A
/// time to live that is over as soon as it is given is an end of one kind or the other, as the server has it.
pub fn losses(what: &str, removal: &[&str]) -> Vec<String> {
    let has = |words: &[&str]| {
        let mut all = removal.iter();
        all.any(|command| words.iter().any(|word| command.starts_with(word)))
    };
    let reasons: &[&str] = if has(&["FLUSH"]) {
        &["flushed"]
    } else if has(&["RENAME", "COPY", "SET k"]) {
        &["overwritten"]
    } else if has(&["EXPIREAT", "PEXPIRE"]) {
        &["deleted", "expired"]
    } else {
        &["deleted"]
    };
    let pushes = reasons.iter().map(|reason| format!("{what} LOST {reason}"));
    pushes.collect()
}
