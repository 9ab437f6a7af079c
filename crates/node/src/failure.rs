//! How errors of a store become failures that a client is told.

use godwit_core::{Fault, Kind};
use godwit_store::Error;
use godwit_sys::why;
use godwit_wire::server::Failure;

/// Tells what went wrong, without telling where on our disk.
pub(crate) fn failure(error: &Error) -> Failure {
    let said = match error {
        Error::Missing { .. } => "No such file or directory".into(),
        Error::Exists { .. } => "File exists".into(),
        Error::IsDirectory { .. } => "Is a directory".into(),
        Error::NotDirectory { .. } => "Not a directory".into(),
        Error::NotEmpty { .. } => "Directory not empty".into(),
        Error::Denied { said, .. } => with("Permission denied", said),
        Error::NoSpace { said, .. } => with("No space left on device", said),
        Error::BadName { why, .. } => why.clone(),
        Error::Changed { what, .. } => format!("The file changed: {what}"),
        Error::Superseded { .. } => "A later attempt has taken this upload over".into(),
        Error::Loop { said, .. } => format!("It would not arrive: {said}"),
        // The client says that this node has it on hold.
        Error::Held { host, said, .. } if host.is_empty() => said.clone(),
        Error::Held { host, said, .. } => format!("{host}: {said}"),
        Error::Corrupt {
            expected, found, ..
        } => {
            let said = "The bytes differ from what was announced; what arrived is kept";
            return Failure::corrupt(bare(found), bare(expected), said);
        }
        Error::Incomplete { size, missing, .. } => format!(
            "{} of {size} bytes are missing ({}); what arrived is kept.",
            missing.len_bytes(),
            short(&missing.to_string())
        ),
        Error::Unreachable { host, cause } => {
            format!("No data connection to {host}: {}", why(cause))
        }
        Error::Lost { during, cause, .. } => {
            format!("Connection lost while {during}: {}", why(cause))
        }
        Error::Stalled { during, waited, .. } => {
            format!("Nothing came for {} s while {during}.", waited.as_secs())
        }
        Error::PeerMisbehaved { what, .. } => {
            format!("The data connection broke the protocol: {what}")
        }
        // What we show on a data connection is what our client gave us for it.
        Error::Trust { host, cause } if error.is_of_our_proof() => format!(
            "{host}: {}; if you delegated it, renew yours and log in again",
            told(cause)
        ),
        Error::Trust { host, cause } => format!("{host}: {}", told(cause)),
        Error::Busy { said, .. } => format!("Busy: {said}"),
        Error::Canceled => "Aborted; what arrived is kept.".into(),
        Error::Io { cause, .. } => why(cause).to_string(),
        other => other.to_string(),
    };
    // Another server refused us, not this one the client.
    let kind = match error.kind() {
        Kind::Login => Kind::Remote,
        // A peer that proves nothing will prove nothing at the next try, unless its words were damaged.
        Kind::Unproven if error.fault() != Fault::Lasting => Kind::Lost,
        kind => kind,
    };
    Failure::new(kind, said)
}

/// Where our files are is for the log alone.
fn told(cause: &godwit_trust::Error) -> String {
    tracing::info!(error = %cause, "nothing was proved on a data connection");
    cause.told()
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
