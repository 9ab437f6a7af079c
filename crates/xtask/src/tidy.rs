//! The rules of the house that a compiler does not know, each a function from a
//! file's text to complaints.

use crate::{
    code::{only_code, parts, without_tests, words},
    debts::{Debts, LIST, documents},
    links,
    requirements::{self, Pages, Tags},
    table::NamedTests,
};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// The findings of a check of the whole tree.
pub(crate) struct Checked {
    pub(crate) files: usize,
    pub(crate) complaints: Vec<Complaint>,
    pub(crate) notes: Vec<String>,
    /// The list of debts, lowered to what is there.
    pub(crate) shrunk: String,
}

/// One breach of one rule.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Complaint {
    path: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.what)
    }
}

/// Checks every Rust file and every crate's `Cargo.toml` below `root`, what tables name, and where links lead.
pub(crate) fn check_tree(root: &Path) -> io::Result<Checked> {
    let mut paths = Vec::new();
    for top in ["crates", "fuzz", "tests"] {
        collect(&root.join(top), &mut paths)?;
    }
    paths.sort();
    let mut complaints = Vec::new();
    let mut named = NamedTests::default();
    let mut read = Vec::new();
    for path in &paths {
        let text = fs::read_to_string(path)?;
        let short = path.strip_prefix(root).unwrap_or(path);
        complaints.extend(check_file(short, &text));
        named.read(&text);
        read.push((short.to_owned(), text));
    }
    for table in fs::read_dir(root.join("tests/mutants"))? {
        named.read_mutants(&fs::read_to_string(table?.path())?);
    }
    let (made, wrong) = requirements(root)?;
    complaints.extend(wrong.into_iter().map(|what| Complaint {
        path: requirements::FOLDER.into(),
        line: 1,
        what,
    }));
    for (page, text) in made {
        if fs::read_to_string(root.join(&page)).is_ok_and(|old| old == text) {
            continue;
        }
        complaints.push(Complaint {
            path: page.into(),
            line: 1,
            what: "out of date; run cargo xtask requirements".into(),
        });
    }
    let mut pages = Vec::new();
    documents(root, &mut pages)?;
    for page in pages {
        let text = fs::read_to_string(&page)?;
        let short = page.strip_prefix(root).unwrap_or(&page);
        let mut found = links::broken(&page, &text);
        if TABLES.iter().any(|table| short.starts_with(table)) {
            found.extend(named.check(&text));
        }
        complaints.extend(found.into_iter().map(|(line, what)| Complaint {
            path: short.to_owned(),
            line,
            what,
        }));
    }
    let list = fs::read_to_string(root.join(LIST)).unwrap_or_default();
    let debts = Debts::count(root, &read)?;
    let (worse, notes) = debts.compare(&list);
    complaints.extend(worse.into_iter().map(|what| Complaint {
        path: LIST.into(),
        line: 1,
        what,
    }));
    Ok(Checked {
        files: paths.len(),
        complaints,
        notes,
        shrunk: debts.shrink(&list),
    })
}

/// Returns the pages of requirements by path, and what is wrong with tags and lists.
pub(crate) fn requirements(root: &Path) -> io::Result<Pages> {
    let mut paths = Vec::new();
    collect(&root.join("crates"), &mut paths)?;
    for table in fs::read_dir(root.join("tests/mutants"))? {
        paths.push(table?.path());
    }
    let mut tags = Tags::default();
    for path in paths
        .iter()
        .filter(|path| !path.ends_with("requirements.rs"))
    {
        tags.read(&fs::read_to_string(path)?);
    }
    tags.pages(root)
}

/// Checks one file; `path` counts from the root of the tree.
pub(crate) fn check_file(path: &Path, text: &str) -> Vec<Complaint> {
    let mut found = Vec::new();
    let name = crate_of(path);
    if path.ends_with("Cargo.toml") {
        arrows(name, text, &mut found);
    } else {
        let code = only_code(text);
        opening(text, &mut found);
        leftovers(text, &code, &mut found);
        refused_words(path, &code, &mut found);
        if !["sys", "capi"].contains(&name) {
            unsafety(&code, &mut found);
        }
        let is_library = path.components().any(|part| part.as_os_str() == "src");
        if PURE.contains(&name) && is_library {
            purity(without_tests(&code), &mut found);
        }
        if path.starts_with(PLAN) && !path.ends_with("tests.rs") {
            for (number, line) in numbered(without_tests(&code)) {
                let word = IMPURE_IN_PLAN.iter().find(|word| line.contains(*word));
                found.extend(word.map(|word| (number, format!("{word} has no place in the plan"))));
            }
        }
    }
    let complain = |(line, what)| Complaint {
        path: path.into(),
        line,
        what,
    };
    found.into_iter().map(complain).collect()
}

type Complaints = Vec<(usize, String)>;

/// Pages, and folders of pages, with tables that name tests.
const TABLES: [&str; 2] = ["docs/semantics", "docs/evidence/fault-injection.md"];

