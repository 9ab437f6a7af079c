//! Failures of SQLite in our words.

use crate::Refusal;
use godwit_core::{Fault, Kind};
use rusqlite::ErrorCode;

/// Says in our words why the database did not do it.
#[allow(clippy::needless_pass_by_value)] // for map_err
pub(crate) fn refused(error: rusqlite::Error) -> Refusal {
    let code = error.sqlite_error_code();
    let (kind, said, next) = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Kind::Busy, "another process holds the catalog", "try again")
        }
        Some(ErrorCode::DiskFull) => (
            Kind::NoSpace,
            "the disk of the catalog is full",
            "make room there",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
            Kind::Corrupt,
            "the file of the catalog is damaged",
            "restore the file from a backup",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            Kind::Denied,
            "the catalog may not be written",
            "see who owns its file and directory",
        ),
        Some(ErrorCode::CannotOpen) => (
            Kind::Missing,
            "the catalog cannot be opened",
            "see its path and its owner",
        ),
        _ => (Kind::Io, "the catalog failed", "see the cause"),
    };
    let mut refusal = Refusal::of_kind(kind, format!("{said} ({error})")).next(next);
    if kind == Kind::Busy {
        refusal = refusal.waiting(Fault::Passing);
    }
    refusal
}
