//! What went wrong, as programs of this machine are told it.

use godwit_core::{BadUrl, Url};
use godwit_depot::Error as DepotError;
use godwit_local::{Refusal, Why};
use godwit_store::Error as StoreError;
use godwit_wire::local::URL_BYTES_MAX;
use std::io;

/// Reads a URL, or a name below `/godwit/`.
pub(super) fn url(text: &str) -> Result<Url, Refusal> {
    let wanted = || {
        let short: String = text.chars().take(SHOWN_CHARS).collect();
        format!("understand {short:?}")
    };
    if text.len() > URL_BYTES_MAX {
        let words = format!("{} bytes are more than {URL_BYTES_MAX}", text.len());
        return Err(Refusal::new(Why::TooLong, wanted(), words));
    }
    Url::from_argument(text).map_err(|error| {
        let reason = match error {
            BadUrl::IsName => Why::Unsupported,
            _ => Why::Invalid,
        };
        Refusal::new(reason, wanted(), error.to_string())
            .next("godwit help schemes shows what can be named")
    })
}

/// The same for what is delivered later: what proves who we are is not kept with it, but looked for then.
pub(super) fn url_owed(text: &str) -> Result<Url, Refusal> {
    let url = url(text)?;
    if url.password().is_none() {
        return Ok(url);
    }
    let shown = url.without_password().to_string();
    let words = "a password in a URL is not kept until it is delivered";
    Err(Refusal::new(Why::Invalid, format!("write {shown}"), words)
        .next("leave it out, and write it into ~/.netrc (or the file that NETRC names), mode 0600")
        .about(shown))
}

/// Reads a tag that is to be put on something: what a person can see, and say again.
pub(super) fn tag(text: &str) -> Result<&str, Refusal> {
    let bad = match text.len() {
        0 => "a tag has a name",
        len if len > TAG_BYTES_MAX => "a tag has 255 bytes at most",
        _ if text.chars().any(char::is_control) => {
            "a tag has no line breaks and no other control characters"
        }
        _ if text.trim() != text => "a tag neither begins nor ends with a space",
        _ => return Ok(text),
    };
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    Err(
        Refusal::new(Why::Invalid, format!("put the tag {shown:?} on it"), bad)
            .next("name it by letters, digits and signs"),
    )
}

/// What a depot says.
pub(super) fn depot(wanted: &str, url: Option<&Url>, error: &DepotError) -> Refusal {
    let (reason, next) = match error {
        DepotError::Store(error) => (of_store(error), error.hint()),
        DepotError::HeldBehind { first, .. } => {
            let mut refusal = depot(wanted, url, first);
            refusal.because = error.to_string();
            return refusal;
        }
        // What is missing is nothing that anybody named.
        DepotError::Disk { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
            (Why::Disk, None)
        }
        DepotError::Disk { cause, .. } => (of_io(cause.kind()), None),
        DepotError::Records { .. } => (Why::Disk, None),
        DepotError::Newer { .. } => (
            Why::Newer,
            Some("run the newer godwit, or name another state: in GODWIT_STATE, or with --state of godwit node --local".into()),
        ),
        DepotError::Damaged { known, .. } => (
            Why::Disk,
            Some(format!(
                "if the rest of that directory is as it was, write {known:?} into that file; else name another state in GODWIT_STATE"
            )),
        ),
        DepotError::Foreign { .. } => (
            Why::Exists,
            Some("name another directory in GODWIT_STATE, or with --state of godwit node --local".into()),
        ),
        DepotError::Taken { process, .. } => (
            Why::Busy,
            Some(format!(
                "it goes on until somebody ends that node{} (what it keeps stays); or name another state: in \
                 GODWIT_STATE, or with --state of godwit node --local",
                process.map_or_else(String::new, |process| format!(", by kill {process}"))
            )),
        ),
        DepotError::Network { .. } => (
            Why::Unsupported,
            Some("name a directory on a disk of this machine in GODWIT_STATE, or with --state of godwit node --local".into()),
        ),
        DepotError::TooLarge { .. } => (Why::TooLarge, Some(AROUND.into())),
        DepotError::Full { .. } => (
            Why::Quota,
            Some(
                "godwit queue shows what is owed; it frees room when it is delivered, and a larger \
                 GODWIT_DEPOT_QUOTA gives more, after godwit node stop"
                    .into(),
            ),
        ),
        DepotError::Crowded { .. } => (
            Why::Quota,
            Some(
                "put it again when they have ended, or put a file instead of a pipe: how much room it needs is \
                 known then; a larger GODWIT_DEPOT_QUOTA gives more, after godwit node stop"
                    .into(),
            ),
        ),
        DepotError::GoneBehind { .. } => (
            Why::Conflict,
            Some("put it again if it is to be there".into()),
        ),
        DepotError::Rotten { .. } => (
            Why::Differs,
            Some("put it again, or give it up with godwit drop".into()),
        ),
        DepotError::Unsafe { .. } => (
            Why::Disk,
            Some("make room or mend the disk, then: godwit commit".into()),
        ),
        DepotError::Held { .. } => (
            Why::Conflict,
            Some("godwit queue shows why; its bytes are kept".into()),
        ),
        DepotError::OtherServer { .. } => (
            Why::OtherServer,
            Some("godwit mv copies to the other server and removes the original".into()),
        ),
        DepotError::Unknown(_) => (Why::Missing, None),
        DepotError::Busy { .. } => (Why::Busy, None),
        DepotError::BrokeOff { .. } => (
            Why::Lost,
            Some("ask again when the server is there".into()),
        ),
        DepotError::Restless { .. } => (Why::Stale, None),
        DepotError::TimedOut { .. } => (Why::Late, None),
        DepotError::Unwanted => (Why::Cancelled, None),
        DepotError::Ending => (Why::Ending, None),
        _ => (Why::Disk, None),
    };
    let mut refusal = Refusal::new(reason, wanted, error.to_string()).waiting(error.fault());
    refusal.next = next;
    refusal.url = url.map(|url| url.without_password().to_string());
    refusal
}

