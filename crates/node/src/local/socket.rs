//! The node's socket, and the lock beside it. A cleaner of old files may remove either while the node runs: it checks,
//! and creates them again.

use super::{
    LocalError, WANTED,
    server::{PATIENCE, WAITING_MAX},
};
use crate::Error;
use godwit_local::{Kind, Lock, NodePlace, Refusal, lock_within};
use godwit_sys::{connect_local, locked_by, peer_of, why};
use std::{
    fs::{self, File, Metadata, Permissions},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A node's place, which no other has as long as this is held.
pub(crate) struct Socket {
    place: NodePlace,
    alive: Lock,
    listener: UnixListener,
    /// Of the socket's file, which no other file has while it listens.
    number: SocketId,
    /// The last warning about the loss, so that it is logged once.
    said: String,
}

/// Device and inode.
type SocketId = (u64, u64);

impl Socket {
    /// Begins to listen there.
    pub(crate) fn take(place: &NodePlace, alive: Lock) -> Result<Self, LocalError> {
        let (listener, number) = listen(&place.socket)?;
        Ok(Self {
            place: place.clone(),
            alive,
            listener,
            number,
            said: String::new(),
        })
    }

    /// Returns the next program that has found it.
    pub(crate) fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().map(|(socket, _)| socket)
    }

    /// Listens anew if the socket's file is missing or replaced; returns the old listener, on which programs may wait.
    pub(crate) fn look(&mut self) -> Option<UnixListener> {
        if self.is_there() {
            return None;
        }
        let error = match self.retake() {
            Ok(left) => {
                tracing::warn!(socket = %self.place.socket.display(), "was removed; listen anew");
                self.said.clear();
                return Some(left);
            }
            Err(error) => error.to_string(),
        };
        if error != self.said {
            tracing::warn!(
                error,
                "the socket was removed, and programs do not find this node"
            );
            self.said = error;
        }
        None
    }

    /// Stops listening, and removes the socket if it is still ours.
    pub(crate) fn leave(self) -> Lock {
        if self.is_there() {
            let _ = fs::remove_file(&self.place.socket);
        }
        self.alive
    }

    fn is_there(&self) -> bool {
        let found = fs::symlink_metadata(&self.place.socket);
        found.is_ok_and(|found| number(&found) == self.number)
    }

    fn retake(&mut self) -> Result<UnixListener, LocalError> {
        self.place.prepare()?;
        // Without the lock at its path, another node may start here at the same time.
        let path = self.place.alive();
        if !self.alive.is_of(&path) {
            let alive = lock(&self.place, Instant::now())?;
            self.alive = alive.ok_or_else(|| held(&path, "another node has its place"))?;
        }
        let (listener, number) = listen(&self.place.socket)?;
        self.number = number;
        Ok(std::mem::replace(&mut self.listener, listener))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Takes the place of the node at a socket, which no other has while this is held.
pub(crate) fn settle(place: &NodePlace) -> Result<Lock, LocalError> {
    place.prepare()?;
    if let Some(alive) = lock(place, Instant::now())? {
        return Ok(alive);
    }
    // It may end, and be gone in a moment; or its socket was removed, and it has not noticed yet.
    let deadline = Instant::now() + SETTLE;
    loop {
        if let Ok(there) = connect_local(&place.socket, PATIENCE) {
            return Err(LocalError::Taken {
                socket: place.socket.clone(),
                process: peer_of(&there).map_or(0, |peer| peer.process),
            });
        }
        let now = Instant::now();
        if let Some(alive) = lock(place, deadline.min(now + STEP))? {
            return Ok(alive);
        }
        if now >= deadline {
            return Err(held(
                &place.alive(),
                "another node does not listen, and lives",
            ));
        }
    }
}

fn lock(place: &NodePlace, deadline: Instant) -> Result<Option<Lock>, LocalError> {
    let path = place.alive();
    lock_within(&path, deadline).map_err(|cause| LocalError::Node(Error::State { path, cause }))
}

/// Names the holder of a lock, and the next command.
fn held(path: &Path, what: &str) -> LocalError {
    let process = File::open(path).ok().and_then(|file| locked_by(&file));
    let (who, next) = match process {
        Some(process) => (format!("process {process}"), format!("kill {process}")),
        None => (
            "another process".into(),
            format!("fuser {} names it", path.display()),
        ),
    };
    let words = format!("{what}: {who} has locked {}", path.display());
    let next = format!(
        "it runs until it is ended ({next}); the changes left to it are kept, and the next node delivers them"
    );
    Refusal::new(Kind::InUse, WANTED, words).next(next).into()
}

/// Listens under a temporary name and renames it, so that a socket under the name is always listening. A stale socket
/// is replaced.
fn listen(socket: &Path) -> Result<(UnixListener, SocketId), LocalError> {
    let failed = |cause: io::Error| {
        let words = format!("{}: {}", socket.display(), why(&cause));
        LocalError::from(Refusal::new(Kind::NoNode, WANTED, words))
    };
    let mut name = socket.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let _ = fs::remove_file(&new);
    let bound = UnixListener::bind(&new).and_then(|listener| {
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        godwit_sys::listen_deep(listener.as_fd(), WAITING_MAX)?;
        listener.set_nonblocking(true)?;
        let number = number(&fs::symlink_metadata(&new)?);
        fs::rename(&new, socket)?;
        Ok((listener, number))
    });
    bound.map_err(failed)
}

fn number(meta: &Metadata) -> SocketId {
    (meta.dev(), meta.ino())
}

/// Less than a program waits for the node that it starts, so that it hears why not.
const SETTLE: Duration = Duration::from_secs(8);
const STEP: Duration = Duration::from_millis(100);
