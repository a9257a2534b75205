//! The glob patterns of KEYS and SCAN: `*`, `?`, `[a-z]`, `[^x]`, `\` to escape.

use core::ffi::c_char;

/// Whether the whole text matches the pattern. O(text * pattern) at worst: backtracks only to the last star.
pub fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    if text.is_empty() {
        // The server matches an empty name only by a single star, which it treats as "all".
        return pattern.is_empty() || pattern == b"*";
    }
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            star = Some((rest, text));
            pattern = rest;
            continue;
        }
        if let [first, text_rest @ ..] = text
            && let Some(pattern_rest) = after_first(pattern, *first)
        {
            (pattern, text) = (pattern_rest, text_rest);
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        // Backtrack: the last star matches one more character.
        let Some((after, [_, rest @ ..])) = star else {
            return false;
        };
        star = Some((after, rest));
        (pattern, text) = (after, rest);
    }
}

/// The rest of the pattern, if its first element matches this character.
fn after_first(pattern: &[u8], c: u8) -> Option<&[u8]> {
    let (fits, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'\\', quoted, rest @ ..] => (c == *quoted, rest),
        [b'[', b'^', class @ ..] => {
            let (found, rest) = find_in_class(class, c);
            (!found, rest)
        }
        [b'[', class @ ..] => find_in_class(class, c),
        [literal, rest @ ..] => (c == *literal, rest),
    };
    fits.then_some(rest)
}

/// Whether a class contains this character, and the rest of the pattern. As in the server, any character after a dash ends
/// a range, even a bracket or a backslash, and an unclosed class extends to the end of the pattern.
fn find_in_class(mut class: &[u8], c: u8) -> (bool, &[u8]) {
    let mut found = false;
    loop {
        class = match class {
            [] => return (found, class),
            [b'\\', quoted, rest @ ..] => {
                found |= c == *quoted;
                rest
            }
            [b']', rest @ ..] => return (found, rest),
            [from, b'-', to, rest @ ..] => {
                found |= is_between(c, *from, *to);
                rest
            }
            [literal, rest @ ..] => {
                found |= c == *literal;
                rest
            }
        };
    }
}

/// Compares as C's `char`, which is signed on some platforms.
fn is_between(c: u8, from: u8, to: u8) -> bool {
    let [c, from, to] = [c, from, to].map(|byte| byte as c_char);
    (from.min(to)..=from.max(to)).contains(&c)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_mean_what_they_mean_to_the_server() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("*", "", true),
            ("**", "", false),
            ("**", "a", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("a*b*c", "aXbYbZc", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("a", "ab", false),
            // The bracket ends the range.
            ("[p-]", "p", true),
            ("[p-]", "^", true),
            ("[p-]", "-", false),
            ("[p-]x]", "x", true),
            ("[p-]x]", "x]", false),
            // So does the backslash, which escapes nothing there.
            ("[a-\\]", "]", true),
            ("[a-\\]", "[", false),
            // A dash that is not between two characters is literal.
            ("[-a]", "-", true),
            ("[-a]", "b", false),
            ("[\\a-c]", "-", true),
            ("[\\a-c]", "b", false),
            ("[a-", "-", true),
            ("[a-", "b", false),
            ("[]", "]", false),
            ("[]a]", "a]", false),
            ("[^]", "x", true),
            ("[^]", "", false),
            ("[", "[", false),
            ("[^", "x", true),
            ("[ab", "b", true),
            ("[ab\\", "\\", true),
            ("\\", "\\", true),
            ("*[p-]*]", "xp]", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }
}
