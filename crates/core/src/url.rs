//! Where bytes are ([`Url`]), and what bytes are wherever they are ([`Name`]).
//!
//! Text is read once, here, into values that need no further checks. A path is
//! raw bytes: percent signs mean something only in the text of a URL. Nothing is
//! resolved or looked up.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    os::unix::ffi::OsStrExt,
    path::Path,
    str::FromStr,
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
/// # Ok::<(), godwit_core::BadUrl>(())
/// ```
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Url {
    scheme: Scheme,
    user: Option<String>,
    password: Option<String>,
    host: Option<Host>, // `None` only for files
    port: Option<u16>,  // `None` if it is the scheme's own
    path: Vec<u8>,
}

impl Url {
    /// Reads an argument of a command, or anything else a person writes.
    ///
    /// A known scheme and `://` make a URL, `/godwit/` begins a path form; what
    /// is neither is a local path, kept as it is. An *unknown* scheme and `://`
    /// is refused: a slip in `ftp://` must not become a local file (which can
    /// still be named: `./fpt://…`).
    pub fn from_argument(text: impl AsRef<OsStr>) -> Result<Self, BadUrl> {
        match Place::from_argument(text)? {
            Place::Url(url) => Ok(url),
            Place::Name(_) => Err(BadUrl::IsName),
        }
    }

    /// Names a local file.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, BadUrl> {
        Self::local(path.as_ref().as_os_str().as_bytes())
    }

    /// Returns another path on the same server, for the same user. Like
    /// [`Url::path`], `path` counts from the server's root if it begins with `/`.
    pub fn with_path(&self, path: &[u8]) -> Result<Self, BadUrl> {
        if self.scheme == Scheme::File {
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

    /// Returns the user, if the URL names one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the password, if the URL has one. Nothing else shows it.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns the host; `None` for local files.
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
            (None, _) => "this machine".into(),
            (Some(host), None) => host.to_string(),
            (Some(host), Some(port)) => format!("{host}:{port}"),
        }
    }

    /// Returns the path as the server is told it: from its root if it begins with
    /// `/`, else from the login directory (of a local path: the working
    /// directory). Empty means that directory itself. Contains no NUL, and `..`
    /// only in local paths.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns [`Url::path`] as a path of this system.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
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
            b"" if above.is_empty() && self.scheme == Scheme::File => b".",
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

    /// Returns the URL without its password: what a log or record keeps.
    pub fn without_password(&self) -> Self {
        Self {
            password: None,
            ..self.clone()
        }
    }

    /// Returns the form `/godwit/[SCHEME:]HOST[:PORT]/path`, where there is one: not
    /// for local files, not with a user, and not for a name below the login
    /// directory that itself begins with the three bytes `%2F`.
    pub fn path_form(&self) -> Option<Vec<u8>> {
        let host = self.host.as_ref()?;
        let rest = strip_slashes(&self.path);
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

/// What bytes are, wherever: `grid:/hep/run7.root`.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    /// Returns the name without `grid:/`: segments divided by `/`, never empty,
    /// without `..` and without a leading slash.
    pub fn path(&self) -> &[u8] {
        &self.0
    }

    /// Returns the form `/godwit/grid/name`.
    pub fn path_form(&self) -> Vec<u8> {
        [PATH_FORM.as_bytes(), b"grid/", &self.0].concat()
    }

    fn new(path: &[u8]) -> Result<Self, BadUrl> {
        check_path(path)?;
        match strip_slashes(path) {
            [] => Err(BadUrl::Empty),
            path => Ok(Self(path.to_vec())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grid:/{}", Escaped(&self.0))
    }
}

/// What an argument can stand for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// Bytes at one place.
    Url(Url),
    /// Bytes by name.
    Name(Name),
}

impl Place {
    /// Reads an argument; see [`Url::from_argument`].
    pub fn from_argument(text: impl AsRef<OsStr>) -> Result<Self, BadUrl> {
        let text = text.as_ref().as_bytes();
        match Form::of(text)? {
            Form::Local => Url::local(text).map(Self::Url),
            Form::Path(rest) => read_path_form(rest),
            Form::Name(rest) => Name::new(&decode(rest)?).map(Self::Name),
            Form::Url(Scheme::File, rest) => read_file(rest).map(Self::Url),
            Form::Url(scheme, rest) => read_url(scheme, rest).map(Self::Url),
        }
    }
}

impl FromStr for Place {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        Self::from_argument(text)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// How to speak to a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
#[allow(missing_docs)]
pub enum Scheme {
    File,
    Ftp,
    Gsiftp,
    Sshftp,
    Http,
    Https,
    Dav,
    Davs,
    Godwit,
}

impl Scheme {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::File,
        Self::Ftp,
        Self::Gsiftp,
        Self::Sshftp,
        Self::Http,
        Self::Https,
        Self::Dav,
        Self::Davs,
        Self::Godwit,
    ];

    /// Returns the name as it stands before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Ftp => "ftp",
            Self::Gsiftp => "gsiftp",
            Self::Sshftp => "sshftp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Dav => "dav",
            Self::Davs => "davs",
            Self::Godwit => "godwit",
        }
    }

    /// Returns the port where such servers listen, if there is a usual one.
    pub fn default_port(self) -> Option<u16> {
        match self {
            // ssh has ports in a configuration of its own.
            Self::File | Self::Sshftp | Self::Godwit => None,
            Self::Ftp => Some(21),
            Self::Gsiftp => Some(2811),
            Self::Http | Self::Dav => Some(80),
            Self::Https | Self::Davs => Some(443),
        }
    }

    /// Returns why this version cannot speak it; `None` if it can.
    pub fn not_served(self) -> Option<&'static str> {
        match self {
            Self::File | Self::Ftp | Self::Gsiftp | Self::Sshftp => None,
            Self::Http | Self::Dav => Some("no HTTP in this version"),
            Self::Https | Self::Davs => Some("no TLS in this version"),
            Self::Godwit => Some("nodes speak FTP in this version: write ftp://HOST:PORT/path"),
        }
    }

    /// Tells whether the path of a URL always counts from the server's root, as
    /// it does in HTTP and as every GridFTP client reads it. RFC 1738 begins an
    /// FTP path at the login directory.
    fn is_rooted(self) -> bool {
        !matches!(self, Self::Ftp | Self::Godwit)
    }
}

