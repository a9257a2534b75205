//! The server's glob patterns, as KEYS and SCAN have them: `*`, `?`, `[a-z]`, `[^x]`, `\` to quote.

use core::ffi::c_char;

/// Whether the whole text fits the pattern. O(text * pattern) at worst: a star is tried again only
/// from the last one on.
pub fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    if text.is_empty() {
        // Of the empty name the server knows a single star for "all", and has no other pattern that fits it.
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
        // Let the last star take one more character.
        let Some((after, [_, rest @ ..])) = star else {
            return false;
        };
        star = Some((after, rest));
        (pattern, text) = (after, rest);
    }
}

/// The rest of a pattern whose first element, which stands for one character, fits this one.
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

/// Whether a class has this character, and what comes after it. As with the server, a range ends with whatever follows its
/// dash, be it a bracket or a backslash; and a class that is not closed goes to the end of the pattern.
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

/// In the order of the server's characters, which are negative from 128 on where C's are.
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
            // A range takes the bracket as its end.
            ("[p-]", "p", true),
            ("[p-]", "^", true),
            ("[p-]", "-", false),
            ("[p-]x]", "x", true),
            ("[p-]x]", "x]", false),
            // And the backslash, which quotes nothing there.
            ("[a-\\]", "]", true),
            ("[a-\\]", "[", false),
            // A dash that does not stand between two characters is itself.
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
