//! Pieces that the tests of the farm share.

#![allow(clippy::unwrap_used, dead_code, missing_docs)]

use godwit_catalog::Catalog;
use godwit_core::{Block, Extents};
use godwit_store::{BlockWriter, Result, Store, channel::Cancel, engine::CopyOptions};
use std::{
    ops::Range,
    path::Path,
    sync::{Arc, Mutex},
};

pub(crate) fn options() -> CopyOptions {
    CopyOptions::new(Cancel::new().unwrap())
}

/// Makes a catalog in a directory.
pub(crate) fn catalog(root: &Path) -> Arc<dyn Catalog> {
    let url = format!("sqlite:{}", root.join("catalog").display());
    godwit_catalog::open(&url, true).unwrap()
}

/// Reads bytes of a file.
pub(crate) fn read(store: &dyn Store, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
    let (bytes, from) = (Bytes::default(), range.start as usize);
    store.read(Path::new(name), &Extents::from(range), 1, &bytes)?;
    let bytes = bytes.0.into_inner().unwrap();
    Ok(bytes.get(from..).unwrap_or_default().to_vec())
}

/// All bytes that came, at their offsets.
#[derive(Default)]
pub(crate) struct Bytes(pub Mutex<Vec<u8>>);

impl BlockWriter for Bytes {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let (from, to) = (block.offset as usize, block.range().end as usize);
        let mut bytes = self.0.lock().unwrap();
        let len = bytes.len().max(to);
        bytes.resize(len, 0);
        bytes[from..to].copy_from_slice(block.bytes);
        Ok(())
    }
}
