//! The served store: a directory of this machine, or the next node through a local depot.
//!
//! Operations that only a directory has are refused for a hop.

use godwit_core::{Algorithm, Chain, Digest};
use godwit_depot::Spooled;
use godwit_store::{Dir, Error, Partial, Result, Sink, Stat, Store, Write, channel::Watch};
use std::{
    fs::File,
    ops::{Deref, Range},
    path::{Path, PathBuf},
    time::Duration,
};

/// The served store.
#[derive(Clone, Debug)]
pub(crate) enum Export {
    Dir(Dir),
    Hop(Box<Spooled>),
}

impl Deref for Export {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Dir(dir) => dir,
            Self::Hop(hop) => &**hop,
        }
    }
}

impl Export {
    /// As [`Dir::leaves`].
    pub(crate) fn leaves(&self, path: &Path, leaves: Range<u64>) -> Result<Vec<Chain>> {
        self.dir("telling what leaves hash to")?
            .leaves(path, leaves)
    }

    /// As [`Dir::partial`], of what comes.
    pub(crate) fn partial(&self, path: &Path, id: Option<&str>) -> Result<Option<Partial>> {
        self.incoming().partial(path, id)
    }

    /// As [`Dir::abandon`], of what comes.
    pub(crate) fn abandon(&self, path: &Path, id: Option<&str>) -> Result<()> {
        self.incoming().abandon(path, id)
    }

    /// As [`Dir::lend`].
    pub(crate) fn lend(&self, path: &Path) -> Result<(File, Stat)> {
        self.dir(MODULES)?.lend(path)
    }

    /// As [`Dir::spool`].
    pub(crate) fn spool(&self, path: &Path) -> Result<File> {
        self.dir(MODULES)?.spool(path)
    }

    /// As [`Dir::is_our_own`]; false for the next node.
    pub(crate) fn is_our_own(&self) -> bool {
        matches!(self, Self::Dir(dir) if dir.is_our_own())
    }

    /// As [`Dir::share`].
    pub(crate) fn share(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        self.dir("a striped transfer")?.share(path, write)
    }

    /// As [`Dir::set_group`].
    pub(crate) fn set_group(&self, path: &Path, group: u32) -> Result<()> {
        self.dir("changing a group")?.set_group(path, group)
    }

    /// As [`Dir::digest_watched`].
    pub(crate) fn digest_watched(
        &self,
        path: &Path,
        by: Algorithm,
        range: Option<Range<u64>>,
        watch: &Watch,
    ) -> Result<Digest> {
        match self {
            Self::Dir(dir) => dir.digest_watched(path, by, range, watch),
            Self::Hop(hop) => hop.digest(path, by, range),
        }
    }

    /// As [`Dir::stat_of_name`]; the next node follows links.
    pub(crate) fn stat_of_name(&self, path: &Path) -> Result<Stat> {
        match self {
            Self::Dir(dir) => dir.stat_of_name(path),
            Self::Hop(hop) => hop.stat(path),
        }
    }

    /// As [`Dir::without_links`]. Links at the next node are resolved there: rules speak of names.
    pub(crate) fn without_links(&self, path: &Path) -> Result<PathBuf> {
        match self {
            Self::Dir(dir) => dir.without_links(path),
            Self::Hop(_) => Ok(path.into()),
        }
    }

    /// Renames to a free name, as [`Dir::rename_new`]. The next node has no such verb: an entry made under the name
    /// meanwhile is replaced.
    pub(crate) fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        match self {
            Self::Dir(dir) => dir.rename_new(from, to),
            Self::Hop(hop) => match hop.stat(to) {
                Ok(_) => Err(Error::exists(to)),
                Err(Error::Missing { .. }) => hop.rename(from, to),
                Err(error) => Err(error),
            },
        }
    }

    /// As [`Dir::sweep`], of what came.
    pub(crate) fn sweep(&self, age: Duration) -> Result<u64> {
        self.incoming().sweep(age)
    }

    /// Tells whether the export, or the spool, can be read.
    pub(crate) fn look(&self) -> Result<()> {
        self.incoming().stat(Path::new("")).map(drop)
    }

    fn incoming(&self) -> &Dir {
        match self {
            Self::Dir(dir) => dir,
            Self::Hop(hop) => hop.incoming(),
        }
    }

    fn dir(&self, what: &str) -> Result<&Dir> {
        match self {
            Self::Dir(dir) => Ok(dir),
            Self::Hop(hop) => Err(Error::unsupported(
                what,
                format!("this node only passes on, to {}", hop.next()),
            )),
        }
    }
}

const MODULES: &str = "a module";
