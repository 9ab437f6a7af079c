//! Names of one server: which is below which, and what a name becomes by a rename.

use crate::Error;
use godwit_core::{Url, deeds::Path};

/// Tells whether a name is that of a directory, or of something in it.
pub(crate) fn is_at_or_below(name: &Url, top: &Url) -> bool {
    let is_whole = top.path().is_empty() || top.path().ends_with(b"/");
    let rest = name.path().strip_prefix(top.path());
    let is_below = |rest: &[u8]| is_whole || rest.is_empty() || rest.starts_with(b"/");
    name.same_server(top) && rest.is_some_and(is_below)
}

pub(crate) fn bad_name(url: &Url, why: &str) -> Error {
    godwit_store::Error::bad_name(url.as_path(), why).into()
}

/// Names what orders its own names.
pub(crate) fn server_of(url: &Url) -> String {
    let user = url.user().unwrap_or_default();
    format!("{:?} {user} {}", url.scheme(), url.host_port())
}

pub(crate) fn path_of(url: &Url) -> Path {
    Path::new(url.path())
}

/// Returns what `url` is called when `from` is called `to`, if it is that or below it.
pub(crate) fn moved(url: &Url, from: &Url, to: &Url) -> Option<Url> {
    if server_of(url) != server_of(from) {
        return None;
    }
    let rest = url.path().strip_prefix(from.path())?;
    let is_relative = from.path().is_empty();
    let is_it = rest.is_empty() || (rest[0] == b'/') != is_relative || from.path().ends_with(b"/");
    if !is_it {
        return None;
    }
    let name = || to.with_path(&[to.path(), rest].concat()).ok();
    rest.is_empty().then(|| to.clone()).or_else(name)
}

pub(crate) fn missing(name: &Url) -> Error {
    godwit_store::Error::missing(name.as_path()).into()
}
