//! Rules about copies, applied without a request.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use godwit_catalog::{Catalog, Change, find};
use godwit_core::{Block, HomeState, Url};
use godwit_farm::{Keeper, Logical};
use godwit_store::{Expected, Result, Store, Write, engine::CopyOptions};
use godwit_wire::door::call::Name;
use std::{fs, num::NonZeroU64, path::Path, sync::Arc};

/// A collection with three sites, and what keeps its rules.
struct World {
    root: tempfile::TempDir,
    catalog: Arc<dyn Catalog>,
    names: Logical,
}

fn options() -> CopyOptions {
    CopyOptions {
        retries: Some(0),
        ..common::options()
    }
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let catalog = common::catalog(root.path());
        let names = Logical::new(catalog.clone(), options());
        let world = Self {
            root,
            catalog,
            names,
        };
        for site in ["one", "two", "three"] {
            let dir = world.root.path().join(site);
            fs::create_dir(&dir).unwrap();
            world.location(site, Url::file(dir).unwrap().to_string());
        }
        world
    }

    fn location(&self, site: &str, url: String) {
        self.change(Change::AddLocation {
            name: Name("c".into()),
            site: site.into(),
            url,
            whole: true,
        });
    }

    fn change(&self, change: Change) -> u64 {
        self.catalog.change(&change.into()).unwrap()[0]
    }

    fn rule(&self, text: &str) -> u64 {
        let name = Name("c".into());
        let text = text.into();
        self.change(Change::AddRule { name, text })
    }

    /// Runs one round of a new keeper process.
    fn turn(&self) {
        let scrubs = NonZeroU64::new(1 << 30);
        let names = Logical::new(self.catalog.clone(), options());
        let keeper = Keeper::new(names, options(), scrubs, DOWN_AFTER);
        // Another process that has not ended yet may have the lease.
        let db = rusqlite::Connection::open(self.root.path().join("catalog")).unwrap();
        db.execute("UPDATE leases SET until = 0", []).unwrap();
        keeper.turn().unwrap();
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let write = Write::of_size(bytes.len() as u64);
        let sink = self.names.write(Path::new(name), &write)?;
        sink.put(Block::at(0, bytes))?;
        sink.finish(&Expected::of_size(bytes.len() as u64))
            .map(drop)
    }

    /// Returns the sites with a good copy.
    fn sites(&self, name: &str) -> Vec<String> {
        let entry = find(&*self.catalog, Path::new(name)).unwrap().unwrap();
        let good = entry
            .homes
            .iter()
            .filter(|home| home.state.0 == HomeState::Whole && home.version == entry.version);
        let mut sites: Vec<_> = good.map(|home| home.site.clone()).collect();
        sites.sort_unstable();
        sites
    }
}

#[test] //= REPLICAS-11
fn changed_files_get_their_copies() {
    let world = World::new();
    world.put("c/old", b"before the rule").unwrap();
    let rule = world.rule("copies=2");
    assert_eq!(world.rule("copies=2"), rule, "the same rule is one");
    world.turn();
    assert_eq!(world.sites("c/old").len(), 2);
    world.put("c/new", b"after the rule").unwrap();
    world.turn();
    assert_eq!(world.sites("c/new").len(), 2);
    world.put("c/new", b"a new version").unwrap();
    assert_eq!(world.sites("c/new").len(), 1);
    world.turn();
    assert_eq!(world.sites("c/new").len(), 2);
    world.turn();
    let (rules, todo) = world.names.why(Path::new("c/new")).unwrap();
    assert!(
        rules.len() == 1 && rules[0].1.is_met() && todo.is_none(),
        "{rules:?} {todo:?}"
    );
    world.change(Change::RemoveRule { rule });
    world.put("c/third", b"no rule").unwrap();
    world.turn();
    assert_eq!(world.sites("c/third").len(), 1);
}

#[test] //= REPLICAS-11
fn named_sites_get_their_copies() {
    let world = World::new();
    world.rule("at=three from=one");
    world.put("c/a", b"content").unwrap();
    world.turn();
    assert_eq!(world.sites("c/a"), ["one", "three"]);
}

#[test]
fn unmet_rule_tells_why() {
    let world = World::new();
    world.location("away", "ftp://127.0.0.1:1/away".into());
    world.rule("copies=9 at=nowhere,away");
    world.put("c/a", b"content").unwrap();
    // The copies that were made have it compared once more.
    world.turn();
    world.turn();
    world.turn();
    let (rules, todo) = world.names.why(Path::new("c/a")).unwrap();
    let unmet = &rules[0].1.unmet;
    assert!(
        unmet
            .iter()
            .any(|why| why.contains("no location at nowhere")),
        "{unmet:?}"
    );
    assert!(
        unmet.iter().any(|why| why.contains("4 copies of 9")),
        "{unmet:?}"
    );
    let todo = todo.unwrap();
    assert!(todo.tries == 1 && todo.said.contains("away: "), "{todo:?}");
    assert_eq!(
        world.sites("c/a"),
        ["one", "three", "two"],
        "what can be done is done"
    );
}

#[test] //= REPLICAS-11
fn damaged_copy_is_found_and_replaced() {
    let world = World::new();
    world.rule("copies=2");
    world.put("c/a", b"content").unwrap();
    world.turn();
    let site = world
        .sites("c/a")
        .into_iter()
        .find(|site| site != "one")
        .unwrap();
    let path = world.root.path().join(&site).join("a");
    fs::write(&path, "CONTENT").unwrap();
    // Scrubbing skips files that were compared within a week.
    let db = rusqlite::Connection::open(world.root.path().join("catalog")).unwrap();
    db.execute("UPDATE homes SET verified = 1", []).unwrap();
    world.turn();
    assert_eq!(world.sites("c/a"), ["one"]);
    world.turn();
    assert_eq!(fs::read(&path).unwrap(), b"content");
    assert_eq!(world.sites("c/a").len(), 2);
    fs::remove_file(&path).unwrap();
    db.execute("UPDATE homes SET verified = 1", []).unwrap();
    world.turn();
    world.turn();
    assert_eq!(fs::read(&path).unwrap(), b"content");
}

#[test]
fn one_process_keeps_the_rules() {
    let world = World::new();
    world.rule("copies=2");
    world.turn();
    world.put("c/a", b"content").unwrap();
    let names = Logical::new(world.catalog.clone(), options());
    let other = Keeper::new(names, options(), None, DOWN_AFTER);
    other.turn().unwrap();
    assert_eq!(
        world.sites("c/a").len(),
        1,
        "the lease of the first is not over"
    );
    world.turn();
    assert_eq!(world.sites("c/a").len(), 2);
}

const DOWN_AFTER: std::time::Duration = std::time::Duration::from_secs(300);
