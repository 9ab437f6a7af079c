//! Directories that programs of peers work in: below the export, so that what they write can be renamed into it.

use godwit_sys::{try_lock, why};
use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// An empty directory for one program. Dropping it removes the directory.
#[derive(Debug)]
pub(crate) struct Workplace {
    path: PathBuf,
    export: PathBuf,
    /// Its lock tells that this node has not ended.
    _held: File,
}

impl Workplace {
    /// Makes one below an export.
    pub(crate) fn new(export: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let _ = DirBuilder::new().create(export.join(FARM));
        let _ = DirBuilder::new().mode(0o700).create(export.join(TASKS));
        let (export, above) = (fs::canonicalize(export)?, all(export)?);
        loop {
            let name = format!("{}-{}", process::id(), COUNT.fetch_add(1, Relaxed));
            let path = above.join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let held = File::open(&path)?;
            try_lock(&held)?;
            return Ok(Self {
                path,
                export,
                _held: held,
            });
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path below the export.
    pub(crate) fn below_export(&self) -> PathBuf {
        Path::new(TASKS).join(self.path.file_name().unwrap_or_default())
    }

    /// Returns the export, without links.
    pub(crate) fn export(&self) -> &Path {
        &self.export
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if let Err(cause) = fs::remove_dir_all(&self.path) {
            let (path, cause) = (self.path.display(), why(&cause));
            tracing::warn!(%path, cause, "what a program left stays");
        }
    }
}

/// Removes what nodes that were killed left below an export.
pub(crate) fn sweep(export: &Path) {
    let Ok(above) = all(export) else { return };
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_left = File::open(&path).and_then(|held| Ok((try_lock(&held)?, held)));
        if let Ok((true, _held)) = is_left
            && let Err(cause) = fs::remove_dir_all(&path)
        {
            let (path, cause) = (path.display(), why(&cause));
            tracing::warn!(%path, cause, "what a program left stays");
        }
    }
}

/// Returns the directory of all of them. A link that a peer made could lead to files of others, so none is followed.
fn all(export: &Path) -> io::Result<PathBuf> {
    let all = fs::canonicalize(export)?.join(TASKS);
    match fs::canonicalize(&all)? == all {
        true => Ok(all),
        false => Err(io::Error::other(format!("{} is a link", all.display()))),
    }
}

const FARM: &str = ".farm";
const TASKS: &str = ".farm/tasks";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_a_killed_node_left_is_swept() {
        let export = std::env::temp_dir().join(format!("godwit-workplace-{}", process::id()));
        fs::create_dir_all(&export).unwrap();
        sweep(&export);
        let mine = Workplace::new(&export).unwrap();
        assert_eq!(
            fs::metadata(mine.path()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let tasks = mine.path().parent().unwrap().to_owned();
        fs::create_dir_all(tasks.join("1-1/deep")).unwrap();
        sweep(&export);
        let left = || fs::read_dir(&tasks).unwrap().count();
        assert_eq!((mine.path().exists(), left()), (true, 1));
        drop(mine);
        assert_eq!(left(), 0);
        // Where a link leads nothing is made or removed.
        fs::create_dir_all(export.join("others/work")).unwrap();
        fs::remove_dir(&tasks).unwrap();
        symlink(export.join("others"), &tasks).unwrap();
        sweep(&export);
        assert!(Workplace::new(&export).is_err());
        assert_eq!(fs::read_dir(export.join("others")).unwrap().count(), 1);
        fs::remove_dir_all(&export).unwrap();
    }
}
