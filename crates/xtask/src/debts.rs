//! Rules that older files do not keep yet. Each breach is counted per file; `debts.txt` lists how many a file may have.
//! A file that is worse than its line fails; one that is better is told, and `cargo xtask tidy --shrink` lowers the line.

use crate::{
    circles::Circles,
    code::{only_code, words},
    links::prose,
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Where the list is, below the root of the tree.
pub(crate) const LIST: &str = "crates/xtask/debts.txt";

/// Breaches by rule and file: how many, and one of them in words.
#[derive(Default)]
pub(crate) struct Debts(BTreeMap<(&'static str, String), (usize, String)>);

/// Rules, and what to do about a breach.
const RULES: [(&str, &str); 8] = [
    (
        "words",
        "name the actor and use the trade's word (CONTRIBUTING.md)",
    ),
    (
        "openings",
        "begin a doc line with the thing, not with What/Who/It/The same",
    ),
    (
        "tests",
        "name a test in at most seven words: subject_condition_result",
    ),
    (
        "answers",
        "a function named is_ or has_ returns bool and changes nothing",
    ),
    (
        "lines",
        "a file has at most 1,000 lines: divide it by state or sub-machine",
    ),
    ("cells", "a table cell has at most 160 characters"),
    ("pages", "a document has at most 15 KB"),
    (
        "circles",
        "modules of a crate import each other in one direction",
    ),
];

const REFUSED: [&str; 5] = ["whoever", "somebody", "nobody", "owed", "owes"];
/// Folders of pages in which words are refused too.
const PLAIN: [&str; 2] = ["docs/guide/", "docs/semantics/"];
const OPENINGS: [&str; 8] = [
    "What ",
    "Who ",
    "It ",
    "The same",
    "So many",
    "Likewise",
    "Of these",
    "Whether it",
];
const TEST_WORDS_MAX: usize = 7;
const LINES_MAX: usize = 1000;
const CELL_CHARS_MAX: usize = 160;
const PAGE_BYTES_MAX: usize = 15 << 10;

impl Debts {
    /// Counts the breaches of all files, which are paths below `root`.
    pub(crate) fn count(root: &Path, files: &[(PathBuf, String)]) -> io::Result<Self> {
        let mut debts = Self::default();
        let mut circles = Circles::default();
        for (path, text) in files
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == "rs"))
        {
            debts.rust(&path.display().to_string(), text);
            circles.read(path, text);
        }
        for (name, members) in circles.find() {
            let told = members.join(" ");
            debts.add(
                "circles",
                &format!("crates/{name}/src"),
                members.len(),
                || told,
            );
        }
        let mut pages = Vec::new();
        documents(root, &mut pages)?;
        for page in pages {
            let text = fs::read_to_string(&page)?;
            let name = page.strip_prefix(root).unwrap_or(&page);
            debts.page(&name.display().to_string(), &text);
        }
        Ok(debts)
    }

    fn add(&mut self, rule: &'static str, file: &str, count: usize, told: impl FnOnce() -> String) {
        if count > 0 {
            let entry = self.0.entry((rule, file.to_owned()));
            entry.or_insert_with(|| (0, told())).0 += count;
        }
    }

    fn rust(&mut self, file: &str, text: &str) {
        let mut is_test = false;
        for (number, line) in (1..).zip(text.lines()) {
            let said = line.trim_start();
            let told = || format!("line {number}: {said}");
            let is_comment = said.starts_with("//");
            if is_comment || said.contains('"') {
                let refused = words(said).filter(|word| REFUSED.contains(&&*word.to_lowercase()));
                self.add("words", file, refused.count(), told);
            }
            let doc = said
                .strip_prefix("/// ")
                .or_else(|| said.strip_prefix("//! "));
            let is_bad = doc.is_some_and(|doc| OPENINGS.iter().any(|open| doc.starts_with(open)));
            self.add("openings", file, usize::from(is_bad), told);
            is_test |= said.starts_with("#[test]");
            if let Some((_, name)) = said.split_once("fn ").filter(|_| !is_comment) {
                let name = name.split(['(', '<']).next().unwrap_or_default();
                let is_long = is_test && name.split('_').count() > TEST_WORDS_MAX;
                self.add("tests", file, usize::from(is_long), told);
                is_test = false;
            }
        }
        let code = only_code(text);
        self.add("answers", file, answers(&code), || {
            "is_ or has_ without -> bool".into()
        });
        let lines = text.lines().count();
        self.add(
            "lines",
            file,
            if lines > LINES_MAX { lines } else { 0 },
            || format!("{lines} lines"),
        );
    }

    fn page(&mut self, file: &str, text: &str) {
        let rows = (1..)
            .zip(text.lines())
            .filter(|(_, line)| line.starts_with('|'));
        for (number, row) in rows {
            let long = row
                .split('|')
                .filter(|cell| cell.trim().chars().count() > CELL_CHARS_MAX);
            self.add("cells", file, long.count(), || format!("line {number}"));
        }
        if PLAIN.iter().any(|folder| file.starts_with(folder)) {
            for (number, line) in prose(text) {
                let plain = line.split('`').step_by(2).flat_map(words);
                let refused = plain.filter(|word| REFUSED.contains(&&*word.to_lowercase()));
                self.add("words", file, refused.count(), || format!("line {number}"));
            }
        }
        let kilobytes = text.len().div_ceil(1 << 10);
        let is_long = text.len() > PAGE_BYTES_MAX;
        self.add("pages", file, if is_long { kilobytes } else { 0 }, || {
            format!("{kilobytes} KB")
        });
    }

    /// Compares with the list. Returns complaints, and notes about files that got better.
    pub(crate) fn compare(&self, list: &str) -> (Vec<String>, Vec<String>) {
        let allowed = read(list);
        let (mut complaints, mut notes) = (Vec::new(), Vec::new());
        for ((rule, file), (count, told)) in &self.0 {
            let most = allowed.get(&(*rule, file.as_str())).copied().unwrap_or(0);
            if *count > most {
                let (_, mend) = RULES
                    .iter()
                    .find(|(name, _)| name == rule)
                    .expect("each rule has a row");
                complaints.push(format!(
                    "{file}: {rule} {count}, and {LIST} allows {most}: {mend} (one is {told})"
                ));
            }
        }
        for ((rule, file), most) in allowed {
            let count = self.0.iter().find(|((r, f), _)| *r == rule && f == file);
            let count = count.map_or(0, |(_, (count, _))| *count);
            if count < most {
                notes.push(format!("{file}: {rule} {most} in {LIST} is {count} by now"));
            }
        }
        (complaints, notes)
    }

    /// Returns the list with each line lowered to what is there; all of it if there was none.
    pub(crate) fn shrink(&self, list: &str) -> String {
        let allowed = read(list);
        let lowest = |key: (&str, &str), count: usize| match list.is_empty() {
            true => count,
            false => allowed.get(&key).map_or(0, |most| count.min(*most)),
        };
        let rows = self
            .0
            .iter()
            .map(|((rule, file), (count, _))| (rule, file, lowest((rule, file), *count)));
        let rows = rows.filter(|(_, _, most)| *most > 0);
        rows.map(|(rule, file, most)| format!("{rule} {most} {file}\n"))
            .collect()
    }
}

fn read(list: &str) -> BTreeMap<(&str, &str), usize> {
    let rows = list.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ' ');
        let (rule, count, file) = (parts.next()?, parts.next()?, parts.next()?);
        Some(((rule, file), count.parse().ok()?))
    });
    rows.collect()
}

