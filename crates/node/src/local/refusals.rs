//! Refusals that programs of this machine receive, made from errors.

use godwit_core::{Fault, Kind, Url};
use godwit_depot::Error as DepotError;
use godwit_local::Refusal;
use godwit_store::Error as StoreError;
use godwit_wire::local::URL_BYTES_MAX;
use std::{fmt, io};

/// Reads a URL, or a name below `/godwit/`.
pub(crate) fn url(text: &str) -> Result<Url, Refusal> {
    let wanted = || {
        let short: String = text.chars().take(SHOWN_CHARS).collect();
        format!("understand {short:?}")
    };
    if text.len() > URL_BYTES_MAX {
        let words = format!("{} bytes are more than {URL_BYTES_MAX}", text.len());
        return Err(Refusal::new(Kind::TooLong, wanted(), words).next("name it in fewer bytes"));
    }
    Url::from_argument(text).map_err(|error| {
        Refusal::new(Kind::Invalid, wanted(), error.to_string())
            .next("godwit help schemes shows what can be named")
    })
}

/// Reads the URL of a file that is delivered later. It must have no password: credentials are not stored with a pending
/// change but looked for at delivery.
pub(crate) fn url_to_deliver(text: &str) -> Result<Url, Refusal> {
    let url = url(text)?;
    let shown = url.without_password().to_string();
    if url.password().is_none() {
        return Ok(url);
    }
    let words = "a password in a URL is not kept until it is delivered";
    Err(Refusal::new(Kind::Invalid, format!("write {shown}"), words)
        .next("leave it out, and write it into ~/.netrc (or the file that NETRC names), mode 0600")
        .about(shown))
}

/// Reads a tag: printable text that a user can type again.
pub(crate) fn tag(text: &str) -> Result<&str, Refusal> {
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
        Refusal::new(Kind::Invalid, format!("put the tag {shown:?} on it"), bad)
            .next("name it by letters, digits and signs"),
    )
}

/// Returns the refusal that tells an error of the depot.
pub(crate) fn depot(wanted: &str, url: Option<&Url>, error: &DepotError) -> Refusal {
    told(
        wanted,
        url,
        (error.kind(), error.fault(), error.hint()),
        error,
    )
}

/// Returns the refusal that tells an error of a store.
pub(crate) fn store(wanted: &str, url: &Url, error: &StoreError) -> Refusal {
    let kind = error.origin().kind();
    told(
        wanted,
        Some(url),
        (kind, error.fault(), error.hint()),
        error,
    )
}

fn told(
    wanted: &str,
    url: Option<&Url>,
    (kind, fault, next): (Kind, Fault, Option<String>),
    error: &dyn fmt::Display,
) -> Refusal {
    let mut refusal = Refusal::new(kind, wanted, error.to_string()).waiting(fault);
    refusal.next = next;
    refusal.more.url = url.map(|url| url.without_password().to_string());
    refusal
}

/// Makes the refusal for an error of the local disk.
pub(crate) fn disk(wanted: &str, error: &io::Error) -> Refusal {
    Refusal::new(
        DepotError::kind_of_disk(error),
        wanted,
        godwit_sys::why(error),
    )
}

const SHOWN_CHARS: usize = 80;
const TAG_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, time::Duration};

    #[test]
    fn hostile_urls_are_refused_by_reason() {
        let long = format!("godwit://lab/{}", "x".repeat(10_000));
        for (text, reason) in [
            ("godwit://lab/../etc/passwd", Kind::Invalid),
            ("/godwit/ftp:h:21/a/../../b", Kind::Invalid),
            ("godwit://lab/%zz", Kind::Invalid),
            ("godwit://lab/a%00b", Kind::Invalid),
            ("gopher://h/x", Kind::Invalid),
            ("", Kind::Invalid),
            (&*long, Kind::TooLong),
        ] {
            let refusal = url(text).unwrap_err();
            assert_eq!(refusal.kind, reason, "{text}");
            assert!(refusal.wanted.len() < 200);
        }
        assert!(url("godwit://lab/run%0A7").is_ok());
        let refusal = url_to_deliver("ftp://me:open%20sesame@lab/x").unwrap_err();
        assert_eq!(refusal.kind, Kind::Invalid);
        assert!(!format!("{refusal:?}").contains("sesame"), "{refusal:?}");
        assert!(url_to_deliver("ftp://me@lab/x").is_ok());
        assert!(url("grid:/hep/run7").is_ok());
        assert!(url_to_deliver("grid:/hep/run7").is_ok());
    }

    #[test]
    fn unprintable_tags_are_refused() {
        for good in ["night", "slurm-77", "a b", "Nächte", &"x".repeat(255)] {
            assert_eq!(tag(good).unwrap(), good);
        }
        for bad in ["", " ", "a\nb", "a\u{1b}[2J", "a ", &"x".repeat(256)] {
            let refusal = tag(bad).unwrap_err();
            assert_eq!(refusal.kind, Kind::Invalid, "{bad:?}");
            assert!(refusal.wanted.len() < 200);
        }
    }

    #[test]
    fn local_disk_loss_is_not_missing_file() {
        let error = DepotError::of_disk("bytes/23/2300", io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(depot("write it", None, &error).kind, Kind::Disk);
    }

    /// A program makes calls, and does not know that a command continues.
    #[test]
    fn hint_for_lost_connection_names_no_command() {
        let url = "godwit://lab/x".parse().unwrap();
        let lost = StoreError::lost("lab", "reading", io::Error::other("connection reset"));
        let refusal = store("read it", &url, &lost);
        assert_eq!(refusal.next.as_deref(), Some("try again in a while"));
    }

    #[test] //= GASS-11
    fn each_failure_has_own_number() {
        let of_store = |error| DepotError::Store(Arc::new(error));
        let unreachable = |cause: io::ErrorKind| StoreError::unreachable("lab", cause);
        let (refused, no_way) = (
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::HostUnreachable,
        );
        let url: Box<Url> = Box::new("godwit://lab/x".parse().unwrap());
        let errors = [
            of_store(StoreError::missing("x")),
            of_store(StoreError::denied("x", "no")),
            of_store(unreachable(refused)),
            of_store(unreachable(no_way)),
            of_store(StoreError::no_such_host("lab", "no")),
            of_store(StoreError::misbehaved("lab", "no")),
            of_store(StoreError::no_space("x", "no")),
            of_store(StoreError::no_credential("lab")),
            of_store(StoreError::corrupt("x", "no", "no")),
            DepotError::too_large(url.clone(), 2_u64, 1_u64),
            DepotError::full(1_u64, 1_u64, 1_u64, 0_u64, Vec::new(), 0_usize),
            DepotError::broke_off(url.clone(), 1_u64, 2_u64, unreachable(refused)),
            DepotError::restless(url.clone()),
            DepotError::held(url.clone(), "no", ""),
            DepotError::timed_out(Duration::from_secs(1), "no"),
            DepotError::newer("x", "no", "1"),
            DepotError::taken("x", None),
            DepotError::Unwanted,
            DepotError::Ending,
        ];
        let mut seen = std::collections::HashMap::new();
        for error in errors {
            let refusal = depot("read it", Some(&url), &error);
            let other = seen.insert(refusal.kind.errno(), error.to_string());
            assert_eq!(other, None, "{error}");
            assert_eq!(refusal.said, error.to_string());
            assert_eq!(refusal.more.url.as_deref(), Some("godwit://lab/x"));
        }
    }
}
