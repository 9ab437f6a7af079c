//! From URLs to stores.

use super::CopyOptions;
use crate::{
    Dir, Error, Opener, Passage, Proofs, Remote, RemoteOptions, Result, Store, StoreExt,
    TrustOptions,
    door::{self, Web},
};
use godwit_core::{Scheme, Url};
use godwit_trust::AsOf;
use godwit_wire::client::DataHints;
use parking_lot::Mutex;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A path in a store, and how to name it to a person.
#[derive(Clone)]
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The path in it.
    pub path: PathBuf,
    /// The URL of the path.
    pub url: Url,
}

impl Place {
    /// Returns the place of `name` (a name or relative path) below this place.
    pub fn join(&self, name: &Path) -> Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        let url = self
            .url
            .join(name.as_os_str().as_bytes())
            .map_err(|bad| Error::bad_name(name, bad.to_string()))?;
        Ok(Self {
            store: self.store.clone(),
            path: self.path.join(name),
            url,
        })
    }

    /// Returns the place over connections of its own, if the hints need them and the server is one of FTP.
    pub fn hinted(&self, hints: &DataHints) -> Result<Self> {
        let mut place = self.clone();
        if let Some(remote) = Remote::of(&*self.store)
            && hints.changes_connections()
        {
            place.store = Arc::new(remote.hinted(hints)?);
        }
        Ok(place)
    }

    /// Tells whether the bytes are on a server that must be asked for them.
    pub fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    /// Returns how its bytes pass; `None`: they are those of a file.
    pub fn passage(&self) -> Option<Passage> {
        self.store.facets().passage
    }

    /// Returns how long a question to the store takes; nothing for local ones.
    pub fn distance(&self) -> Duration {
        self.store.distance()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.url, f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.url, f)
    }
}

/// Opens the store of `grid:`. [`Stores`] calls it at the first such URL, and again only after a failure.
#[derive(Clone)]
pub struct GridOpener(Arc<GridOpening>);

type GridOpening = dyn Fn() -> Result<Arc<dyn Store>> + Send + Sync;

impl GridOpener {
    /// Takes what opens it: not through the `Stores` that calls it, which is locked then.
    pub fn new(open: impl Fn() -> Result<Arc<dyn Store>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }
}

impl fmt::Debug for GridOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GridOpener")
    }
}

/// Opens stores, each server once.
pub struct Stores {
    options: CopyOptions,
    open: Mutex<Vec<OpenStore>>,
}

/// A store that is open.
struct OpenStore {
    url: Url,
    /// The identity that its server had to prove.
    proofs: Proofs,
    /// The state of the list of peers at that time: a host may be a peer now, or have another key.
    as_of: AsOf,
    store: Arc<dyn Store>,
}

impl Stores {
    /// Returns an opener for stores with these limits.
    pub fn new(options: CopyOptions) -> Self {
        Self {
            options,
            open: Mutex::default(),
        }
    }

    /// Returns how other machines are spoken to.
    pub fn options(&self) -> &CopyOptions {
        &self.options
    }

    /// Returns the store of a URL and the path in it. Nothing is asked of a
    /// server yet.
    pub fn open(&self, url: &Url) -> Result<Place> {
        self.open_as(url, Proofs::default())
    }

    /// Returns the store of a URL whose server needs other proofs than the rest.
    pub fn open_as(&self, url: &Url, proofs: Proofs) -> Result<Place> {
        if proofs.credential.is_some() && url.scheme() != Scheme::Gsiftp {
            return Err(Error::unsupported(
                "proving who you are by a certificate",
                format!("{}: has no use for it; gsiftp: does", url.scheme().as_str()),
            ));
        }
        if proofs.expect.is_some() && url.scheme() == Scheme::Grid {
            let why = "a name has no server of its own";
            return Err(Error::unsupported("knowing who the server is", why));
        }
        let mut open = self.open.lock();
        let as_of = match (url.scheme(), &self.options.trust.home) {
            (Scheme::Godwit, Some(home)) => home.peers_are(),
            _ => AsOf::default(),
        };
        let is_it = |known: &OpenStore| known.url.same_server(url) && known.proofs == proofs;
        let store = match open.iter().find(|known| is_it(known)) {
            Some(known) if known.as_of == as_of => known.store.clone(),
            _ => {
                let usual = self.options.trust.clone();
                let trust = TrustOptions {
                    expect: proofs.expect.clone().or(usual.expect),
                    credential: proofs.credential.clone().or(usual.credential),
                    ..usual
                };
                let store = connect(url, &self.options, trust)?;
                open.retain(|known| !is_it(known));
                open.push(OpenStore {
                    url: url.clone(),
                    proofs,
                    as_of,
                    store: store.clone(),
                });
                store
            }
        };
        let path = match url.scheme() {
            Scheme::File => local_path(url)?,
            Scheme::Grid => url.path_from_root(),
            _ => url.as_path().into(),
        };
        Ok(Place {
            store,
            path,
            url: url.clone(),
        })
    }
}

fn connect(url: &Url, options: &CopyOptions, trust: TrustOptions) -> Result<Arc<dyn Store>> {
    match url.scheme() {
        Scheme::File => {
            let identity = format!("uid {}", godwit_sys::user_id());
            let dir = Dir::open(Path::new("/"), &identity, Opener::Myself)?;
            Ok(Arc::new(dir.tidying()))
        }
        Scheme::Ftp | Scheme::Gsiftp | Scheme::Sshftp => {
            Ok(Arc::new(Remote::open(url, &limits(options, trust))?))
        }
        Scheme::Https | Scheme::Godwit => door::open(url, &limits(options, trust)),
        Scheme::Http => Ok(Arc::new(Web::open(url, &limits(options, trust))?)),
        Scheme::Grid => match &options.named {
            Some(named) => (named.0)(),
            None => Err(Error::not_served(url.without_password(), NO_CATALOG)),
        },
        scheme => {
            let why = scheme.not_served().unwrap_or("not in this version");
            Err(Error::not_served(url.without_password(), why))
        }
    }
}

/// The reason for refusing a `grid:` URL where no catalog is named.
pub const NO_CATALOG: &str =
    "no catalog is named: say --catalog sqlite:PATH or godwit://PEER, or set GODWIT_CATALOG";

impl CopyOptions {
    /// Returns the options of one connection to a server.
    pub fn remote(&self) -> RemoteOptions {
        limits(self, self.trust.clone())
    }
}

fn limits(options: &CopyOptions, trust: TrustOptions) -> RemoteOptions {
    RemoteOptions {
        stall: options.stall,
        connect: options.connect,
        digests: options.verify,
        notes: options.notes.clone(),
        tcp_buffer: options.tcp_buffer,
        mark: options.mark.clone(),
        trust,
        ..RemoteOptions::new(options.cancel.clone())
    }
}

/// Local paths are whole, so that one store serves all of them and errors name
/// them as people know them.
fn local_path(url: &Url) -> Result<PathBuf> {
    std::path::absolute(url.as_path()).map_err(|cause| Error::io(url.as_path(), cause))
}