/// Reads a scheme in any case.
impl FromStr for Scheme {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        Self::ALL
            .into_iter()
            .find(|scheme| scheme.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| BadUrl::UnknownScheme(text.into()))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A host.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Host {
    /// Its name, in lower case.
    Name(String),
    /// Its IPv4 address.
    V4(Ipv4Addr),
    /// Its IPv6 address.
    V6(Ipv6Addr),
}

impl Host {
    /// Returns the text that a resolver takes: no brackets.
    pub fn to_resolve(&self) -> String {
        match self {
            Self::V6(address) => address.to_string(),
            other => other.to_string(),
        }
    }
}

impl FromStr for Host {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = || BadUrl::BadHost(shown(text.as_bytes()));
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(bad)?;
            return inner.parse().map(Self::V6).map_err(|_| bad());
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::V4(address));
        }
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        // A resolver would read `1.2.3` or `7` as some other address.
        let last_label = text.rsplit('.').find(|label| !label.is_empty());
        let is_name = text.len() <= HOST_NAME_MAX
            && text.bytes().all(known)
            && last_label.is_some_and(|label| !is_digits(label.as_bytes()));
        if is_name {
            Ok(Self::Name(text.to_ascii_lowercase()))
        } else if text.is_empty() {
            Err(BadUrl::NoHost)
        } else {
            Err(bad())
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => write!(f, "[{address}]"),
        }
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
    #[error("only ;type=i is known: bytes are never converted")]
    BadType,
    #[error("'{0}' is not a name of a file here")]
    BadName(String),
    #[error("names (grid:/…) are not served yet: no catalog in this version")]
    IsName,
}

const PATH_FORM: &str = "/godwit/";
const HOST_NAME_MAX: usize = 253; // RFC 1035, without the last dot

/// What kind of text an argument is, told by how it begins.
enum Form<'a> {
    Local,
    Path(&'a [u8]),
    Name(&'a [u8]),
    Url(Scheme, &'a [u8]),
}

impl<'a> Form<'a> {
    fn of(text: &'a [u8]) -> Result<Self, BadUrl> {
        if let Some(rest) = text.strip_prefix(PATH_FORM.as_bytes()) {
            return Ok(Self::Path(rest));
        }
        let Some((word, rest)) = split_once(text, b':') else {
            return Ok(Self::Local);
        };
        if word.eq_ignore_ascii_case(b"grid") && rest.starts_with(b"/") {
            return if rest.starts_with(b"//") {
                Err(BadUrl::BadHost(
                    "grid:// (a name has no host: grid:/name)".into(),
                ))
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
fn read_file(rest: &[u8]) -> Result<Url, BadUrl> {
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

fn read_url(scheme: Scheme, rest: &[u8]) -> Result<Url, BadUrl> {
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
fn read_path_form(rest: &[u8]) -> Result<Place, BadUrl> {
    let (server, path) = split_path(rest);
    let path = strip_slashes(path);
    if server == b"grid" {
        return Name::new(path).map(Place::Name);
    }
    let (scheme, server) = match split_once(server, b':') {
        Some((word, after)) if !is_digits(after) => match scheme_of(word) {
            Some(scheme) => (scheme, after),
            None => (Scheme::Godwit, server),
        },
        _ => (Scheme::Godwit, server),
    };
    if scheme == Scheme::File {
        return Err(BadUrl::FileHost(shown(server)));
    }
    let path = match without_encoded_slash(path) {
        Some(below) => Cow::from([b"/", below].concat()),
        None => Cow::from(path),
    };
    Url::remote(scheme, (None, None), read_server(server)?, &path).map(Place::Url)
}

fn read_login(text: &[u8]) -> Result<(Option<String>, Option<String>), BadUrl> {
    let read = |part: &[u8]| {
        let bytes = unescape(part).map_err(|_| BadUrl::BadLogin)?;
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

/// Resolves the escapes of a path. `%2F` would change where names end and is refused.
fn decode(text: &[u8]) -> Result<Vec<u8>, BadUrl> {
    if text.windows(3).any(|w| without_encoded_slash(w).is_some()) {
        return Err(BadUrl::EncodedSlash);
    }
    unescape(text)
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, BadUrl> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = char::from(*rest.next()?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(BadUrl::BadEscape);
        };
        bytes.push(high << 4 | low);
    }
    Ok(bytes)
}

fn check_path(path: &[u8]) -> Result<(), BadUrl> {
    if path.contains(&0) {
        return Err(BadUrl::Nul);
    }
    if path.split(|&b| b == b'/').any(|segment| segment == b"..") {
        return Err(BadUrl::DotDot);
    }
    Ok(())
}

/// Writes bytes of a path so that [`decode`] gives them back. Letters and digits
/// of any script stay readable; whatever a terminal might obey does not.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_alphanumeric() || "-._~/!$&'()*+,=:@".contains(c) {
                    write!(f, "{c}")?;
                } else {
                    escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?;
                }
            }
            escape(f, chunk.invalid())?;
        }
        Ok(())
    }
}

/// Like [`Escaped`], for a user name, where `:`, `@` and `/` would end it.
struct EscapedLogin<'a>(&'a str);

impl fmt::Display for EscapedLogin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_ascii_alphanumeric() || "-._~".contains(c) {
                write!(f, "{c}")?;
            } else {
                escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
        }
        Ok(())
    }
}

fn escape(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "%{byte:02X}"))
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Some bytes as a message shows them.
fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn without_encoded_slash(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(b"%2F").or(path.strip_prefix(b"%2f"))
}