/// Counts functions named `is_…` or `has_…` that return something else than `bool`.
fn answers(code: &str) -> usize {
    let mut found = 0;
    for start in ["fn is_", "fn has_"] {
        for (at, _) in code.match_indices(start) {
            let head = code[at..].split(['{', ';']).next().unwrap_or_default();
            found += usize::from(!head.contains("-> bool"));
        }
    }
    found
}

/// Adds every document below `folder` to `pages`.
pub(crate) fn documents(folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            documents(&path, pages)?;
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Vec<(&'static str, usize)> {
        let mut debts = Debts::default();
        debts.rust("a.rs", text);
        debts
            .0
            .into_iter()
            .map(|((rule, _), (count, _))| (rule, count))
            .collect()
    }

    #[test]
    fn each_rule_counts_its_breach() {
        assert_eq!(
            counted("//! Waits for a reader.\nfn is_it() -> bool { true }\n"),
            []
        );
        assert_eq!(
            counted("/// What is owed to somebody.\n"),
            [("openings", 1), ("words", 2)]
        );
        assert_eq!(
            counted("#[test]\nfn a_b_c_d_e_f_g_h() {}\n#[test]\nfn a_b() {}\n"),
            [("tests", 1)]
        );
        assert_eq!(counted("fn is_it() -> u8 { 1 }\n"), [("answers", 1)]);
        assert_eq!(counted(&"\n".repeat(1001)), [("lines", 1001)]);
        let mut debts = Debts::default();
        debts.page("a.md", &format!("| {} | b |\n", "x".repeat(161)));
        debts.page("b.md", &"x".repeat(16 << 10));
        assert_eq!(debts.0.len(), 2);
        debts.page("docs/guide/c.md", &format!("`{0}`\n{0}\n", REFUSED[0]));
        assert_eq!(debts.0[&("words", "docs/guide/c.md".into())].0, 1);
    }

    #[test]
    fn list_only_shrinks() {
        let mut debts = Debts::default();
        debts.rust("a.rs", "// somebody\n// nobody\n");
        assert_eq!(debts.shrink(""), "words 2 a.rs\n");
        assert_eq!(debts.shrink("words 1 a.rs\n"), "words 1 a.rs\n");
        assert_eq!(debts.compare("words 2 a.rs\n"), (vec![], vec![]));
        let (complaints, _) = debts.compare("words 1 a.rs\n");
        assert!(
            complaints[0].contains("words 2, and") && complaints[0].contains("allows 1"),
            "{complaints:?}"
        );
        let (complaints, notes) = debts.compare("words 3 a.rs\nlines 1200 b.rs\n");
        assert_eq!((complaints.len(), notes.len()), (0, 2));
    }
}
