//! A catalog as lines of JSON: printed, and read again.

use super::{refused, shown};
use crate::out::{CliError, Facts, Run, Screen, facts};
use godwit_catalog::{
    Catalog, CatalogEntry, CatalogFragment, CatalogHome, CatalogRule, Change, HomeWord, Location,
    Pages, Refusal, draft_name, find, fragment_name, locations, rules,
};
use godwit_core::{Digest, Kind, Scheme, Url};
use godwit_store::Error;
use godwit_wire::door::call::{Name, Text, Time};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// One line: of a location if it has a site, of one more name of a file or collection if it has a link, of a rule of
/// copies or rights if it has one.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Line {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    collection: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// Digests, separated by spaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    homes: Vec<HomeLine>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attr: BTreeMap<String, String>,
    /// Fragments of the file, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fragments: Vec<FragmentLine>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FragmentLine {
    size: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    digest: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    homes: Vec<HomeLine>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct HomeLine {
    url: String,
    #[serde(default)]
    state: HomeWord,
    /// Tells locations with equal URLs apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    /// The version that lies there; `None`: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verified_at: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ours: bool,
}

/// Prints the catalog.
pub(super) fn dump(catalog: &dyn Catalog, screen: &Screen) -> Run<Facts> {
    let wanted = "dump the catalog";
    let fails = |refusal: Refusal| refused(wanted, &refusal);
    let print = |line: &Line| -> Run {
        let text = serde_json::to_string(line).unwrap_or_default();
        let printed = screen.line(text);
        printed.map_err(|error| CliError::store(wanted, error))
    };
    for at in locations(catalog, Path::new(""), false).map_err(fails)? {
        print(&Line {
            name: shown(&at.name.0),
            site: Some(at.site),
            url: Some(at.url),
            whole: at.whole,
            attr: at.attributes,
            ..Line::default()
        })?;
    }
    let root = find(catalog, Path::new("")).map_err(fails)?;
    if let Some(root) = root.filter(|root| !root.attributes.is_empty()) {
        print(&line_of(root))?;
    }
    let mut links = LinkLines::of(catalog).map_err(fails)?;
    let mut names = 0_u64;
    for page in Pages::new(catalog, Path::new(""), true, true) {
        for entry in page.map_err(fails)? {
            match links.first(&entry) {
                First::Itself => print(&line_of(entry))?,
                First::Other(first) => print(&Line {
                    name: shown(&entry.name.0),
                    link: Some(shown(&first)),
                    ..Line::default()
                })?,
                First::Below => continue,
            }
            names += 1;
        }
    }
    for rule in rules(catalog, Path::new("")).map_err(fails)? {
        print(&Line {
            name: shown(&rule.name.0),
            rule: Some(rule.text),
            ..Line::default()
        })?;
    }
    Ok(facts([("names", names.into())]))
}

fn line_of(entry: CatalogEntry) -> Line {
    let parts = entry.parts().into_iter();
    let fragments = parts.map(|part| FragmentLine {
        size: part.size.unwrap_or_default(),
        digest: digests_of(&part),
        homes: homes_of(&part),
    });
    Line {
        fragments: fragments.collect(),
        name: shown(&entry.name.0),
        collection: entry.collection,
        size: entry.size,
        digest: digests_of(&entry),
        version: Some(entry.version).filter(|version| *version > 0),
        mtime: entry.mtime,
        mode: entry.mode,
        homes: homes_of(&entry),
        attr: entry.attributes,
        ..Line::default()
    }
}

fn digests_of(entry: &CatalogEntry) -> String {
    let digests = entry.digests.iter().map(|digest| digest.0.to_string());
    digests.collect::<Vec<_>>().join(" ")
}

