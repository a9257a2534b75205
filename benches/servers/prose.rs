//! The prose of docs/benchmarks.md: report.md is its only source, by the titles of the page's sections.

pub const PROSE: &str = include_str!("report.md");

/// A heading of the second level with all text up to the next one. The text before the first heading has no title.
pub struct Section {
    pub title: String,
    pub text: String,
}

pub fn sections(page: &str) -> Vec<Section> {
    let mut all = vec![Section {
        title: String::new(),
        text: String::new(),
    }];
    for line in page.split_inclusive('\n') {
        if let Some(title) = line.strip_prefix("## ") {
            all.push(Section {
                title: title.trim().to_owned(),
                text: String::new(),
            });
        }
        if let Some(section) = all.last_mut() {
            section.text += line;
        }
    }
    all
}

/// The page with its figures as they are, and before them the prose of each section as report.md has it now.
pub fn with_prose(page: &str) -> String {
    let prose = sections(PROSE);
    let renewed = sections(page).into_iter().map(|section| {
        let Some(prose) = prose.iter().find(|prose| prose.title == section.title) else {
            return section.text;
        };
        let paragraphs = section.text.split("\n\n").map(|it| it.trim_matches('\n'));
        let figures = paragraphs.skip_while(|paragraph| !is_of_figures(paragraph));
        let all = std::iter::once(prose.text.trim_end()).chain(figures);
        let all: Vec<_> = all.filter(|paragraph| !paragraph.is_empty()).collect();
        all.join("\n\n") + "\n\n"
    });
    renewed.collect::<String>().trim_end().to_owned() + "\n"
}

/// Whether a run wrote this paragraph: a table, its title, a picture, or what it was measured on.
fn is_of_figures(paragraph: &str) -> bool {
    let begins = ["|", "**", "![", "- Measured on ", "By a run of its own."];
    begins.iter().any(|begin| paragraph.starts_with(begin))
        || paragraph.contains(" figures have a target; ")
}
