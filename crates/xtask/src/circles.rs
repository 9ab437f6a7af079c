//! Modules of a crate that import each other in a circle. A module is a file or folder directly below `src`; the root
//! of the crate, which re-exports, is none, but what it re-exports is traced to its module.

use crate::code::{only_code, without_tests};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The import paths of every module, by crate.
#[derive(Default)]
pub(crate) struct Circles(BTreeMap<String, Imports>);

#[derive(Default)]
struct Imports {
    /// Paths below `crate::` that a module names.
    of: BTreeMap<String, BTreeSet<Vec<String>>>,
    /// Names that the root re-exports, and their module.
    exported: BTreeMap<String, String>,
}

impl Circles {
    /// Takes note of what a file imports; `path` counts from the root of the tree.
    pub(crate) fn read(&mut self, path: &Path, text: &str) {
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        let ["crates", name, "src", file, ..] =
            parts.iter().map(|part| &**part).collect::<Vec<_>>()[..]
        else {
            return;
        };
        let code = only_code(text);
        let code = without_tests(&code);
        let imports = self.0.entry(name.to_owned()).or_default();
        let module = file.strip_suffix(".rs").unwrap_or(file);
        if ["lib", "main"].contains(&module) {
            for path in trees(code, &["pub use ", "pub(crate) use ", "use "]) {
                if let [module, .., last] = &path[..] {
                    imports.exported.insert(last.clone(), module.clone());
                }
            }
            return;
        }
        let is_top = parts.len() == 4;
        let starts: &[&str] = if is_top {
            &["crate::", "super::"]
        } else {
            &["crate::"]
        };
        let found = imports.of.entry(module.to_owned()).or_default();
        found.extend(trees(code, starts));
    }

    /// Returns the modules of each crate that are in a circle.
    pub(crate) fn find(&self) -> Vec<(String, Vec<String>)> {
        let each = self
            .0
            .iter()
            .map(|(name, imports)| (name.clone(), imports.in_circles()));
        each.filter(|(_, members)| !members.is_empty()).collect()
    }
}

impl Imports {
    fn in_circles(&self) -> Vec<String> {
        let to = |path: &Vec<String>| {
            let first = path.first()?;
            let module = if self.of.contains_key(first) {
                first
            } else {
                self.exported.get(first)?
            };
            Some(module.clone())
        };
        let edges: BTreeMap<&String, BTreeSet<String>> = self
            .of
            .iter()
            .map(|(from, paths)| (from, paths.iter().filter_map(to).collect()))
            .collect();
        let reaches = |from: &String| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(at) = next.pop() {
                for to in edges.get(at).into_iter().flatten().filter(|to| *to != at) {
                    if seen.insert(to) {
                        next.push(to);
                    }
                }
            }
            seen.contains(from)
        };
        self.of
            .keys()
            .filter(|module| reaches(module))
            .cloned()
            .collect()
    }
}

/// Returns the paths behind each of `starts`, with braces opened.
fn trees(code: &str, starts: &[&str]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for start in starts {
        for (at, _) in code.match_indices(start) {
            let is_inside = code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
            if !is_inside {
                open(&code[at + start.len()..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads one tree of paths; returns what is left of the text behind it.
fn open<'a>(text: &'a str, before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let depth = before.len();
    let mut rest = text.trim_start();
    loop {
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                let left = open(rest, before, found).trim_start();
                let left = left.strip_prefix(',').unwrap_or(left).trim_start();
                // What is no list of paths is passed over.
                rest = if left.len() < rest.len() { left } else { "" };
            }
            before.truncate(depth);
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        let len = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        before.push(rest[..len].to_owned());
        rest = &rest[len..];
        match rest.strip_prefix("::") {
            Some(more) => rest = more,
            None => break,
        }
    }
    found.push(before.clone());
    before.truncate(depth);
    let alias = rest
        .trim_start()
        .strip_prefix("as ")
        .map(|alias| alias.trim_start());
    alias.map_or(rest, |alias| {
        alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circle_through_the_root_is_found() {
        let mut circles = Circles::default();
        for (file, text) in [
            ("lib.rs", "mod a; mod b; mod c;\npub use b::Bee;\n"),
            ("a.rs", "use crate::{Bee, c::{Sea, Deep}};\n"),
            ("b.rs", "use super::a::Aye;\n"),
            ("c/deep.rs", "// crate::a\nlet text = \"crate::b\";\n"),
        ] {
            circles.read(&Path::new("crates/store/src").join(file), text);
        }
        assert_eq!(
            circles.find(),
            [("store".to_owned(), vec!["a".to_owned(), "b".to_owned()])]
        );
    }
}
