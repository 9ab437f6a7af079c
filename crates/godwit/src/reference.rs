//! The pages of docs/reference, from the tables that the program uses itself. The test compares them with the files;
//! `make reference` has it write them. The page of the metrics is written by the node crate.

use crate::cli::{CommandLine, topics};
use godwit_core::{Fault, Kind};
use godwit_node::{ConfigKey, KEYS, MODULE_KEYS};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// Pages by their paths below docs/reference.
type Pages = BTreeMap<String, String>;

const HEADER: &str = include_str!("../../capi/include/godwit.h");
const GFARM_HEADER: &str = include_str!("../../capi/include/gfarm.h");
const KINDS: &str = include_str!("../../core/src/kind.rs");
const GENERATED: &str = "<!-- make reference writes this page -->";
/// Room for the heading of a page is left below the 15 KB that a document may have.
const BYTES_MAX: usize = 14 << 10;
/// Pages that other crates write.
const OF_OTHERS: [&str; 1] = ["metrics.md"];

#[test]
fn reference_pages_are_current() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"));
    let pages = pages();
    if std::env::var("GODWIT_REFERENCE").is_ok_and(|word| word == "write") {
        for name in present(&folder).filter(|name| !pages.contains_key(name)) {
            fs::remove_file(folder.join(name)).unwrap();
        }
        for (name, text) in &pages {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), text).unwrap();
        }
    }
    for (name, text) in &pages {
        let there = fs::read_to_string(folder.join(name)).unwrap_or_default();
        let differs = there.lines().zip(text.lines()).find(|(a, b)| a != b);
        assert!(
            there == *text,
            "docs/reference/{name} is out of date; run make reference; it differs in {differs:?}"
        );
    }
    let stale: Vec<String> = present(&folder)
        .filter(|name| !pages.contains_key(name))
        .collect();
    assert!(
        stale.is_empty(),
        "no table gives {stale:?} of docs/reference; run make reference"
    );
}

/// Returns the pages that are in docs/reference, but for those of other crates.
fn present(folder: &Path) -> impl Iterator<Item = String> {
    let below = |dir: &str| {
        let entries = fs::read_dir(folder.join(dir)).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let pages = names.filter(|name| name.ends_with(".md"));
        pages
            .map(|name| match dir {
                "" => name,
                dir => format!("{dir}/{name}"),
            })
            .collect::<Vec<_>>()
    };
    let names = [below(""), below("cli")].concat();
    names
        .into_iter()
        .filter(|name| !OF_OTHERS.contains(&&**name))
}

fn pages() -> Pages {
    let mut pages = Pages::new();
    let verbs = command_line(&mut pages);
    let topic = |name| topics::topic(name).unwrap();
    pages.insert("config.md".into(), config());
    let env = page("Environment", &format!("```text\n{}```\n", topic("env")));
    pages.insert("environment.md".into(), env);
    pages.insert("errors.md".into(), errors());
    library(&mut pages);
    calls(&mut pages);
    let text = index(&verbs, &pages);
    pages.insert("README.md".into(), text);
    pages
}

fn page(title: &str, text: &str) -> String {
    format!("# {title}\n\n{GENERATED}\n\n{text}")
}

/// Adds sections to as many pages as they need: NAME.md, NAME-2.md and so on. Returns the page of each section.
fn divide(
    pages: &mut Pages,
    name: &str,
    title: &str,
    sections: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let (mut parts, mut places) = (vec![String::new()], Vec::new());
    for section in sections {
        if !parts[parts.len() - 1].is_empty()
            && parts[parts.len() - 1].len() + section.len() > BYTES_MAX
        {
            parts.push(String::new());
        }
        parts.last_mut().unwrap().push_str(&section);
        places.push(numbered(name, parts.len()));
    }
    for (number, text) in (1..).zip(&parts) {
        let title = match number {
            1 => title.to_owned(),
            _ => format!("{title}, page {number}"),
        };
        pages.insert(
            numbered(name, number),
            page(&title, text.trim_start_matches('\n')),
        );
    }
    places
}

