//! Executes the table "Where cp, mv and sync put things" of docs/semantics/copy.md, row by row.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Said, Scratch, godwit, tree};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// One row of the table.
struct Row<'a> {
    there: Vec<&'a str>,
    command: Vec<&'a str>,
    /// New path and the file whose bytes it has; directories have none.
    made: BTreeMap<&'a str, Option<&'a str>>,
    gone: BTreeSet<&'a str>,
    refused: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Self {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [there, command, then] = cells[..] else {
            panic!("not three cells: {line}");
        };
        let (then, refused) = match then.split_once("refused:") {
            Some((then, why)) => (then, Some(why.trim())),
            None => (then, None),
        };
        let mut row = Row {
            there: quoted(there).map(|(name, _)| name).collect(),
            command: quoted(command)
                .flat_map(|(text, _)| text.split(' '))
                .collect(),
            made: BTreeMap::new(),
            gone: BTreeSet::new(),
            refused,
        };
        for (text, after) in quoted(then) {
            if after.trim_start().starts_with("gone") {
                row.gone.insert(text);
            } else if let Some((new, source)) = text.split_once(" = ") {
                row.made.insert(new, Some(source));
            } else {
                row.made.insert(text, None);
            }
        }
        row
    }

    fn prepare(&self) -> Scratch {
        let scratch = Scratch::new();
        for name in &self.there {
            if let Some(directory) = name.strip_suffix('/') {
                scratch.dir(directory);
            } else {
                let path = scratch.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, name).unwrap();
                // Different times, or sync would take files of one length for equal.
                let second = 1_000_000 + name.bytes().map(u64::from).sum::<u64>();
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(time).unwrap();
            }
        }
        scratch
    }

    fn run(&self, scratch: &Scratch, more: &[&str]) -> Said {
        let mut command = godwit();
        command.current_dir(scratch.path());
        command.args(&self.command).args(more);
        Said::of(&mut command)
    }

    fn check(&self, line: &str) {
        let scratch = self.prepare();
        let before = content(scratch.path());
        let rehearsed = self.run(&scratch, &["--dry-run"]);
        assert_eq!(
            content(scratch.path()),
            before,
            "{line}: --dry-run touched something"
        );
        let said = self.run(&scratch, &[]);
        match self.refused {
            None => assert_eq!(said.status, Some(0), "{line}: {said}"),
            Some(why) => {
                assert!(!matches!(said.status, None | Some(0)), "{line}: {said}");
                assert!(said.stderr.contains(why), "{line}: {said}");
                assert!(said.stderr.starts_with("godwit: cannot "), "{line}: {said}");
            }
        }
        assert_eq!(
            content(scratch.path()),
            self.expected(before),
            "{line}: {said}"
        );
        if self.command[0] != "mv" && self.refused.is_none() {
            assert_eq!(promised(&rehearsed), self.promises(), "{line}: {rehearsed}");
        }
    }

    fn expected(&self, before: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut after = before.clone();
        for (path, source) in &self.made {
            let bytes = source.map_or(String::new(), |source| before[source].clone());
            let above = Path::new(path).ancestors().skip(1);
            for directory in above.filter(|above| !above.as_os_str().is_empty()) {
                after.insert(format!("{}/", directory.display()), String::new());
            }
            after.insert((*path).into(), bytes);
        }
        after.retain(|path, _| !self.gone.contains(path.as_str()));
        after
    }

    fn promises(&self) -> BTreeSet<String> {
        let copies = self.made.iter().filter(|(_, source)| source.is_some());
        let gone = self.gone.iter().map(|path| path.trim_end_matches('/'));
        copies
            .map(|(path, _)| *path)
            .chain(gone)
            .map(Into::into)
            .collect()
    }
}

#[test]
fn every_table_row_holds() {
    let page = "/../../docs/semantics/copy.md";
    let text = std::fs::read_to_string(format!("{}{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let section = text
        .split("\n## ")
        .find(|s| s.starts_with("Where cp, mv and sync put things"));
    let rows = section
        .expect("the section is there")
        .lines()
        .filter(|l| l.starts_with("| "));
    let rows: Vec<&str> = rows.skip(1).collect();
    assert!(rows.len() > 40, "{} rows", rows.len());
    for line in rows {
        Row::parse(line).check(line);
    }
}

/// Returns what stands in backquotes, and the text behind it.
fn quoted(cell: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts: Vec<&str> = cell.split('`').collect();
    (1..parts.len().saturating_sub(1))
        .step_by(2)
        .map(move |i| (parts[i], parts[i + 1]))
}

/// Returns everything below, directories with a slash, files with their bytes.
fn content(root: &Path) -> BTreeMap<String, String> {
    let entry = |path: &std::path::PathBuf| {
        let name = path.to_str().unwrap().to_owned();
        let whole = root.join(path);
        if whole.is_dir() {
            (format!("{name}/"), String::new())
        } else {
            (name, std::fs::read_to_string(whole).unwrap())
        }
    };
    tree(root).iter().map(entry).collect()
}

/// Returns the targets that a rehearsal named.
fn promised(said: &Said) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&said.stdout);
    let target = |line: &str| {
        let (_, target) = line.rsplit_once(' ').expect("a line of words");
        target.trim_start_matches("./").to_owned()
    };
    text.lines().map(target).collect()
}