fn scheme_of(word: &[u8]) -> Option<Scheme> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn split_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Divides before the first slash.
fn split_path(text: &[u8]) -> (&[u8], &[u8]) {
    let at = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
    text.split_at(at)
}

fn strip_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
    &path[start..]
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

fn last_segment(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    &path[start..]
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
    fn an_ftp_path_begins_at_the_login_directory_unless_its_slash_is_encoded() {
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
    fn nothing_leads_upwards_but_a_local_path() {
        for text in [
            "ftp://h/..",
            "ftp://h/a/../b",
            "ftp://h/%2e%2E/b",
            "/godwit/h/../b",
            "grid:/..",
        ] {
            let read = Place::from_argument(text);
            assert_eq!(read, Err(BadUrl::DotDot), "{text}");
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
        assert!(!format!("{:#?}", Place::Url(secret.clone())).contains("cret"));
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
    fn text_without_a_known_scheme_is_a_local_path() {
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
    fn a_local_path_that_looks_like_something_else_is_written_as_a_url() {
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
    fn path_form_and_url_are_the_same_value() {
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
    fn a_name_is_not_a_url() {
        let Ok(Place::Name(name)) = Place::from_argument("grid:/hep/run%207.root") else {
            panic!("no name");
        };
        assert_eq!(name.path(), b"hep/run 7.root");
        assert_eq!(name.to_string(), "grid:/hep/run%207.root");
        assert_eq!(name.path_form(), b"/godwit/grid/hep/run 7.root");
        let again = Place::from_argument(OsStr::from_bytes(&name.path_form()));
        assert_eq!(again, Ok(Place::Name(name)));
        assert_eq!(why("grid:/a"), BadUrl::IsName);
        assert!(matches!(why("grid://h/a"), BadUrl::BadHost(_)));
        assert_eq!(url("/godwit/grid:7/a"), url("godwit://grid:7/a"));
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
        ] {
            assert!(matches!(why(text), BadUrl::BadHost(_)), "{text}");
        }
        assert_eq!(why("ftp:///a"), BadUrl::NoHost);
    }

    #[test]
    fn types_queries_and_fragments_are_not_silently_dropped() {
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
            Some("no HTTP in this version")
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
        prop::sample::select(Scheme::ALL[1..].to_vec())
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
        fn any_remote_url_reads_back_from_its_text_and_its_path_form(
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
            if let Ok(name) = Name::new(&path) {
                prop_assert_eq!(name.to_string().parse(), Ok(Place::Name(name.clone())));
                prop_assert_eq!(Place::from_argument(OsStr::from_bytes(&name.path_form())), Ok(Place::Name(name)));
            }
        }

        #[test]
        fn any_text_is_read_or_refused_and_reads_back(
            start in prop::sample::select(vec!["", "ftp://", "ftp://u:p@h/", "file://", "/godwit/", "grid:/", "https://["]),
            rest in prop::collection::vec(any::<u8>(), 0..24),
        ) {
            let text = [start.as_bytes(), &rest].concat();
            if let Ok(place) = Place::from_argument(OsStr::from_bytes(&text)) {
                let plain = match place {
                    Place::Url(url) => Place::Url(url.without_password()),
                    name => name,
                };
                prop_assert_eq!(plain.to_string().parse(), Ok(plain));
            }
        }

        #[test]
        fn joining_goes_down_one_and_parent_comes_back(path in segments(), name in "[^/\\x00]{1,8}") {
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
