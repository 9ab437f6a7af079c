//! Errors, for people and for programs: the act that failed, the cause, the next step.
//!
//! One table maps every error to its exit status, the error type of HTCondor and
//! the culprit. No other module of this crate decides about them.

use crate::config;
use godwit_core::{BadUrl, Class, Fault, Kind};
use godwit_local::Refusal;
use godwit_node::Error as NodeError;
use godwit_store::Error;
use serde_json::{Value, json};
use std::{
    borrow::{Borrow, Cow},
    fmt,
    path::Path,
};

/// Name of standard output in an error.
pub(crate) const OUTPUT: &str = "standard output";

/// The result of a verb and its parts.
pub(crate) type Run<T = ()> = Result<T, CliError>;

/// An error of a verb.
#[derive(Debug)]
pub(crate) struct CliError(Box<Detail>);

#[derive(Debug)]
struct Detail {
    wanted: String,
    fact: String,
    code: u8,
    fault: Fault,
    class: Class,
    next: Option<String>,
    /// Name of the error in errno(3), if the node of this machine told it.
    errno: Option<&'static str>,
    of_output: bool,
    follows: bool,
}

impl CliError {
    /// Returns an error that waiting does not mend, without a hint.
    fn of(wanted: impl Into<String>, fact: impl Into<String>, code: u8, class: Class) -> Self {
        Self(Box::new(Detail {
            wanted: abridged(&wanted.into()),
            fact: abridged(&fact.into()),
            code,
            fault: Fault::Lasting,
            class,
            next: None,
            errno: None,
            of_output: false,
            follows: false,
        }))
    }

    /// Returns an error of a store or the engine. `wanted` continues "cannot": `copy A to B`.
    pub(crate) fn store(wanted: impl Into<String>, error: impl Borrow<Error>) -> Self {
        let (wanted, error) = (wanted.into(), error.borrow());
        let next = match error {
            // Only a copy keeps its bytes after an error.
            Error::BadName { .. } if is_output(error) => {
                Some("give it somewhere to go: a file, a pipe, or /dev/null".into())
            }
            _ if is_output(error) => {
                Some("see what standard output is, and make room there".into())
            }
            Error::NoSuchHost { host, .. } | Error::NameService { host, .. }
                if is_unknown_peer(&wanted, host) =>
            {
                error.hint().map(|hint| format!(
                    "{hint}; no peer is called {host}: godwit peers lists them, godwit join INVITE makes one"
                ))
            }
            // A shell hands on a pattern that matches nothing here.
            Error::Missing { path } if path.to_string_lossy().contains('*') => Some(
                "only the shell expands *, and only for files of this machine; of a server name each file, or a directory \
                 with --include and --exclude (godwit help cp)"
                    .into(),
            ),
            _ if error.is_of_contact() => error.hint(),
            Error::Lost { .. } | Error::Stalled { .. } if is_copy(&wanted) => {
                Some("what arrived is kept; the same command continues from there".into())
            }
            Error::IsDirectory { .. } if wanted.starts_with("copy ") => {
                Some("add -r to copy a directory".into())
            }
            Error::IsDirectory { .. } if wanted.starts_with("print ") => {
                Some("name a file in it".into())
            }
            Error::NoSpace { .. } if !is_copy(&wanted) => Some("make room, and try again".into()),
            _ => error.hint(),
        };
        let mut told = Self::of(wanted, error.to_string(), error.exit_code(), class(error));
        told.0.fault = error.fault();
        told.0.next = next;
        told.0.of_output = is_output(error);
        told
    }

    /// Returns an error of certificates, keys or rights.
    pub(crate) fn trust(
        wanted: impl Into<String>,
        error: impl Borrow<godwit_trust::Error>,
    ) -> Self {
        use godwit_trust::Error as E;
        let error = error.borrow();
        let kind = error.kind();
        let class = match error {
            E::Io { .. } if kind == Kind::Io => ("Specification", "site"),
            E::Token(_) => ("Authorization", "peer"),
            _ => kind.class(),
        };
        let code = kind.exit_code(error.fault());
        let mut told = Self::of(wanted, error.to_string(), code, class);
        told.0.fault = error.fault();
        told.0.next = error.hint();
        told
    }

    /// Returns an error of a rule that denies the act.
    pub(crate) fn denied(wanted: impl Into<String>, fact: impl Into<String>) -> Self {
        Self::of(wanted, fact, 13, ("Authorization", "you"))
    }

