//! From arguments to places: a store and a path in it.

use crate::{
    args::{Names, Talking},
    config, names,
    out::{CliError, Run, Screen, mark},
};
use godwit_core::{HostMeant, Url};
use godwit_store::channel::Cancel;
pub(crate) use godwit_store::engine::Place;
use godwit_store::engine::{CopyOptions, Stores};
use godwit_store::{Entry, EntryKind, Error, Proofs, Stat, StoreExt, TrustOptions};
use std::{
    ffi::{OsStr, OsString},
    io::Read,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Reads an argument.
pub(crate) fn url(argument: &OsStr) -> Run<Url> {
    Url::from_argument(argument)
        .map_err(|error| CliError::bad_url(&argument.to_string_lossy(), &error))
}

/// Reads the argument that says where bytes go. A new local name that reads like a host is refused: most likely it was
/// meant to be one.
pub(crate) fn target(argument: &OsStr) -> Run<Url> {
    let target = url(argument)?;
    let text = argument.as_bytes();
    let first = text.split(|&b| b == b'/').next().unwrap_or_default();
    let is_path = target.is_local() && target.path() == text;
    if !is_path
        || Path::new(OsStr::from_bytes(first))
            .symlink_metadata()
            .is_ok()
    {
        return Ok(target);
    }
    let is_peer =
        |name: &str| config::home().is_some_and(|home| matches!(home.peer(name), Ok(Some(_))));
    let Some(HostMeant { host, path }) = HostMeant::in_path(text, is_peer) else {
        return Ok(target);
    };
    let path = String::from_utf8_lossy(&path);
    let one_slash = format!("{host}://{}", path.trim_start_matches('/'));
    let has_host = |url: Url| url.host().is_some();
    let is_scheme = text.starts_with(format!("{host}:/").as_bytes());
    let remote = match host.split('.').next() {
        _ if is_scheme && one_slash.parse().is_ok_and(has_host) => {
            format!("for the server write {one_slash}")
        }
        Some("ftp") => format!("for the server write ftp://{host}/{path}"),
        Some("gridftp" | "gsiftp") => format!("for the server write gsiftp://{host}/{path}"),
        _ if is_peer(&host) || !host.contains('.') => {
            format!("for the node write godwit://{host}/{path}")
        }
        _ => format!(
            "for the node write godwit://{host}/{path}; for an FTP server ftp://{host}/{path}"
        ),
    };
    let (fact, shown) = (
        format!("{host} reads like a host"),
        argument.to_string_lossy(),
    );
    Err(CliError::asked(format!("write to {shown}"), fact)
        .next(format!("for a local file write ./{shown}; {remote}")))
}

/// Returns the flag that cancels a verb.
pub(crate) fn cancel() -> Run<Cancel> {
    Cancel::new().map_err(|cause| CliError::store("begin", Error::io("a signal's way", cause)))
}

/// Returns an opener for verbs that move nothing.
pub(crate) fn stores(talking: &Talking) -> Run<Stores> {
    Ok(Stores::new(options(talking)?))
}

/// Returns the options of verbs that move nothing.
pub(crate) fn options(talking: &Talking) -> Run<CopyOptions> {
    Ok(names::with_names(without_names(talking)?))
}

/// Returns the options of verbs that move nothing, for URLs of servers.
pub(crate) fn without_names(talking: &Talking) -> Run<CopyOptions> {
    let options = CopyOptions::new(cancel()?);
    let trust = TrustOptions {
        by: talking.by(),
        level: talking.level(),
        home: config::home(),
        expect: talking.expect(),
        ..options.trust
    };
    Ok(CopyOptions {
        trust,
        mark: mark(),
        ..options
    })
}

/// Opens the store of a URL, without the slashes behind its name.
pub(crate) fn open(stores: &Stores, url: &Url) -> Run<Place> {
    open_as(stores, url, Proofs::default())
}

/// Opens the store of a URL, with proofs for this server alone.
pub(crate) fn open_as(stores: &Stores, url: &Url, proofs: Proofs) -> Run<Place> {
    stores
        .open_as(&without_slashes(url), proofs)
        .map_err(|error| match error {
            // No server was asked yet: the options do not fit the URL.
            Error::Unsupported { .. } => CliError::asked(format!("open {url}"), error),
            error => CliError::store(format!("open {url}"), error),
        })
}

/// Returns the place `path` inside a place; the empty path is the place itself.
pub(crate) fn inside(place: &Place, path: &Path) -> Result<Place, Error> {
    if path.as_os_str().is_empty() {
        return Ok(place.clone());
    }
    place.join(path)
}

/// Calls `each` for all entries below a place. A directory that may not be listed is reported as
/// an error, and the walk goes on.
pub(crate) fn walk(
    screen: &Screen,
    act: &str,
    place: &Place,
    each: &mut dyn FnMut(Entry) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut unread = |path: PathBuf, error| {
        let url = below(&place.url, &path)?;
        screen.trouble(&CliError::store(format!("{act} {url}"), error));
        Ok(())
    };
    let store = &place.store;
    store.walk_readable(&place.path, each, &mut unread)
}

impl Names {
    /// Returns all names, those of the file last.
    fn all(&self) -> Run<Vec<OsString>> {
        let mut names = self.names.clone();
        if let Some(file) = &self.from_file {
            names.extend(read_list(file)?);
        }
        Ok(names)
    }

    /// Like [`Names::all`]; if there are none, and no list of them, the working directory.
    pub(crate) fn or_here(&self) -> Run<Vec<OsString>> {
        let mut names = self.all()?;
        if names.is_empty() && self.from_file.is_none() {
            names.push(".".into());
        }
        Ok(names)
    }

    /// Like [`Names::all`], but none at all is an error.
    pub(crate) fn some(&self, verb: &str) -> Run<Vec<Url>> {
        let names = self.all()?;
        // An empty list is a script's mistake before something is removed.
        if names.is_empty() && (self.from_file.is_none() || verb == "rm") {
            return Err(CliError::asked(verb, "no path or URL was given")
                .next(format!("godwit help {verb} shows how")));
        }
        let read = match verb {
            "mkdir" => target,
            _ => url,
        };
        names.iter().map(|name| read(name)).collect()
    }
}

/// Reads a list of names, newline or NUL separated; blank lines do not count, and
/// lines may end as Windows ends them.
pub(crate) fn read_list(file: &Path) -> Run<Vec<OsString>> {
    let wanted = || format!("read the list {}", file.display());
    let mut text = Vec::new();
    let read = if file == Path::new("-") {
        if godwit_sys::is_input_closed() {
            return Err(CliError::asked(wanted(), "standard input is closed")
                .next("give it a list to read"));
        }
        std::io::stdin().lock().read_to_end(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut text))
    };
    read.map_err(|cause| CliError::store(wanted(), Error::io(file, cause)))?;
    // One NUL anywhere tells that names may contain newlines.
    let end = if text.contains(&0) { 0 } else { b'\n' };
    let names = text.split(|&b| b == end).map(|name| match end {
        0 => name,
        _ => name.strip_suffix(b"\r").unwrap_or(name),
    });
    let names = names.filter(|name| match end {
        0 => !name.is_empty(),
        _ => !name.trim_ascii().is_empty(),
    });
    Ok(names
        .map(|name| OsString::from_vec(name.to_vec()))
        .collect())
}

