//! The identity of a program: the build id that its linker wrote, and the setting `tether.qualified`, which names those of
//! servers that have qualified.
//!
//! The file is untrusted: every number in it is checked before it is used.

use crate::engine::hex;

/// What a build id is written with: two digits for each byte.
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

/// The build id in an ELF file of this machine's kind, in hexadecimal. `read` gives that many bytes from an offset of the file,
/// or fewer where it ends.
pub fn build_id(read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<String> {
    /// The type and flags, then where the program headers are; see elf(5).
    const HEADER: usize = 64;
    const ENTRY: usize = 56;
    const PT_NOTE: u64 = 4;
    /// As many headers and bytes of notes are looked at; linkers write far fewer.
    const ENTRIES_MAX: u64 = 128;
    const NOTES_MAX: u64 = 64 << 10;
    let little = cfg!(target_endian = "little");
    let header = read(0, HEADER).filter(|header| header.len() == HEADER)?;
    // 64 bits, and the order of bytes that this machine has.
    let kind = [0x7f, b'E', b'L', b'F', 2, if little { 1 } else { 2 }];
    if !header.starts_with(&kind) {
        return None;
    }
    let (at, size) = (word(&header, 32, 8)?, word(&header, 54, 2)?);
    let count = word(&header, 56, 2)?.min(ENTRIES_MAX);
    for place in 0..count {
        let at = place.checked_mul(size)?.checked_add(at)?;
        let entry = read(at, ENTRY).filter(|entry| entry.len() == ENTRY)?;
        if word(&entry, 0, 4)? != PT_NOTE {
            continue;
        }
        let (offset, length) = (word(&entry, 8, 8)?, word(&entry, 32, 8)?);
        let notes = read(offset, length.min(NOTES_MAX) as usize)?;
        // Where the segment is aligned to eight bytes, so are its notes.
        let alignment = if word(&entry, 48, 8)? == 8 { 8 } else { 4 };
        if let Some(id) = id_among(&notes, alignment) {
            return Some(id);
        }
    }
    None
}

fn id_among(notes: &[u8], alignment: usize) -> Option<String> {
    const HEADER: usize = 12;
    const NT_GNU_BUILD_ID: u64 = 3;
    let mut at = 0_usize;
    loop {
        let sizes = [word(notes, at, 4)?, word(notes, at.checked_add(4)?, 4)?];
        let [name_size, size] = sizes.map(|size| size as usize);
        let kind = word(notes, at.checked_add(8)?, 4)?;
        let name = at.checked_add(HEADER)?;
        let content = name
            .checked_add(name_size)?
            .checked_next_multiple_of(alignment)?;
        let end = content.checked_add(size)?;
        let is_id =
            kind == NT_GNU_BUILD_ID && notes.get(name..name.checked_add(name_size)?)? == b"GNU\0";
        if is_id {
            let id = hexadecimal(notes.get(content..end)?);
            // Whatever cannot be named in the setting is no id.
            return read_ids(&id)
                .is_some_and(|ids| ids.len() == 1)
                .then_some(id);
        }
        at = end.checked_next_multiple_of(alignment)?;
    }
}

/// A number of so many bytes, as this machine writes it.
fn word(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(match cfg!(target_endian = "little") {
        true => bytes.iter().rev().fold(0, join),
        false => bytes.iter().fold(0, join),
    })
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

    fn reader(file: &[u8]) -> impl Fn(u64, usize) -> Option<Vec<u8>> + '_ {
        |offset, length| {
            let rest = file.get(usize::try_from(offset).ok()?..)?;
            Some(rest[..length.min(rest.len())].to_vec())
        }
    }

    fn number(number: u64, size: usize) -> Vec<u8> {
        match cfg!(target_endian = "little") {
            true => number.to_le_bytes()[..size].to_vec(),
            false => number.to_be_bytes()[8 - size..].to_vec(),
        }
    }

    fn note(name: &[u8], kind: u64, content: &[u8]) -> Vec<u8> {
        let sizes = [name.len() as u64, content.len() as u64, kind];
        let mut note: Vec<_> = sizes.iter().flat_map(|size| number(*size, 4)).collect();
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    /// A file with two program headers, of which the second is for these notes.
    fn file(notes: &[u8]) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2];
        file.push(if cfg!(target_endian = "little") { 1 } else { 2 });
        file.resize(32, 0);
        file.extend(number(64, 8));
        file.resize(54, 0);
        file.extend([number(56, 2), number(2, 2)].concat());
        file.resize(64 + 56, 0);
        file.extend([number(4, 4), number(0, 4), number(64 + 2 * 56, 8)].concat());
        file.extend(
            [
                number(0, 16 / 2),
                number(0, 8),
                number(notes.len() as u64, 8),
            ]
            .concat(),
        );
        file.extend([number(0, 8), number(4, 8)].concat());
        file.extend(notes);
        file
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let id = [0xab, 0x00, 0x12, 0xff];
        let notes = [
            note(b"GNU\0", 1, &[0; 16]),
            note(b"Other\0", 3, &[1, 2, 3]),
            note(b"GNU\0", 3, &id),
        ];
        let found = build_id(reader(&file(&notes.concat())));
        assert_eq!(found.as_deref(), Some("ab0012ff"));
        for without in [&notes[..2].concat()[..], &[]] {
            assert_eq!(build_id(reader(&file(without))), None);
        }
        let whole = file(&notes.concat());
        for length in 0..whole.len() {
            assert_eq!(build_id(reader(&whole[..length])), None, "{length}");
        }
        for (place, byte) in [(0, b'F'), (4, 1), (5, 3)] {
            let mut other = whole.clone();
            other[place] = byte;
            assert_eq!(build_id(reader(&other)), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_program_has_no_id_or_one_that_the_setting_takes() {
        let file = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
        if let Some(id) = build_id(reader(&file)) {
            assert_eq!(read_ids(&id), Some(vec![id]));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = build_id(reader(&bytes));
            let _ = build_id(reader(&file(&bytes)));
            let _ = id_among(&bytes, 4);
            let _ = id_among(&bytes, 8);
        }

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
