//! Rules of a catalog about rights, obeyed where the bytes are stored.
//!
//! A node with `catalog.site` writes them, for its own paths, into a file of rights, before its own rules. A file keeps
//! the rights of the place where its bytes are, also after its name was moved.

use super::{
    members,
    obeyed::{ALLOW, in_toml, quoted},
};
use godwit_catalog::{Catalog, CatalogRule, Location, Refusal, locations, rules};
use godwit_core::Url;
use godwit_farm::is_of_rights;
use godwit_sys::why;
use godwit_trust::{Identity, Introduced, PeersDir, Rights, door};
use parking_lot::Mutex;
use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

/// A site of a catalog, as the node that serves it.
pub(crate) struct CatalogSite {
    name: String,
    export: PathBuf,
    file: PathBuf,
    /// The rights that the node has itself: a file, or a text.
    own: Result<PathBuf, String>,
    /// The node that serves the catalog, which obeys the rules before it copies or deletes.
    keeper: Option<String>,
    /// The peers of the node.
    home: Option<PeersDir>,
    /// The last failure that the log was told.
    said: Mutex<Option<String>>,
    /// The peers that were refused when the log was told last.
    refused: Mutex<Vec<String>>,
}

impl CatalogSite {
    /// Returns a site that keeps the file of rights in `kept`; its own rights are those of `own`, of a file or as a text.
    pub(crate) fn new(
        name: &str,
        export: &Path,
        kept: &Path,
        own: Result<PathBuf, String>,
        (home, keeper): (Option<&PeersDir>, Option<String>),
    ) -> Self {
        Self {
            name: name.into(),
            export: fs::canonicalize(export).unwrap_or_else(|_| export.into()),
            file: kept.join(format!("rights-of-{name}.toml")),
            own,
            keeper,
            home: home.cloned(),
            said: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Returns the file of rights; until the catalog answered once it denies all.
    pub(crate) fn file(&self) -> io::Result<&Path> {
        if !self.file.exists() {
            self.write(&denied(&["/".to_owned()]))?;
        }
        Ok(&self.file)
    }

    /// Asks the catalog for its rules, and obeys them from then on. While it cannot be asked, those of before count.
    pub(crate) fn turn(&self, catalog: &dyn Catalog) {
        // A node of the catalog that the user removed introduces no others, though it cannot be asked.
        let done = self.ask(catalog);
        let done = done.or_else(|why| self.meet(None).and(Err(why)));
        let mut said = self.said.lock();
        if let Err(why) = &done
            && said.as_ref() != Some(why)
        {
            let (site, file) = (&self.name, self.file.display());
            tracing::warn!(site, why, %file, "the rights and nodes of the catalog are as they were");
        }
        *said = done.err();
    }

    fn ask(&self, catalog: &dyn Catalog) -> Result<(), String> {
        let said = |refusal: Refusal| refusal.said;
        let mut rules = rules(catalog, Path::new("")).map_err(said)?;
        rules.retain(|rule| is_of_rights(&rule.text));
        let all = locations(catalog, Path::new(""), false).map_err(said)?;
        self.obey(&rules, &all)?;
        self.meet(Some(&all))
    }

    /// Comes to know the other nodes of the farm, and forgets those that left it.
    fn meet(&self, all: Option<&[Location]>) -> Result<(), String> {
        let (Some(home), Some(keeper)) = (&self.home, &self.keeper) else {
            return Ok(());
        };
        let changes = members::meet(home, (&self.name, keeper), all);
        let mut refused = Vec::new();
        for change in changes.map_err(|error| error.to_string())? {
            match change {
                Introduced::Added(peer) => {
                    tracing::info!(name = peer.name, key = %peer.key, by = keeper, "introduced");
                }
                Introduced::Removed(peer) => {
                    tracing::info!(name = peer.name, key = %peer.key, "left the farm");
                }
                Introduced::Refused(error) => refused.push(error.to_string()),
            }
        }
        let mut before = self.refused.lock();
        for why in refused.iter().filter(|why| !before.contains(why)) {
            tracing::warn!(by = keeper, why, "a node of the farm is not known here");
        }
        *before = refused;
        Ok(())
    }

    /// Obeys the rules at the locations of this site.
    fn obey(&self, rules: &[CatalogRule], all: &[Location]) -> Result<(), String> {
        let here = || all.iter().filter(|location| location.site == self.name);
        let places: Vec<_> = here().filter_map(|one| self.place(one)).collect();
        let own = match &self.own {
            Ok(file) => fs::read_to_string(file)
                .map_err(|cause| format!("{}: {}", file.display(), why(&cause)))?,
            Err(text) => text.clone(),
        };
        let keeper = self.keeper.as_deref().map(door::peer);
        let text = translated(rules, &places, keeper.as_ref()) + &own;
        Rights::parse(&text)?;
        if fs::read_to_string(&self.file).is_ok_and(|before| before == text) {
            return Ok(());
        }
        let cannot = |cause| format!("{}: {}", self.file.display(), why(&cause));
        self.write(&text).map_err(cannot)?;
        tracing::info!(
            site = self.name,
            locations = places.len(),
            rules = rules.len(),
            "obey the rights of the catalog"
        );
        if here().next().is_none() {
            let next = format!("godwit location add {} URL grid:/COLLECTION", self.name);
            tracing::warn!(
                site = self.name,
                next,
                "the catalog has no location of this site"
            );
        }
        Ok(())
    }

    /// Returns the collection of a location and its path below the export.
    fn place(&self, location: &Location) -> Option<(PathBuf, PathBuf)> {
        let url: Url = location.url.parse().ok()?;
        let path = Path::new("/").join(url.as_path());
        let path = match url.is_local() {
            true => path.strip_prefix(&self.export).ok()?,
            false => &path,
        };
        Some((location.name.0.clone(), Path::new("/").join(path)))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let new = self.file.with_extension("new");
        let head = format!(
            "# Rights of site {} by its catalog. The node writes this file again.\n",
            self.name
        );
        fs::write(&new, head + text)?;
        fs::rename(&new, &self.file)
    }
}

/// Writes rules of collections as rules of paths: the last said comes first, and what none allows is denied.
fn translated(
    rules: &[CatalogRule],
    locations: &[(PathBuf, PathBuf)],
    keeper: Option<&Identity>,
) -> String {
    let (mut text, mut all) = (String::new(), Vec::new());
    for rule in rules.iter().rev() {
        let places = locations.iter();
        let places = places.filter_map(|(name, path)| path_of(&rule.name.0, name, path));
        let mut places: Vec<_> = places
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        for place in &mut places {
            let is_plain = !place.contains(['*', '?', char::REPLACEMENT_CHARACTER]);
            if !is_plain {
                // Stars in a rule stand for any text: a place that is not written exactly is only denied.
                *place = place.replace(char::REPLACEMENT_CHARACTER, "*");
                while place.contains("**") {
                    *place = place.replace("**", "*");
                }
            }
            if !all.contains(place) {
                all.push(place.clone());
            }
        }
        if rule.text.starts_with(ALLOW) {
            places.retain(|place| !place.contains(['*', '?']));
        }
        // A rule that cannot be read allows nothing.
        if let (Ok(toml), false) = (in_toml(&rule.text), places.is_empty()) {
            let _ = write!(text, "{toml}under = {}\n\n", quoted(places));
        }
    }
    if all.is_empty() {
        return String::new();
    }
    let keeper = keeper.map(|keeper| {
        let (who, under) = (quoted([keeper.subject()]), quoted(all.clone()));
        format!("[[rule]]\nwho = {who}\nmay = \"all\"\nunder = {under}\n\n")
    });
    keeper.unwrap_or_default() + &text + &denied(&all)
}

/// Returns the path where a rule of `place` counts, if a location has any of it.
fn path_of(place: &Path, collection: &Path, path: &Path) -> Option<PathBuf> {
    match place.strip_prefix(collection) {
        Ok(below) => Some(path.join(below).components().collect()),
        Err(_) => collection.starts_with(place).then(|| path.into()),
    }
}

fn denied(places: &[String]) -> String {
    let under = quoted(places.iter().map(String::as_str));
    format!("[[rule]]\nwho = \"anyone\"\nnever = [\"all\", \"run\"]\nunder = {under}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use godwit_trust::Permission;
    use godwit_wire::door::call::Name;

    fn rights(rules: &[(&str, &str)]) -> Rights {
        let rules = rules.iter().map(|(name, text)| CatalogRule {
            name: Name(name.into()),
            text: (*text).into(),
            ..CatalogRule::default()
        });
        let rules: Vec<_> = rules.collect();
        let locations = [("c", "/data/c"), ("c/deep", "/other")];
        let locations = locations.map(|(name, path)| (name.into(), path.into()));
        let keeper = door::peer("lab");
        let text = translated(&rules, &locations, Some(&keeper));
        Rights::parse(&(text + &Access::Read.as_rights())).unwrap()
    }

    #[track_caller]
    fn expect(rights: &Rights, who: &str, deed: Permission, path: &str, is_allowed: bool) {
        let who = (who != "anonymous").then(|| Identity::named(who));
        let decision = rights.decide(who.as_ref(), deed, Path::new(path));
        assert_eq!(decision.allowed, is_allowed, "{deed:?} {path}: {rights:?}");
    }

    #[test]
    fn rules_of_names_become_paths() {
        let alice = "/O=Lab/CN=alice";
        let rights = rights(&[
            ("c", "allow /O=Lab/CN=alice all"),
            ("c/run*", "allow anyone all"),
            ("c/sealed", "never anyone write,create,delete"),
            ("elsewhere", "never anyone all"),
        ]);
        for (who, deed, path, is_allowed) in [
            (alice, Permission::Write, "/data/c/x", true),
            (alice, Permission::Write, "/other/x", true),
            (alice, Permission::Write, "/data/c/sealed/x", false),
            (alice, Permission::Read, "/data/c/sealed/x", true),
            ("/O=Lab/CN=bob", Permission::Read, "/data/c/x", false),
            ("/O=Lab/CN=bob", Permission::Read, "/other/x", false),
            // A star of a name is no pattern.
            ("/O=Lab/CN=bob", Permission::Read, "/data/c/run7/x", false),
            ("/O=Lab/CN=bob", Permission::Write, "/data/x", true),
            ("anonymous", Permission::Read, "/data/c/x", false),
            ("anonymous", Permission::Read, "/data/x", true),
            ("anonymous", Permission::Write, "/data/x", false),
            (
                "/O=godwit/OU=peer/CN=lab",
                Permission::Create,
                "/data/c/sealed/x",
                true,
            ),
        ] {
            expect(&rights, who, deed, path, is_allowed);
        }
    }

    #[test]
    fn last_rule_is_asked_first() {
        let rights = rights(&[
            ("c", "never anyone read"),
            ("", "allow identified read"),
            ("c", "allow nonsense"),
        ]);
        expect(
            &rights,
            "/O=Lab/CN=bob",
            Permission::Read,
            "/data/c/x",
            true,
        );
        expect(&rights, "anonymous", Permission::Read, "/data/c/x", false);
        expect(
            &rights,
            "/O=Lab/CN=bob",
            Permission::List,
            "/data/c/x",
            false,
        );
    }
}
