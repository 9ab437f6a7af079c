//! Errors of a store as refusals to clients, and refusals of servers as errors.

use super::{Error, LoginCredential};
use godwit_core::{Fault, Kind};
use godwit_sys::why;
use godwit_wire::{
    Refusal,
    door::call::{Name, Ranges},
};
use std::{io, path::Path, sync::Arc};

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// Tells what went wrong, without telling where on our disk.
impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        let kind = match error.kind() {
            // Another server refused us, not this one the client.
            Kind::Login => Kind::Remote,
            // A peer that proves nothing will prove nothing at the next try, unless its words were damaged.
            Kind::Unproven if error.fault() != Fault::Lasting => Kind::Lost,
            kind => kind,
        };
        let mut refusal = Self::of_kind(kind, said(error));
        let more = &mut refusal.more;
        match error {
            Error::Corrupt {
                expected, found, ..
            } => more.differs = Some((expected.clone(), found.clone())),
            Error::Incomplete { size, missing, .. } => {
                more.missing = Some((*size, Ranges(missing.clone())));
            }
            &Error::OutOfTurn {
                writer,
                seq,
                expected,
                ..
            } => more.turn = Some((writer, seq, expected)),
            Error::Held { path, cause, .. } => {
                more.at = Some(Name(path.clone()));
                more.cause = cause.as_ref().map(|cause| cause.kind());
            }
            _ => {}
        }
        refusal
    }
}

fn said(error: &Error) -> String {
    match error {
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
        Error::Corrupt { .. } => {
            "The bytes differ from what was announced; what arrived is kept".into()
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
        // The credential on a data connection is the one that our client delegated.
        Error::Trust { host, cause } if error.is_of_our_proof() => format!(
            "{host}: {}; if you delegated it, renew yours and log in again",
            told(cause)
        ),
        Error::Trust { host, cause } => format!("{host}: {}", told(cause)),
        Error::Busy { said, .. } => format!("Busy: {said}"),
        Error::Canceled => "Aborted; what arrived is kept.".into(),
        Error::Io { cause, .. } => why(cause).to_string(),
        other => other.to_string(),
    }
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

fn short(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the error about `path` that a refusal of `host` stands for: one with a code came by FTP, any other by the
/// door of a node.
pub fn refused(host: &str, path: &Path, refusal: Refusal) -> Error {
    let (code, said, more) = (refusal.code, refusal.said, *refusal.more);
    let kind = match code {
        // Several kinds have one word at the door.
        0 => Kind::of_door_word(refusal.kind.door_word()),
        _ => refusal.kind,
    };
    match kind {
        Kind::Missing => Error::missing(path),
        Kind::Exists => Error::exists(path),
        Kind::IsDirectory => Error::directory(path),
        Kind::NotDirectory => Error::not_directory(path),
        Kind::NotEmpty => Error::not_empty(path),
        Kind::Denied if more.stranger => Error::stranger(host),
        Kind::Denied => Error::denied(path, said),
        Kind::NoSpace => Error::no_space(path, said),
        Kind::Invalid => Error::bad_name(path, said),
        Kind::Superseded => Error::superseded(path),
        Kind::Corrupt => {
            let (expected, found) = more
                .differs
                .unwrap_or_else(|| ("what was announced".into(), said));
            Error::corrupt(path, expected, found)
        }
        Kind::Incomplete if let Some((size, Ranges(missing))) = more.missing => {
            Error::incomplete(path, size, missing)
        }
        Kind::OutOfTurn if let Some((writer, seq, expected)) = more.turn => {
            Error::out_of_turn(path, writer, seq, expected)
        }
        Kind::Changed | Kind::Incomplete | Kind::OutOfTurn => Error::changed(path, said),
        Kind::Unsupported if code == 0 => {
            Error::unsupported("this", format!("{host} says: {said}"))
        }
        Kind::Unsupported => Error::unsupported("this", format!("{host} answered {code}: {said}")),
        Kind::Busy => Error::busy(host, said),
        Kind::Login => Error::login(host, said, LoginCredential::Password),
        Kind::Loop => Error::looped(path, said),
        Kind::OnHold => {
            let of = |kind| Arc::new(refused(host, path, Refusal::of_kind(kind, &*said)));
            let cause = more.cause.map(of);
            let path = more.at.map_or_else(|| path.to_owned(), |Name(at)| at);
            Error::held_for(host, path, said, cause)
        }
        Kind::Lost if code == 0 => Error::beyond(host, said),
        Kind::Lost => Error::lost(host, "moving data", io::Error::other(said)),
        Kind::Canceled => Error::lost(host, "doing what was asked", io::Error::other(said)),
        Kind::Protocol => Error::misbehaved(host, format!("it does not understand us: {said}")),
        _ if code == 0 => Error::refused(host, Kind::Other.status(), said),
        _ => Error::refused(host, code, said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_without_source_is_asked_again() {
        let error = Error::unreachable("source", io::ErrorKind::ConnectionRefused);
        let told = refused("target", Path::new("f"), Refusal::from(&error));
        assert_eq!(told.fault(), Fault::Passing);
        assert!(told.to_string().contains("connection refused"), "{told}");
    }

    #[test]
    fn append_out_of_turn_stays_that() {
        let error = Error::out_of_turn("log", 7_u64, 9_u64, 3_u64);
        let told = refused("host", Path::new("log"), Refusal::from(&error));
        assert_eq!(told.to_string(), error.to_string());
        assert!(matches!(told, Error::OutOfTurn { expected: 3, .. }));
    }
}
