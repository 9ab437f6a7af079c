//! Addresses of bytes, or names of bytes at any place: a [`Url`].
//!
//! Text is read once, here, into values that need no further checks. A path is
//! raw bytes: percent signs mean something only in the text of a URL. Nothing is
//! resolved or looked up.

mod host;
mod meant;
mod read;
mod scheme;
mod text;

pub use host::Host;
pub use meant::HostMeant;
pub use scheme::Scheme;

use read::{Form, PATH_FORM, read_file, read_name, read_path_form, read_url};
use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    str::FromStr,
};
use text::{
    Escaped, EscapedLogin, check_path, is_plain, last_segment, shown, strip_slashes, trim_slashes,
    without_encoded_slash,
};

/// A store and a path in it.
///
/// `Display` never shows the password, and else writes what reads back as the
/// same value: a path where it was a local path, a URL otherwise.
///
/// ```
/// use godwit_core::Url;
/// let url: Url = "ftp://me:secret@fermi:2121/data/run%207".parse()?;
/// assert_eq!(url.path(), b"data/run 7"); // below the login directory
/// assert_eq!(url.to_string(), "ftp://me@fermi:2121/data/run%207");
/// let root: Url = "ftp://fermi/%2Fdata".parse()?;
/// assert_eq!(root.path(), b"/data"); // from the server's root
/// let node: Url = "/godwit/ftp:fermi:2121/data/run 7".parse()?;
/// assert!(node.same_server(&"ftp://fermi:2121".parse()?));
/// let name: Url = "/godwit/grid/hep/run 7".parse()?;
/// assert_eq!(name.to_string(), "grid:/hep/run%207"); // wherever it lies
/// # Ok::<(), godwit_core::BadUrl>(())
/// ```
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Url {
    scheme: Scheme,
    user: Option<String>,
    password: Option<String>,
    host: Option<Host>, // `None` only for files and names
    port: Option<u16>,  // `None` if it is the scheme's own
    path: Vec<u8>,
}

impl Url {
    /// Reads an argument of a command, or other text that a person writes.
    ///
    /// A known scheme and `://` make a URL, `grid:/` begins a name, `/godwit/` a path form. Any
    /// other text is a local path, kept as it is. An *unknown* scheme and `://` is refused: a slip
    /// in `ftp://` must not become a local file. Such a file can still be named: `./fpt://…`.
    pub fn from_argument(text: impl AsRef<OsStr>) -> Result<Self, BadUrl> {
        let text = text.as_ref().as_bytes();
        match Form::of(text)? {
            Form::Local => Self::local(text),
            Form::Path(rest) => read_path_form(rest),
            Form::Name(rest) => read_name(rest),
            Form::Url(Scheme::File, rest) => read_file(rest),
            Form::Url(scheme, rest) => read_url(scheme, rest),
        }
    }

