//! Socket and state directories of this user's node.

use crate::{Kind, Refusal, Result};
use godwit_core::{Algorithm, Digest};
use godwit_sys::{is_network_file_system, user_id, why};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The variables of a process, by name.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A node of this machine: its socket, and its state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodePlace {
    /// Socket of the node. Its lock files lie beside it.
    pub socket: PathBuf,
    /// Directory of the depot and the log.
    pub state: PathBuf,
}

impl NodePlace {
    /// Finds the place that programs of this user use: `GODWIT_SOCKET`; else a directory that ends with the
    /// login; else one of our own below /tmp. Directories are made; one that others could have made, or can write to,
    /// is refused.
    pub fn find(environment: Environment<'_>) -> Result<Self> {
        Self::of(None, None, environment)
    }

    /// Finds the place, given a socket or a state directory.
    pub fn of(
        socket: Option<&Path>,
        state: Option<&Path>,
        environment: Environment<'_>,
    ) -> Result<Self> {
        let told = |name| environment(name).filter(|value| !value.is_empty());
        let socket = socket.map(Path::to_owned);
        let socket = match socket.or_else(|| told("GODWIT_SOCKET").map(PathBuf::from)) {
            Some(socket) => (absolute(&socket)?, true),
            None => (usual_socket(environment)?, false),
        };
        let (socket, is_told) = socket;
        if socket.as_os_str().len() > SOCKET_BYTES_MAX {
            let because = format!(
                "{} is longer than the {SOCKET_BYTES_MAX} bytes that the name of a socket may have",
                socket.display()
            );
            return Err(Refusal::new(Kind::TooLong, "reach the node here", because)
                .next("name a shorter one in GODWIT_SOCKET"));
        }
        let state = state.map(Path::to_owned);
        let state = match state.or_else(|| told("GODWIT_STATE").map(PathBuf::from)) {
            Some(state) => absolute(&state)?,
            None => usual_state(environment, is_told.then_some(&*socket))?,
        };
        Ok(Self { socket, state })
    }

    /// Returns the file that a process locks while it starts a node for this socket.
    pub fn starting(&self) -> PathBuf {
        beside(&self.socket, ".starting")
    }

    /// Returns the file that is locked by the node of this socket as long as it lives.
    pub fn alive(&self) -> PathBuf {
        beside(&self.socket, ".lock")
    }

    /// Returns the log of a node that was started on demand.
    pub fn log(&self) -> PathBuf {
        self.state.join("node.log")
    }

    /// Returns the file that exists while a node runs, and after it until a node ends with nothing
    /// pending.
    pub fn unfinished(&self) -> PathBuf {
        self.state.join("unfinished")
    }

    /// Says which usual directory another user made first, if the node is elsewhere for that.
    pub fn displaced(&self) -> Option<String> {
        let is_other = |(below, path): &(&str, &Path)| {
            let name = format!("{below}/{}-", usual_name());
            path.as_os_str().as_bytes().starts_with(name.as_bytes())
        };
        let mut both = [(TMP, &*self.socket), (VAR_TMP, &*self.state)].into_iter();
        let (below, path) = both.find(is_other)?;
        let usual = format!("{below}/{}", usual_name());
        Some(format!(
            "{usual} was not this user's: the node uses {} instead",
            path.display()
        ))
    }

    /// Tells whether the last node may have left changes to deliver.
    pub fn find_unfinished(&self) -> Result<bool> {
        let file = self.unfinished();
        let is_there = file.try_exists();
        is_there.map_err(|error| disk("know what the last node left to do", &file, &error))
    }

    /// Makes the directories, for this user alone.
    pub fn prepare(&self) -> Result<()> {
        let wanted = "keep a node here";
        let failed = |dir: &Path, name: &str, error: io::Error| {
            disk(wanted, dir, &error).next(format!("name a directory of your own in {name}"))
        };
        if let Some(dir) = self.socket.parent() {
            make(dir).map_err(|error| failed(dir, "GODWIT_SOCKET (DIRECTORY/socket)", error))?;
        }
        let state = &*self.state;
        make(state)
            .and_then(|()| own(state))
            .map_err(|error| failed(state, "GODWIT_STATE", error))
    }
}

/// Returns the first of the usual paths that can be used.
fn usual_socket(environment: Environment<'_>) -> Result<PathBuf> {
    let uid = user_id();
    let login = environment("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_login = [
        login.filter(|dir| dir.is_absolute()),
        Some(format!("/run/user/{uid}").into()),
    ];
    for dir in of_login.into_iter().flatten() {
        let ours = dir.join("godwit");
        // The batch system may name a directory that is missing or another user's.
        if own(&dir).is_ok() && make_one(&ours).is_ok() && own(&ours).is_ok() {
            return Ok(ours.join("socket"));
        }
    }
    match private_below(Path::new(TMP)) {
        Ok(ours) => Ok(ours.join("socket")),
        Err(error) => Err(disk("reach the node here", Path::new(TMP), &error)
            .next("name a socket in a directory of yours in GODWIT_SOCKET")),
    }
}

