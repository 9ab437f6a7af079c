//! What the tests that look inside have in common: one server, `ftp://far/`, and a depot that delivers to it.

use crate::{By, Connect, Depot, Fresh, Put, Rules, Scope, Who, disk::Watcher};
use godwit_core::{Url, holding::Base};
use godwit_store::{Error, Store, engine::Place};
use std::{
    io::{self, Read},
    path::Path,
    sync::{Arc, LazyLock},
    thread,
    time::{Duration, Instant},
};

pub(crate) fn url(name: &str) -> Url {
    Url::from_argument(format!("ftp://far/{name}")).unwrap()
}

/// Reaches that store under every URL, but while it is away.
pub(crate) fn reaching(
    store: Arc<dyn Store>,
    is_away: impl Fn() -> bool + Send + Sync + 'static,
) -> Connect {
    Arc::new(move |url: &Url, _: &Who| {
        if is_away() {
            return Err(Error::Unreachable {
                host: "far".into(),
                cause: io::ErrorKind::ConnectionRefused.into(),
            });
        }
        Ok(Place {
            store: store.clone(),
            path: url.as_path().into(),
            url: url.clone(),
        })
    })
}

/// Whether it is a mover that asks. Who writes asks for the store too, to know whether there is one.
pub(crate) fn is_mover() -> bool {
    let thread = thread::current();
    thread.name().is_some_and(|name| name.starts_with("mover"))
}

/// Opens it on a disk that somebody watches, in a boot of that name, with two movers.
pub(crate) fn watched(
    root: &Path,
    connect: Connect,
    pause_max: Duration,
    boot: (String, Arc<dyn Watcher>),
) -> crate::Result<Depot> {
    let rules = Rules {
        movers: 2,
        pause_max,
        ..Rules::default()
    };
    Depot::open_watched(root, rules, connect, (boot.0, Some(boot.1)))
}

/// By nobody in particular, of no session.
pub(crate) fn by() -> By<'static> {
    static WHO: LazyLock<Who> = LazyLock::new(Who::default);
    By {
        who: &WHO,
        session: "",
    }
}

/// In place of whatever there is.
pub(crate) fn over() -> Put {
    let session = String::new();
    Put {
        base: Base::Any,
        session,
    }
}

pub(crate) fn put(depot: &Depot, name: &str, bytes: &[u8]) {
    let writing = depot.put(&url(name), by().who, &over()).unwrap();
    writing.write(0, bytes).unwrap();
    writing.end().unwrap();
}

pub(crate) fn read(depot: &Depot, name: &str) -> Vec<u8> {
    let reading = depot.read(&url(name), by().who, Fresh::Any).unwrap();
    let mut bytes = Vec::new();
    reading.file().read_to_end(&mut bytes).unwrap();
    bytes
}

pub(crate) fn push(depot: &Depot) {
    let pushed = depot.push(&Scope::All, Some(LIMIT));
    pushed.unwrap_or_else(|error| panic!("{error}; {:?}", depot.queue()));
}

/// Waits until something is so of which nobody tells.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "not: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Nothing takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
