//! The catalog that a node was started with.

use godwit_catalog::{Catalog, Refusal};
use godwit_core::Kind;
use godwit_store::{Trust, channel::Cancel, engine::Options};
use godwit_trust::Home;
use std::{fmt, sync::Arc};

/// The names of a catalog.
pub(crate) struct Names {
    /// The text that names the catalog.
    pub(crate) text: String,
    pub(crate) catalog: Arc<dyn Catalog>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Names({})", self.text)
    }
}

impl Names {
    /// Opens the catalog that a text names, as the owner of that home.
    pub(crate) fn open(text: &str, home: Option<&Home>) -> Result<Self, Refusal> {
        let cancel = Cancel::new();
        let cancel = cancel.map_err(|e| Refusal::of_kind(Kind::Other, godwit_sys::why(&e)))?;
        let options = Options::new(cancel);
        let trust = Trust {
            home: home.cloned(),
            ..options.trust
        };
        Ok(Self {
            text: text.into(),
            catalog: godwit_farm::open(text, &Options { trust, ..options }, false)?,
        })
    }

    /// Tells whether the tables are those of this node.
    pub(crate) fn is_ours(&self) -> bool {
        !self.text.starts_with("godwit:")
    }
}