fn numbered(name: &str, number: usize) -> String {
    match number {
        1 => format!("{name}.md"),
        _ => format!("{name}-{number}.md"),
    }
}

/// Adds the pages of the verbs, a group a page. Returns verb, summary and page.
fn command_line(pages: &mut Pages) -> Vec<(String, String, String)> {
    let mut whole = CommandLine::grouped().term_width(100);
    whole.build();
    let mut all = Vec::new();
    for (group, verbs) in crate::cli::GROUPS {
        let (mut sections, mut firsts) = (Vec::new(), Vec::new());
        for verb in *verbs {
            let command = whole.find_subcommand(verb).unwrap();
            firsts.push((
                *verb,
                command.get_about().unwrap().to_string(),
                sections.len(),
            ));
            explain(&format!("godwit {verb}"), command, &mut sections);
        }
        let name = group.to_lowercase().replace(' ', "-");
        let title = format!("Command line: {group}");
        let places = divide(pages, &format!("cli/{name}"), &title, sections);
        for (verb, about, at) in firsts {
            all.push((verb.to_owned(), about, places[at].clone()));
        }
    }
    all
}

/// Adds the help of a command, without the options that all have, and of the commands below it.
fn explain(name: &str, command: &clap::Command, sections: &mut Vec<String>) {
    let help = command.clone().term_width(100).render_help().to_string();
    let help = match help.split_once("\nEverywhere:\n") {
        Some((before, rest)) => {
            let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
            format!("{before}\n{after}")
        }
        None => help,
    };
    sections.push(format!(
        "\n## {name}\n\n```text\n{}\n```\n",
        help.trim_end()
    ));
    for below in command.get_subcommands() {
        explain(&format!("{name} {}", below.get_name()), below, sections);
    }
}

fn config() -> String {
    let mut text = String::from(
        "`godwit config show` prints each key with its value and its origin. The file is TOML; a key `section.name` is `name` below \
         `[section]`. `GODWIT_SECTION_NAME` in the environment overrides it. [Environment](environment.md) has the other variables.\n",
    );
    let line = |key: &ConfigKey| {
        let default = if key.default.is_empty() {
            String::new()
        } else {
            format!(" [{}]", key.default)
        };
        format!("- `{}`{default}: {}.\n", key.name, key.about)
    };
    let section = |key: &ConfigKey| key.name.split_once('.').unwrap().0;
    let mut sections: Vec<&str> = KEYS.iter().map(section).collect();
    let mut seen = BTreeSet::new();
    sections.retain(|name| seen.insert(*name));
    for name in sections {
        write!(text, "\n## {name}\n\n").unwrap();
        let keys = KEYS.iter().filter(|key| section(key) == name);
        keys.for_each(|key| text += &line(key));
    }
    text += "\n## modules.NAME\n\nPrograms that the bytes of files may go through.\n\n";
    MODULE_KEYS.iter().for_each(|key| text += &line(key));
    write!(
        text,
        "\n## godwit help config\n\n```text\n{}```\n",
        topics::topic("config").unwrap()
    )
    .unwrap();
    page("Configuration", &text)
}

/// Returns the exit statuses, and the table of kinds with the column of each face.
fn errors() -> String {
    let mut text = format!(
        "```text\n{}```\n\n## Kinds\n\n",
        topics::topic("exit-codes").unwrap()
    );
    text += "Each failure is of one kind, and each face answers by its column. \"Later\" means that waiting can help. An exit status \
        of 1 is 5 if waiting can help. HTTP calls answer with status and word; programs in C read the errno.\n\n\
        | kind | later | exit | errno | FTP | HTTP |\n|---|---|---|---|---|---|\n";
    let mut meanings = String::from("\n## Meanings\n\n");
    for kind in Kind::all() {
        let (reply, cause) = kind.ftp();
        let later = if kind.fault() == Fault::Passing {
            "yes"
        } else {
            "no"
        };
        writeln!(
            text,
            "| {kind:?} | {later} | {} | {} {} | {reply} {cause} | {} {} |",
            kind.exit_code(kind.fault()),
            kind.errno(),
            kind.symbol(),
            kind.status(),
            kind.door_word(),
        )
        .unwrap();
        let hint = kind
            .hint()
            .map(|hint| format!(" Hint: {hint}."))
            .unwrap_or_default();
        writeln!(meanings, "- {kind:?}: {}{hint}", meaning(kind)).unwrap();
    }
    page("Errors", &(text + &meanings))
}