/// Returns the homes of a file, without those of its fragments.
fn homes_of(entry: &CatalogEntry) -> Vec<HomeLine> {
    let own = entry.homes.iter().filter(|home| home.fragment.is_none());
    let home = |home: &CatalogHome| HomeLine {
        url: home.url.clone(),
        state: home.state,
        site: Some(home.site.clone()),
        version: Some(home.version).filter(|version| *version != entry.version),
        range: home.range,
        offset: Some(home.offset).filter(|offset| *offset > 0),
        verified_at: home.verified_s,
        ours: home.ours,
    };
    own.map(home).collect()
}

/// The files and collections that have several names.
struct LinkLines {
    linked: HashSet<u64>,
    first: HashMap<u64, PathBuf>,
    /// The further name of a collection under which everything was printed before.
    below: Option<PathBuf>,
}

/// The first name of an entry.
enum First {
    Itself,
    Other(PathBuf),
    /// The entry lies in a collection that has another name.
    Below,
}

impl LinkLines {
    /// Goes through all names with a bit for each number.
    fn of(catalog: &dyn Catalog) -> Result<Self, Refusal> {
        let (mut seen, mut linked) = (Vec::new(), HashSet::new());
        for page in Pages::new(catalog, Path::new(""), true, false) {
            for entry in page? {
                let (at, bit) = ((entry.file / 64) as usize, 1_u64 << (entry.file % 64));
                if seen.len() <= at {
                    seen.resize(at + 1024, 0);
                }
                if seen[at] & bit != 0 {
                    linked.insert(entry.file);
                }
                seen[at] |= bit;
            }
        }
        Ok(Self {
            linked,
            first: HashMap::new(),
            below: None,
        })
    }

    fn first(&mut self, entry: &CatalogEntry) -> First {
        let name = &entry.name.0;
        if self.below.as_ref().is_some_and(|at| name.starts_with(at)) {
            return First::Below;
        }
        if !self.linked.contains(&entry.file) {
            return First::Itself;
        }
        match self.first.get(&entry.file) {
            None => {
                self.first.insert(entry.file, name.clone());
                First::Itself
            }
            Some(first) => {
                self.below = entry.collection.then(|| name.clone());
                First::Other(first.clone())
            }
        }
    }
}

/// Reads lines into the catalog.
pub(super) fn load(catalog: &dyn Catalog, path: &Path) -> Run<Facts> {
    let wanted = || format!("load {}", path.display());
    let fails = |cause| CliError::store(wanted(), Error::io(path, cause));
    let from: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(fails)?),
    };
    let mut from = BufReader::with_capacity(1 << 20, from);
    let mut loading = Loading {
        catalog,
        locations: locations(catalog, Path::new(""), false)
            .map_err(|refusal| refused(&wanted(), &refusal))?,
        page: Vec::new(),
        names: 0,
    };
    let bad = |(number, mut refusal): (u64, Refusal)| {
        refusal.said = format!("line {number}: {}", refusal.said);
        refused(&wanted(), &refusal)
    };
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let length = (&mut from)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut text);
        if length.map_err(fails)? == 0 {
            break;
        }
        let read = loading.line(number, &text);
        read.map_err(|refusal| bad((number, refusal)))?;
        if loading.page.len() >= PAGE {
            loading.flush().map_err(bad)?;
        }
    }
    loading.flush().map_err(bad)?;
    Ok(facts([("names", loading.names.into())]))
}

struct Loading<'a> {
    catalog: &'a dyn Catalog,
    locations: Vec<Location>,
    /// The changes that were read and not applied yet, each with the number of its line.
    page: Vec<(u64, Change)>,
    names: u64,
}

