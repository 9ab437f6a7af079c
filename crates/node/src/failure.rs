//! How errors of a store become failures that a client is told.

use godwit_core::Fault;
use godwit_store::Error;
use godwit_sys::why;
use godwit_wire::server::{Cause, Failure};
use std::io;

/// Tells what went wrong, without telling where on our disk.
pub(crate) fn failure(error: &Error) -> Failure {
    let said = |cause, text: &str| Failure::new(cause, text);
    match error {
        Error::Missing { .. } => said(Cause::Missing, "No such file or directory"),
        Error::Exists { .. } => said(Cause::Exists, "File exists"),
        Error::IsDirectory { .. } => said(Cause::IsDirectory, "Is a directory"),
        Error::NotDirectory { .. } => said(Cause::NotDirectory, "Not a directory"),
        Error::NotEmpty { .. } => said(Cause::NotEmpty, "Directory not empty"),
        Error::Denied { said: why, .. } => {
            Failure::new(Cause::Denied, with("Permission denied", why))
        }
        Error::NoSpace { said: why, .. } => {
            Failure::new(Cause::NoSpace, with("No space left on device", why))
        }
        Error::BadName { why, .. } => Failure::new(Cause::BadName, why.clone()),
        Error::Changed { what, .. } => {
            Failure::new(Cause::Changed, format!("The file changed: {what}"))
        }
        Error::Superseded { .. } => {
            Failure::new(Cause::Changed, "A later attempt has taken this upload over")
        }
        Error::Loop { said: why, .. } => {
            Failure::new(Cause::BadName, format!("It would not arrive: {why}"))
        }
        // Whoever hears this says of us that we hold it.
        Error::Held {
            host, said: why, ..
        } => Failure::new(
            Cause::Internal,
            match &**host {
                "" => why.clone(),
                host => format!("{host}: {why}"),
            },
        ),
        Error::Corrupt {
            expected, found, ..
        } => Failure::new(
            Cause::Corrupt {
                computed: bare(found),
                expected: bare(expected),
            },
            "The bytes differ from what was announced; what arrived is kept",
        ),
        Error::Incomplete { size, missing, .. } => Failure::new(
            Cause::Incomplete,
            format!(
                "{} of {size} bytes are missing ({}); what arrived is kept.",
                missing.len_bytes(),
                short(&missing.to_string())
            ),
        ),
        Error::Unsupported { what, why } => Failure::new(
            Cause::Unsupported,
            format!("{what} is not possible here: {why}"),
        ),
        Error::Unreachable { host, cause } => Failure::new(
            Cause::NoConnection,
            format!("No data connection to {host}: {}", why(cause)),
        ),
        Error::Beyond { .. } => Failure::new(Cause::Busy, error.to_string()),
        Error::Lost { during, cause, .. } => Failure::new(
            Cause::Lost,
            format!("Connection lost while {during}: {}", why(cause)),
        ),
        Error::Stalled { during, waited, .. } => Failure::new(
            Cause::Stalled,
            format!("Nothing came for {} s while {during}.", waited.as_secs()),
        ),
        Error::PeerMisbehaved { what, .. } => Failure::new(
            Cause::Lost,
            format!("The data connection broke the protocol: {what}"),
        ),
        // What we show on a data connection is what our client gave us for it.
        Error::Trust { host, cause } if error.is_of_our_proof() => Failure::new(
            Cause::Denied,
            format!(
                "{host}: {}; if you delegated it, renew yours and log in again",
                told(cause)
            ),
        ),
        // A peer that proves nothing will prove nothing at the next try.
        Error::Trust { host, cause } => {
            let cause_of = match error.fault() {
                Fault::Lasting => Cause::Denied,
                _ => Cause::Lost,
            };
            Failure::new(cause_of, format!("{host}: {}", told(cause)))
        }
        Error::Busy { said: why, .. } => Failure::new(Cause::Busy, format!("Busy: {why}")),
        Error::Canceled => said(Cause::Aborted, "Aborted; what arrived is kept."),
        Error::Io { cause, .. } => Failure::new(io_cause(cause), why(cause)),
        other => Failure::new(Cause::Internal, other.to_string()),
    }
}

/// Where our files are is for the log alone.
fn told(cause: &godwit_trust::Error) -> String {
    tracing::info!(error = %cause, "nothing was proved on a data connection");
    cause.told()
}

fn io_cause(cause: &io::Error) -> Cause {
    match cause.kind() {
        io::ErrorKind::CrossesDevices => Cause::Unsupported,
        _ => Cause::Internal,
    }
}

fn with(fact: &str, why: &str) -> String {
    match why {
        "" => fact.to_owned(),
        why => format!("{fact}: {why}"),
    }
}

/// `blake3:ab…` is told as `ab…`, as GCT does.
fn bare(digest: &str) -> String {
    digest
        .rsplit([':', ' '])
        .next()
        .unwrap_or(digest)
        .to_owned()
}

fn short(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
