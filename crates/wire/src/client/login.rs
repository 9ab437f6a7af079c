//! From the greeting to a session in which files can be named.

use super::{Family, FtpPeer, Line, Refusal, Talk};
use crate::{
    features::{self, Features},
    reply::Reply,
};
use godwit_core::Kind;
use std::fmt;

/// A user's name and password for the login.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    /// Name of the user.
    pub user: String,
    /// The secret, or for anonymous users any text.
    pub password: String,
}

impl Credentials {
    /// Returns the credentials that RFC 1635 asks of a user without an account.
    pub fn anonymous() -> Self {
        Self {
            user: "anonymous".into(),
            password: "godwit@".into(),
        }
    }

    /// Returns the login of a Globus client after its proof: the server knows the account, and the password does not
    /// matter.
    pub fn mapped() -> Self {
        Self {
            user: MAPPED.into(),
            password: String::new(),
        }
    }

    /// Returns the credentials of a member of a cluster that acts for `subject`. The member needs no password, so the
    /// subject stands in its place. `account`: the one of the subject's accounts to use.
    pub fn for_subject(subject: &str, account: Option<&str>) -> Self {
        Self {
            user: account.unwrap_or(MAPPED).into(),
            password: format!("{ACTS_FOR}{subject}"),
        }
    }

    /// Tells whether the server knows by other means which account it is.
    pub fn is_mapped(&self) -> bool {
        self.user == MAPPED
    }

    fn scheme(&self) -> &'static str {
        if self.is_mapped() { "gsiftp" } else { "ftp" }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, …)", self.user)
    }
}

/// The lines that a client sends to a node together with the login.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinesAhead<'a> {
    /// Whether the server was a node a moment ago, so that its greeting need not be waited for.
    pub is_ours: bool,
    /// Lines behind those of the login.
    pub lines: &'a [Line],
}

/// A peer after the login, and the replies to the lines sent ahead; none if the server is no node, because they were
/// not sent then.
pub type LoggedIn = (FtpPeer, Vec<Reply>);

