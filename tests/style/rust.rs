//! A little Rust: just enough to tell code from comments and strings, and to find where a function ends.

pub struct Function {
    pub name: String,
    pub first: usize,
    pub last: usize,
    /// The server calls it: `extern "C"`.
    pub is_entry_point: bool,
}

impl Function {
    pub fn has(&self, line: usize) -> bool {
        (self.first..=self.last).contains(&line)
    }
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The functions with a body in code without comments and strings, from the line with `fn` to the one with the closing brace.
pub fn functions(code: &str) -> Vec<Function> {
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let is_name = rest.starts_with(is_word) && !code[..at].ends_with(is_word);
        let Some(close) = is_name.then(|| end_of_body(rest)).flatten() else {
            continue;
        };
        let line = &code[code[..at].rfind('\n').map_or(0, |start| start + 1)..at];
        found.push(Function {
            name: rest
                .split(|c| !is_word(c))
                .next()
                .unwrap_or_default()
                .to_owned(),
            first: line_of(at),
            last: line_of(at + 3 + close),
            is_entry_point: line.contains("extern "),
        });
    }
    found
}

/// Where a function's body ends, counted from its name; nothing where it has none.
fn end_of_body(rest: &str) -> Option<usize> {
    let (mut nested, mut is_within) = (0_usize, false);
    for (at, c) in rest.char_indices() {
        match (c, is_within) {
            ('(' | '[', false) | ('{', true) => nested += 1,
            (')' | ']', false) => nested -= 1,
            (';', false) if nested == 0 => return None,
            ('{', false) => (nested, is_within) = (1, true),
            ('}', true) if nested == 1 => return Some(at),
            ('}', true) => nested -= 1,
            _ => {}
        }
    }
    None
}

/// Blanks out comments and the insides of strings and characters, leaving all lines in their places.
pub fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let before = code.chars().next_back().unwrap_or(' ');
        let length = blank_length(rest, before);
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(
                rest[..length]
                    .chars()
                    .map(|c| if c == '\n' { c } else { ' ' }),
            );
            rest = &rest[length..];
        }
    }
    code
}

/// How long the comment, string or character is with which this begins; 0 if it begins with none.
fn blank_length(rest: &str, before: char) -> usize {
    let until = |from: usize, end: &str| {
        rest[from..]
            .find(end)
            .map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return until(2, "\n") - usize::from(rest.contains('\n'));
    }
    if rest.starts_with("/*") {
        return until(2, "*/");
    }
    let hashes = rest
        .strip_prefix('r')
        .filter(|_| !is_word(before) || before == 'b');
    if let Some(hashes) = hashes {
        let count = hashes.len() - hashes.trim_start_matches('#').len();
        if hashes[count..].starts_with('"') {
            return until(count + 2, &format!("\"{}", "#".repeat(count)));
        }
    }
    let quoted = |quote: char| {
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, c)| {
            let is_end = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            is_end
        });
        end.map_or(rest.len(), |(at, c)| at + c.len_utf8())
    };
    match rest.as_bytes() {
        [b'"', ..] => quoted('"'),
        [b'\'', b'\\', ..] => quoted('\''),
        // A lifetime has no second quote right after its first character.
        [b'\'', ..] => match rest.chars().nth(1) {
            Some(c) if rest[1 + c.len_utf8()..].starts_with('\'') => c.len_utf8() + 2,
            _ => 0,
        },
        _ => 0,
    }
}

/// Blanks out, in code without comments and strings, the items that only tests have; and names the modules among them whose
/// code is in a file of its own.
pub fn blank_tests(code: &str) -> (String, Vec<String>) {
    const ONLY_TESTS: &str = "#[cfg(test)]";
    let (mut kept, mut files) = (String::with_capacity(code.len()), Vec::new());
    let mut rest = code;
    while let Some(at) = rest.find(ONLY_TESTS) {
        kept.push_str(&rest[..at]);
        let item = &rest[at + ONLY_TESTS.len()..];
        let end = end_of_item(item);
        let mut words = item[..end].split_whitespace();
        if words.any(|word| word == "mod") && item[..end].ends_with(';') {
            files.extend(
                words
                    .next()
                    .map(|name| name.trim_end_matches(';').to_owned()),
            );
        }
        kept.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    kept.push_str(rest);
    (kept, files)
}

/// Behind its semicolon or its closing brace.
fn end_of_item(code: &str) -> usize {
    let mut nested = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => nested += 1,
            ')' | ']' | '}' if nested == 0 => return at,
            '}' if nested == 1 => return at + 1,
            ')' | ']' | '}' => nested -= 1,
            ';' if nested == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[test]
fn the_little_rust_tells_code_from_the_rest() {
    let text = "fn a<'x>(s: &'x str) -> [u8; 2] { // fn no() {\n  let q = '\"'; r#\"}\"}\"#; \"\\\"}\"; '}'\n}\nfn b();\n";
    let code = code_only(text);
    assert_eq!(code.matches('\n').count(), text.matches('\n').count());
    let found: Vec<_> = functions(&code)
        .into_iter()
        .map(|function| (function.name, function.first, function.last))
        .collect();
    assert_eq!(found, [("a".to_owned(), 1, 3)]);
}
