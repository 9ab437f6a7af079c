//! Working directories for programs of peers: below the export, so that outputs are renamed into it.

use godwit_sys::{try_lock, why};
use godwit_wire::door::staging::PROGRAMS;
use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
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
        let (export, above) = (fs::canonicalize(export)?, within(export, TASKS)?);
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

/// Removes what nodes that were killed left below an export, and programs that no task has used for a week.
pub(crate) fn sweep(export: &Path) {
    sweep_programs(export);
    for path in entries(export, TASKS) {
        let is_left = File::open(&path).and_then(|held| Ok((try_lock(&held)?, held)));
        if let Ok((true, _held)) = is_left
            && let Err(cause) = fs::remove_dir_all(&path)
        {
            let (path, cause) = (path.display(), why(&cause));
            tracing::warn!(%path, cause, "what a program left stays");
        }
    }
}

/// Notes that a kept program is used. Within a day that is not noted again, since its digest would be computed anew.
pub(crate) fn touch(program: &Path) {
    if age(program) > Some(NOTED_EVERY) {
        let noted = File::open(program).and_then(|file| file.set_modified(SystemTime::now()));
        if let Err(cause) = noted {
            let (path, cause) = (program.display(), why(&cause));
            tracing::info!(%path, cause, "the use of a program is not noted");
        }
    }
}

fn sweep_programs(export: &Path) {
    for path in entries(export, PROGRAMS) {
        if age(&path) > Some(UNUSED_AFTER)
            && let Err(cause) = fs::remove_file(&path)
        {
            let (path, cause) = (path.display(), why(&cause));
            tracing::warn!(%path, cause, "a program that no task uses stays");
        }
    }
}

/// Returns the time since a file was changed; `None`: it is no file, or was changed in the future.
fn age(path: &Path) -> Option<Duration> {
    let meta = fs::symlink_metadata(path).ok()?;
    meta.is_file()
        .then(|| meta.modified().ok()?.elapsed().ok())?
}

/// Returns the entries of a directory of an export.
fn entries(export: &Path, directory: &str) -> impl Iterator<Item = PathBuf> {
    let read = within(export, directory).and_then(fs::read_dir);
    let entries = read.into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Returns a directory of an export. A link that a peer made could lead to files of others, so none is followed.
fn within(export: &Path, directory: &str) -> io::Result<PathBuf> {
    let path = fs::canonicalize(export)?.join(directory);
    match fs::canonicalize(&path)? == path {
        true => Ok(path),
        false => Err(io::Error::other(format!("{} is a link", path.display()))),
    }
}

const FARM: &str = ".farm";
const TASKS: &str = ".farm/tasks";
const NOTED_EVERY: Duration = Duration::from_secs(86_400);
const UNUSED_AFTER: Duration = Duration::from_secs(7 * 86_400);

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

    #[test]
    fn unused_programs_are_swept() {
        let export = std::env::temp_dir().join(format!("godwit-programs-{}", process::id()));
        let programs = export.join(PROGRAMS);
        fs::create_dir_all(&programs).unwrap();
        let kept = |name: &str, days: u64| {
            let (path, day) = (programs.join(name), Duration::from_secs(86_400));
            let file = File::create(&path).unwrap();
            let at = SystemTime::now() - day * u32::try_from(days).unwrap();
            file.set_modified(at).unwrap();
            path
        };
        let (unused, used, new) = (kept("unused", 8), kept("used", 8), kept("new", 6));
        touch(&used);
        sweep(&export);
        let there = [&unused, &used, &new].map(|path| path.exists());
        assert_eq!(there, [false, true, true]);
        // The files of others stay where a link leads to them.
        let others = kept("others", 8);
        fs::rename(&programs, export.join("others")).unwrap();
        std::os::unix::fs::symlink(export.join("others"), &programs).unwrap();
        sweep(&export);
        assert!(others.exists());
        fs::remove_dir_all(&export).unwrap();
    }
}
