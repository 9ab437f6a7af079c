//! Shell patterns for names, on bytes: `*`, `?`, `[a-z]`, `[!a-z]`, `\x`; and which names of a tree are chosen by them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

/// Choice of the names below a directory that are copied. The first rule whose pattern matches
/// decides; without one the answer is yes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Choice(Vec<ChoiceRule>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct ChoiceRule {
    includes: bool,
    /// A pattern for each of the last names of a path.
    names: Vec<Vec<u8>>,
    /// The rule begins with the first name of the path.
    anchored: bool,
    directories: bool,
}

impl Choice {
    /// Adds a rule behind the others.
    pub fn push(&mut self, includes: bool, pattern: &OsStr) {
        let pattern = pattern.as_bytes();
        let names = pattern.strip_suffix(b"/").unwrap_or(pattern);
        let below = names.strip_prefix(b"/").unwrap_or(names);
        self.0.push(ChoiceRule {
            includes,
            names: below.split(|&b| b == b'/').map(<[u8]>::to_vec).collect(),
            anchored: below.len() < names.len(),
            directories: names.len() < pattern.len(),
        });
    }

    /// Tells whether everything is chosen.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells whether a path below the directory is chosen, and all directories above the path.
    pub fn has(&self, path: &Path, is_directory: bool) -> bool {
        let names: Vec<&[u8]> = path.iter().map(OsStrExt::as_bytes).collect();
        self.is_all()
            || (1..=names.len()).all(|len| {
                let is_directory = is_directory || len < names.len();
                let mut rules = self.0.iter();
                let rule = rules.find(|rule| rule.matches(&names[..len], is_directory));
                rule.is_none_or(|rule| rule.includes)
            })
    }
}

impl ChoiceRule {
    fn matches(&self, path: &[&[u8]], is_directory: bool) -> bool {
        let Some(above) = path.len().checked_sub(self.names.len()) else {
            return false;
        };
        let mut pairs = self.names.iter().zip(&path[above..]);
        (is_directory || !self.directories)
            && (above == 0 || !self.anchored)
            && pairs.all(|(pattern, name)| matches(pattern, name))
    }
}

/// Tells whether the whole of `name` matches `pattern`.
///
/// Only the last star is retried, so the time is at most the product of the two lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
        } else if let Some(next) = one(pattern, p, name[n]) {
            p = next;
            n += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (p, n) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Returns the next position in the pattern if its next part matches `byte`.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => match set(&pattern[at + 1..], byte) {
            Some((true, len)) => Some(at + 1 + len),
            Some((false, _)) => None,
            // A bracket that is never closed is just a bracket.
            None => (byte == b'[').then_some(at + 1),
        },
        b'\\' if pattern.len() > at + 1 => (pattern[at + 1] == byte).then_some(at + 2),
        plain => (plain == byte).then_some(at + 1),
    }
}

/// Reads a set up to its closing bracket; returns whether `byte` is in it and its length.
fn set(text: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    let (mut at, mut found) = (start, false);
    loop {
        let low = *text.get(at)?;
        if low == b']' && at > start {
            return Some((found != negated, at + 1));
        }
        let range = text.get(at + 1) == Some(&b'-') && text.get(at + 2).is_some_and(|&b| b != b']');
        let high = if range { text[at + 2] } else { low };
        found |= (low..=high).contains(&byte);
        at += if range { 3 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.root", "run7.root", true),
            ("*.root", "run7.root.bak", false),
            ("run?", "run7", true),
            ("run?", "run", false),
            ("", "", true),
            ("*", "", true),
            ("**a*", "bbab", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn first_matching_rule_decides() {
        let choice = |rules: &[&str]| {
            let mut choice = Choice::default();
            for rule in rules {
                choice.push(rule.starts_with('+'), OsStr::new(&rule[1..]));
            }
            choice
        };
        for (rules, path, expected) in [
            (&["-*.o"][..], "a/b.o", false),
            (&["-*.o"], "a.o/b", false),
            (&["-*.o/"], "b.o", true),
            (&["-*.o/"], "b.o/c", false),
            (&["-/a"], "a", false),
            (&["-/a"], "b/a", true),
            (&["-a/b"], "x/a/b", false),
            (&["-a/b"], "a/x/b", true),
            (&["-/a/*"], "a/b/c", false),
            (&["+*/", "+*.root", "-*"], "a/run.root", true),
            (&["+*/", "+*.root", "-*"], "a/run.txt", false),
            (&["+*.root", "-*"], "a/run.root", false),
            (&["-*", "+*.root"], "run.root", false),
            (&[], "anything", true),
        ] {
            let chosen = choice(rules).has(Path::new(path), false);
            assert_eq!(chosen, expected, "{rules:?} {path}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let pattern = "*a".repeat(200);
        assert!(!matches(pattern.as_bytes(), &[b'a'; 199]));
        assert!(!matches(
            format!("{pattern}b").as_bytes(),
            &vec![b'a'; 5000]
        ));
    }
}