/// Returns the doc line of a kind.
fn meaning(kind: Kind) -> &'static str {
    let begin = [format!("    {kind:?}: "), format!("            {kind:?},")];
    let lines: Vec<&str> = KINDS.lines().collect();
    let at = lines
        .iter()
        .position(|line| begin.iter().any(|begin| line.starts_with(begin)));
    let mut above = lines[..at.unwrap()].iter().rev();
    let doc = above.find_map(|line| line.trim_start().strip_prefix("/// "));
    doc.unwrap_or_else(|| panic!("{kind:?} has no doc line"))
}

/// Adds the headers of the C library, section by section.
fn library(pages: &mut Pages) {
    let mut sections = Vec::new();
    let mut parts = HEADER.split("\n/* ---- ");
    let mut add = |title: &str, text: &str| {
        sections.push(format!("\n## {title}\n\n```c\n{}\n```\n", text.trim()));
    };
    add("godwit.h", parts.next().unwrap());
    for part in parts {
        let (title, text) = part.split_once(" --").unwrap();
        add(
            title,
            text.trim_start_matches('-').trim_start_matches(" */"),
        );
    }
    divide(pages, "c-library", "C library: godwit.h", sections);
    let text = format!("```c\n{}\n```\n", GFARM_HEADER.trim());
    pages.insert("gfarm.md".into(), page("C library: gfarm.h", &text));
}

/// Adds the calls of the door, and the forms of what is asked and answered.
fn calls(pages: &mut Pages) {
    let all: Value = serde_json::from_str(godwit_wire::door::OPENAPI).unwrap();
    let mut sections = vec![format!(
        "\n{} A call is below `/.godwit/v1/`. [Forms](https-forms.md) tells bodies and lines; `?` marks what can be left out.\n\n\
         Callers show a key, or none, unless a call says otherwise. Key: {} Grant: {}\n",
        words(&all["info"]["description"]),
        words(&all["components"]["securitySchemes"]["key"]["description"]),
        words(&all["components"]["securitySchemes"]["grant"]["description"])
    )];
    for (path, methods) in all["paths"].as_object().unwrap() {
        for (method, call) in methods.as_object().unwrap() {
            sections.push(one_call(path, method, call));
        }
    }
    divide(pages, "https", "HTTPS calls", sections);
    let forms = all["components"]["schemas"].as_object().unwrap();
    let sections = forms.iter().map(|(name, form)| {
        let about = words(&form["description"]);
        let about = if about.is_empty() {
            String::new()
        } else {
            format!("{about}\n\n")
        };
        format!("\n## {name}\n\n{about}{}", members(form))
    });
    divide(pages, "https-forms", "Forms of HTTPS calls", sections);
}

fn one_call(path: &str, method: &str, call: &Value) -> String {
    let short = path.trim_start_matches("/.godwit/v1/");
    let mut text = format!(
        "\n## {} {short}\n\n{}\n\n",
        method.to_uppercase(),
        words(&call["summary"])
    );
    if let Some(ways) = call["security"].as_array() {
        let way = |way: &Value| match way.as_object().unwrap().keys().next() {
            Some(name) => format!("with a {name}"),
            None => "without any".to_owned(),
        };
        let ways: Vec<String> = ways.iter().map(way).collect();
        writeln!(text, "- Callers: {}", ways.join(", ")).unwrap();
    }
    let body = &call["requestBody"];
    for (kind, content) in body["content"].as_object().into_iter().flatten() {
        writeln!(text, "- Body, `{kind}`: `{}`", form(&content["schema"])).unwrap();
        if !content["example"].is_null() {
            writeln!(text, "- For example: `{}`", content["example"]).unwrap();
        }
    }
    for (status, answer) in call["responses"].as_object().unwrap() {
        for content in answer["content"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(_, content)| content)
        {
            writeln!(
                text,
                "- {status}: {} Lines: `{}`",
                words(&answer["description"]),
                form(&content["schema"])
            )
            .unwrap();
        }
    }
    text
}