/// What a store says.
pub(super) fn store(wanted: &str, url: &Url, error: &StoreError) -> Refusal {
    let mut refusal =
        Refusal::new(of_store(error), wanted, error.to_string()).waiting(error.fault());
    refusal.next = error.hint();
    refusal.url = Some(url.without_password().to_string());
    refusal
}

/// What this machine says.
pub(super) fn disk(wanted: &str, error: &io::Error) -> Refusal {
    Refusal::new(of_io(error.kind()), wanted, godwit_sys::why(error))
}

fn of_store(error: &StoreError) -> Why {
    use StoreError as E;
    match error {
        E::Missing { .. } => Why::Missing,
        E::Exists { .. } => Why::Exists,
        E::IsDirectory { .. } => Why::IsDirectory,
        E::NotDirectory { .. } => Why::NotDirectory,
        E::NotEmpty { .. } => Why::NotEmpty,
        E::Denied { .. } | E::Login { .. } => Why::Denied,
        E::NoSpace { .. } => Why::NoSpace,
        E::BadName { .. } => Why::Invalid,
        E::Changed { .. } => Why::Stale,
        E::Corrupt { .. } => Why::Differs,
        E::OutOfTurn { .. } => Why::Broken,
        E::Held {
            cause: Some(cause), ..
        } => of_store(cause),
        E::Held { .. } => Why::Conflict,
        E::Unsupported { .. } | E::NotServed { .. } => Why::Unsupported,
        E::NoSuchHost { .. } => Why::NoHost,
        E::Unreachable { cause, .. } if cause.kind() == io::ErrorKind::ConnectionRefused => {
            Why::Refused
        }
        E::NameService { .. } | E::Unreachable { .. } | E::Away { .. } => Why::Unreachable,
        E::Stranger { .. } | E::NotJoined { .. } => Why::Unproven,
        E::Trust { cause, .. } => match **cause {
            godwit_trust::Error::Expired { .. } => Why::Expired,
            _ => Why::Unproven,
        },
        E::NoCredential { .. } => Why::NoProof,
        E::NotTls { .. } | E::NoShell { .. } | E::NotFtp { .. } | E::PeerMisbehaved { .. } => {
            Why::Protocol
        }
        E::Busy { .. } => Why::TooMany,
        E::Beyond { .. } | E::Lost { .. } | E::Incomplete { .. } => Why::Lost,
        E::Stalled { .. } => Why::Late,
        E::Refused { .. } => Why::Remote,
        E::Canceled => Why::Cancelled,
        E::Io { cause, .. } => of_io(cause.kind()),
        _ => Why::Remote,
    }
}

fn of_io(kind: io::ErrorKind) -> Why {
    match kind {
        io::ErrorKind::NotFound => Why::Missing,
        io::ErrorKind::PermissionDenied => Why::Denied,
        io::ErrorKind::StorageFull => Why::NoSpace,
        io::ErrorKind::QuotaExceeded => Why::Quota,
        io::ErrorKind::FileTooLarge => Why::TooLarge,
        io::ErrorKind::ReadOnlyFilesystem => Why::ReadOnly,
        _ => Why::Disk,
    }
}

