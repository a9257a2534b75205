//! When what a document shows and what redis-cli prints are the same.

/// What a document's numbers stand for in this run. A fencing token stands for one of the same rank: equal ones for
/// equal ones, greater for greater. So does a connection's id, though with no rank. Milliseconds and ports stand for
/// any. A session's secret stands for one. What a document's commands say of a secret or token is said of that one.
#[derive(Default)]
pub struct Likeness {
    tokens: Vec<(u64, u64)>,
    clients: Vec<(u64, u64)>,
    secrets: Vec<(String, String)>,
}

impl Likeness {
    pub fn all(&mut self, expected: &[String], printed: &[String]) -> bool {
        let before = |at: usize| at.checked_sub(1).map_or("", |at| expected[at].as_str());
        let same = |(at, (expected, printed)): (usize, (&String, &String))| {
            self.line(before(at), expected, printed)
        };
        expected.len() == printed.len() && expected.iter().zip(printed).enumerate().all(same)
    }

    /// What is to be typed where the document has this.
    pub fn typed(&self, text: &str) -> String {
        let mut typed = text.to_owned();
        for (ours, theirs) in &self.secrets {
            typed = typed.replace(ours, theirs);
        }
        for (ours, theirs) in &self.tokens {
            typed = typed.replace(&ours.to_string(), &theirs.to_string());
        }
        typed
    }

    fn line(&mut self, before: &str, expected: &str, printed: &str) -> bool {
        if let Some((start, rest)) = expected.split_once("...") {
            let ends = rest.rsplit("...").next().unwrap_or_default();
            return printed.starts_with(start) && printed.ends_with(ends);
        }
        if let (Some(ours), Some(theirs)) = (secret(expected), secret(printed)) {
            self.secrets.push((ours.to_owned(), theirs.to_owned()));
            return true;
        }
        let (ours, theirs) = (pieces(expected), pieces(printed));
        let mut context = format!("{before}\n");
        ours.len() == theirs.len()
            && ours
                .iter()
                .zip(&theirs)
                .enumerate()
                .all(|(at, (ours_at, theirs_at))| {
                    let after = ours.get(at + 1).copied().unwrap_or_default();
                    let same = ours_at == theirs_at && !context.ends_with("client ");
                    let like = same || self.number(&context, ours_at, theirs_at, after);
                    context.push_str(ours_at);
                    like
                })
    }

    fn number(&mut self, context: &str, ours: &str, theirs: &str, after: &str) -> bool {
        let (Ok(ours_number), Ok(theirs_number)) = (ours.parse::<u64>(), theirs.parse::<u64>())
        else {
            return false;
        };
        let label = context.rsplit('"').nth(1).unwrap_or_default();
        let is_place = after.starts_with([')', '#', '~']);
        let pair = (ours_number, theirs_number);
        if ours.len() >= 15 && theirs.len() >= 15 {
            stands_for(&mut self.tokens, pair, true)
        } else if is_place {
            ours == theirs
        } else if context.ends_with("client ") || ["client", "holders"].contains(&label) {
            stands_for(&mut self.clients, pair, false)
        } else {
            context.ends_with("127.0.0.1:") || label.ends_with("-ms")
        }
    }
}

fn stands_for(known: &mut Vec<(u64, u64)>, (ours, theirs): (u64, u64), ranked: bool) -> bool {
    let fits = known.iter().all(|(other_ours, other_theirs)| {
        let (one, two) = (ours.cmp(other_ours), theirs.cmp(other_theirs));
        one == two || (!ranked && one.is_ne() && two.is_ne())
    });
    known.push((ours, theirs));
    fits
}

/// A session's secret, where a line has one and nothing else.
fn secret(line: &str) -> Option<&str> {
    let word = line.strip_prefix('"')?.strip_suffix('"')?;
    let is_secret = word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_secret.then_some(word)
}

/// A line as numbers and what stands between them.
fn pieces(line: &str) -> Vec<&str> {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut pieces = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let digits = is_digit(first);
        let end = rest.find(|c| is_digit(c) != digits).unwrap_or(rest.len());
        pieces.push(&rest[..end]);
        rest = &rest[end..];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::Likeness;

    /// Whether these two sessions are alike, line by line.
    fn alike(shown: &str, printed: &str) -> bool {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        Likeness::default().all(&lines(shown), &lines(printed))
    }

    #[test]
    fn tokens_are_alike_in_rank() {
        let shown = "(integer) 251023456790529\n\"251023456790530\"\n(integer) 251023456790529";
        assert!(alike(
            shown,
            "(integer) 299999999999999\n\"300000000000000\"\n(integer) 299999999999999"
        ));
        assert!(!alike(
            shown,
            "(integer) 299999999999999\n\"299999999999998\"\n(integer) 299999999999999"
        ));
        assert!(!alike(
            shown,
            "(integer) 299999999999999\n\"300000000000000\"\n(integer) 300000000000000"
        ));
        assert!(!alike(
            shown,
            "(integer) 1\n\"300000000000000\"\n(integer) 299999999999999"
        ));
    }

    #[test]
    fn ids_are_alike_where_they_name_the_same() {
        let shown = "DEADLOCK client 7 waits for 'a' of client 8, which waits for 'b' of client 7";
        assert!(alike(shown, &shown.replace('7', "70").replace('8', "7")));
        assert!(!alike(shown, &shown.replace('8', "7")));
        assert!(!alike(shown, &shown.replace("of client 7", "of client 9")));
        let shown = "1) \"holders\"\n2) 1) (integer) 7\n3) \"waiters\"\n4) (integer) 0";
        assert!(alike(shown, &shown.replace('7', "12")));
        assert!(!alike(shown, &shown.replace('0', "1")));
        assert!(!alike(shown, &shown.replace("2) 1)", "2) 2)")));
    }

    #[test]
    fn times_and_ports_are_any_and_all_else_is_itself() {
        let shown = "9# \"held-ms\" => (integer) 812\n2# \"addr\" => \"127.0.0.1:50412\"";
        assert!(alike(
            shown,
            &shown.replace("812", "0").replace("50412", "6")
        ));
        assert!(!alike(shown, &shown.replace("9#", "8#")));
        assert!(!alike("(integer) 1", "(integer) 2"));
        assert!(!alike("(integer) 1", "(integer) 1\n(integer) 1"));
        assert!(!alike("\"EXIST\"", "\"NOEXIST\""));
        assert!(alike("(error) NOPERM ...", "(error) NOPERM No permissions"));
        assert!(!alike("(error) NOPERM ...", "(error) ERR no"));
    }
}
