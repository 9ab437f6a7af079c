//! Looking up names beneath a directory, and never anywhere else.

use crate::{FileKind, Meta, OpenMode, folder::OpenDir, meta};
use rustix::{
    fs::{self, CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

/// A directory, and all that is beneath it.
///
/// Links are followed as long as they stay beneath: relative ones, and absolute ones that name an
/// entry beneath. Names that lead out are refused with `EXDEV`. So are `..` above the root, and the
/// links of `/proc` that are no names. The root `/` has no outside: there every link is followed.
///
/// The kernel does the lookup (`openat2`, Linux 5.6). Without it, and for absolute links, we walk
/// name by name from open descriptors. The answers are the same; the walk is slower, and as safe.
#[derive(Debug)]
pub(crate) struct Beneath {
    fd: OwnedFd,
    path: PathBuf,
    lookup: Lookup,
    /// No link is followed, not even one that stays beneath.
    plain: bool,
    no_openat2: AtomicBool,
}

/// Method of looking names up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookup {
    /// The kernel, without bounds: the root is `/`.
    Anywhere,
    /// The kernel, beneath the root.
    Kernel,
    /// We, name by name.
    Walk,
}

impl Beneath {
    /// Opens the directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let lookup = if path == Path::new("/") {
            Lookup::Anywhere
        } else {
            Lookup::Kernel
        };
        Self::open_with(path, lookup)
    }

    /// Opens the directory for lookups that follow no links: a link on the way or at the end is
    /// refused with `ELOOP`.
    pub(crate) fn open_plain(path: &Path) -> io::Result<Self> {
        let open = Self::open_with(path.canonicalize()?, Lookup::Kernel)?;
        Ok(Self {
            plain: true,
            ..open
        })
    }

    /// Opens the directory, with this way of looking up.
    pub(crate) fn open_with(path: PathBuf, lookup: Lookup) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(CWD, &path, flags, Mode::empty())?;
        Ok(Self {
            fd,
            path,
            lookup,
            plain: false,
            no_openat2: AtomicBool::new(false),
        })
    }

    /// Tells whether no link is followed.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns where it was when it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file; `mode` is for a new one, less the process's umask.
    pub(crate) fn file(&self, path: &Path, how: OpenMode, mode: u32) -> io::Result<File> {
        Ok(File::from(self.lookup(
            path,
            how.flags(),
            Mode::from_raw_mode(mode & 0o7777),
        )?))
    }

    /// Opens a directory, to do something to names in it.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<OpenDir> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(OpenDir(self.lookup(path, flags, Mode::empty())?))
    }

    /// Returns the attributes of a name; links are followed.
    pub(crate) fn meta(&self, path: &Path) -> io::Result<Meta> {
        meta(&self.file(path, OpenMode::Name, 0)?)
    }

    fn lookup(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = match self.lookup {
            Lookup::Anywhere => path.strip_prefix("/").unwrap_or(path),
            Lookup::Kernel => path,
            Lookup::Walk => return self.walk(path, flags, mode),
        };
        match self.in_strides(path, flags, mode) {
            Err(Errno::NOSYS) => {
                self.no_openat2.store(true, Ordering::Relaxed);
                self.walk(path, flags, mode)
            }
            // Perhaps an absolute link that leads back in.
            Err(Errno::XDEV) if self.lookup == Lookup::Kernel => self.walk(path, flags, mode),
            done => Ok(done?),
        }
    }

    /// Has the kernel look up a path, in pieces if it is longer than the kernel takes at once.
    fn in_strides(&self, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let (mut held, mut rest) = (None::<OwnedFd>, path.as_os_str().as_bytes());
        loop {
            let here = held.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            let piece = rest.get(..=PATH_BYTES_MAX);
            let end = piece.and_then(|piece| piece.iter().rposition(|&b| b == b'/'));
            let Some(end) = end else {
                let rest = if rest.is_empty() { b"." } else { rest };
                return self.ask_kernel(here, rest, flags, mode);
            };
            let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let next = self.ask_kernel(here, &rest[..end], folder, Mode::empty())?;
            let name = rest[end..].iter().position(|&b| b != b'/');
            rest = name.map_or(b"".as_slice(), |name| &rest[end + name..]);
            held = Some(next);
        }
    }

    fn ask_kernel(
        &self,
        here: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> rustix::io::Result<OwnedFd> {
        if self.lookup == Lookup::Anywhere {
            return fs::openat(here, path, flags, mode);
        }
        if self.no_openat2.load(Ordering::Relaxed) {
            return Err(Errno::NOSYS);
        }
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        resolve.set(ResolveFlags::NO_SYMLINKS, self.plain);
        // `openat2` refuses a mode where nothing can be made.
        let mode = if flags.contains(OFlags::CREATE) {
            mode
        } else {
            Mode::empty()
        };
        for _ in 0..RACES_MAX {
            match fs::openat2(here, path, flags, mode, resolve) {
                // A concurrent rename was in the way: the kernel asks for a retry.
                Err(Errno::AGAIN) => {}
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Looks up name by name. The kernel never receives a name that it could follow. Links are read
    /// and their targets looked up like any path, and `..` returns to the previous descriptor.
    fn walk(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let mut above: Vec<OwnedFd> = Vec::new();
        let mut left = VecDeque::new();
        prepend(&mut left, path)?;
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                above.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            let here = above.last().map_or(self.fd.as_fd(), AsFd::as_fd);
            if let Some(target) = link_target(here, &name)? {
                links += 1;
                if self.plain || links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let beneath = match target.is_absolute() {
                    true => {
                        let beneath = target.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
                        above.clear();
                        beneath.to_owned()
                    }
                    false => target,
                };
                prepend(&mut left, &beneath)?;
                continue;
            }
            if left.is_empty() {
                return open_no_link(here, &name, flags, mode);
            }
            let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let next = open_no_link(here, &name, folder, Mode::empty())?;
            above.push(next);
        }
        let here = above.last().map_or(self.fd.as_fd(), AsFd::as_fd);
        Ok(fs::openat(here, ".", flags, mode)?)
    }
}

/// Tells whether a lookup met too many links.
pub fn is_ring(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

fn prepend(left: &mut VecDeque<OsString>, path: &Path) -> io::Result<()> {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => left.push_front(name.to_owned()),
            Component::ParentDir => left.push_front("..".into()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV.into()),
        }
    }
    Ok(())
}

fn link_target(here: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<PathBuf>> {
    use std::os::unix::ffi::OsStringExt;
    match fs::readlinkat(here, name, Vec::new()) {
        Ok(target) => Ok(Some(OsString::from_vec(target.into_bytes()).into())),
        Err(Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open_no_link(
    here: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let fd = fs::openat(here, name, flags | OFlags::NOFOLLOW, mode)?;
    // As a mere name even a link can be opened, if it became one just now.
    if flags.contains(OFlags::PATH) && meta(&fd)?.kind == FileKind::Link {
        return Err(Errno::LOOP.into());
    }
    Ok(fd)
}

/// As many links as Linux follows.
const LINKS_MAX: usize = 40;

/// Linux takes no longer path at once (`PATH_MAX`, less the zero byte).
const PATH_BYTES_MAX: usize = 4095;

/// How often a lookup is tried again when names are renamed under it.
const RACES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs as std_fs, os::unix::fs::symlink, sync::atomic::AtomicU32};

    struct TestExport(PathBuf);

    impl TestExport {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("godwit-sys-{}-{n}", std::process::id()));
            std_fs::create_dir_all(path.join("export/inner")).unwrap();
            std_fs::write(path.join("secret"), "secret").unwrap();
            std_fs::write(path.join("export/file"), "inside").unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn export(&self) -> PathBuf {
            self.0.join("export")
        }
    }

    impl Drop for TestExport {
        fn drop(&mut self) {
            let _ = std_fs::remove_dir_all(&self.0);
        }
    }

    fn both(place: &TestExport) -> [Beneath; 2] {
        [Lookup::Kernel, Lookup::Walk].map(|l| Beneath::open_with(place.export(), l).unwrap())
    }

    fn read(root: &Beneath, path: &str) -> io::Result<String> {
        io::read_to_string(root.file(Path::new(path), OpenMode::Read, 0)?)
    }

    #[test]
    fn links_that_stay_inside_are_followed() {
        let place = TestExport::new();
        symlink("../file", place.export().join("inner/relative")).unwrap();
        symlink(
            place.export().join("file"),
            place.export().join("inner/absolute"),
        )
        .unwrap();
        symlink("inner", place.export().join("folder")).unwrap();
        symlink(place.export(), place.export().join("top")).unwrap();
        for root in both(&place) {
            for path in [
                "file",
                "inner/../file",
                "inner/relative",
                "inner/absolute",
                "folder/relative",
                "top/folder/absolute",
            ] {
                assert_eq!(read(&root, path).unwrap(), "inside", "{path} {root:?}");
            }
        }
    }

    #[test]
    fn nothing_leads_outside() {
        let place = TestExport::new();
        symlink("../../secret", place.export().join("inner/relative")).unwrap();
        symlink(place.0.join("secret"), place.export().join("absolute")).unwrap();
        symlink("..", place.export().join("up")).unwrap();
        symlink("/", place.export().join("slash")).unwrap();
        let secret = place.0.join("secret");
        for root in both(&place) {
            for path in [
                "../secret",
                "inner/relative",
                "absolute",
                "up/secret",
                "inner/../../secret",
                secret.to_str().unwrap(),
                "slash/etc/passwd",
            ] {
                let error = read(&root, path).unwrap_err();
                assert_eq!(
                    error.raw_os_error(),
                    Some(Errno::XDEV.raw_os_error()),
                    "{path} {root:?}"
                );
            }
        }
    }

    #[test]
    fn a_ring_of_links_ends() {
        let place = TestExport::new();
        symlink("b", place.export().join("a")).unwrap();
        symlink("a", place.export().join("b")).unwrap();
        for root in both(&place) {
            assert_eq!(
                read(&root, "a").unwrap_err().raw_os_error(),
                Some(Errno::LOOP.raw_os_error())
            );
        }
    }

    /// A process that repeatedly swaps a directory for a link to the outside never makes us read
    /// the outside.
    #[test]
    fn a_race_never_leads_outside() {
        let place = TestExport::new();
        let (real, fake, moving) = ["real", "fake", "moving"]
            .map(|n| place.export().join(n))
            .into();
        std_fs::create_dir(&real).unwrap();
        std_fs::write(real.join("secret"), "inside").unwrap();
        symlink(&place.0, &fake).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std_fs::rename(&real, &moving).unwrap();
                    std_fs::rename(&moving, &real).unwrap();
                    std_fs::rename(&fake, &moving).unwrap();
                    std_fs::rename(&moving, &fake).unwrap();
                }
            });
            for root in both(&place) {
                for _ in 0..2000 {
                    if let Ok(text) = read(&root, "moving/secret") {
                        assert_eq!(text, "inside");
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn the_root_of_all_has_no_outside() {
        let place = TestExport::new();
        symlink(place.0.join("secret"), place.export().join("absolute")).unwrap();
        let root = Beneath::open(Path::new("/")).unwrap();
        let path = place.export().join("absolute");
        assert_eq!(
            read(&root, path.strip_prefix("/").unwrap().to_str().unwrap()).unwrap(),
            "secret"
        );
    }

    #[test]
    fn path_longer_than_kernel_takes_opens() {
        let place = TestExport::new();
        let mut at = std_fs::File::open(place.export()).unwrap();
        let names = vec!["name"; 1000];
        for name in &names {
            fs::mkdirat(&at, *name, Mode::RWXU).unwrap();
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = std_fs::File::from(fs::openat(&at, *name, flags, Mode::empty()).unwrap());
        }
        fs::symlinkat("/file", &at, "out").unwrap();
        fs::openat(&at, "f", OFlags::CREATE, Mode::RWXU).unwrap();
        let deep = PathBuf::from(names.join("/"));
        for root in both(&place) {
            root.file(&deep.join("f"), OpenMode::Read, 0).unwrap();
            let error = root.file(&deep.join("out"), OpenMode::Read, 0).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::XDEV.raw_os_error()));
        }
        let all = Beneath::open(Path::new("/")).unwrap();
        all.file(&place.export().join(deep).join("f"), OpenMode::Read, 0)
            .unwrap();
    }

    #[test]
    fn where_no_link_is_followed_none_is() {
        let place = TestExport::new();
        symlink("../file", place.export().join("inner/last")).unwrap();
        symlink("inner", place.export().join("folder")).unwrap();
        symlink("nowhere", place.export().join("dangling")).unwrap();
        std_fs::write(place.export().join("inner/x"), "inside").unwrap();
        for walks in [false, true] {
            let root = Beneath::open_plain(&place.export()).unwrap();
            root.no_openat2.store(walks, Ordering::Relaxed);
            assert_eq!(read(&root, "inner/x").unwrap(), "inside");
            for path in ["inner/last", "folder/x", "dangling"] {
                let error = read(&root, path).unwrap_err();
                assert!(is_ring(&error), "{path}: {error}");
                assert!(is_ring(&root.meta(Path::new(path)).unwrap_err()), "{path}");
            }
            assert!(is_ring(&root.folder(Path::new("folder")).unwrap_err()));
            let missing = read(&root, "inner/missing").unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        }
    }
}
