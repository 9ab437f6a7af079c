//! Definitions: names of files that are computed when they are first read.
//!
//! A definition is an attribute of the collection at the begin of its pattern: a client that may change that collection
//! may define, and the node of the catalog computes.

use crate::{Logical, failed, sites::shown};
use godwit_catalog::{Change, Definition};
use godwit_store::{Error, Result};
use godwit_wire::door::{call::Name, run::Word};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// A file that is to be computed.
pub(crate) struct Defined {
    pub(crate) input: PathBuf,
    pub(crate) program: Vec<Word>,
}

impl Logical {
    /// Defines the files whose names fit a pattern.
    pub fn define(&self, definition: &Definition) -> Result<()> {
        let pattern = &definition.pattern.0;
        let words = words(pattern);
        let fails = |why: &str| {
            Err(Error::unsupported(
                format!("defining {}", shown(pattern)),
                why,
            ))
        };
        if words.is_empty() || words.contains(&"in".to_owned()) || words.contains(&"out".to_owned())
        {
            return fails("write at least one {word} in it, other than {in} and {out}");
        }
        if let Some(other) = self::words(&definition.input.0)
            .iter()
            .find(|word| !words.contains(word))
        {
            return fails(&format!(
                "its input has {{{other}}}, and the pattern has not"
            ));
        }
        let collection = collection_of(pattern);
        let changes = vec![
            Change::Collect {
                name: Name(collection.clone()),
                parents: true,
            },
            Change::Attribute {
                name: Name(collection),
                site: None,
                key: key(pattern),
                value: Some(definition.to_text()),
            },
        ];
        let changed = self.sites.catalog.change(&changes.into());
        changed
            .map(drop)
            .map_err(|refusal| failed(pattern, refusal))
    }

    /// Finds the definition that a name fits, the one of the nearest collection.
    pub(crate) fn defined(&self, name: &Path) -> Result<Option<Defined>> {
        for above in name.ancestors().skip(1) {
            let Some(entry) = self.sites.find(above)? else {
                continue;
            };
            let entry = match above.as_os_str().is_empty() {
                // The root tells its attributes only if it is asked for.
                true => godwit_catalog::find(&*self.sites.catalog, above)
                    .map_err(|refusal| failed(above, refusal))?
                    .unwrap_or(entry),
                false => entry,
            };
            let definitions = entry
                .attributes
                .iter()
                .filter(|(key, _)| key.starts_with(KEY));
            for definition in definitions.filter_map(|(_, text)| Definition::read(text)) {
                if let Some(words) = fit(&definition.pattern.0, name) {
                    let fill = |text: &[u8]| fill(text, &words);
                    let input = fill(definition.input.0.as_os_str().as_bytes());
                    let program = definition.program.iter();
                    return Ok(Some(Defined {
                        input: input.into(),
                        program: program.map(|word| Word(fill(word.0.as_bytes()))).collect(),
                    }));
                }
            }
        }
        Ok(None)
    }
}

/// Returns the collection at the begin of a pattern: the part above its first word.
fn collection_of(pattern: &Path) -> PathBuf {
    let plain = pattern
        .iter()
        .take_while(|segment| !segment.as_bytes().contains(&b'{'));
    plain.collect()
}

fn key(pattern: &Path) -> String {
    let text: String = pattern.to_string_lossy().replace('=', "%3D");
    format!("{KEY}{text}")
}

/// Returns the words of a pattern.
fn words(pattern: &Path) -> Vec<String> {
    let segments = pattern
        .iter()
        .filter_map(|segment| placeholder(segment.as_bytes()));
    segments.map(|(_, word, _)| word).collect()
}

/// Returns the part of a segment before its word, the word, and the part after it.
fn placeholder(segment: &[u8]) -> Option<(&[u8], String, &[u8])> {
    let open = segment.iter().position(|&byte| byte == b'{')?;
    let close = open + segment[open..].iter().position(|&byte| byte == b'}')?;
    let word = std::str::from_utf8(&segment[open + 1..close]).ok()?;
    Some((&segment[..open], word.to_owned(), &segment[close + 1..]))
}

/// Returns what the words of a pattern stand for in a name that fits it.
fn fit(pattern: &Path, name: &Path) -> Option<BTreeMap<String, Vec<u8>>> {
    if pattern.iter().count() != name.iter().count() {
        return None;
    }
    let mut words = BTreeMap::new();
    for (pattern, segment) in pattern.iter().zip(name.iter()) {
        let (pattern, segment) = (pattern.as_bytes(), segment.as_bytes());
        let Some((before, word, behind)) = placeholder(pattern) else {
            if pattern != segment {
                return None;
            }
            continue;
        };
        let value = segment.strip_prefix(before)?.strip_suffix(behind)?;
        let is_same = words
            .get(&word)
            .is_none_or(|known: &Vec<u8>| known == value);
        if value.is_empty() || !is_same {
            return None;
        }
        words.insert(word, value.to_owned());
    }
    Some(words)
}

/// Puts values in the places of words; `{in}` and `{out}` stay.
fn fill(text: &[u8], words: &BTreeMap<String, Vec<u8>>) -> OsString {
    let mut filled = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'{') {
        filled.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let known = words.iter().find_map(|(word, value)| {
            let place = [b"{", word.as_bytes(), b"}"].concat();
            rest.starts_with(&place).then_some((place.len(), value))
        });
        match known {
            Some((length, value)) => {
                filled.extend_from_slice(value);
                rest = &rest[length..];
            }
            None => {
                filled.push(b'{');
                rest = &rest[1..];
            }
        }
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

const KEY: &str = "define:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test] //= FARM-62
    fn names_fit_patterns_by_segments() {
        let fits = |pattern: &str, name: &str| fit(pattern.as_ref(), name.as_ref());
        let words = fits("sel/{run}/cut-{cut}.txt", "sel/7/cut-tight.txt").unwrap_or_default();
        assert_eq!(
            fill(b"raw/{run} {cut} {in} {", &words),
            "raw/7 tight {in} {"
        );
        for (pattern, name) in [
            ("sel/{run}", "sel/7/8"),
            ("sel/{run}", "sel"),
            ("sel/a{run}", "sel/a"),
            ("sel/{a}/{a}", "sel/1/2"),
        ] {
            assert!(fits(pattern, name).is_none(), "{name}");
        }
        assert_eq!(collection_of("a/b/c{d}/e".as_ref()), PathBuf::from("a/b"));
    }
}
