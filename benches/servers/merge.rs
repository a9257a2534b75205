//! Takes the sections of a run of some parts over into docs/benchmarks.md, and leaves all others as they are.

use super::PARTS;
use super::prose::{Section, sections, with_prose};
use std::fs;
use std::io;
use std::path::Path;
use tether_testing::project;

const TARGETS: &str = "Every target";
/// The first columns of its table are not a server's.
const SERVERS_FROM: usize = 3;

/// The parts of this page are the latest.
pub fn into_docs(page: &Path) -> io::Result<()> {
    let docs = project().join("docs/benchmarks.md");
    let (new, old) = (fs::read_to_string(page)?, fs::read_to_string(&docs)?);
    // The pictures of its sections lie beside it.
    for file in page.parent().into_iter().flat_map(fs::read_dir).flatten() {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name.ends_with(".svg") && new.contains(&format!("({name})")) {
            fs::copy(file.path(), docs.with_file_name(name))?;
        }
    }
    fs::write(docs, with_prose(&merged(&old, &new)?))
}

/// For an edit of the prose: measures nothing.
pub fn prose_into_docs() -> io::Result<()> {
    let docs = project().join("docs/benchmarks.md");
    let page = fs::read_to_string(&docs)?;
    fs::write(docs, with_prose(&page))
}

fn merged(old: &str, new: &str) -> io::Result<String> {
    let measured = new.lines().find(|line| line.starts_with("- Measured on"));
    let measured = measured.unwrap_or_default().trim_start_matches("- ");
    let note = format!("By a run of its own. {measured}");
    let mut page = sections(old);
    let place = |title: &str| PARTS.iter().position(|part| part.title == title);
    for Section { title, text } in sections(new) {
        if title == TARGETS {
            let Some(old) = page.iter_mut().find(|section| section.title == TARGETS) else {
                return Err(io::Error::other("the page has no targets"));
            };
            old.text = targets(&old.text, &text)?;
        }
        let Some(part) = place(&title) else {
            continue;
        };
        let text = format!("{}\n\n{note}\n\n", text.trim_end());
        // A part's place is before the first that comes later.
        let later = |section: &Section| place(&section.title).is_some_and(|at| at > part);
        let at = page.iter().position(|section| section.title == title);
        match at {
            Some(at) => page[at].text = text,
            None => {
                let at = page.iter().position(later).unwrap_or(page.len());
                page.insert(at, Section { title, text });
            }
        }
    }
    let text: String = page.iter().map(|section| section.text.as_str()).collect();
    Ok(counted(&text).trim_end().to_owned() + "\n")
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner
        .split(" | ")
        .map(|cell| cell.trim().to_owned())
        .collect()
}

fn rows(section: &str) -> Vec<Vec<String>> {
    let lines = section.lines().filter(|line| line.starts_with('|'));
    lines.map(cells).collect()
}

/// One column for each server: what a run has measured is renewed, what is new comes last.
fn targets(old: &str, new: &str) -> io::Result<String> {
    let (mut table, new) = (rows(old), rows(new));
    let (Some(header), Some((new_header, new_rows))) = (table.first().cloned(), new.split_first())
    else {
        return Ok(old.to_owned());
    };
    for row in new_rows.iter().skip(1) {
        let is_it = |known: &Vec<String>| known[..2] == row[..2];
        let at = table.iter().position(is_it).unwrap_or_else(|| {
            table.push(vec![String::new(); header.len()]);
            table.len() - 1
        });
        table[at][..SERVERS_FROM].clone_from_slice(&row[..SERVERS_FROM]);
        for (server, cell) in new_header.iter().zip(row).skip(SERVERS_FROM) {
            let column = header.iter().position(|name| name == server);
            let column = column.ok_or_else(|| {
                io::Error::other(format!("the page has no figures of {server} besides these"))
            })?;
            table[at][column].clone_from(cell);
        }
    }
    let lines = table.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    Ok(format!("## {TARGETS}\n\n{}\n", lines.collect::<String>()))
}

/// The sentence that says how many figures have a target.
fn counted(page: &str) -> String {
    let is_it = |section: &Section| section.title == TARGETS;
    let Some(section) = sections(page).into_iter().find(is_it) else {
        return page.to_owned();
    };
    let figures = rows(&section.text).into_iter().skip(2);
    let figures: Vec<_> = figures
        .flat_map(|row| row.into_iter().skip(SERVERS_FROM))
        .collect();
    let figures: Vec<_> = figures.iter().filter(|cell| !cell.is_empty()).collect();
    let missed = figures
        .iter()
        .filter(|cell| cell.contains("MISSED"))
        .count();
    let sentence = format!("{} figures have a target; {missed} miss it:", figures.len());
    let lines =
        page.split_inclusive('\n')
            .map(|line| match line.split_once(" figures have a target; ") {
                Some((_, rest)) => {
                    let rest = rest.split_once(':').map_or("", |(_, rest)| rest);
                    format!("{sentence}{rest}")
                }
                None => line.to_owned(),
            });
    lines.collect()
}