/// Returns what a schema is, in one line.
fn form(schema: &Value) -> String {
    let each = |list: &Value, between: &str| {
        let forms = list.as_array().into_iter().flatten().map(form);
        forms.collect::<Vec<_>>().join(between)
    };
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap().to_owned();
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        if schema[several].is_array() {
            return each(&schema[several], " or ");
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().map(Value::to_string);
        return words.collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str() {
        Some("array") if schema["prefixItems"].is_array() => {
            format!("[{}]", each(&schema["prefixItems"], ", "))
        }
        Some("array") => format!("list of {}", form(&schema["items"])),
        Some("object") if schema["properties"].is_object() => {
            let members = properties(schema)
                .map(|(name, member, mark)| format!("{name}{mark}: {}", form(member)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Some(kind) => kind.to_owned(),
        None if !schema["const"].is_null() => schema["const"].to_string(),
        None => "any".into(),
    }
}

/// Returns name and schema of each member of an object, and `?` if it is optional.
fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value, &'static str)> {
    let required = schema["required"].as_array();
    let is_required = move |name: &String| {
        let names = required.into_iter().flatten();
        names.into_iter().any(|word| word == name)
    };
    let all = schema["properties"].as_object().into_iter().flatten();
    all.map(move |(name, member)| (name, member, if is_required(name) { "" } else { "?" }))
}

/// Returns the members of an object, or the forms that a value can have, a line each; else what it is.
fn members(schema: &Value) -> String {
    if let Some(forms) = schema["oneOf"].as_array() {
        return forms
            .iter()
            .map(|one| format!("- `{}`\n", form(one)))
            .collect();
    }
    if schema["properties"].is_object() {
        let line = |(name, member, mark): (&String, &Value, &str)| {
            let about = words(&member["description"]);
            let about = if about.is_empty() {
                about
            } else {
                format!(" – {about}")
            };
            format!("- `{name}{mark}: {}`{about}\n", form(member))
        };
        return properties(schema).map(line).collect();
    }
    match schema["pattern"].as_str() {
        Some(pattern) => format!("`{}` like `{pattern}`\n", form(schema)),
        None => format!("`{}`\n", form(schema)),
    }
}

fn words(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn index(verbs: &[(String, String, String)], pages: &Pages) -> String {
    let mut text = String::from(
        "`make reference` writes these pages from the tables of the program. `make test` fails if one is out of date.\n\n\
         | subject | pages |\n|---|---|\n",
    );
    for (subject, name) in [
        ("configuration", "config"),
        ("environment", "environment"),
        ("exit statuses and errors", "errors"),
        ("metrics", "metrics"),
        ("C library", "c-library"),
        ("C library, fragments", "gfarm"),
        ("HTTPS calls", "https"),
        ("forms of HTTPS calls", "https-forms"),
    ] {
        let parts = (1..).map(|number| numbered(name, number));
        let parts =
            parts.take_while(|part| pages.contains_key(part) || OF_OTHERS.contains(&&**part));
        let links: Vec<String> = parts.map(|part| format!("[{part}]({part})")).collect();
        writeln!(text, "| {subject} | {} |", links.join(", ")).unwrap();
    }
    text += "\n## Verbs\n\nEvery verb takes `--json`, `--quiet`, `--verbose` and `--log-format`.\n\n| verb | does |\n|---|---|\n";
    for (verb, about, place) in verbs {
        writeln!(text, "| [{verb}]({place}#godwit-{verb}) | {about} |").unwrap();
    }
    text += "\n## Not generated\n\n\
        - No table has the values of the labels of metrics, or which keys of the configuration a reload leaves as they were.\n\
        - The rarer options of a verb are in `man godwit-VERB`; the pages of the verbs show what `godwit help VERB` prints.\n\
        - Commands of FTP, JSON lines, files on disk: [formats](../README.md#formats).\n";
    page("Reference", &text)
}
