//! The catalog whose names a node takes.

use super::members::Members;
use crate::{Asker, Obeyed};
use godwit_catalog::{Catalog, Location, Refusal};
use godwit_core::Kind;
use godwit_farm::{Keeper, Logical};
use godwit_store::{TrustOptions, channel::Cancel, engine::CopyOptions};
use godwit_trust::PeersDir;
use parking_lot::Mutex;
use std::{fmt, num::NonZeroU64, sync::Arc, time::Duration};

/// The names of a catalog. Clones are of the same one.
#[derive(Clone)]
pub(crate) struct CatalogNames {
    /// The text that names the catalog.
    pub(crate) text: String,
    home: Option<PeersDir>,
    members: Arc<Mutex<Members>>,
    open: Arc<Mutex<Option<Arc<dyn Catalog>>>>,
    logical: Arc<Mutex<Option<Logical>>>,
}

impl fmt::Debug for CatalogNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Names({})", self.text)
    }
}

impl CatalogNames {
    /// Names a catalog, which is not opened yet; another node is asked as the owner of that home.
    pub(crate) fn new(text: &str, home: Option<&PeersDir>) -> Self {
        Self {
            text: text.into(),
            home: home.cloned(),
            members: Arc::default(),
            open: Arc::default(),
            logical: Arc::default(),
        }
    }

    /// Returns the catalog, which the first caller opens.
    pub(crate) fn catalog(&self) -> Result<Arc<dyn Catalog>, Refusal> {
        let mut open = self.open.lock();
        if let Some(catalog) = &*open {
            return Ok(Arc::clone(catalog));
        }
        let cancel = Cancel::new();
        let cancel = cancel.map_err(|e| Refusal::of_kind(Kind::Other, godwit_sys::why(&e)))?;
        let catalog = godwit_farm::open(&self.text, &self.options(cancel), false)?;
        Ok(Arc::clone(open.insert(catalog)))
    }

    /// Returns the options with the store of the names.
    pub(crate) fn within(&self, options: CopyOptions) -> CopyOptions {
        let names = self.clone();
        godwit_farm::with_names(options, move || names.obeyed(Asker::Owner))
    }

    /// Returns the catalog behind its rules of rights; a node asked for names keeps them itself.
    pub(crate) fn obeyed(&self, asker: Asker) -> Result<Arc<dyn Catalog>, Refusal> {
        let catalog = self.catalog()?;
        Ok(match self.is_ours() {
            true => Arc::new(Obeyed::new(catalog, asker)),
            false => catalog,
        })
    }

    /// Tells the key of the node of a location, if it is a node of the farm that this node knows.
    pub(crate) fn introduce(&self, location: &mut Location) -> Result<(), Refusal> {
        self.members.lock().introduce(self.home.as_ref(), location)
    }

    /// Returns the store of the names, for programs of this machine; `cancel` ends its conversations.
    pub(crate) fn logical(&self, cancel: &Cancel) -> Result<Logical, Refusal> {
        let mut logical = self.logical.lock();
        if let Some(names) = &*logical {
            return Ok(names.clone());
        }
        let catalog = self.obeyed(Asker::Owner)?;
        let names = Logical::new(catalog, self.options(cancel.clone()));
        Ok(logical.insert(names).clone())
    }

    /// Returns what keeps the rules of the catalog, until it is canceled.
    /// The two bounds are bytes a second: of copies, and of reading again to compare digests. The copies of a site that is
    /// silent for longer than `down_after` count as lost.
    pub(crate) fn keeper(
        &self,
        cancel: Cancel,
        (copies, scrubs): (Option<NonZeroU64>, Option<NonZeroU64>),
        down_after: Duration,
    ) -> Result<Keeper, Refusal> {
        let options = CopyOptions {
            parallel: Some(AT_ONCE),
            bytes_per_s: copies,
            ..self.options(cancel)
        };
        let names = Logical::new(self.catalog()?, options.clone());
        Ok(Keeper::new(names, options, scrubs, down_after))
    }

    /// Returns what makes lost files again.
    pub(crate) fn maker(&self) -> Result<Logical, Refusal> {
        let cancel = Cancel::new();
        let cancel = cancel.map_err(|e| Refusal::of_kind(Kind::Other, godwit_sys::why(&e)))?;
        Ok(Logical::new(self.catalog()?, self.options(cancel)))
    }

    /// Returns the catalog for a thread that asks again by itself, until it is canceled.
    pub(crate) fn asked(&self, cancel: Cancel) -> Result<Arc<dyn Catalog>, Refusal> {
        let options = CopyOptions {
            retries: Some(0),
            ..self.options(cancel)
        };
        godwit_farm::open(&self.text, &options, false)
    }

    /// Returns what other nodes are asked with.
    fn options(&self, cancel: Cancel) -> CopyOptions {
        let options = CopyOptions::new(cancel);
        let trust = TrustOptions {
            home: self.home.clone(),
            ..options.trust
        };
        CopyOptions { trust, ..options }
    }

    /// Tells whether the tables are those of this node.
    pub(crate) fn is_ours(&self) -> bool {
        !self.text.starts_with("godwit:")
    }
}

/// How many files the rules copy at the same time.
const AT_ONCE: usize = 2;