/// Returns a private directory of this user below one that every user may write. If another user
/// has made the usual name first, one with a random end is made. Every program finds the oldest of
/// those.
fn private_below(parent: &Path) -> io::Result<PathBuf> {
    let usual = parent.join(usual_name());
    // It is made only where there is no other.
    if own(&usual).is_ok() {
        return Ok(usual);
    }
    if let Some(other) = oldest_of_others(parent) {
        return Ok(other);
    }
    if make_one(&usual).and_then(|()| own(&usual)).is_ok() {
        return Ok(usual);
    }
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = format!("{} {since_epoch:?}", std::process::id());
    let end = Digest::of(Algorithm::Blake3, seed.as_bytes());
    let mut name = usual.into_os_string();
    name.push(format!("-{}", &end.hex()[..12]));
    DirBuilder::new().mode(0o700).create(&name)?;
    // Another program of this user may have been quicker.
    Ok(oldest_of_others(parent).unwrap_or_else(|| name.into()))
}

fn usual_name() -> String {
    format!("godwit-{}", user_id())
}

fn oldest_of_others(parent: &Path) -> Option<PathBuf> {
    let begin = format!("{}-", usual_name());
    let named = fs::read_dir(parent).ok()?.flatten();
    let named = named.filter(|entry| entry.file_name().as_bytes().starts_with(begin.as_bytes()));
    let ours = named
        .map(|entry| entry.path())
        .filter(|dir| own(dir).is_ok());
    ours.min_by_key(|dir| {
        let created = fs::metadata(dir).and_then(|meta| meta.created());
        (created.ok(), dir.clone())
    })
}

/// Returns where state is kept that survives a restart of the machine. A node at a socket of its own has a state of
/// its own: two cannot share one.
fn usual_state(environment: Environment<'_>, socket: Option<&Path>) -> Result<PathBuf> {
    let absolute = |name| {
        let path = environment(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let home = absolute("XDG_STATE_HOME");
    let home = home.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let of_home = home
        .filter(|home| is_here(home))
        .map(|home| home.join("godwit"));
    let state = match of_home {
        Some(state) => state,
        None => {
            // Homes of clusters lie elsewhere, and jobs have none.
            let below = Path::new(VAR_TMP);
            private_below(below).map_err(|error| disk("keep a node here", below, &error))?
        }
    };
    Ok(match socket {
        Some(socket) => {
            let name = Digest::of(Algorithm::Blake3, socket.as_os_str().as_bytes()).to_string();
            state.join(format!("at-{}", &name[..16]))
        }
        None => state.join("local"),
    })
}

/// Tells whether something could be made there on a disk of this machine.
fn is_here(path: &Path) -> bool {
    let there = path.ancestors().find(|path| path.exists());
    there.is_some_and(|there| {
        let meta = fs::metadata(there);
        let is_ours = meta.is_ok_and(|meta| meta.uid() == user_id() && meta.is_dir());
        is_ours && is_network_file_system(there).is_ok_and(|is_remote| !is_remote)
    })
}

/// Makes a directory and those above it, for this user alone.
fn make(dir: &Path) -> io::Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(_) => Ok(()),
        Err(_) => DirBuilder::new().recursive(true).mode(0o700).create(dir),
    }
}

/// Makes a directory, if its parent exists.
fn make_one(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Checks that the path is a directory of this user, no link, and not writable by others.
fn own(dir: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    if !meta.is_dir() {
        return refuse("it is no directory");
    }
    if meta.uid() != user_id() {
        return refuse("it belongs to another user");
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return refuse("others may write there");
    }
    Ok(())
}

fn disk(wanted: &str, path: &Path, error: &io::Error) -> Refusal {
    let why = why(error);
    let reason = match error.kind() {
        io::ErrorKind::PermissionDenied => Kind::Denied,
        io::ErrorKind::StorageFull => Kind::NoSpace,
        io::ErrorKind::QuotaExceeded => Kind::Quota,
        io::ErrorKind::ReadOnlyFilesystem => Kind::ReadOnly,
        _ => Kind::Disk,
    };
    Refusal::new(reason, wanted, format!("{}: {why}", path.display()))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| disk("reach the node here", path, &error))
}

fn beside(socket: &Path, end: &str) -> PathBuf {
    let mut name = socket
        .file_name()
        .unwrap_or(OsStr::new("socket"))
        .to_owned();
    name.push(end);
    socket.with_file_name(name)
}

