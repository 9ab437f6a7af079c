//! Which of its forms a text has, and what its parts say.

use super::{
    BadUrl, Host, Scheme, Url,
    text::{
        decode, is_digits, shown, split_once, split_path, strip_slashes, without_encoded_slash,
    },
};
use crate::unescape;
use std::borrow::Cow;

/// Kind of an argument's text, decided by its beginning.
pub(super) enum Form<'a> {
    Local,
    Path(&'a [u8]),
    Name(&'a [u8]),
    Url(Scheme, &'a [u8]),
}

impl<'a> Form<'a> {
    pub(super) fn of(text: &'a [u8]) -> Result<Self, BadUrl> {
        if let Some(rest) = text.strip_prefix(PATH_FORM.as_bytes()) {
            return Ok(Self::Path(rest));
        }
        let Some((word, rest)) = split_once(text, b':') else {
            return Ok(Self::Local);
        };
        if word.eq_ignore_ascii_case(b"grid") && rest.starts_with(b"/") {
            return if rest.starts_with(b"//") {
                Err(name_with_host())
            } else {
                Ok(Self::Name(rest))
            };
        }
        let Some(rest) = rest.strip_prefix(b"//") else {
            return Ok(Self::Local);
        };
        let is_word = |w: &[u8]| {
            w.first().is_some_and(u8::is_ascii_alphabetic)
                && w.iter()
                    .all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        };
        match std::str::from_utf8(word) {
            Ok(word) if is_word(word.as_bytes()) => Ok(Self::Url(word.parse()?, rest)),
            _ => Ok(Self::Local),
        }
    }
}

/// Reads what follows `file://`: `/absolute`, `localhost/absolute`, or our own
/// `./relative`, for relative paths that cannot be written plainly.
pub(super) fn read_file(rest: &[u8]) -> Result<Url, BadUrl> {
    let (host, path) = split_path(rest);
    let local = |path: &[u8]| {
        let path = decode(path)?;
        Url::local(&path)
    };
    match host {
        b"" => local(path),
        b"." => local(path.strip_prefix(b"/").unwrap_or(path)),
        host if host.eq_ignore_ascii_case(b"localhost") => local(path),
        host => Err(BadUrl::FileHost(shown(host))),
    }
}

/// Reads what follows `grid:`.
pub(super) fn read_name(rest: &[u8]) -> Result<Url, BadUrl> {
    // A fragment is a file below its own: `/f#0/4` is `/f/#0.4`.
    let Some((file, fragment)) = split_once(rest, b'#') else {
        return Url::name(&decode(rest)?);
    };
    match split_once(fragment, b'/') {
        Some((index, count)) if is_digits(index) && is_digits(count) => {
            let name = [&decode(file)?, b"/#".as_slice(), index, b".", count].concat();
            Url::name(&name)
        }
        _ => Err(BadUrl::Fragment),
    }
}

fn name_with_host() -> BadUrl {
    BadUrl::BadHost("grid:// (a name has no host: grid:/name)".into())
}

pub(super) fn read_url(scheme: Scheme, rest: &[u8]) -> Result<Url, BadUrl> {
    let (authority, path) = split_path(rest);
    let (login, server) = match authority.iter().rposition(|&b| b == b'@') {
        Some(at) => (read_login(&authority[..at])?, &authority[at + 1..]),
        None => ((None, None), authority),
    };
    let path = read_type(scheme, path.strip_prefix(b"/").unwrap_or(path))?;
    let is_http = matches!(
        scheme,
        Scheme::Http | Scheme::Https | Scheme::Dav | Scheme::Davs
    );
    if is_http && path.iter().any(|b| matches!(b, b'?' | b'#')) {
        return Err(BadUrl::Query);
    }
    // `ftp://h//a` is what curl and lftp read as the root, like `%2Fa`.
    let path = match without_encoded_slash(path) {
        Some(below) => [b"/".as_slice(), &decode(below)?].concat(),
        None => decode(path)?,
    };
    Url::remote(scheme, login, read_server(server)?, &path)
}

/// Reads what follows `/godwit/`. There is no user in it, and no escapes but the
/// leading `%2F`.
pub(super) fn read_path_form(rest: &[u8]) -> Result<Url, BadUrl> {
    let (server, path) = split_path(rest);
    let path = strip_slashes(path);
    if server == b"grid" {
        return Url::name(path);
    }
    let (scheme, server) = match split_once(server, b':') {
        Some((word, after)) if !is_digits(after) => match scheme_of(word) {
            Some(scheme) => (scheme, after),
            None => (Scheme::Godwit, server),
        },
        _ => (Scheme::Godwit, server),
    };
    match scheme {
        Scheme::File => return Err(BadUrl::FileHost(shown(server))),
        Scheme::Grid => return Err(name_with_host()),
        _ => {}
    }
    let path = match without_encoded_slash(path) {
        Some(below) => Cow::from([b"/", below].concat()),
        None => Cow::from(path),
    };
    Url::remote(scheme, (None, None), read_server(server)?, &path)
}

fn read_login(text: &[u8]) -> Result<(Option<String>, Option<String>), BadUrl> {
    let read = |part: &[u8]| {
        let bytes = unescape(part).ok_or(BadUrl::BadLogin)?;
        let text = String::from_utf8(bytes).map_err(|_| BadUrl::BadLogin)?;
        // A line break in a user name would be a command of its own.
        if text.chars().any(char::is_control) {
            return Err(BadUrl::BadLogin);
        }
        Ok(text)
    };
    match split_once(text, b':') {
        None if text.is_empty() => Ok((None, None)),
        None => Ok((Some(read(text)?), None)),
        Some((b"", b"")) => Ok((None, None)),
        Some((b"", _)) => Err(BadUrl::BadLogin),
        Some((user, password)) => Ok((Some(read(user)?), Some(read(password)?))),
    }
}

fn read_server(text: &[u8]) -> Result<(Host, Option<u16>), BadUrl> {
    let text = std::str::from_utf8(text).map_err(|_| BadUrl::BadHost(shown(text)))?;
    let host_end = match text.rfind(']') {
        Some(bracket) => bracket + 1,
        None if text.starts_with('[') => text.len(),
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, port) = text.split_at(host_end);
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some("") => None, // RFC 3986 §3.2.3
        Some(digits) if is_digits(digits.as_bytes()) => match digits.parse() {
            Ok(port @ 1..) => Some(port),
            _ => return Err(BadUrl::BadPort(digits.into())),
        },
        _ => return Err(BadUrl::BadPort(port.trim_start_matches(':').into())),
    };
    Ok((host.parse()?, port))
}

/// Takes the type of RFC 1738 §3.2.2 off an FTP path.
fn read_type(scheme: Scheme, path: &[u8]) -> Result<&[u8], BadUrl> {
    if !matches!(scheme, Scheme::Ftp | Scheme::Gsiftp) {
        return Ok(path);
    }
    let Some(at) = path.iter().rposition(|&b| b == b';') else {
        return Ok(path);
    };
    match path[at + 1..].to_ascii_lowercase().strip_prefix(b"type=") {
        Some(b"i") => Ok(&path[..at]),
        Some(_) => Err(BadUrl::BadType),
        None => Ok(path),
    }
}

fn scheme_of(word: &[u8]) -> Option<Scheme> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

pub(super) const PATH_FORM: &str = "/godwit/";
