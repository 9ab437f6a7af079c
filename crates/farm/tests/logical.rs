//! Names of files in local directories: reads, missing copies, refusals.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Bytes, options};
use godwit_catalog::{Catalog, CatalogAnswer, Question};
use godwit_core::{Algorithm, Block, Digest, Extents, HomeState, Url};
use godwit_farm::{Counts, Logical, register};
use godwit_store::{BlockWriter, EntryKind, Error, Result, Store, StoreExt, engine::Stores};
use godwit_wire::door::call::Name;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Two directories with the same files, which are registered as `grid:/run7`.
struct Sites {
    root: tempfile::TempDir,
    catalog: Arc<dyn Catalog>,
    names: Logical,
}

const LARGE_BYTES: usize = 3 << 20;

impl Sites {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for site in ["a", "b"] {
            let site = root.path().join(site);
            fs::create_dir_all(site.join("sub")).unwrap();
            fs::write(site.join("one"), "first").unwrap();
            fs::write(site.join("a b%20"), "odd").unwrap();
            fs::write(site.join("empty"), "").unwrap();
            fs::write(site.join("large"), large()).unwrap();
            fs::write(site.join("sub/two"), "second").unwrap();
        }
        let catalog = common::catalog(root.path());
        let names = Logical::new(catalog.clone(), options());
        let sites = Self {
            root,
            catalog,
            names,
        };
        for site in ["a", "b"] {
            let (counts, told) = sites.register(site, "grid:/run7", true).unwrap();
            assert!(told.iter().all(|(_, one)| one.is_ok()), "{told:?}");
            let bytes = LARGE_BYTES as u64 + 14;
            let (files, failed) = (5, 0);
            let expected = Counts {
                files,
                bytes,
                failed,
            };
            assert_eq!(counts, expected);
        }
        sites
    }

    fn register(&self, site: &str, name: &str, recursive: bool) -> Result<(Counts, Vec<Told>)> {
        let (stores, mut told) = (Stores::new(options()), Vec::new());
        let url = Url::file(self.root.path().join(site)).unwrap();
        let name: Url = name.parse().unwrap();
        let mut each = |name: &Path, one| told.push((name.to_owned(), one));
        let counts = register(&*self.catalog, &stores, &url, &name, recursive, &mut each)?;
        Ok((counts, told))
    }

    /// Returns the states of the homes of a name, by the directory that they are in.
    fn states(&self, name: &str) -> Vec<(bool, HomeState)> {
        let names = vec![Name(name.into())];
        let mut states = Vec::new();
        let each = &mut |answer| {
            if let CatalogAnswer::Entry(entry) = answer {
                let of =
                    |home: &godwit_catalog::CatalogHome| (home.url.contains("/a/"), home.state.0);
                states.extend(entry.homes.iter().map(of));
            }
            Ok(())
        };
        self.catalog.ask(&Question::Locate { names }, each).unwrap();
        states
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        common::read(&self.names, name, 0..u64::MAX)
    }

    /// Writes other bytes of the same length into a file.
    fn damage(&self, site: &str, path: &str) {
        let path = self.root.path().join(site).join(path);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

type Told = (PathBuf, Result<()>);

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at / 7) as u8).collect()
}

/// Takes nothing twice, as a pipe.
#[derive(Default)]
struct Pipe(Mutex<u64>);

impl BlockWriter for Pipe {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let mut next = self.0.lock().unwrap();
        if block.offset != *next {
            return Err(Error::unsupported("reading in order", "it came otherwise"));
        }
        *next = block.range().end;
        Ok(())
    }
}

#[test] //= REPLICAS-51
fn registered_files_are_read_by_name() {
    let sites = Sites::new();
    assert_eq!(sites.read("run7/one").unwrap(), b"first");
    assert_eq!(sites.read("run7/a b%20").unwrap(), b"odd");
    assert_eq!(sites.read("run7/empty").unwrap(), b"");
    assert_eq!(sites.read("run7/large").unwrap(), large());
    let stat = sites.names.stat(Path::new("run7/sub/two")).unwrap();
    let digest = Digest::of(Algorithm::Blake3, b"second");
    assert_eq!((stat.size, stat.digest), (6, Some(digest.clone())));
    let told = sites
        .names
        .digest(Path::new("run7/sub/two"), Algorithm::Blake3, None);
    assert_eq!(told.unwrap(), digest);
    let sha = sites
        .names
        .digest(Path::new("run7/sub/two"), Algorithm::Sha256, Some(0..3));
    assert_eq!(sha.unwrap(), Digest::of(Algorithm::Sha256, b"sec"));
    let part = Bytes::default();
    let want = Extents::from(2..4);
    sites
        .names
        .read(Path::new("run7/one"), &want, 1, &part)
        .unwrap();
    assert_eq!(part.0.into_inner().unwrap(), b"\0\0rs");
}