const TMP: &str = "/tmp";
const VAR_TMP: &str = "/var/tmp";
/// Length limit of the kernel (unix(7)), less room for the name under which a node listens first.
const SOCKET_BYTES_MAX: usize = 107 - ".new".len();

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct PlaceDir(PathBuf);

    impl PlaceDir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir()
                .join(format!("godwit-local-place-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            make(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for PlaceDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn with<'a>(pairs: &'a [(&'a str, &'a Path)]) -> impl Fn(&str) -> Option<OsString> + use<'a> {
        |name| {
            let (_, value) = pairs.iter().find(|(known, _)| *known == name)?;
            Some(value.as_os_str().to_owned())
        }
    }

    #[test] //= GASS-41 GASS-69 KANGAROO-58
    fn given_place_precedes_default() {
        let scratch = PlaceDir::new("told");
        let (run, home) = (scratch.0.join("run"), scratch.0.join("home"));
        make(&run).unwrap();
        make(&home).unwrap();
        let usual = [("XDG_RUNTIME_DIR", &*run), ("XDG_STATE_HOME", &*home)];
        let place = NodePlace::find(&with(&usual)).unwrap();
        assert_eq!(place.socket, run.join("godwit/socket"));
        assert_eq!(place.state, home.join("godwit/local"));
        let mode = fs::metadata(run.join("godwit"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        let told = scratch.0.join("mine");
        let environment = [
            usual[0],
            usual[1],
            ("GODWIT_SOCKET", &*told),
            ("GODWIT_STATE", &*home),
        ];
        let place = NodePlace::find(&with(&environment)).unwrap();
        assert_eq!((&place.socket, &place.state), (&told, &home));
        let place = NodePlace::find(&with(&environment[..3])).unwrap();
        assert!(place.state.starts_with(home.join("godwit")));
        assert_ne!(
            place.state,
            home.join("godwit/local"),
            "two nodes, one state"
        );
        assert_eq!(place.alive(), scratch.0.join("mine.lock"));
    }

    #[test]
    fn unusable_login_directory_is_skipped() {
        let scratch = PlaceDir::new("login");
        let absent = scratch.0.join("absent");
        let (open, link) = (scratch.0.join("open"), scratch.0.join("link"));
        make(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&scratch.0, &link).unwrap();
        let relative = Path::new("run");
        for dir in [&*absent, &*open, &*link, relative] {
            let environment = [("XDG_RUNTIME_DIR", dir), ("XDG_STATE_HOME", &*scratch.0)];
            let socket = NodePlace::find(&with(&environment)).unwrap().socket;
            assert!(!socket.starts_with(dir), "{}", socket.display());
            let uid = user_id();
            let places = [
                format!("/run/user/{uid}/godwit/socket"),
                format!("/tmp/godwit-{uid}/socket"),
            ];
            assert!(places.iter().any(|place| socket == Path::new(place)));
        }
    }

    #[test]
    fn occupied_directory_is_passed_over() {
        let scratch = PlaceDir::new("occupied");
        let usual = scratch.0.join(usual_name());
        fs::write(&usual, "another user was quicker").unwrap();
        let open = scratch.0.join(format!("{}-0", usual_name()));
        make(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let find = || private_below(&scratch.0).unwrap();
        let found: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(find)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        // Once all are made, every program finds the same.
        let ours = find();
        assert!(own(&ours).is_ok() && ours != usual && ours != open);
        assert!(found.iter().all(|one| own(one).is_ok()), "{found:?}");
        fs::remove_file(&usual).unwrap();
        assert_eq!(find(), ours, "also when the usual one is free again");
    }

    #[test] //= GASS-69
    fn directory_of_other_user_is_refused() {
        let scratch = PlaceDir::new("others");
        let open = scratch.0.join("open");
        make(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
        symlink(&scratch.0, scratch.0.join("link")).unwrap();
        for (name, words) in [("open", "others may write"), ("link", "no directory")] {
            let error = own(&scratch.0.join(name)).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(own(&scratch.0).is_ok());
        let place = NodePlace {
            socket: scratch.0.join("socket"),
            state: scratch.0.join("link"),
        };
        assert_eq!(place.prepare().unwrap_err().kind, Kind::Denied);
    }

    #[test]
    fn too_long_socket_name_is_refused() {
        let scratch = PlaceDir::new("long");
        let long = scratch.0.join("x".repeat(100));
        let refusal = NodePlace::find(&with(&[("GODWIT_SOCKET", &*long)])).unwrap_err();
        assert_eq!(refusal.kind, Kind::TooLong);
        assert!(refusal.next.unwrap().contains("GODWIT_SOCKET"));
    }
}
