//! The table of requirements names tests and mutants: what it names is there.

use std::collections::BTreeSet;

/// The tests and mutants that a table may name.
#[derive(Default)]
pub(crate) struct NamedTests {
    functions: BTreeSet<String>,
    mutants: BTreeSet<String>,
}

impl NamedTests {
    /// Takes note of the functions in the text of a Rust file.
    pub(crate) fn read(&mut self, text: &str) {
        for line in text.lines() {
            let Some((_, after)) = line.split_once("fn ") else {
                continue;
            };
            let name: String = after.chars().take_while(|c| is_of_snake(*c)).collect();
            if after[name.len()..].starts_with('(') {
                self.functions.insert(name);
            }
        }
    }

    /// Takes note of the mutants in a table of them.
    pub(crate) fn read_mutants(&mut self, table: &str) {
        let names = table.lines().filter_map(|line| {
            let name = line.strip_prefix("name = \"")?;
            name.strip_suffix('"').map(str::to_owned)
        });
        self.mutants.extend(names);
    }

    /// Complains of each line that names a test or a mutant which is not there. Only names of three words and more are
    /// looked at: those of modules and programs are shorter.
    pub(crate) fn check(&self, table: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in (1..).zip(table.lines()) {
            for name in line.split('`').skip(1).step_by(2) {
                let words = |by: char| name.split(by).filter(|word| !word.is_empty()).count();
                let is_snake = name.chars().all(is_of_snake) && words('_') > 2;
                let is_kebab = name.chars().all(is_of_kebab) && words('-') > 2;
                if is_snake && !self.functions.contains(name) {
                    found.push((number, format!("there is no test {name}")));
                }
                if is_kebab && !self.mutants.contains(name) {
                    found.push((number, format!("tests/mutants has no {name}")));
                }
            }
        }
        found
    }
}

fn is_of_snake(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

fn is_of_kebab(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_are_told() {
        let mut named = NamedTests::default();
        named.read("#[test]\nfn what_is_put_arrives() {}\npub(crate) fn as_it_was_said(&self) {}");
        named.read_mutants("[[mutant]]\nname = \"depot-hole-as-zero\"\nfile = \"f\"\n");
        let table = "| `what_is_put_arrives`, `two_words` | `depot-hole-as-zero`, `two-words` |\n\
            | `what_is_put_is_lost` and `A_B_C` | `depot-hole-as-one` |";
        let told: Vec<_> = named.check(table);
        let lines: Vec<_> = told.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 2], "{told:?}");
        assert!(told[0].1.contains("what_is_put_is_lost"), "{told:?}");
        assert!(told[1].1.contains("depot-hole-as-one"), "{told:?}");
    }
}