#[test]
fn missing_copy_is_passed_over() {
    let sites = Sites::new();
    for site in ["a", "b"] {
        fs::rename(sites.root.path().join(site), sites.root.path().join("gone")).unwrap();
        assert_eq!(sites.read("run7/one").unwrap(), b"first");
        assert_eq!(sites.read("run7/large").unwrap(), large());
        fs::rename(sites.root.path().join("gone"), sites.root.path().join(site)).unwrap();
    }
    for site in ["a", "b"] {
        fs::remove_dir_all(sites.root.path().join(site)).unwrap();
    }
    let error = sites.read("run7/one").unwrap_err().to_string();
    assert!(
        error.contains("run7/one") && error.contains("none of 2 copies"),
        "{error}"
    );
}

#[test]
fn damaged_copy_is_marked_and_passed_over() {
    for (name, expected) in [("one", b"first".to_vec()), ("large", large())] {
        let sites = Sites::new();
        let path = format!("run7/{name}");
        let (is_a, _) = sites.states(&path)[0];
        sites.damage(if is_a { "a" } else { "b" }, name);
        assert_eq!(sites.read(&path).unwrap(), expected);
        let mut states = sites.states(&path);
        states.retain(|(_, state)| *state == HomeState::Damaged);
        assert_eq!(states, [(is_a, HomeState::Damaged)]);
        assert_eq!(sites.read(&path).unwrap(), expected);
    }
}

#[test]
fn copies_that_are_all_damaged_are_refused() {
    let sites = Sites::new();
    sites.damage("a", "large");
    sites.damage("b", "large");
    let error = sites.read("run7/large").unwrap_err();
    assert_eq!(error.exit_code(), 12, "{error}");
    let error = sites.read("run7/large").unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

#[test]
fn pipe_is_told_of_damage() {
    let sites = Sites::new();
    sites.damage("a", "large");
    sites.damage("b", "large");
    let (path, want) = (Path::new("run7/large"), Extents::from(0..u64::MAX));
    let error = sites
        .names
        .read(path, &want, 1, &Pipe::default())
        .unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn other_bytes_are_refused_alone() {
    let sites = Sites::new();
    sites.damage("b", "one");
    fs::write(sites.root.path().join("b/three"), "third").unwrap();
    let (counts, told) = sites.register("b", "grid:/run7", true).unwrap();
    assert_eq!((counts.files, counts.failed), (5, 1));
    let refused: Vec<_> = told.iter().filter(|(_, one)| one.is_err()).collect();
    let [(name, Err(error))] = &refused[..] else {
        panic!("{told:?}");
    };
    assert_eq!(name, Path::new("run7/one"));
    assert_eq!(error.exit_code(), 12, "{error}");
    assert_eq!(sites.read("run7/three").unwrap(), b"third");
}

#[test] //= REPLICAS-44
fn registering_again_changes_nothing() {
    let sites = Sites::new();
    let before = sites.states("run7/one");
    sites.register("a", "grid:/run7", true).unwrap();
    assert_eq!(sites.states("run7/one"), before);
}

#[test] //= FARM-98
fn one_file_is_registered_under_its_name() {
    let sites = Sites::new();
    let error = sites.register("a", "grid:/other", false).unwrap_err();
    assert!(matches!(error, Error::IsDirectory { .. }), "{error}");
    let (counts, _) = sites.register("a/one", "grid:/other/uno", false).unwrap();
    assert_eq!(counts.files, 1);
    assert_eq!(sites.read("other/uno").unwrap(), b"first");
}

#[test]
fn lists_are_sorted() {
    let sites = Sites::new();
    let (mut listed, mut walked) = (Vec::new(), Vec::new());
    let each = &mut |entry: godwit_store::Entry| {
        listed.push((entry.path, entry.stat.kind));
        Ok(())
    };
    sites.names.list(Path::new("run7"), each).unwrap();
    let names: Vec<_> = listed
        .iter()
        .map(|(path, _)| path.to_str().unwrap())
        .collect();
    assert_eq!(names, ["a b%20", "empty", "large", "one", "sub"]);
    assert_eq!(listed[4].1, EntryKind::Directory);
    let each = &mut |entry: godwit_store::Entry| {
        walked.push(entry.path);
        Ok(())
    };
    sites.names.walk(Path::new("run7"), each).unwrap();
    assert_eq!(walked.last().unwrap(), Path::new("sub/two"));
    assert_eq!(walked.len(), 6);
}