    /// Returns an error that a check found.
    pub(crate) fn found(wanted: impl Into<String>, fact: impl Into<String>, code: u8) -> Self {
        let mut told = Self::of(wanted, fact, code, ("Specification", "site"));
        if code == 5 {
            told.0.fault = Fault::Passing;
        }
        told
    }

    /// Returns an error of the arguments.
    pub(crate) fn asked(wanted: impl Into<String>, fact: impl fmt::Display) -> Self {
        Self::of(wanted, fact.to_string(), 2, ("Parameter", "you"))
    }

    /// Returns an error about a file that was left alone, since it was changed or is not as it must be.
    pub(crate) fn kept(wanted: impl Into<String>, fact: impl Into<String>) -> Self {
        Self::of(wanted, fact, 1, ("Specification", "site"))
    }

    /// Returns an error of a full disk or quota.
    pub(crate) fn no_room(wanted: impl Into<String>, fact: impl Into<String>) -> Self {
        let mut told = Self::of(wanted, fact, 7, ("Transfer", "site"));
        told.0.fault = Fault::Passing;
        told
    }

    /// Returns an error of digests that differ.
    pub(crate) fn differs(wanted: impl Into<String>, fact: impl Into<String>) -> Self {
        Self::of(wanted, fact, 12, ("Transfer", "network"))
    }

    /// Returns the error of a verb that a signal ended; `code` is 128 and the number of the signal.
    pub(crate) fn signal(wanted: impl Into<String>, code: u8) -> Self {
        let fact = if code == 130 {
            "interrupted"
        } else {
            "told to stop"
        };
        let mut told = Self::of(wanted, fact, code, ("Transfer", "you"));
        told.0.fault = Fault::Passing;
        told.next(
            "what arrived is kept; the same command continues from there, and for a tree godwit sync, \
             which leaves alone what is whole",
        )
    }

    /// Returns the error of a text that is no URL.
    pub(crate) fn bad_url(text: &str, error: &BadUrl) -> Self {
        let (shown, secret) = without_password(text);
        let fact = match error {
            // The named part may belong to the password.
            BadUrl::BadHost(part) | BadUrl::BadPort(part) | BadUrl::BadName(part)
                if !secret.is_empty() && (part.contains('@') || secret.contains(part.as_str())) =>
            {
                "what stands around the @ is not in order (in a password : / @ % are %3A %2F %40 %25)".into()
            }
            error => error.to_string(),
        };
        let next = match error {
            BadUrl::Empty => "name a file or a URL; a variable in the command may be empty",
            _ => "godwit help schemes shows what can be named",
        };
        Self::asked(format!("understand {shown:?}"), fact).next(next)
    }

    /// Sets the hint.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.0.next = Some(next.into());
        self
    }

    /// Sets the hint, if one is given.
    pub(crate) fn maybe_next(self, next: Option<impl Into<String>>) -> Self {
        match next {
            Some(next) => self.next(next),
            None => self,
        }
    }

    /// Sets the hint, if there is none.
    pub(crate) fn or_next(mut self, next: impl Into<String>) -> Self {
        self.0.next.get_or_insert_with(|| next.into());
        self
    }

    /// Tells whether waiting may help.
    pub(crate) fn is_passing(&self) -> bool {
        self.0.fault != Fault::Lasting
    }

    /// Returns the cause, without the act.
    pub(crate) fn fact(&self) -> &str {
        &self.0.fact
    }

    /// Tells whether nothing else at that server can work now.
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(self.0.class.0, "Contact" | "Resolution")
    }

    /// Marks the error as a consequence of others, which were told and decide the exit status.
    pub(crate) fn following(mut self) -> Self {
        self.0.follows = true;
        self
    }

    /// Tells whether the error is a consequence of others that were told.
    pub(crate) fn follows(&self) -> bool {
        self.0.follows
    }

    /// Tells whether standard output failed.
    pub(crate) fn is_of_output(&self) -> bool {
        self.0.of_output
    }

    /// Returns the exit status of a program that met only this.
    pub(crate) fn exit_code(&self) -> u8 {
        self.0.code
    }

    /// Returns the object that `--json` prints.
    pub(crate) fn to_json(&self) -> Value {
        let (retryable, after) = match self.0.fault {
            Fault::Passing => (true, None),
            Fault::NotYet(pause) => (true, Some(pause.as_secs())),
            Fault::Lasting => (false, None),
        };
        let mut told = json!({
            "event": "error",
            "wanted": self.0.wanted,
            "message": self.0.fact,
            "error_type": self.0.class.0,
            "code": self.0.code,
            "retryable": retryable,
            "retry_after_s": after,
            "culprit": self.0.class.1,
            "next": self.0.next.as_deref().unwrap_or(usual_next(self.0.code)),
        });
        if let Some(errno) = self.0.errno {
            told["errno"] = errno.into();
        }
        told
    }
}

