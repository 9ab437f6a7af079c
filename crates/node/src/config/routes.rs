//! The table of hops: prefixes of URLs, each with the URL of its hop.

use godwit_core::Url;
use godwit_store::Error;
use std::{borrow::Cow, str::FromStr};

/// Ways that do not lead straight to the host of a URL.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routes(Vec<(Url, Url)>);

impl Routes {
    /// Returns where something is found by way of the hop for it, the longest beginning first; straight, if there
    /// is none.
    pub fn by_way_of<'a>(&self, url: &'a Url) -> Result<Cow<'a, Url>, Error> {
        let ways = self.0.iter();
        let ways = ways.filter_map(|(from, to)| Some((from, to, below(from, url)?)));
        let Some((_, to, rest)) = ways.max_by_key(|(from, ..)| from.path().len()) else {
            return Ok(Cow::Borrowed(url));
        };
        let bad = |bad: godwit_core::BadUrl| Error::BadName {
            path: url.as_path().into(),
            why: bad.to_string(),
        };
        let mut by = to.clone();
        for name in rest.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            by = by.join(name).map_err(bad)?;
        }
        Ok(Cow::Owned(by))
    }
}

/// Returns the rest of a URL below another; `None`: it is not below it.
fn below<'a>(from: &Url, url: &'a Url) -> Option<&'a [u8]> {
    if !from.same_server(url) {
        return None;
    }
    let (begin, path) = (trimmed(from.path()), trimmed(url.path()));
    let rest = path.strip_prefix(begin)?;
    let is_below = begin.is_empty() || rest.is_empty() || rest[0] == b'/';
    is_below.then_some(rest)
}

fn trimmed(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    path.strip_suffix(b"/").unwrap_or(path)
}

impl FromStr for Routes {
    type Err = String;

    /// `PREFIX=URL`, with commas between; a prefix without a scheme is the name of a node.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        let one = |part: &str| {
            let (from, to) = part
                .split_once('=')
                .ok_or_else(|| format!("{part}: a route is PREFIX=URL"))?;
            Ok::<_, String>((end(from)?, end(to)?))
        };
        parts.map(one).collect::<Result<_, _>>().map(Self)
    }
}

fn end(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let whole = match text.contains("://") {
        true => text.to_owned(),
        false => format!("godwit://{}", text.trim_start_matches('/')),
    };
    let whole = match whole.matches('/').count() {
        2 => whole + "/",
        _ => whole,
    };
    let url: Url = whole.parse().map_err(|bad| format!("{text}: {bad}"))?;
    url.host().ok_or_else(|| format!("{text}: names no host"))?;
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(routes: &str, url: &str) -> String {
        let routes: Routes = routes.parse().unwrap();
        let url: Url = url.parse().unwrap();
        routes.by_way_of(&url).unwrap().to_string()
    }

    #[test] //= hops#delivery
    fn longest_prefix_wins_and_empty_is_direct() {
        let routes = "far=godwit://hop/, godwit://far/data=godwit://other/in";
        assert_eq!(by(routes, "godwit://far/a/b"), "godwit://hop/a/b");
        assert_eq!(by(routes, "godwit://far/data/b"), "godwit://other/in/b");
        assert_eq!(by(routes, "godwit://far/database"), "godwit://hop/database");
        assert_eq!(by(routes, "godwit://near/a"), "godwit://near/a");
        assert_eq!(by(routes, "ftp://far/a"), "ftp://far/a");
        assert_eq!(by("", "godwit://far/a"), "godwit://far/a");
    }

    #[test]
    fn what_is_no_route_is_refused() {
        for bad in ["far", "far=", "=godwit://hop/", "far=file:///x"] {
            assert!(bad.parse::<Routes>().is_err(), "{bad}");
        }
    }
}