impl Loading<'_> {
    fn line(&mut self, number: u64, text: &[u8]) -> Result<(), Refusal> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(());
        }
        let line: Line = serde_json::from_slice(text).map_err(|error| invalid(&error))?;
        let name = read_name(&line.name)?;
        if let Some(site) = &line.site {
            let url = line.url.clone();
            let url = url.ok_or_else(|| invalid(&"a location without a URL"))?;
            self.add_location(name.clone(), site, url, line.whole)?;
            for (key, value) in line.attr {
                let change = Change::Attribute {
                    name: name.clone(),
                    site: Some(site.clone()),
                    key,
                    value: Some(value),
                };
                self.page.push((number, change));
            }
            return Ok(());
        }
        if let Some(text) = line.rule {
            let is_known = |rule: &CatalogRule| rule.name == name && rule.text == text;
            if !rules(self.catalog, &name.0).is_ok_and(|found| found.iter().any(is_known)) {
                self.page.push((number, Change::AddRule { name, text }));
            }
            return Ok(());
        }
        self.names += 1;
        if !line.fragments.is_empty() {
            self.flush().map_err(|(_, refusal)| refusal)?;
            return self.fragments(name, line);
        }
        let change = match &line.link {
            Some(first) => Change::Link {
                from: read_name(first)?,
                to: name,
            },
            None => Change::Load(Box::new(self.entry(name, line)?)),
        };
        self.page.push((number, change));
        Ok(())
    }

    /// Loads a file in fragments by a draft. One that is there with equal fragments stays as it is.
    fn fragments(&mut self, name: Name, mut line: Line) -> Result<(), Refusal> {
        let digests = |text: &str| {
            let digests = text.split_whitespace().map(str::parse::<Digest>);
            let digests: Result<Vec<_>, _> = digests.map(|digest| digest.map(Text)).collect();
            digests.map_err(|error| invalid(&error))
        };
        let fragments = std::mem::take(&mut line.fragments);
        let known = find(self.catalog, &name.0)?.map(|entry| entry.fragments);
        if let Some(known) = known.filter(|known| !known.is_empty()) {
            let mut pairs = known.iter().zip(&fragments);
            let is_equal = |(known, new): (&CatalogFragment, &FragmentLine)| {
                known.size == new.size && digests(&new.digest).is_ok_and(|new| new == known.digests)
            };
            if known.len() == fragments.len() && pairs.all(is_equal) {
                return Ok(());
            }
        }
        let collect = Change::Collect {
            name: Name(name.0.parent().unwrap_or(Path::new("")).into()),
            parents: true,
        };
        let draft = Change::Draft {
            name: name.clone(),
            base: 0,
            holder: "load".into(),
            join: false,
        };
        let made = self.catalog.change(&vec![collect, draft].into())?;
        let intent = made.last().copied().unwrap_or_default();
        let count = fragments.len() as u64;
        let mut changes = Vec::new();
        for (index, fragment) in (0..).zip(fragments) {
            let part = fragment_name(&draft_name(&name.0, intent), index, count);
            let line = Line {
                size: Some(fragment.size),
                digest: fragment.digest,
                homes: fragment.homes,
                ..Line::default()
            };
            changes.push(Change::Load(Box::new(self.entry(Name(part), line)?)));
        }
        changes.push(Change::Assemble {
            intent,
            count,
            digests: digests(&line.digest)?,
            mtime: line.mtime,
            mode: line.mode,
            made: None,
        });
        changes.extend(line.attr.into_iter().map(|(key, value)| Change::Attribute {
            name: name.clone(),
            site: None,
            key,
            value: Some(value),
        }));
        self.catalog.change(&changes.into()).map(drop)
    }

    fn entry(&mut self, name: Name, line: Line) -> Result<CatalogEntry, Refusal> {
        let digests = line.digest.split_whitespace().map(str::parse::<Digest>);
        let digests: Result<Vec<_>, _> = digests.map(|digest| digest.map(Text)).collect();
        let is_known = line.size.is_some() || !line.digest.is_empty() || !line.homes.is_empty();
        let version = line.version.unwrap_or(u64::from(is_known));
        let homes = line.homes.into_iter();
        let homes: Result<Vec<_>, _> = homes.map(|home| self.home(&name, home, version)).collect();
        Ok(CatalogEntry {
            collection: line.collection,
            version,
            size: line.size,
            digests: digests.map_err(|error| invalid(&error))?,
            mtime: line.mtime,
            mode: line.mode,
            homes: homes?,
            attributes: line.attr,
            name,
            ..CatalogEntry::default()
        })
    }

    /// Finds the location of a URL. One that is missing is made at the root of the server.
    fn home(&mut self, name: &Name, line: HomeLine, version: u64) -> Result<CatalogHome, Refusal> {
        let url = read_url(&line.url)?;
        let fits = |at: &&Location| {
            line.site.as_ref().is_none_or(|site| *site == at.site)
                && at.url.parse().is_ok_and(|base| url.below(&base).is_some())
        };
        let fitting = self.locations.iter().filter(fits);
        // A file that was renamed or linked lies at a location of another collection.
        let best = fitting.max_by_key(|at| {
            let depth = at.name.0.as_os_str().len();
            (name.0.starts_with(&at.name.0), at.url.len(), depth)
        });
        let at = match best {
            Some(at) => at.clone(),
            None => {
                let root = url.with_path(b"/").map_err(|error| invalid(&error))?;
                let host = match url.host() {
                    Some(host) => host.to_string(),
                    None => godwit_sys::host_name().unwrap_or_else(|| "localhost".into()),
                };
                let root = match root.scheme() {
                    Scheme::File => "file:///".to_owned(),
                    _ => root.to_string(),
                };
                self.add_location(
                    Name::default(),
                    line.site.as_ref().unwrap_or(&host),
                    root,
                    false,
                )?
            }
        };
        let base = read_url(&at.url)?;
        let path = url
            .below(&base)
            .ok_or_else(|| invalid(&"a URL that is at no location"))?;
        Ok(CatalogHome {
            location: at.location,
            path: Name(OsStr::from_bytes(path).into()),
            version: line.version.unwrap_or(version),
            range: line.range,
            offset: line.offset.unwrap_or(0),
            state: line.state,
            verified_s: line.verified_at,
            ours: line.ours,
            ..CatalogHome::default()
        })
    }

    fn add_location(
        &mut self,
        name: Name,
        site: &str,
        url: String,
        whole: bool,
    ) -> Result<Location, Refusal> {
        let mut at = Location {
            name: name.clone(),
            site: site.to_owned(),
            url: url.clone(),
            whole,
            ..Location::default()
        };
        let site = at.site.clone();
        let change = Change::AddLocation {
            name,
            site,
            url,
            whole,
        };
        let made = self.catalog.change(&change.into())?;
        at.location = made.first().copied().unwrap_or_default();
        self.locations.retain(|known| known.location != at.location);
        self.locations.push(at.clone());
        Ok(at)
    }

    /// Applies a page in one transaction. If that is refused, applies each change in one of its own up to the bad one.
    fn flush(&mut self) -> Result<(), (u64, Refusal)> {
        let page = std::mem::take(&mut self.page);
        let all: Vec<Change> = page.iter().map(|(_, change)| change.clone()).collect();
        if self.catalog.change(&all.into()).is_ok() {
            return Ok(());
        }
        for (number, change) in page {
            let one = self.catalog.change(&change.into());
            one.map_err(|refusal| (number, refusal))?;
        }
        Ok(())
    }
}

fn read_url(text: &str) -> Result<Url, Refusal> {
    text.parse()
        .map_err(|error: godwit_core::BadUrl| invalid(&format!("{text}: {error}")))
}

fn read_name(text: &str) -> Result<Name, Refusal> {
    let url = read_url(text)?;
    match url.scheme() {
        Scheme::Grid => Ok(Name(url.path_from_root())),
        _ => Err(invalid(&format!("'{text}' is not a name like grid:/a"))),
    }
}

fn invalid(why: &dyn std::fmt::Display) -> Refusal {
    Refusal::of_kind(Kind::Invalid, why.to_string()).next("write it as godwit catalog dump does")
}

/// How many changes a transaction takes.
const PAGE: usize = 1000;

/// The longest line: a name and its homes.
const LINE_BYTES_MAX: u64 = 16 << 20;
