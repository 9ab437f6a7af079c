//! Conditions on files: one set for finding, replicating and rules.

use crate::{CatalogEntry, CatalogHome};
use godwit_core::HomeState;
use std::{collections::BTreeSet, time::Duration};

/// One condition on a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Condition {
    /// The last part of the name matches a shell pattern.
    Name(Vec<u8>),
    /// The length in bytes fits.
    Size(Is),
    /// The last change was after this time since the epoch.
    Newer(Duration),
    /// An attribute with this key is set, with this value if there is one.
    Attribute(String, Option<String>),
    /// A number of sites have a whole copy of its current version.
    Copies(Is),
    /// The site has a whole copy of its current version.
    At(String),
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conditions(pub Vec<Condition>);

/// A condition on a number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Is {
    /// `N`
    Exactly(u64),
    /// `+N`
    MoreThan(u64),
    /// `-N`
    LessThan(u64),
}

/// Facts of a file that conditions are compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComparedFile<'a> {
    /// The last part of the name.
    pub name: &'a [u8],
    /// The length in bytes, if it is known.
    pub size: Option<u64>,
    /// The time of the last change, since the epoch.
    pub mtime: Option<Duration>,
    /// The entry of the catalog; `None`: the file is no name of a catalog.
    pub entry: Option<&'a CatalogEntry>,
}

impl Conditions {
    /// Tells whether a file meets all conditions.
    pub fn has(&self, seen: &ComparedFile<'_>) -> bool {
        self.0.iter().all(|condition| condition.has(seen))
    }

    /// Tells whether only a catalog can answer.
    pub fn has_catalog_part(&self) -> bool {
        use Condition::{At, Attribute, Copies};
        let mut all = self.0.iter();
        all.any(|one| matches!(one, Attribute(..) | Copies(_) | At(_)))
    }
}

impl Condition {
    /// Reads `KEY` or `KEY=VALUE`.
    pub fn attribute(text: &str) -> Self {
        match text.split_once('=') {
            Some((key, value)) => Self::Attribute(key.into(), Some(value.into())),
            None => Self::Attribute(text.into(), None),
        }
    }

    fn has(&self, seen: &ComparedFile<'_>) -> bool {
        // A collection has no copies.
        let file = seen.entry.filter(|entry| !entry.collection);
        match self {
            Self::Name(pattern) => godwit_core::matches(pattern, seen.name),
            Self::Size(is) => seen.size.is_some_and(|size| is.has(size)),
            Self::Newer(than) => seen.mtime.is_some_and(|mtime| mtime > *than),
            Self::Attribute(key, value) => {
                let set = seen.entry.and_then(|entry| entry.attributes.get(key));
                set.is_some_and(|set| value.as_ref().is_none_or(|value| value == set))
            }
            Self::Copies(is) => file.is_some_and(|file| is.has(copies(file) as u64)),
            Self::At(site) => file.is_some_and(|file| sites(file).contains(&site.as_str())),
        }
    }
}

impl Is {
    /// Reads `N`, `+N` or `-N`; `number` reads what follows the sign.
    pub fn read(text: &str, number: fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        match text.as_bytes().first() {
            Some(b'+') => number(&text[1..]).map(Self::MoreThan),
            Some(b'-') => number(&text[1..]).map(Self::LessThan),
            _ => number(text).map(Self::Exactly),
        }
    }

    fn has(self, number: u64) -> bool {
        match self {
            Self::Exactly(other) => number == other,
            Self::MoreThan(other) => number > other,
            Self::LessThan(other) => number < other,
        }
    }
}

/// Tells whether a home has all bytes of the current version.
pub fn is_good(home: &CatalogHome, entry: &CatalogEntry) -> bool {
    let is_all = home.range.is_none() && home.offset == 0;
    is_all && home.state.0 == HomeState::Whole && home.version == entry.version
}

/// Tells whether a home has a part of the current version.
pub fn is_part(home: &CatalogHome, entry: &CatalogEntry) -> bool {
    let is_usable = home.state.0 == HomeState::Whole && home.version == entry.version;
    is_usable && home.range.is_some_and(|(first, past)| first < past)
}

/// Returns the sites that have a whole copy of the current version, or all its fragments, each once.
pub fn sites(entry: &CatalogEntry) -> Vec<&str> {
    let mut sites: Vec<&str> = entry.homes.iter().map(|home| home.site.as_str()).collect();
    sites.sort_unstable();
    sites.dedup();
    sites.retain(|site| {
        let mut at = entry.homes.iter().filter(|home| home.site == *site);
        let mut all = 0..entry.fragments.len() as u64;
        let has = |index| fragment_sites(entry, index).contains(site);
        at.any(|home| is_good(home, entry)) || !all.is_empty() && all.all(has)
    });
    sites
}

/// Returns the count of good copies; for a file in fragments, that of the fragment with the fewest.
pub fn copies(entry: &CatalogEntry) -> usize {
    let whole = sites(entry).len();
    let fewest = (0..entry.fragments.len() as u64).map(|index| fragment_sites(entry, index).len());
    whole.max(fewest.min().unwrap_or_default())
}

fn fragment_sites(entry: &CatalogEntry, index: u64) -> BTreeSet<&str> {
    let its = entry.homes.iter().filter(|home| {
        let is_usable = home.state.0 == HomeState::Whole && home.version == entry.version;
        home.fragment == Some(index) && is_usable
    });
    its.map(|home| home.site.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HomeWord;

    #[test]
    fn copies_are_whole_and_current() {
        let home = |site: &str, version, state| CatalogHome {
            site: site.into(),
            version,
            state: HomeWord(state),
            ..CatalogHome::default()
        };
        let part = CatalogHome {
            range: Some((0, 1)),
            ..home("part", 2, HomeState::Whole)
        };
        let entry = CatalogEntry {
            version: 2,
            homes: vec![
                home("lab", 2, HomeState::Whole),
                home("lab", 2, HomeState::Whole),
                home("old", 1, HomeState::Whole),
                home("bad", 2, HomeState::Damaged),
                part,
            ],
            ..CatalogEntry::default()
        };
        let seen = ComparedFile {
            entry: Some(&entry),
            ..ComparedFile::default()
        };
        assert!(Condition::Copies(Is::Exactly(1)).has(&seen));
        assert!(!Condition::Copies(Is::LessThan(1)).has(&seen));
        for (site, is_there) in [
            ("lab", true),
            ("old", false),
            ("bad", false),
            ("part", false),
        ] {
            assert_eq!(Condition::At(site.into()).has(&seen), is_there, "{site}");
        }
        let elsewhere = ComparedFile::default();
        assert!(!Condition::Copies(Is::Exactly(0)).has(&elsewhere));
    }

    #[test]
    fn attributes_have_any_or_one_value() {
        let mut entry = CatalogEntry::default();
        entry.attributes.insert("energy".into(), "13TeV".into());
        let seen = ComparedFile {
            entry: Some(&entry),
            ..ComparedFile::default()
        };
        for (text, is_met) in [
            ("energy", true),
            ("energy=13TeV", true),
            ("energy=", false),
            ("owner", false),
        ] {
            assert_eq!(Condition::attribute(text).has(&seen), is_met, "{text}");
        }
    }

    #[test]
    fn numbers_are_exact_more_or_less() {
        let number = |text: &str| text.parse().map_err(|_| "no number".to_owned());
        assert_eq!(Is::read("+10", number), Ok(Is::MoreThan(10)));
        assert!(Is::LessThan(5).has(4) && !Is::LessThan(5).has(5));
        assert!(Is::read("+", number).is_err());
    }
}
