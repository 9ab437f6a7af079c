//! Tables of requirements and of the tests that show them, written by `cargo xtask requirements`.
//!
//! A tag `//= GASS-12 depot#reading` stands behind or below `#[test]`, or above the `fn`; in a table of mutants `#=` stands
//! behind `[[mutant]]`. `docs/evidence/requirements/PAPER.txt` lists the requirements: a line with prefix and title, then
//! `numbers | requirement | state | other evidence`. A tag with `#` names a heading of a page of docs/semantics.

use crate::links;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

/// The lists and the pages, below the root of the tree.
pub(crate) const FOLDER: &str = "docs/evidence/requirements";
const CELL_CHARS_MAX: usize = 150;
const HEAD: &str = "Written by `cargo xtask requirements` from tags beside tests and mutants (names with hyphens).\n\n";

/// Pages by path below the root, and complaints about tags.
pub(crate) type Pages = (BTreeMap<String, String>, Vec<String>);

/// Tests and mutants by tag.
#[derive(Default)]
pub(crate) struct Tags(BTreeMap<String, BTreeSet<String>>);

impl Tags {
    /// Reads the tags of a Rust file or of a table of mutants.
    pub(crate) fn read(&mut self, text: &str) {
        let mut open: Vec<&str> = Vec::new();
        for line in text.lines().map(str::trim_start) {
            let tag = line.split_once("//= ").or_else(|| line.split_once("#= "));
            let is_beside = |before| ["", "#[test] ", "[[mutant]] "].contains(&before);
            if let Some((_, ids)) = tag.filter(|(before, _)| is_beside(*before)) {
                open.extend(ids.split(' '));
                continue;
            }
            let function = line.split_once("fn ").filter(|_| !line.starts_with("//"));
            let name = function.or_else(|| line.split_once("name = \""));
            let Some(name) = name.and_then(|(_, rest)| rest.split(['(', '<', '"']).next()) else {
                continue;
            };
            for id in open.drain(..) {
                let named = format!("`{name}`");
                self.0.entry(id.into()).or_default().insert(named);
            }
        }
    }

    /// Returns the pages, and what is wrong with the tags.
    pub(crate) fn pages(mut self, root: &Path) -> io::Result<Pages> {
        let mut pages = BTreeMap::new();
        for entry in fs::read_dir(root.join(FOLDER))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "txt") {
                let name = path.file_stem().unwrap_or_default().display();
                let page = self.paper(&fs::read_to_string(&path)?);
                pages.insert(format!("{FOLDER}/{name}.md"), page);
            }
        }
        let mut wrong = Vec::new();
        let ids: Vec<_> = self.0.keys().cloned().collect();
        for (id, (name, heading)) in ids.iter().filter_map(|id| Some((id, id.split_once('#')?))) {
            let link = format!("[{heading}](../../semantics/{name}.md#{heading})");
            let page = format!("{FOLDER}/promises-{name}.md");
            let broken = links::broken(&root.join(&page), &link).into_iter();
            wrong.extend(broken.map(|(_, what)| what));
            let head = format!("# Tests of {name}\n\n{HEAD}| promises | shown by |\n|---|---|\n");
            let row = rows(&link, "|", &self.take([id.clone()].into_iter()));
            *pages.entry(page).or_insert(head) += &row;
        }
        wrong.extend(self.0.keys().map(|id| format!("no list has {id}")));
        Ok((pages, wrong))
    }

    fn take(&mut self, ids: impl Iterator<Item = String>) -> BTreeSet<String> {
        ids.filter_map(|id| self.0.remove(&id)).flatten().collect()
    }

    fn paper(&mut self, list: &str) -> String {
        let (head, body) = list.split_once('\n').unwrap_or((list, ""));
        let (prefix, title) = head.split_once(' ').unwrap_or((head, ""));
        let mut page = format!("# {title}\n\n{HEAD}");
        page += "| line | requirement | state | shown by |\n|---|---|---|---|\n";
        for row in body.lines() {
            let (known, other) = match row.match_indices(" | ").nth(2) {
                Some((at, bar)) => (&row[..at], &row[at + bar.len()..]),
                None => (row, ""),
            };
            let numbers = known.split(" | ").next().unwrap_or_default();
            let mut shown = self.take(each(numbers).map(|number| format!("{prefix}-{number}")));
            shown.extend(other.split_terminator(", ").map(str::to_owned));
            page += &rows(&format!("{prefix}-{known}"), "| | |", &shown);
        }
        page
    }
}

/// Returns the numbers of a row: `3 5–7` are four.
fn each(numbers: &str) -> impl Iterator<Item = String> {
    numbers.split(' ').flat_map(|part| {
        let ends = part.split_once('–').unwrap_or((part, part));
        match (ends.0.parse::<u32>(), ends.1.parse::<u32>()) {
            (Ok(from), Ok(to)) => (from..=to).map(|number| number.to_string()).collect(),
            _ => vec![part.to_owned()],
        }
    })
}

/// Returns a row of a table, and further ones if the last cell would be too long.
fn rows(head: &str, empty: &str, shown: &BTreeSet<String>) -> String {
    let (mut page, mut cell) = (format!("| {head} | "), String::new());
    for name in shown {
        if !cell.is_empty() && cell.chars().count() + name.chars().count() > CELL_CHARS_MAX {
            page += &format!("{cell} |\n{empty} | ");
            cell.clear();
        }
        cell += if cell.is_empty() { "" } else { ", " };
        cell += name;
    }
    page + if cell.is_empty() { "–" } else { &cell } + " |\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_name_tests_and_mutants() {
        let mut tags = Tags::default();
        tags.read("#[test] //= A-1 A-3\nfn one() {}\n#[test]\n//= A-1\n#[ignore]\nfn two() {}\n");
        tags.read("[[mutant]] #= A-2\nname = \"a-lost-one\"\n");
        let page = tags.paper("A Paper\n1–2 | it works | yes | `bench/it`\n4 | more | *later*\n");
        let row = "| A-1–2 | it works | yes | `a-lost-one`, `bench/it`, `one`, `two` |\n";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("| A-4 | more | *later* | – |"), "{page}");
        assert_eq!(tags.0.keys().collect::<Vec<_>>(), ["A-3"]);
    }
}