    /// Names a local file.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, BadUrl> {
        Self::local(path.as_ref().as_os_str().as_bytes())
    }

    /// Returns another path on the same server, for the same user. Like
    /// [`Url::path`], `path` counts from the server's root if it begins with `/`.
    pub fn with_path(&self, path: &[u8]) -> Result<Self, BadUrl> {
        if self.is_local() {
            return Self::local(path);
        }
        check_path(path)?;
        let mut url = self.clone();
        url.path = match strip_slashes(path) {
            rest if path.starts_with(b"/") || self.scheme.is_rooted() => [b"/", rest].concat(),
            rest => rest.to_vec(),
        };
        Ok(url)
    }

    /// Returns how to speak to the store.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Tells whether it is a file of this machine.
    pub fn is_local(&self) -> bool {
        self.scheme == Scheme::File
    }

    /// Returns the user, if the URL names one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the password, if the URL has one. Nothing else shows it.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns the host; `None` for local files and for names.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Returns the port: the one given, else the scheme's own.
    pub fn port(&self) -> Option<u16> {
        self.port.or(self.scheme.default_port())
    }

    /// Names the server for messages: `fermi`, `fermi:2121`, `[::1]:2121`.
    pub fn host_port(&self) -> String {
        match (&self.host, self.port) {
            (None, _) if self.is_local() => "this machine".into(),
            (None, _) => "the catalog".into(),
            (Some(host), None) => host.to_string(),
            (Some(host), Some(port)) => format!("{host}:{port}"),
        }
    }

    /// Returns the path as it is sent to the server. With a leading `/` it counts from the root,
    /// else from the login directory (for a local path: the working directory). An empty path means
    /// that directory itself. Contains no NUL, and `..` only in local paths.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns [`Url::path`] as a path of this system.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// Returns [`Url::path`] without its slash at the begin and its needless ones: how the store of names has it.
    pub fn path_from_root(&self) -> PathBuf {
        self.as_path().components().skip(1).collect()
    }

    /// Tells whether the path counts from the root.
    pub fn is_absolute(&self) -> bool {
        self.path.starts_with(b"/")
    }

    /// Tells whether the text says that a directory is meant: it ends with `/`
    /// (or `.`, `..`), or there is no path at all.
    pub fn means_directory(&self) -> bool {
        matches!(last_segment(&self.path), b"" | b"." | b"..")
    }

    /// Returns the last name of the path; trailing slashes do not count.
    pub fn file_name(&self) -> Option<&[u8]> {
        match last_segment(trim_slashes(&self.path)) {
            b"" | b"." | b".." => None,
            name => Some(name),
        }
    }

    /// Returns the directory that holds [`Url::file_name`].
    pub fn parent(&self) -> Option<Self> {
        let name_len = self.file_name()?.len();
        let path = trim_slashes(&self.path);
        let above = &path[..path.len() - name_len];
        let above: &[u8] = match trim_slashes(above) {
            b"" if above.is_empty() && self.is_local() => b".",
            b"" if above.is_empty() => b"",
            b"" => b"/",
            above => above,
        };
        Some(Self {
            path: above.to_vec(),
            ..self.clone()
        })
    }

    /// Returns what is called `name` below this directory; `name` may be a
    /// relative path. Names come from listings of strangers, so whatever could
    /// lead elsewhere is refused: `..`, `.`, a leading slash, an empty segment.
    pub fn join(&self, name: &[u8]) -> Result<Self, BadUrl> {
        if name
            .split(|&b| b == b'/')
            .any(|segment| matches!(segment, b"" | b"." | b".."))
            || name.contains(&0)
        {
            return Err(BadUrl::BadName(shown(name)));
        }
        let mut url = self.clone();
        if !url.path.is_empty() && !url.path.ends_with(b"/") {
            url.path.push(b'/');
        }
        url.path.extend_from_slice(name);
        Ok(url)
    }

    /// Tells whether one conversation can serve both: same scheme, user, password, host, port.
    pub fn same_server(&self, other: &Self) -> bool {
        self.scheme == other.scheme
            && (&self.user, &self.password) == (&other.user, &other.password)
            && (&self.host, self.port) == (&other.host, other.port)
    }

    /// Returns the path from a directory to this URL; `None`: it does not lie there.
    pub fn below(&self, directory: &Self) -> Option<&[u8]> {
        let base = directory.path();
        let rest = self.path().strip_prefix(base)?;
        let is_whole = base.is_empty() || base.ends_with(b"/") || rest.is_empty();
        let rest = match rest.strip_prefix(b"/") {
            Some(rest) => rest,
            None if is_whole => rest,
            None => return None,
        };
        self.same_server(directory).then_some(rest)
    }

    /// Returns the URL without its password, for logs and records.
    pub fn without_password(&self) -> Self {
        Self {
            password: None,
            ..self.clone()
        }
    }

    /// Returns it as a command has it: a shell takes it literally, and leaves one word.
    pub fn pasted(&self) -> String {
        let text = self.to_string().replace('\'', "%27");
        match text.contains(|c: char| c.is_whitespace() || "!$&()*;<>?`|\"\\#".contains(c)) {
            true => format!("'{text}'"),
            false => text,
        }
    }

    /// Returns the form `/godwit/[SCHEME:]HOST[:PORT]/path` or `/godwit/grid/path`. `None` for
    /// local files and for a URL with a user. `None` also for a name below the login directory that
    /// begins with the bytes `%2F`.
    pub fn path_form(&self) -> Option<Vec<u8>> {
        let rest = strip_slashes(&self.path);
        if self.scheme == Scheme::Grid {
            return Some([PATH_FORM.as_bytes(), b"grid/", rest].concat());
        }
        let host = self.host.as_ref()?;
        let root = match (self.is_absolute(), self.scheme.is_rooted()) {
            (true, false) => "%2F",
            (true, true) if without_encoded_slash(rest).is_some() => "%2F",
            (false, _) if without_encoded_slash(rest).is_some() => return None,
            _ => "",
        };
        if self.user.is_some() {
            return None;
        }
        let scheme = match self.scheme {
            // A node called `grid` would read as the beginning of a name.
            Scheme::Godwit if *host != Host::Name("grid".into()) => String::new(),
            scheme => format!("{scheme}:"),
        };
        let port = self.port.map_or(String::new(), |p| format!(":{p}"));
        let mut text = format!("{PATH_FORM}{scheme}{host}{port}/{root}").into_bytes();
        text.extend_from_slice(rest);
        Some(text)
    }

    fn local(path: &[u8]) -> Result<Self, BadUrl> {
        match path {
            [] => Err(BadUrl::Empty),
            path if path.contains(&0) => Err(BadUrl::Nul),
            path => Ok(Self {
                scheme: Scheme::File,
                user: None,
                password: None,
                host: None,
                port: None,
                path: path.to_vec(),
            }),
        }
    }

    fn remote(
        scheme: Scheme,
        login: (Option<String>, Option<String>),
        (host, port): (Host, Option<u16>),
        path: &[u8],
    ) -> Result<Self, BadUrl> {
        let server = Self {
            scheme,
            user: login.0,
            password: login.1,
            host: Some(host),
            port: port.filter(|&port| Some(port) != scheme.default_port()),
            path: Vec::new(),
        };
        server.with_path(path)
    }

    fn name(path: &[u8]) -> Result<Self, BadUrl> {
        let root = Self {
            scheme: Scheme::Grid,
            user: None,
            password: None,
            host: None,
            port: None,
            path: Vec::new(),
        };
        root.with_path(path)
    }
}