/// Which crates may be imported by which; down only.
const ARROWS: [(&str, &[&str]); 14] = [
    ("core", &[]),
    ("wire", &["core"]),
    ("trust", &["core", "sys"]),
    ("sys", &[]),
    ("store", &["core", "wire", "trust", "sys"]),
    ("depot", &["core", "store", "sys"]),
    ("catalog", &["core", "wire"]),
    ("farm", &["core", "wire", "sys", "store", "catalog"]),
    ("local", &["core", "wire", "sys"]),
    ("capi", &["core", "wire", "sys", "local"]),
    ("mount", &["core", "wire", "sys", "local"]),
    (
        "node",
        &[
            "core", "wire", "trust", "sys", "store", "depot", "local", "catalog", "farm",
        ],
    ),
    (
        "godwit",
        &[
            "core", "wire", "trust", "sys", "store", "depot", "local", "catalog", "farm", "node",
            "mount",
        ],
    ),
    ("xtask", &[]),
];

/// These cannot open, wait, or ask the time.
const PURE: [&str; 2] = ["core", "wire"];

/// Words of std that a pure crate may not use. Addresses (`std::net::IpAddr`) are values and allowed.
const IMPURE_MODULES: [&str; 5] = ["fs", "env", "thread", "process", "os::fd"];
const IMPURE_WORDS: [&str; 10] = [
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "ToSocketAddrs",
    "SystemTime",
    "stdin",
    "stdout",
];

/// The plan of the depot is told the time, and threads do what it decides.
const PLAN: &str = "crates/depot/src/plan";
const IMPURE_IN_PLAN: [&str; 5] = ["Instant::now", "clock::", "disk::", "thread", "godwit_sys"];

/// Words that say nothing (architecture, Nouns).
const REFUSED: [&str; 5] = ["manager", "helper", "util", "broker", "agent"];

fn arrows(name: &str, text: &str, found: &mut Complaints) {
    if name == "fuzz" {
        return; // it stands outside the house and feeds all of it
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
        found.push((
            1,
            format!("crate {name} has no line in the table of arrows"),
        ));
        return;
    };
    let mut in_dependencies = false;
    for (number, line) in numbered(text) {
        if let Some(section) = line.strip_prefix('[') {
            in_dependencies = section
                .trim_end()
                .trim_end_matches(']')
                .ends_with("dependencies");
            continue;
        }
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        if let Some(to) = key.strip_prefix("godwit-")
            && in_dependencies
            && !allowed.contains(&to)
        {
            found.push((number, format!("{name} may not import {to}")));
        }
    }
}

fn opening(text: &str, found: &mut Complaints) {
    if !text.starts_with("//!") {
        let what = "a file begins with `//!` and what it is for";
        found.push((1, what.into()));
    }
}

fn leftovers(text: &str, code: &str, found: &mut Complaints) {
    // In two halves, so that this file may name them.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    for (number, line) in numbered(text) {
        for mark in words(line).filter(|word| marks.contains(word)) {
            found.push((number, format!("{mark} is left over")));
        }
    }
    for (number, line) in numbered(code) {
        for macro_name in ["dbg!", "todo!", "unimplemented!"] {
            if line.contains(macro_name) {
                found.push((number, format!("{macro_name} is left over")));
            }
        }
    }
}

fn refused_words(path: &Path, code: &str, found: &mut Complaints) {
    let mut judge = |number, identifier: &str| {
        for part in parts(identifier) {
            let stem = part.strip_suffix('s').unwrap_or(&part);
            if REFUSED.contains(&stem) || REFUSED.contains(&part.as_str()) {
                found.push((
                    number,
                    format!("`{identifier}`: the word {part} is refused"),
                ));
            }
        }
    };
    for part in path.components() {
        let name = part.as_os_str().to_string_lossy();
        judge(1, name.strip_suffix(".rs").unwrap_or(&name));
    }
    // What we call things; what others call theirs we must use.
    let defining = [
        "fn", "struct", "enum", "union", "trait", "type", "mod", "const", "static", "let", "mut",
    ];
    for (number, line) in numbered(code) {
        let line: Vec<_> = words(line).collect();
        for pair in line.windows(2).filter(|pair| defining.contains(&pair[0])) {
            judge(number, pair[1]);
        }
    }
}

fn unsafety(code: &str, found: &mut Complaints) {
    for (number, line) in numbered(code) {
        if words(line).any(|word| word == "unsafe") {
            found.push((number, "unsafe stands in crates sys and capi only".into()));
        }
        if line.contains("allow(unsafe_code)") {
            found.push((
                number,
                "unsafe is allowed in crates sys and capi only".into(),
            ));
        }
    }
}

fn purity(code: &str, found: &mut Complaints) {
    for (number, line) in numbered(code) {
        for module in IMPURE_MODULES {
            let is_named = line.contains(&format!("std::{module}"));
            if is_named || imports(code, number, module) {
                found.push((
                    number,
                    format!("std::{module} has no place in a pure crate"),
                ));
            }
        }
        for word in words(line).filter(|word| IMPURE_WORDS.contains(word)) {
            found.push((number, format!("{word} has no place in a pure crate")));
        }
        if line.contains("Instant::now") {
            found.push((number, "time comes in as an argument".into()));
        }
    }
}

