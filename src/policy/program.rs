//! The identity of a program, and the setting `tether.qualified`, which names those of servers that have qualified.

use crate::engine::hex;

/// What an id is written with: two digits for each byte.
const SHORTEST_ID: usize = 8;
const LONGEST_ID: usize = 128;

/// How many ids the setting may name.
const IDS_MAX: usize = 64;

/// The default of the setting.
pub const NONE: &str = "none";

/// Reads the setting: ids with spaces between them, or `none`.
pub fn read_ids(text: &str) -> Option<Vec<String>> {
    if text == NONE {
        return Some(Vec::new());
    }
    let ids: Vec<_> = text.split_ascii_whitespace().map(str::to_owned).collect();
    let is_id = |id: &String| {
        (SHORTEST_ID..=LONGEST_ID).contains(&id.len())
            && id.len().is_multiple_of(2)
            && id
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_fine = (1..=IDS_MAX).contains(&ids.len()) && ids.iter().all(is_id);
    is_fine.then_some(ids)
}

/// Reverts [`read_ids`].
pub fn write_ids(ids: &[String]) -> String {
    match ids {
        [] => NONE.to_owned(),
        ids => ids.join(" "),
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&hex(bytes)).into_owned()
}

/// Where the program is from whose mapped file has this address, by the lines of `/proc/self/maps`. A file that was replaced
/// has a name that ends in ` (deleted)`.
pub fn file_at(maps: &str, address: u64) -> Option<&str> {
    maps.lines().find_map(|line| {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        if !(number(from)?..number(to)?).contains(&address) {
            return None;
        }
        let name = words.nth(4)?.trim_start();
        name.starts_with('/').then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_can_be_read(text: String, address: u64) {
            let _ = file_at(&text, address);
            if let Some(ids) = read_ids(&text) {
                prop_assert_eq!(read_ids(&write_ids(&ids)), Some(ids));
            }
        }
    }

    #[test]
    fn the_setting_names_ids_or_none() {
        let ids = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        assert_eq!(read_ids("none"), ids(&[]));
        assert_eq!(read_ids("0123456789abcdef"), ids(&["0123456789abcdef"]));
        assert_eq!(
            read_ids(" 01234567  89abcdef "),
            ids(&["01234567", "89abcdef"])
        );
        for bad in [
            "",
            " ",
            "2",
            "maybe",
            "0123456",
            "ABCDEF01",
            "01234567 none",
            &"a".repeat(130),
        ] {
            assert_eq!(read_ids(bad), None, "{bad:?}");
        }
        assert_eq!(read_ids(&"01234567 ".repeat(65)), None);
        assert_eq!(write_ids(&[]), "none");
    }

    #[test]
    fn a_mapping_is_found_by_its_address() {
        let maps = "55d0-55e0 r--p 00000000 08:01 393 /usr/bin/a program\n\
                    55e0-55f0 r-xp 00010000 08:01 393                    /usr/bin/a program (deleted)\n\
                    6000-7000 rw-p 00000000 00:00 0 \n\
                    7000-8000 rw-p 00000000 00:00 0                      [heap]\n";
        for (address, file) in [
            (0x55d0, Some("/usr/bin/a program")),
            (0x55ef, Some("/usr/bin/a program (deleted)")),
            (0x55f0, None),
            (0x6000, None),
            (0x7000, None),
        ] {
            assert_eq!(file_at(maps, address), file, "{address:x}");
        }
    }
}
