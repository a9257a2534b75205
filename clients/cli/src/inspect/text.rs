//! Names, times and tables for people.

use crate::output;
use std::fmt::Write;
use std::time::Duration;

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

/// Columns as wide as their widest cell, two spaces apart. No space ends a line.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = titles.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    let mut write = |cells: [&str; N]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    write(titles);
    for row in rows {
        write(row.each_ref().map(String::as_str));
    }
    text
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
    fn times_have_two_units_at_most() {
        let times = [0, 999, 9_149, 60_000, 252_000, 11_100_000, 187_200_000, -5];
        let shown = times.map(time);
        let expected = [
            "0ms", "999ms", "9.1s", "1m00s", "4m12s", "3h05m", "2d04h", "0ms",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["é".to_owned(), "1".to_owned()],
            ["abcd".to_owned(), String::new()],
        ];
        assert_eq!(table(["KEY", "N"], &rows), "KEY   N\né     1\nabcd\n");
    }
}