/// Returns a URL without slashes behind its name.
pub(crate) fn without_slashes(url: &Url) -> Url {
    let path = url.path();
    let end = path
        .iter()
        .rposition(|&b| b != b'/')
        .map_or(0, |last| last + 1);
    match end {
        0 => url.clone(),
        // What was a path is one without its slashes.
        _ => url.with_path(&path[..end]).unwrap_or_else(|_| url.clone()),
    }
}

/// Returns the URL of a path from a listing; the empty path is the place itself.
pub(crate) fn below(url: &Url, path: &Path) -> Result<Url, Error> {
    if path.as_os_str().is_empty() {
        return Ok(url.clone());
    }
    url.join(path.as_os_str().as_bytes())
        .map_err(|error| Error::BadName {
            path: path.into(),
            why: error.to_string(),
        })
}

/// Returns the entry under the name itself, not the target of a link there.
///
/// `stat` follows links, if they lead anywhere; the listing of the directory above
/// shows links as links.
pub(crate) fn stat_unfollowed(place: &Place) -> Result<Stat, Error> {
    let followed = place.store.stat(&place.path);
    let may_be_link = match &followed {
        Ok(stat) => stat.kind == EntryKind::Directory,
        Err(Error::Missing { .. } | Error::BadName { .. } | Error::Denied { .. }) => true,
        Err(Error::Refused { .. }) => true, // a foreign server, in words of its own
        Err(_) => false,
    };
    let Some(name) = place.path.file_name().filter(|_| may_be_link) else {
        return followed;
    };
    let above = place.path.parent().unwrap_or(Path::new(""));
    let mut found = None;
    let listed = place.store.list(above, &mut |entry| {
        if entry.path == name {
            found = Some(entry.stat);
            return Err(Error::Canceled); // found: the rest is of no interest
        }
        Ok(())
    });
    match (found, listed) {
        (Some(stat), _) => Ok(stat),
        (None, _) => followed,
    }
}

/// Makes a directory and those above it, unless they exist.
pub(crate) fn make_with_parents(place: &Place) -> Result<(), Error> {
    let is_top = place.path.components().count() < 2;
    // A hop may promise the directory, and cannot tell what is above it at the target.
    if is_top || !place.store.can()?.passes_on {
        match place.store.mkdir(&place.path) {
            Err(Error::Missing { .. }) => {}
            made => return or_exists(place, &place.path, made),
        }
    }
    // From above: another program may make some of them meanwhile.
    let mut above: Vec<&Path> = place.path.ancestors().collect();
    above.reverse();
    for path in above.into_iter().filter(|p| !p.as_os_str().is_empty()) {
        let made = place.store.mkdir(path);
        or_exists(place, path, made)?;
    }
    Ok(())
}

fn or_exists(place: &Place, path: &Path, made: Result<(), Error>) -> Result<(), Error> {
    // Some servers say "denied" of a directory that exists but is not ours, so ask.
    let Err(error) = made else { return Ok(()) };
    match place.store.stat(path) {
        Ok(stat) if stat.kind == EntryKind::Directory => Ok(()),
        Ok(_) => Err(Error::exists(path)),
        Err(_) => Err(error),
    }
}