const SHOWN_CHARS: usize = 80;
const TAG_BYTES_MAX: usize = 255;
const AROUND: &str = "godwit cp and reading to memory keep nothing here; a larger GODWIT_DEPOT_QUOTA keeps more, after godwit node stop";

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::PathBuf, sync::Arc, time::Duration};

    #[test]
    fn hostile_urls_are_refused_each_for_its_reason() {
        let long = format!("godwit://lab/{}", "x".repeat(10_000));
        for (text, reason) in [
            ("godwit://lab/../etc/passwd", Why::Invalid),
            ("/godwit/ftp:h:21/a/../../b", Why::Invalid),
            ("godwit://lab/%zz", Why::Invalid),
            ("godwit://lab/a%00b", Why::Invalid),
            ("gopher://h/x", Why::Invalid),
            ("", Why::Invalid),
            (&*long, Why::TooLong),
            ("grid:/hep/run7", Why::Unsupported),
        ] {
            let refusal = url(text).unwrap_err();
            assert_eq!(refusal.why, reason, "{text}");
            assert!(refusal.wanted.len() < 200);
        }
        assert!(url("godwit://lab/run%0A7").is_ok());
        let refusal = url_owed("ftp://me:open%20sesame@lab/x").unwrap_err();
        assert_eq!(refusal.why, Why::Invalid);
        assert!(!format!("{refusal:?}").contains("sesame"), "{refusal:?}");
        assert!(url_owed("ftp://me@lab/x").is_ok());
    }

    #[test]
    fn tags_that_nobody_can_say_again_are_refused() {
        for good in ["night", "slurm-77", "a b", "Nächte", &"x".repeat(255)] {
            assert_eq!(tag(good).unwrap(), good);
        }
        for bad in ["", " ", "a\nb", "a\u{1b}[2J", "a ", &"x".repeat(256)] {
            let refusal = tag(bad).unwrap_err();
            assert_eq!(refusal.why, Why::Invalid, "{bad:?}");
            assert!(refusal.wanted.len() < 200);
        }
    }

    #[test]
    fn what_our_own_disk_has_lost_is_no_missing_file() {
        let error = DepotError::Disk {
            path: PathBuf::from("bytes/23/2300"),
            cause: Arc::new(io::ErrorKind::NotFound.into()),
        };
        assert_eq!(depot("write it", None, &error).why, Why::Disk);
    }

    #[test]
    fn each_failure_has_a_number_of_its_own() {
        let path = || PathBuf::from("x");
        let of_store = |error| DepotError::Store(Arc::new(error));
        let url: Box<Url> = Box::new("godwit://lab/x".parse().unwrap());
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let unreachable = io::Error::from(io::ErrorKind::HostUnreachable);
        let (host, said) = (|| "lab".to_owned(), || "no".to_owned());
        let errors = [
            of_store(StoreError::Missing { path: path() }),
            of_store(StoreError::Denied {
                path: path(),
                said: said(),
            }),
            of_store(StoreError::Unreachable {
                host: host(),
                cause: refused,
            }),
            of_store(StoreError::Unreachable {
                host: host(),
                cause: unreachable,
            }),
            of_store(StoreError::NoSuchHost {
                host: host(),
                cause: said(),
            }),
            of_store(StoreError::PeerMisbehaved {
                host: host(),
                what: said(),
            }),
            of_store(StoreError::NoSpace {
                path: path(),
                said: said(),
            }),
            of_store(StoreError::NoCredential { host: host() }),
            of_store(StoreError::Corrupt {
                path: path(),
                expected: said(),
                found: said(),
            }),
            DepotError::TooLarge {
                url: url.clone(),
                size: 2,
                quota: 1,
            },
            DepotError::Full {
                wanted: 1,
                quota: 1,
                owed: 1,
                used: 0,
                to: Vec::new(),
                before: 0,
            },
            DepotError::BrokeOff {
                url: url.clone(),
                came: 1,
                size: 2,
                cause: Arc::new(StoreError::Unreachable {
                    host: host(),
                    cause: io::Error::from(io::ErrorKind::ConnectionRefused),
                }),
            },
            DepotError::Restless { url: url.clone() },
            DepotError::Held {
                url: url.clone(),
                why: said(),
            },
            DepotError::TimedOut {
                waited: Duration::from_secs(1),
                what: said(),
            },
            DepotError::Newer {
                path: path(),
                found: said(),
                known: "1",
            },
            DepotError::Taken {
                path: path(),
                process: None,
            },
            DepotError::Unwanted,
            DepotError::Ending,
        ];
        let mut seen = std::collections::HashMap::new();
        for error in errors {
            let refusal = depot("read it", Some(&url), &error);
            let other = seen.insert(refusal.why.errno(), error.to_string());
            assert_eq!(other, None, "{error}");
            assert_eq!(refusal.because, error.to_string());
            assert_eq!(refusal.url.as_deref(), Some("godwit://lab/x"));
        }
    }
}
