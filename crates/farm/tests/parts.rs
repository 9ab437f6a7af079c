//! Files in parts at several sites: registered, combined by a reader, refused.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Bytes, options};
use godwit_catalog::{Catalog, CatalogEntry, Change};
use godwit_core::{Algorithm, Digest, Extents, Url};
use godwit_farm::{Logical, NewPart, register};
use godwit_store::{Error, Result, Store, engine::Stores};
use godwit_wire::door::call::{Name, Text};
use std::{fs, ops::Range, path::Path, sync::Arc};

/// A catalog that knows the length and digest of one file, and directories with parts of it.
struct World {
    root: tempfile::TempDir,
    catalog: Arc<dyn Catalog>,
    names: Logical,
}

const NAME: &str = "run7/file";

impl World {
    fn new(bytes: &[u8]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let catalog = common::catalog(root.path());
        let entry = CatalogEntry {
            name: Name(NAME.into()),
            version: 1,
            size: Some(bytes.len() as u64),
            digests: vec![Text(Digest::of(Algorithm::Blake3, bytes))],
            ..CatalogEntry::default()
        };
        catalog
            .change(&Change::Load(Box::new(entry)).into())
            .unwrap();
        let names = Logical::new(catalog.clone(), options());
        Self {
            root,
            catalog,
            names,
        }
    }

    fn url(&self, file: &str) -> Url {
        Url::file(self.root.path().join(file)).unwrap()
    }

    /// Writes a file and notes it as a part.
    fn add(&self, file: &str, bytes: &[u8], range: Range<u64>) -> Result<()> {
        let path = self.root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self.names.register_part(&NewPart {
            url: &self.url(file),
            name: Path::new(NAME),
            range,
            size: None,
        })
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        common::read(&self.names, NAME, range)
    }
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at * at % 251) as u8).collect()
}

#[test] //= REPLICAS-16
fn overlapping_parts_make_the_file() {
    // One size below, one above that of a small file.
    for len in [1000, 3_000_000] {
        let (bytes, third) = (noise(len), len / 3);
        let world = World::new(&bytes);
        let past = len as u64;
        world
            .add("a/x", &bytes[..2 * third], 0..2 * third as u64)
            .unwrap();
        // This part is at its offset in a sparse file.
        let mut sparse = bytes.clone();
        sparse[..third].fill(0);
        world.add("b/x", &sparse, third as u64..past).unwrap();
        assert_eq!(world.read(0..u64::MAX).unwrap(), bytes);
        let some = third as u64 - 5..past - 3;
        let expected = &bytes[third - 5..len - 3];
        assert_eq!(world.read(some).unwrap(), expected);
    }
}

/// Parts of which no digest was known do not outlive the first whole copy with other bytes.
#[test]
fn first_whole_copy_tells_the_digest() {
    let bytes = noise(3_000);
    let mut wrong = bytes.clone();
    wrong[2_500] ^= 1;
    let world = World::new(&bytes);
    let name = Path::new("run7/parts");
    for (file, range) in [("a/x", 0..1_000), ("b/x", 1_000..3_000)] {
        let path = world.root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let part = range.start as usize..range.end as usize;
        fs::write(path, &wrong[part]).unwrap();
        let url = world.url(file);
        let size = Some(3_000);
        let part = NewPart {
            url: &url,
            name,
            range,
            size,
        };
        world.names.register_part(&part).unwrap();
    }
    fs::write(world.root.path().join("whole"), &bytes).unwrap();
    let stores = Stores::new(options());
    let (url, as_name) = (world.url("whole"), "grid:/run7/parts".parse().unwrap());
    register(
        &*world.catalog,
        &stores,
        &url,
        &as_name,
        false,
        &mut |_, _| (),
    )
    .unwrap();
    fs::remove_file(world.root.path().join("whole")).unwrap();
    let read = || common::read(&world.names, "run7/parts", 0..u64::MAX);
    assert!(matches!(read(), Err(Error::Corrupt { .. })), "{:?}", read());
}

#[test]
fn missing_bytes_are_named() {
    let bytes = noise(1000);
    let world = World::new(&bytes);
    world.add("a/x", &bytes[..400], 0..400).unwrap();
    world.add("b/x", &bytes[600..], 600..1000).unwrap();
    let error = world.read(0..u64::MAX).unwrap_err().to_string();
    assert!(error.contains("400-600"), "{error}");
    assert_eq!(world.read(600..700).unwrap(), bytes[600..700]);
}

#[test] //= REPLICAS-16
fn lost_part_is_replaced_by_another() {
    let bytes = noise(3_000_000);
    let world = World::new(&bytes);
    let middle = 1_500_000;
    world
        .add("a/x", &bytes[..middle], 0..middle as u64)
        .unwrap();
    world.add("b/x", &bytes, 0..3_000_000).unwrap();
    world
        .add("c/x", &bytes[middle..], middle as u64..3_000_000)
        .unwrap();
    for lost in ["a", "c"] {
        let path = world.root.path().join(lost).join("x");
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(world.read(0..u64::MAX).unwrap(), bytes, "{lost}");
        fs::write(path, kept).unwrap();
    }
    fs::write(world.root.path().join("b/x"), "short").unwrap();
    assert_eq!(world.read(0..u64::MAX).unwrap(), bytes);
}

#[test] //= REPLICAS-10
fn damaged_part_is_never_shown() {
    let mut bytes = noise(1000);
    let world = World::new(&bytes);
    world.add("a/x", &bytes[..500], 0..500).unwrap();
    bytes[700] ^= 1;
    // No other site can tell these bytes, so that they are noted.
    world.add("b/x", &bytes[500..], 500..1000).unwrap();
    let error = world.read(0..u64::MAX).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test] //= REPLICAS-51
fn part_with_other_bytes_is_refused() {
    let mut bytes = noise(1000);
    let world = World::new(&bytes);
    world.add("a/x", &bytes[..500], 0..500).unwrap();
    bytes[150] ^= 1;
    let refused = world.add("b/x", &bytes[100..200], 100..200);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    for (len, range) in [(10, 0..11), (10, 995..1005), (900, 0..901)] {
        let refused = world.add("c/x", &bytes[..len], range.clone());
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{range:?} {refused:?}"
        );
    }
}

#[test]
fn whole_copy_tells_bytes_of_a_part() {
    let bytes = noise(1000);
    let world = World::new(&bytes);
    fs::create_dir_all(world.root.path().join("whole")).unwrap();
    fs::write(world.root.path().join("whole/file"), &bytes).unwrap();
    let (stores, name) = (Stores::new(options()), format!("grid:/{NAME}"));
    let noted = register(
        &*world.catalog,
        &stores,
        &world.url("whole/file"),
        &name.parse().unwrap(),
        false,
        &mut |_, one| one.unwrap(),
    );
    noted.unwrap();
    assert!(world.add("a/x", &[0; 100], 0..100).is_err());
    world.add("a/x", &bytes[..100], 0..100).unwrap();
    fs::remove_file(world.root.path().join("whole/file")).unwrap();
    assert_eq!(world.read(0..50).unwrap(), bytes[..50]);
    let of = world
        .names
        .digest(Path::new(NAME), Algorithm::Sha256, Some(10..60));
    assert_eq!(of.unwrap(), Digest::of(Algorithm::Sha256, &bytes[10..60]));
    let want = Extents::from(0..200);
    assert!(
        world
            .names
            .read(Path::new(NAME), &want, 1, &Bytes::default())
            .is_err()
    );
}
