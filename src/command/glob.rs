//! The server's glob patterns, as KEYS and SCAN have them: `*`, `?`, `[a-z]`, `[^x]`, `\` to quote.

/// Whether the whole text fits the pattern. O(text * pattern) at worst: a star is tried again only
/// from the last one on.
pub fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            star = Some((rest, text));
            pattern = rest;
            continue;
        }
        if let (Some((element, pattern_rest)), [first, text_rest @ ..]) = (one(pattern), text)
            && element.fits(*first)
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

/// What stands for one character.
enum Element<'a> {
    Any,
    Literal(u8),
    Class(&'a [u8]),
}

impl Element<'_> {
    fn fits(&self, c: u8) -> bool {
        match self {
            Element::Any => true,
            Element::Literal(literal) => c == *literal,
            Element::Class(class) => in_class(class, c),
        }
    }
}

/// The pattern's first element and what comes after it.
fn one(pattern: &[u8]) -> Option<(Element<'_>, &[u8])> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some((Element::Any, rest)),
        [b'\\', quoted, rest @ ..] => Some((Element::Literal(*quoted), rest)),
        [b'[', rest @ ..] => {
            let (class, rest) = split_class(rest);
            Some((Element::Class(class), rest))
        }
        [literal, rest @ ..] => Some((Element::Literal(*literal), rest)),
    }
}

/// What stands between the brackets, and what comes after them; a class that is not closed goes to
/// the end, as with the server.
fn split_class(after_bracket: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while at < after_bracket.len() {
        match after_bracket[at] {
            b'\\' => at += 2,
            b']' => return (&after_bracket[..at], &after_bracket[at + 1..]),
            _ => at += 1,
        }
    }
    (after_bracket, &[])
}

fn in_class(class: &[u8], c: u8) -> bool {
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    loop {
        class = match class {
            [] => return found != negated,
            [b'\\', quoted, rest @ ..] => {
                found |= c == *quoted;
                rest
            }
            [from, b'-', to, rest @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&c);
                rest
            }
            [literal, rest @ ..] => {
                found |= c == *literal;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_mean_what_they_mean_to_the_server() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("*", "", true),
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
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }
}