/// Reads what [`Url::from_argument`] reads.
impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        Self::from_argument(text)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(host) = &self.host else {
            if self.scheme == Scheme::Grid {
                return match text::as_fragment(&self.path) {
                    Some((file, index, count)) => {
                        write!(f, "grid:{}#{index}/{count}", Escaped(file))
                    }
                    None => write!(f, "grid:{}", Escaped(&self.path)),
                };
            }
            return match std::str::from_utf8(&self.path) {
                Ok(text) if is_plain(text) && matches!(Form::of(&self.path), Ok(Form::Local)) => {
                    f.write_str(text)
                }
                _ if self.is_absolute() => write!(f, "file://{}", Escaped(&self.path)),
                _ => write!(f, "file://./{}", Escaped(&self.path)),
            };
        };
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(f, "{}@", EscapedLogin(user))?;
        }
        write!(f, "{host}")?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        match self.path.strip_prefix(b"/") {
            Some(rest) if !self.scheme.is_rooted() => write!(f, "/%2F{}", Escaped(rest)),
            Some(rest) => write!(f, "/{}", Escaped(rest)),
            None => write!(f, "/{}", Escaped(&self.path)),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// Why some text is no URL. Never repeats a password.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum BadUrl {
    #[error("it is empty")]
    Empty,
    #[error("{0}:// is not a known scheme (a local file of that name is written ./{0}://…)")]
    UnknownScheme(String),
    #[error("no host is named")]
    NoHost,
    #[error("'{0}' is not a host (IPv6 addresses stand in brackets)")]
    BadHost(String),
    #[error("'{0}' is not a port")]
    BadPort(String),
    #[error("a file: URL cannot name the host '{0}'")]
    FileHost(String),
    #[error(
        "user and password must be UTF-8 without control characters, and a password needs a user"
    )]
    BadLogin,
    #[error("'%' must be followed by two hexadecimal digits (a percent sign itself is %25)")]
    BadEscape,
    #[error("a path cannot contain a zero byte")]
    Nul,
    #[error("'..' is refused: it could lead out of what was meant")]
    DotDot,
    #[error("%2F within a path is refused: no name contains a slash")]
    EncodedSlash,
    #[error("a path cannot have a query or fragment ('?' itself is %3F, '#' is %23)")]
    Query,
    #[error("after '#' stands a fragment of a file, like #0/4 ('#' itself is %23)")]
    Fragment,
    #[error("only ;type=i is known: bytes are never converted")]
    BadType,
    #[error("'{0}' is not a name of a file here")]
    BadName(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn why(text: &str) -> BadUrl {
        match Url::from_argument(text) {
            Ok(url) => panic!("{text} was read as {url}"),
            Err(why) => why,
        }
    }

    fn path_of(text: &str) -> String {
        String::from_utf8(url(text).path().to_vec()).unwrap()
    }

    #[test]
    fn ftp_path_begins_at_login_directory() {
        assert_eq!(path_of("ftp://h/a/b"), "a/b");
        for absolute in [
            "ftp://h/%2Fa/b",
            "ftp://h/%2fa/b",
            "ftp://h//a/b",
            "ftp://h/%2F/a/b",
        ] {
            assert_eq!(path_of(absolute), "/a/b", "{absolute}");
            assert_eq!(url(absolute).to_string(), "ftp://h/%2Fa/b");
        }
        assert_eq!(path_of("ftp://h"), "");
        assert_eq!(path_of("ftp://h/%2F"), "/");
        assert_eq!(path_of("gsiftp://h/a"), "/a");
        assert_eq!(path_of("gsiftp://h//a"), "/a");
        assert_eq!(path_of("https://h"), "/");
    }

    #[test]
    fn escapes_are_resolved_once() {
        assert_eq!(path_of("ftp://h/a%2541%20b"), "a%41 b");
        assert_eq!(url("ftp://h/%ffa").path(), b"\xffa");
        assert_eq!(why("ftp://h/a%2"), BadUrl::BadEscape);
        assert_eq!(why("ftp://h/a%+1"), BadUrl::BadEscape);
        assert_eq!(why("ftp://h/a%00"), BadUrl::Nul);
        assert_eq!(why("ftp://h/a%2Fb"), BadUrl::EncodedSlash);
    }

    #[test]
    fn pasted_name_is_one_shell_word() {
        for (name, pasted) in [
            ("a/b.root", "godwit://h/a/b.root"),
            ("two words", "godwit://h/two%20words"),
            ("a&b(1)$x*", "'godwit://h/a&b(1)$x*'"),
            ("it's", "godwit://h/it%27s"),
            ("a;b|c", "godwit://h/a%3Bb%7Cc"),
        ] {
            let named = url("godwit://h/").with_path(name.as_bytes()).unwrap();
            assert_eq!(named.pasted(), pasted);
            assert_eq!(url(pasted.trim_matches('\'')), named, "{pasted}");
        }
    }

    #[test] //= GASS-60
    fn nothing_leads_upwards_but_a_local_path() {
        for text in [
            "ftp://h/..",
            "ftp://h/a/../b",
            "ftp://h/%2e%2E/b",
            "/godwit/h/../b",
            "grid:/..",
            "grid:/a/%2e./b",
            "/godwit/grid/..",
        ] {
            assert_eq!(why(text), BadUrl::DotDot, "{text}");
        }
        assert_eq!(path_of("../a"), "../a");
        assert_eq!(path_of("ftp://h/..a/b.."), "..a/b..");
    }

    #[test]
    fn the_password_is_shown_nowhere() {
        let secret = url("ftp://m%65:s%3Acret@h:2121/a");
        assert_eq!(
            (secret.user(), secret.password()),
            (Some("me"), Some("s:cret"))
        );
        assert_eq!(secret.to_string(), "ftp://me@h:2121/a");
        assert_eq!(format!("{secret:?}"), "Url(ftp://me@h:2121/a)");
        assert!(!format!("{secret:#?}").contains("cret"));
        assert_eq!(url(&secret.to_string()), secret.without_password());
        for text in [
            "ftp://u:sec%zz@h/",
            "ftp://u:sec%0Aret@h/",
            "ftp://:secret@h/",
            "ftp://u:secret@/",
        ] {
            assert!(!why(text).to_string().contains("sec"), "{text}");
        }
        assert_eq!(why("ftp://a%0D%0ADELE%20x@h/"), BadUrl::BadLogin);
    }

    #[test]
    fn text_without_scheme_is_local_path() {
        for text in [
            "/a/b", "./a", "a b", "x:y", "a%20b", "ftp:/x", "C:\\x", "é://x", "godwit",
        ] {
            assert_eq!(url(text).scheme(), Scheme::File, "{text}");
            assert_eq!(path_of(text), text);
            assert_eq!(url(text).to_string(), text);
        }
        assert_eq!(why("fpt://h/a"), BadUrl::UnknownScheme("fpt".into()));
        assert_eq!(path_of("./fpt://h/a"), "./fpt://h/a");
        assert_eq!(why(""), BadUrl::Empty);
        assert_eq!(path_of("file:///a%20b"), "/a b");
        assert_eq!(path_of("FILE://localhost/a"), "/a");
        assert_eq!(why("file://h/a"), BadUrl::FileHost("h".into()));
    }

    #[test]
    fn ambiguous_local_path_is_written_as_url() {
        for (path, text) in [
            ("/godwit/h/a", "file:///godwit/h/a"),
            ("ftp://h/a", "file://./ftp://h/a"),
            ("fpt://h", "file://./fpt://h"),
            ("grid:/a", "file://./grid:/a"),
            ("a\nb", "file://./a%0Ab"),
            ("../a\n", "file://./../a%0A"),
        ] {
            let local = Url::file(path).unwrap();
            assert_eq!(local.to_string(), text);
            assert_eq!(url(text), local);
        }
    }

    #[test]
    fn path_form_equals_url() {
        for (form, text) in [
            ("/godwit/fermi/cal.db", "godwit://fermi/cal.db"),
            ("/godwit/fermi:2811/a", "godwit://fermi:2811/a"),
            ("/godwit/ftp:fermi/a", "ftp://fermi/a"),
            ("/godwit/ftp:fermi:2121/a%20b", "ftp://fermi:2121/a%2520b"),
            ("/godwit/ftp:2121/a", "godwit://ftp:2121/a"),
            ("/godwit/ftp/a", "godwit://ftp/a"),
            ("/godwit/ftp:[::1]:2121/a", "ftp://[::1]:2121/a"),
            ("/godwit/[fe80::1]:7/a", "godwit://[fe80::1]:7/a"),
            ("/godwit/ftp:h/%2Fetc", "ftp://h/%2Fetc"),
            ("/godwit/godwit:grid/a", "godwit://grid/a"),
            ("/godwit/gsiftp:h/a?b#c", "gsiftp://h/a%3Fb%23c"),
            ("/godwit/https:h/%2F%2Fa", "https://h/%252Fa"),
        ] {
            assert_eq!(url(form), url(text), "{form}");
            assert_eq!(url(text).path_form().unwrap(), form.as_bytes(), "{text}");
        }
        assert_eq!(url("/godwit/GSIFTP:h/a"), url("gsiftp://h/a"));
        assert_eq!(url("/godwit/h//a"), url("godwit://h/a"));
        for text in ["ftp://h/%252Fa", "ftp://me@h/a", "./a"] {
            assert_eq!(url(text).path_form(), None, "{text}");
        }
        assert_eq!(why("/godwit/"), BadUrl::NoHost);
        assert_eq!(why("/godwit/file:h/a"), BadUrl::FileHost("h".into()));
        assert!(matches!(why("/godwit/x:y/a"), BadUrl::BadPort(_)));
    }

    #[test]
    fn name_is_url_without_host() {
        let name = url("grid:/hep/run%207.root");
        assert_eq!(
            (name.scheme(), name.path()),
            (Scheme::Grid, &b"/hep/run 7.root"[..])
        );
        assert_eq!((name.user(), name.host(), name.port()), (None, None, None));
        assert!(!name.is_local() && name.is_absolute() && url("./grid:/a").is_local());
        assert_eq!(name.host_port(), "the catalog");
        for (text, shown, form) in [
            ("grid:/", "grid:/", "/godwit/grid/"),
            ("GRID:/a%2541", "grid:/a%2541", "/godwit/grid/a%41"),
            (
                "grid:/%252Fa;b/",
                "grid:/%252Fa%3Bb/",
                "/godwit/grid/%2Fa;b/",
            ),
        ] {
            let name = url(text);
            assert_eq!(
                (&*name.to_string(), name.path_form().unwrap()),
                (shown, form.into())
            );
            assert_eq!((url(shown), url(form)), (name.clone(), name));
        }
        for root in ["/godwit/grid", "/godwit/grid//"] {
            assert_eq!(url(root), url("grid:/"), "{root}");
        }
        assert_eq!(why("grid:/a%2Fb"), BadUrl::EncodedSlash);
        assert_eq!(why("grid:/a%00b"), BadUrl::Nul);
        for host in ["grid://h/a", "grid:///a", "/godwit/grid:h/a"] {
            assert!(matches!(why(host), BadUrl::BadHost(_)), "{host}");
        }
        assert_eq!(url("/godwit/grid:7/a"), url("godwit://grid:7/a"));
    }

    #[test]
    fn walking_among_names_stays_in_them() {
        let (root, name) = (url("grid:/"), url("grid:/a"));
        assert_eq!(name.parent(), Some(root.clone()));
        assert_eq!((root.parent(), root.file_name()), (None, None));
        assert!(root.means_directory() && !name.means_directory());
        assert_eq!(root.join(b"a"), Ok(name.clone()));
        assert_eq!(name.join(b"b/c").unwrap().file_name(), Some(&b"c"[..]));
        for path in [&b"a"[..], b"/a", b"//a"] {
            assert_eq!(root.with_path(path), Ok(name.clone()));
        }
        assert!(name.same_server(&root) && !name.same_server(&url("/a")));
        assert_eq!(name.without_password(), name);
        assert_eq!(url("grid:/it's").pasted(), "grid:/it%27s");
    }

    #[test]
    fn hosts_and_ports_are_checked() {
        for (text, host) in [
            ("ftp://FERMI.example/", "fermi.example"),
            ("ftp://127.0.0.1:21/", "127.0.0.1"),
            ("ftp://[::1]:2121/", "[::1]:2121"),
            ("ftp://h:/a", "h"),
        ] {
            assert_eq!(url(text).host_port(), host);
        }
        assert_eq!(url("ftp://h:21/a"), url("ftp://h/a"));
        assert_eq!(url("ftp://h/a").port(), Some(21));
        assert_eq!(url("ftp://[::1]/").host().unwrap().to_resolve(), "::1");
        for text in [
            "ftp://::1/",
            "ftp://h:0/",
            "ftp://h:65536/",
            "ftp://h:x/",
            "ftp://[::1]x/",
        ] {
            assert!(matches!(why(text), BadUrl::BadPort(_)), "{text}");
        }
        for text in [
            "ftp://1.2.3/",
            "ftp://256.0.0.1/",
            "ftp://7/",
            "ftp://a b/",
            "ftp://[::1/",
            "ftp://-]/",
            "ftp://./",
            "ftp://a..b/",
            "ftp://.a/",
            "ftp://a%20b/",
            "ftp://-a/",
            &*format!("ftp://{}/", "x".repeat(64)),
        ] {
            assert!(matches!(why(text), BadUrl::BadHost(_)), "{text}");
        }
        assert_eq!(why("ftp:///a"), BadUrl::NoHost);
    }

    #[test]
    fn fragments_lie_below_their_file() {
        for (text, path) in [
            ("grid:/a/f#3/8", "/a/f/#3.8"),
            ("grid:/a/f%23#0/1", "/a/f#/#0.1"),
            ("grid:/a/f%233/8", "/a/f#3/8"),
        ] {
            assert_eq!(path_of(text), path);
            assert_eq!(url(text).to_string(), text);
        }
        for bad in ["grid:/f#3", "grid:/f#", "grid:/f#a/2", "grid:/f#1/2/3"] {
            assert_eq!(why(bad), BadUrl::Fragment, "{bad}");
        }
    }

    #[test]
    fn types_queries_and_fragments_are_refused() {
        assert_eq!(path_of("ftp://h/a;type=i"), "a");
        assert_eq!(why("ftp://h/a;type=a"), BadUrl::BadType);
        assert_eq!(path_of("ftp://h/a;b"), "a;b");
        assert_eq!(url("ftp://h/a%3Btype=i").to_string(), "ftp://h/a%3Btype=i");
        assert_eq!(path_of("ftp://h/a?b#c"), "a?b#c");
        assert_eq!(why("https://h/a?b"), BadUrl::Query);
    }

    #[test]
    fn walking_up_and_down() {
        let dir = url("ftp://h/a/b/");
        assert!(dir.means_directory() && !url("ftp://h/a").means_directory());
        assert!(url("ftp://h").means_directory() && url(".").means_directory());
        assert_eq!(dir.file_name(), Some(b"b".as_slice()));
        assert_eq!(dir.parent(), Some(url("ftp://h/a")));
        assert_eq!(url("ftp://h/a").parent(), Some(url("ftp://h/")));
        assert_eq!(url("ftp://h/%2Fa").parent(), Some(url("ftp://h/%2F")));
        assert_eq!(url("a").parent(), Some(url(".")));
        assert_eq!(url("/a").parent(), Some(url("/")));
        for top in ["ftp://h/", "ftp://h/%2F", ".", "..", "/", "a/.."] {
            assert_eq!(url(top).parent(), None, "{top}");
        }
        assert_eq!(url("ftp://h").join(b"c/d"), Ok(url("ftp://h/c/d")));
        assert_eq!(dir.join(b"c%"), Ok(url("ftp://h/a/b/c%25")));
        for name in ["", "..", ".", "/c", "c/../d", "c//d", "c\0d"] {
            assert!(
                matches!(dir.join(name.as_bytes()), Err(BadUrl::BadName(_))),
                "{name:?}"
            );
        }
        assert_eq!(dir.with_path(b"/etc"), Ok(url("ftp://h/%2Fetc")));
    }

    #[test]
    fn what_is_not_served_says_why() {
        assert_eq!(
            url("dav://h/a").scheme().not_served(),
            Some("no WebDAV in this version")
        );
        assert_eq!(url("ftp://h/a").scheme().not_served(), None);
    }

    fn segments() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            any::<u8>(),
            Just(b'/'),
            Just(b'%'),
            Just(b'2'),
            Just(b'F'),
            Just(b'.')
        ];
        prop::collection::vec(byte, 0..20)
            .prop_filter("a path of a URL", |path| check_path(path).is_ok())
    }

    fn scheme() -> impl Strategy<Value = Scheme> {
        let has_host = |scheme: &Scheme| !matches!(scheme, Scheme::File | Scheme::Grid);
        prop::sample::select(Scheme::ALL.into_iter().filter(has_host).collect::<Vec<_>>())
    }

    fn host() -> impl Strategy<Value = Host> {
        prop_oneof![
            "[a-z][a-z0-9-]{0,8}".prop_map(Host::Name),
            prop::sample::select(vec!["grid", "ftp", "godwit", "file"])
                .prop_map(|n| Host::Name(n.into())),
            any::<u32>().prop_map(|a| Host::V4(a.into())),
            any::<u128>().prop_map(|a| Host::V6(a.into())),
        ]
    }

    proptest! {
        #[test]
        fn remote_url_reads_back_from_both_forms(
            scheme in scheme(), host in host(), port in prop::option::of(1..=u16::MAX),
            user in prop::option::of("[^\\p{Cc}]{1,8}"), path in segments(),
        ) {
            let url = Url::remote(scheme, (user, None), (host, port), &path).unwrap();
            prop_assert_eq!(Url::from_argument(url.to_string()), Ok(url.clone()));
            if let Some(form) = url.path_form() {
                prop_assert_eq!(Url::from_argument(OsStr::from_bytes(&form)), Ok(url));
            }
        }

        #[test]
        fn any_local_path_reads_back(path in prop::collection::vec(1..=u8::MAX, 1..24)) {
            let url = Url::file(OsStr::from_bytes(&path)).unwrap();
            prop_assert_eq!(Url::from_argument(url.to_string()), Ok(url));
        }

        #[test]
        fn any_name_reads_back(path in segments()) {
            let name = Url::name(&path).unwrap();
            prop_assert_eq!(Url::from_argument(name.to_string()), Ok(name.clone()));
            let form = name.path_form().unwrap();
            prop_assert_eq!(Url::from_argument(OsStr::from_bytes(&form)), Ok(name));
        }

        #[test]
        fn any_text_reads_back_or_is_refused(
            start in prop::sample::select(vec!["", "ftp://", "ftp://u:p@h/", "file://", "/godwit/", "grid:/", "https://["]),
            rest in prop::collection::vec(any::<u8>(), 0..24),
        ) {
            let text = [start.as_bytes(), &rest].concat();
            if let Ok(url) = Url::from_argument(OsStr::from_bytes(&text)) {
                let plain = url.without_password();
                prop_assert_eq!(plain.to_string().parse(), Ok(plain));
            }
        }

        #[test]
        fn parent_undoes_join(path in segments(), name in "[^/\\x00]{1,8}") {
            prop_assume!(name != "." && name != "..");
            let dir = url("ftp://h").with_path(&path).unwrap();
            let below = dir.join(name.as_bytes()).unwrap();
            prop_assert_eq!(below.file_name(), Some(name.as_bytes()));
            prop_assert!(below.path().starts_with(dir.path()));
            let above = below.parent().unwrap();
            prop_assert_eq!(trim_slashes(above.path()), trim_slashes(dir.path()));
        }
    }
}