/// Returns the hint for an exit status.
fn usual_next(code: u8) -> &'static str {
    match code {
        3 | 4 => "look at what is there now: its name may be another, or it is gone",
        5 => "try again in a while",
        12 => "run the command again",
        13 => "have an operator there allow it, or use an account that may",
        _ => "change what the message says, and try again",
    }
}

/// Tells whether our own standard output failed.
fn is_output(error: &Error) -> bool {
    match error {
        Error::NoSpace { path, .. } | Error::Io { path, .. } | Error::BadName { path, .. } => {
            path == Path::new(OUTPUT)
        }
        _ => false,
    }
}

/// Tells whether a URL names a peer that this machine does not know.
fn is_unknown_peer(wanted: &str, host: &str) -> bool {
    let start = format!("godwit://{host}");
    let mut after = wanted.split(&start).skip(1);
    let is_named = after.any(|rest| rest.starts_with(['/', ':']) || rest.is_empty());
    let is_known = || config::home().is_some_and(|home| !matches!(home.peer(host), Ok(None)));
    is_named && !host.contains(['.', ':']) && !is_known()
}

fn is_copy(wanted: &str) -> bool {
    ["copy ", "move ", "sync "]
        .iter()
        .any(|act| wanted.starts_with(act))
}

fn class(error: &Error) -> Class {
    match error {
        // A pipe or a link to a directory cannot be copied anywhere.
        Error::Unsupported { what, .. } if what.starts_with("copying ") => Kind::Missing.class(),
        Error::Lost { .. } | Error::Stalled { .. } if error.is_of_contact() => Kind::Busy.class(),
        _ => error.kind().class(),
    }
}

/// Returns text that is harmless to a terminal: control characters become `\n`, `\u{1b}`.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// Returns a text with very long words shortened.
pub(crate) fn abridged(text: &str) -> String {
    let short = |word: &str| match word.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) if word.len() > WORD_MAX => {
            let space = if word.ends_with(char::is_whitespace) {
                " "
            } else {
                ""
            };
            format!("{}… ({} bytes){space}", &word[..end], word.len())
        }
        _ => word.to_owned(),
    };
    text.split_inclusive(char::is_whitespace)
        .map(short)
        .collect()
}

const WORD_MAX: usize = 1000;
const SHOWN_CHARS: usize = 80;

/// An error of reading the configuration.
impl From<NodeError> for CliError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Unreadable { path, cause } => {
                Self::store("read the configuration", Error::io(path, cause))
            }
            wrong => Self::asked("use the configuration", wrong)
                .next("godwit config show lists the keys and where their values come from"),
        }
    }
}

/// A refusal by the node of this machine.
impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        let (kind, fault) = (refusal.kind, Fault::from(refusal.waiting));
        let code = kind.exit_code(fault);
        let mut told = Self::of(refusal.wanted, refusal.said, code, kind.class());
        told.0.fault = fault;
        told.0.next = refusal.next;
        told.0.errno = Some(kind.symbol());
        told
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, fact) = (plain(&self.0.wanted), plain(&self.0.fact));
        write!(f, "godwit: cannot {wanted}\n  {fact}")?;
        match &self.0.next {
            Some(hint) => write!(f, "\nhint: {}", plain(hint)),
            None => Ok(()),
        }
    }
}

/// The exit status of several errors: the first decides, unless they differ in kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally(Option<u8>);

impl Tally {
    /// Counts one more.
    pub(crate) fn add(&mut self, code: u8) {
        self.0 = match self.0 {
            None => Some(code),
            Some(same) if same == code => Some(code),
            // A signal explains whatever else went wrong.
            Some(signal @ (130 | 143)) => Some(signal),
            Some(_) if matches!(code, 130 | 143) => Some(code),
            Some(_) => Some(1),
        };
    }

    /// Returns the status of the program.
    pub(crate) fn exit_code(self) -> u8 {
        self.0.unwrap_or(0)
    }
}

