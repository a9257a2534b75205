//! Names, times and tables for people.

use crate::output::{self, Page, Paint};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// A name as a terminal can show it: what would steer it is escaped, and what would look so.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                letter if output::is_steering(letter) => text.extend(output::escape(letter)),
                letter => text.push(letter),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// A sentence about a name, which is cut where the line is too long.
pub fn sentence(name: &str, rest: &str, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| {
        width.saturating_sub(rest.chars().count()).max(SHORTEST)
    });
    format!("{}{rest}", output::cut(name, room))
}

/// Two units at most: 812ms, 9.1s, 4m12s, 3h05m, 2d04h.
pub fn time(milliseconds: i64) -> String {
    let time = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
    let (seconds, tenth) = (time.as_secs(), time.subsec_millis() / 100);
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{seconds}.{tenth}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// A moment, which is given in milliseconds since 1970: 2026-11-27T14:03:12Z. Empty if it lies outside of what people write so.
pub fn instant(milliseconds: i64) -> String {
    let since = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
    let moment = UNIX_EPOCH.checked_add(since);
    moment.map_or_else(String::new, |moment| {
        let mut text = String::new();
        // It fails beyond the year 9999, and to a string otherwise never.
        match write!(text, "{}", humantime::format_rfc3339_seconds(moment)) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    })
}

/// Columns that may be cut where a line is too long, if they are longer than that: names.
const MAY_BE_CUT: [&str; 9] = [
    "SERVER",
    "KEY",
    "NAME",
    "HOST",
    "USER",
    "LABEL",
    "ADDRESS",
    "VALUE",
    "WAITS FOR",
];
const SHORTEST: usize = 8;
const BETWEEN: &str = "  ";

/// What stands in an empty cell, so that no cell seems to be in the column before.
const EMPTY: &str = "-";

/// Columns as wide as their widest cell, two spaces apart; one without a title is left out. No space ends a line. If that is too
/// wide, empty columns are left out, then names are cut, the longest first, and in the end lines.
pub fn table<const N: usize>(
    page: &mut Page,
    titles: [&str; N],
    rows: &[[String; N]],
    width: Option<usize>,
) {
    let mut widths = titles.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut is_shown = titles.map(|title| !title.is_empty());
    if let Some(most) = width
        && total(&widths, &is_shown) > most
    {
        for (column, is_shown) in is_shown.iter_mut().enumerate() {
            *is_shown &= rows.is_empty() || rows.iter().any(|row| !row[column].is_empty());
        }
        while total(&widths, &is_shown) > most {
            let longest = (0..N)
                .filter(|at| is_shown[*at] && MAY_BE_CUT.contains(&titles[*at]))
                .max_by_key(|at| widths[*at]);
            match longest.filter(|at| widths[*at] > SHORTEST.max(titles[*at].len())) {
                Some(longest) => widths[longest] -= 1,
                None => break,
            }
        }
    }
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate().filter(|(at, _)| is_shown[*at]) {
            let cell = if cell.is_empty() { EMPTY } else { cell };
            let (cell, wide) = (output::cut(cell, widths[at]), widths[at]);
            // Writing to a string does not fail.
            let _ = write!(line, "{cell:wide$}{BETWEEN}");
        }
        let line = line.trim_end();
        width.map_or_else(|| line.to_owned(), |width| output::cut(line, width))
    };
    let head = line(titles);
    page.painted(Paint::Bold, head.chars().count(), head);
    for row in rows {
        page.line(line(row.each_ref().map(String::as_str)));
    }
}

fn total<const N: usize>(widths: &[usize; N], is_shown: &[bool; N]) -> usize {
    let shown = widths
        .iter()
        .zip(is_shown)
        .filter(|(_, is_shown)| **is_shown);
    let (sum, count) = shown.fold((0, 0_usize), |(sum, count), (width, _)| {
        (sum + width, count + 1)
    });
    sum + BETWEEN.len() * count.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(shown("déjà vu".as_bytes()), "déjà vu");
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("a\u{9b}2J".as_bytes()), "a\\u{9b}2J");
        assert_eq!(shown("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(shown(b"\xff\\"), "\\xff\\\\");
    }

    #[test]
    fn the_name_is_what_a_sentence_lacks_where_it_is_too_long() {
        let of = |width| sentence("a long name", ": taken", width);
        assert_eq!(of(None), "a long name: taken");
        assert_eq!(of(Some(18)), "a long name: taken");
        assert_eq!(of(Some(17)), "a long na…: taken");
        assert_eq!(of(Some(5)), "a long …: taken");
    }

    #[test]
    fn times_have_two_units_at_most() {
        let times = [0, 999, 9_149, 60_000, 252_000, 11_100_000, 187_200_000, -5];
        let shown = times.map(time);
        let expected = [
            "0ms", "999ms", "9.1s", "1m00s", "4m12s", "3h05m", "2d04h", "0ms",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_moment_is_in_utc_to_the_second() {
        assert_eq!(instant(1_795_788_192_999), "2026-11-27T14:03:12Z");
        assert_eq!(instant(0), "1970-01-01T00:00:00Z");
        assert_eq!(instant(-1), "1970-01-01T00:00:00Z");
        assert_eq!(instant(i64::MAX), "");
    }

    fn lines<const N: usize>(
        titles: [&str; N],
        rows: &[[&str; N]],
        width: Option<usize>,
    ) -> Vec<String> {
        let rows: Vec<_> = rows.iter().map(|row| row.map(str::to_owned)).collect();
        let mut page = Page::default();
        table(&mut page, titles, &rows, width);
        page.rendered(None, false).collect()
    }

    #[test]
    fn a_column_without_a_title_is_left_out() {
        for width in [None, Some(3)] {
            assert_eq!(
                lines(["A", "", "B"], &[["1", "2", "3"]], width),
                ["A  B", "1  3"].map(|line| output::cut(line, width.unwrap_or(9)))
            );
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["é", "1"], ["abcd", ""]];
        assert_eq!(
            lines(["KEY", "N"], &rows, None),
            ["KEY   N", "é     1", "abcd  -"]
        );
    }

    #[test]
    fn what_is_too_wide_is_cut_with_a_mark() {
        let titles = ["KEY", "EMPTY", "TOKEN"];
        let rows = [["a long name", "", "12345"], ["b", "", "6"]];
        let whole = lines(titles, &rows, Some(25));
        assert_eq!(
            whole,
            [
                "KEY          EMPTY  TOKEN",
                "a long name  -      12345",
                "b            -      6"
            ]
        );
        let without_empty = lines(titles, &rows, Some(24));
        assert_eq!(without_empty[1], "a long name  12345");
        let cut = lines(titles, &rows, Some(16));
        assert_eq!(
            cut,
            ["KEY        TOKEN", "a long n…  12345", "b          6"]
        );
        // Numbers stay whole until there is no room for the line.
        assert_eq!(
            lines(titles, &rows, Some(12)),
            ["KEY       T…", "a long …  1…", "b         6"]
        );
    }
}