/// Tells whether line `number` names `module` within the braces of `use std::{…}`.
fn imports(code: &str, number: usize, module: &str) -> bool {
    let mut in_std = false;
    for (at, line) in numbered(code) {
        in_std |= line.trim_start().starts_with("use std::{");
        if at == number {
            return in_std && words(line).any(|word| word == module);
        }
        in_std &= !line.contains(';');
    }
    false
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line))
}

/// The folder below `crates`, or the first folder.
fn crate_of(path: &Path) -> &str {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    match parts.next() {
        Some("crates") => parts.next().unwrap_or_default(),
        first => first.unwrap_or_default(),
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        let is_built = path.ends_with("target") || path.ends_with("corpus");
        if kind.is_dir() && !is_built {
            collect(&path, paths)?;
        } else if path.ends_with("Cargo.toml") || path.extension().is_some_and(|e| e == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check_file(Path::new(path), text)
            .iter()
            .map(|complaint| format!("{}: {}", complaint.line, complaint.what))
            .collect()
    }

    /// Every rule must be able to fail, on the line where the breach is.
    #[test]
    fn each_rule_sees_its_breach() {
        let todo = concat!("// TO", "DO");
        for (path, line, what) in [
            ("crates/core/src/a.rs", todo.to_string(), "left over"),
            (
                "crates/core/src/a.rs",
                "    dbg!(1);".into(),
                "dbg! is left over",
            ),
            (
                "crates/core/src/a.rs",
                "struct FileManager;".into(),
                "manager is refused",
            ),
            (
                "crates/core/src/a.rs",
                "let mut utils = 1;".into(),
                "utils is refused",
            ),
            (
                "crates/wire/src/a.rs",
                "unsafe { f() }".into(),
                "unsafe stands in",
            ),
            (
                "crates/wire/src/a.rs",
                "#[allow(unsafe_code)]".into(),
                "unsafe is allowed in",
            ),
            (
                "crates/wire/src/a.rs",
                "use std::fs;".into(),
                "std::fs has no place",
            ),
            (
                "crates/wire/src/a.rs",
                "use std::{fmt, env};".into(),
                "std::env has no place",
            ),
            (
                "crates/core/src/a.rs",
                "let s: TcpStream = x;".into(),
                "TcpStream has no place",
            ),
            (
                "crates/core/src/a.rs",
                "let t = Instant::now();".into(),
                "time comes in",
            ),
            (
                "crates/core/src/a.rs",
                "std::thread::sleep(x);".into(),
                "std::thread has no place",
            ),
            (
                "crates/depot/src/plan/a.rs",
                "use crate::disk::Files;".into(),
                "disk:: has no place",
            ),
        ] {
            let found = complaints(path, &format!("//! A file.\n\n{line}\n"));
            assert!(
                found.len() == 1 && found[0].starts_with("3: "),
                "{line}: {found:?}"
            );
            assert!(found[0].contains(what), "{found:?}");
        }
        assert_eq!(complaints("crates/core/src/a.rs", "fn f() {}\n").len(), 1);
        assert_eq!(
            complaints("crates/core/src/helpers.rs", "//! A file.\n").len(),
            1
        );
    }

    #[test]
    fn import_over_lines_is_found() {
        let text = "//! A file.\nuse std::{\n    fmt,\n    fs,\n};\nuse crate::fs;\n";
        let found = complaints("crates/core/src/a.rs", text);
        assert_eq!(found, ["4: std::fs has no place in a pure crate"]);
    }

    #[test]
    fn arrows_point_down() {
        let text = "[package]\nname = \"x\"\n[dependencies]\ngodwit-core.workspace = true\n\
                    [dev-dependencies]\ngodwit-store = { path = \"../store\" }\n";
        let found = complaints("crates/wire/Cargo.toml", text);
        assert_eq!(found, ["6: wire may not import store"]);
        assert_eq!(complaints("crates/node/Cargo.toml", text), [""; 0]);
        assert_eq!(complaints("crates/new/Cargo.toml", text).len(), 1);
    }

    #[test]
    fn what_is_allowed_passes() {
        for (path, line) in [
            ("crates/sys/src/a.rs", "unsafe { f() }"),
            ("crates/capi/src/a.rs", "unsafe { f() }"),
            ("crates/store/src/a.rs", "use std::{fs, thread};"),
            ("crates/core/src/a.rs", "use std::net::Ipv4Addr;"),
            (
                "crates/core/src/a.rs",
                "/// Never `unsafe`, std::fs or dbg!(); a manager said so.",
            ),
            (
                "crates/core/src/a.rs",
                "#[cfg(test)]\nmod tests { use std::fs; }",
            ),
            ("crates/wire/tests/a.rs", "use std::fs;"),
            ("crates/core/src/a.rs", "let serviced = signal.handler();"),
            ("crates/core/src/a.rs", "fn name_service() -> NameService;"),
        ] {
            let found = complaints(path, &format!("//! A file.\n\n{line}\n"));
            assert_eq!(found, [""; 0], "{line}");
        }
    }
}