/// Returns a malformed URL as it may be shown, and the password in it.
fn without_password(text: &str) -> (String, &str) {
    let start = text.find("://").map_or(0, |at| at + 3);
    let login = text[start..]
        .rfind('@')
        .map_or("", |at| &text[start..][..at]);
    match login.split_once(':') {
        Some((user, secret)) => {
            let rest = &text[start + login.len()..];
            (format!("{}{user}:…{rest}", &text[..start]), secret)
        }
        None => (text.to_owned(), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, path::PathBuf};

    #[test]
    fn malformed_url_shows_no_password() {
        for text in [
            "ftp://alice:s3cret@fermi:99999/",
            "ftp://alice:s3cr%ZZet@fermi/",
            "ftp://alice:s3cret@/x",
            "fpt://alice:s3cret@fermi/",
            "/godwit/ftp:alice:s3cret@fermi:1/x",
            "ftp://alice:s3/cret@fermi/",
            "ftp://alice:s3@cret@fermi:x/",
        ] {
            let error = text.parse::<godwit_core::Url>().unwrap_err();
            let told = CliError::bad_url(text, &error).to_string();
            assert!(!told.contains("s3") && !told.contains("cret"), "{told}");
            assert!(told.contains("alice") || text.starts_with('/'), "{told}");
        }
        let error = "ftp://fermi:x/".parse::<godwit_core::Url>().unwrap_err();
        let told = CliError::bad_url("ftp://fermi:x/", &error).to_string();
        assert!(told.contains("ftp://fermi:x/") && told.contains("'x' is not a port"));
    }

    fn missing() -> CliError {
        CliError::store(
            "copy ftp://fermi/run7 to x",
            Error::missing(PathBuf::from("run7")),
        )
    }

    #[test]
    fn message_has_act_cause_and_hint() {
        let lost = Error::lost("fermi", "reading", io::Error::other("connection reset"));
        assert_eq!(
            CliError::store("copy A to B", lost).to_string(),
            "godwit: cannot copy A to B\n  fermi: connection lost while reading (connection reset)\n\
             hint: what arrived is kept; the same command continues from there"
        );
        assert_eq!(missing().to_string().lines().count(), 2);
    }

    #[test]
    fn unknown_peer_gets_hint_to_join() {
        let unknown = Error::no_such_host("nolab", "Name or service not known");
        let told = |wanted: &str| CliError::store(wanted, &unknown).to_string();
        let next = "no peer is called nolab: godwit peers lists them, godwit join INVITE makes one";
        assert!(told("list godwit://nolab/").contains(next));
        assert!(told("copy a to godwit://nolab:1/b").contains(next));
        // Where it is only the address of one, or no node is meant.
        for wanted in ["list godwit://nolab2/", "list ftp://nolab/", "join lab"] {
            let told = told(wanted);
            assert!(told.ends_with("check the spelling of nolab"), "{told}");
        }
    }

    #[test]
    fn only_copies_say_bytes_are_kept() {
        let stalled = Error::stalled("fermi", "greeting", std::time::Duration::from_secs(60));
        let told = |wanted: &str| CliError::store(wanted, &stalled).to_string();
        assert!(told("copy A to B").contains("is kept"));
        assert!(!told("list A").contains("is kept"));
        assert!(!told("open A").contains("is kept"));
    }

    #[test]
    fn only_copy_gets_recursive_hint() {
        let directory = Error::directory("d");
        let told = |wanted: &str| CliError::store(wanted, &directory).to_string();
        assert!(told("copy d to B").contains("add -r"));
        for wanted in ["get d", "append to d", "move d to B", "sum d"] {
            assert!(!told(wanted).contains("add -r"), "{wanted}");
        }
    }

    #[test]
    fn names_do_nothing_to_a_terminal() {
        let told = CliError::asked("copy a\nb", "\u{1b}[2Jc\rd").to_string();
        assert_eq!(told, "godwit: cannot copy a\\nb\n  \\u{1b}[2Jc\\rd");
    }

    #[test]
    fn a_program_reads_type_code_and_culprit() {
        let told = missing().to_json();
        assert_eq!(told["error_type"], "Specification");
        assert_eq!(told["code"], 4);
        assert_eq!(told["retryable"], false);
        assert_eq!(told["culprit"], "you");
        assert!(
            told["next"].as_str().unwrap().contains("it is gone"),
            "{told}"
        );
        let denied = CliError::denied("read f", "rule 1 denies it").to_json();
        assert!(
            denied["next"].as_str().unwrap().contains("allow it"),
            "{denied}"
        );
    }

    #[test]
    fn mixed_exit_codes_become_one() {
        let code = |codes: &[u8]| {
            let mut tally = Tally::default();
            codes.iter().for_each(|&code| tally.add(code));
            tally.exit_code()
        };
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[4, 4]), 4);
        assert_eq!(code(&[4, 13]), 1);
        assert_eq!(code(&[4, 130, 5]), 130);
    }
}
