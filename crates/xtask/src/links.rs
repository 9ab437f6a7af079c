//! Documents link to pages that are there: relative links of `*.md` name files, and headings in them.

use std::{fs, path::Path};

/// Returns line and complaint for each link in `text` that leads nowhere; `page` is the file that has `text`.
pub(crate) fn broken(page: &Path, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for target in targets(line) {
            if let Some(what) = fault(page, text, target) {
                found.push((number, format!("the link to {target}: {what}")));
            }
        }
    }
    found
}

/// Lines of a document outside fenced code, numbered from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of the links in one line; code between backquotes has none.
fn targets(line: &str) -> Vec<&str> {
    let plain = line.split('`').step_by(2);
    let links = plain.flat_map(|part| part.split("](").skip(1));
    let ends = links.filter_map(|rest| rest.split_once(')'));
    let targets = ends.map(|(target, _)| target);
    targets.filter(|target| !target.contains(':')).collect()
}

fn fault(page: &Path, text: &str, target: &str) -> Option<String> {
    let (name, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = page.with_file_name("").join(name);
    if !name.is_empty() && !path.exists() {
        return Some("there is no such file".into());
    }
    if heading.is_empty() {
        return None;
    }
    let other = if name.is_empty() {
        text.to_owned()
    } else {
        fs::read_to_string(&path).unwrap_or_default()
    };
    let mut headings = prose(&other).filter(|(_, line)| line.starts_with('#'));
    let has_heading = headings.any(|(_, line)| anchor(line) == heading);
    (!has_heading).then(|| format!("there is no heading #{heading}"))
}

/// Returns the anchor of a heading, as GitHub forms it.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_told() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("page.md");
        let told = |text: &str| -> Vec<usize> {
            broken(&page, text).iter().map(|(line, _)| *line).collect()
        };
        let good =
            "# A `b` c, d\n[a](Cargo.toml) [b](https://x.example/y) [c](#a-b-c-d) [d](src/)\n";
        assert_eq!(told(good), [0; 0]);
        assert_eq!(told("[a](Cargo.toml)\n\n[a](none.md)\n"), [3]);
        assert_eq!(told("# A\n[a](#b) and [a](#a)\n"), [2]);
        assert_eq!(told("`[a](none)`\n```\n[a](none)\n```\n[a](no)\n"), [5]);
    }
}