/// Logs in. The inner error is the server's refusal.
///
/// A server that calls itself godwit receives all lines at once: one round trip, and the greeting's unless it was
/// skipped. All others are asked step by step, since some lose what is sent ahead of a reply. `SITE CLIENTINFO` is
/// for GridFTP servers only: Pure-FTPd counts unknown commands of a client against it.
pub fn log_in<T: Talk>(
    talk: &mut T,
    who: &Credentials,
    ahead: LinesAhead<'_>,
) -> Result<Result<LoggedIn, Refusal>, T::Error> {
    if ahead.is_ours {
        return enter_before_greeting(talk, who, ahead.lines);
    }
    match greet(talk)? {
        Ok(banner) => enter(talk, banner, who, ahead.lines),
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Waits for the first word of a server, and returns it.
pub fn greet<T: Talk>(talk: &mut T) -> Result<Result<String, Refusal>, T::Error> {
    Ok(greeted(&talk.greeting()?))
}

/// Makes the login after the greeting, or after the proof. Only a node receives `ahead`.
pub fn enter<T: Talk>(
    talk: &mut T,
    banner: String,
    who: &Credentials,
    ahead: &[Line],
) -> Result<Result<LoggedIn, Refusal>, T::Error> {
    let (user, pass) = match named(who) {
        Ok(named) => named,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let logged_in = if banner.contains("godwit") {
        all_said(talk.ask(&at_once(user, pass, ahead))?)
    } else {
        let peer = step_by_step(talk, user, pass, who.scheme())?;
        peer.map(|peer| (peer, Vec::new()))
    };
    Ok(logged_in.map(|(peer, replies)| (FtpPeer { banner, ..peer }, replies)))
}

/// Sends all lines to a node before its greeting.
fn enter_before_greeting<T: Talk>(
    talk: &mut T,
    who: &Credentials,
    ahead: &[Line],
) -> Result<Result<LoggedIn, Refusal>, T::Error> {
    let (user, pass) = match named(who) {
        Ok(named) => named,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let (greeting, replies) = talk.ask_before_greeting(&at_once(user, pass, ahead))?;
    let banner = match greeted(&greeting) {
        Ok(banner) => banner,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if !banner.contains("godwit") {
        // The lines may have confused the other server; the next login asks it step by step.
        let said = format!("another server answers now: {banner}");
        return Ok(Err(Refusal::coded(greeting.code, Kind::Busy, said)));
    }
    Ok(all_said(replies).map(|(peer, replies)| (FtpPeer { banner, ..peer }, replies)))
}

fn greeted(greeting: &Reply) -> Result<String, Refusal> {
    match Refusal::of(greeting) {
        Some(refusal) => Err(refusal),
        None => Ok(greeting.said()),
    }
}

fn named(who: &Credentials) -> Result<(Line, Line), Refusal> {
    let named = (
        Line::new("USER").bytes(who.user.as_bytes()),
        Line::new("PASS").bytes(who.password.as_bytes()),
    );
    let (Ok(user), Ok(pass)) = named else {
        let said = "user name or password with a line end";
        return Err(Refusal::coded(530, Kind::Login, said));
    };
    Ok((user, pass))
}

fn at_once(user: Line, pass: Line, ahead: &[Line]) -> Vec<Line> {
    let mut lines = vec![
        user,
        pass,
        Line::new("FEAT"),
        Line::new("TYPE I"),
        Line::new("OPTS GODWIT 1"),
    ];
    lines.extend_from_slice(ahead);
    lines
}

/// Reads the replies to all lines of a login.
fn all_said(mut replies: Vec<Reply>) -> Result<LoggedIn, Refusal> {
    let ahead = replies.split_off(5);
    let [user, pass, feat, image, godwit] = &replies[..] else {
        unreachable!("as many replies as lines")
    };
    let checked = Refusal::check(user)
        // After a 230 or 232 to USER, the reply to PASS does not matter.
        .and_then(|user| {
            if user.code / 100 == 2 {
                Ok(user)
            } else {
                Refusal::check(pass)
            }
        })
        .and_then(|_| Refusal::check(image));
    checked?;
    let mut features = Features::from_reply(feat);
    if !godwit.is_positive() {
        features.remove("GODWIT");
    }
    let peer = FtpPeer {
        features,
        home: b"/".to_vec(),
        ..FtpPeer::default()
    };
    Ok((peer, ahead))
}

fn step_by_step<T: Talk>(
    talk: &mut T,
    user: Line,
    pass: Line,
    scheme: &str,
) -> Result<Result<FtpPeer, Refusal>, T::Error> {
    let reply = talk.ask_one(user)?;
    let reply = if reply.code == 331 {
        talk.ask_one(pass)?
    } else {
        reply
    };
    if let Err(refusal) = logged_in(&reply) {
        return Ok(Err(refusal));
    }
    let features = Features::from_reply(&talk.ask_one(Line::new("FEAT"))?);
    let mut peer = FtpPeer {
        features,
        ..FtpPeer::default()
    };
    if peer.family() == Family::Grid {
        let version = env!("CARGO_PKG_VERSION");
        let about = format!("scheme={scheme};appname=\"godwit\";appver=\"{version}\";");
        talk.ask_one(Line::new("SITE CLIENTINFO").and(about))?;
    } else {
        peer.site = features::commands(&talk.ask_one(Line::new("SITE HELP"))?);
    }
    let image = talk.ask_one(Line::new("TYPE I"))?;
    if let Some(refusal) = Refusal::of(&image) {
        return Ok(Err(refusal));
    }
    if peer.features.is_godwit() {
        // A node behind a banner of its own.
        if !talk.ask_one(Line::new("OPTS GODWIT 1"))?.is_positive() {
            peer.features.remove("GODWIT");
        }
    }
    peer.home = home(&talk.ask_one(Line::new("PWD"))?);
    Ok(Ok(peer))
}

/// 332 asks for an account (`ACCT`), which no server in use needs.
fn logged_in(reply: &Reply) -> Result<(), Refusal> {
    if reply.code / 100 == 2 {
        return Ok(());
    }
    Err(Refusal::of_proof(reply))
}

/// Reads the 257 of PWD: a path in quotes, in which a quote stands doubled.
/// A server that does not tell has its home where relative names begin: nowhere.
fn home(reply: &Reply) -> Vec<u8> {
    let mut home = Vec::new();
    if reply.code != 257 {
        return home;
    }
    let line = &reply.lines[0];
    let Some(open) = line.iter().position(|&b| b == b'"') else {
        return home;
    };
    let mut rest = line[open + 1..].iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte == b'"' && rest.next_if_eq(&b'"').is_none() {
            break;
        }
        home.push(byte);
    }
    home
}

/// The prefix of the subject for whom a member acts (docs/formats/ftp-extensions.md).
pub const ACTS_FOR: &str = "for=";

/// GCT: the account that the gridmap names first.
const MAPPED: &str = ":globus-mapping:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_the_home_are_doubled() {
        let told = |text: &str| String::from_utf8(home(&Reply::new(257, text))).unwrap();
        assert_eq!(told("\"/a \"\"b\"\"\" is current"), "/a \"b\"");
        assert_eq!(told("\"/\""), "/");
        assert_eq!(told("nothing"), "");
    }

    #[test]
    fn secrets_are_not_shown() {
        let who = Credentials {
            user: "me".into(),
            password: "secret".into(),
        };
        assert!(!format!("{who:?}").contains("secret"));
    }
}
